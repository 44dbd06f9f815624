// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

func TestWhatCannotBeLookedIntoStaysAndIsToldOnce(t *testing.T) {
	var logged strings.Builder
	o := memOptions(newMem())
	o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	e, err := Open(workDir, o)
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, e, p0) // not compacted yet: any compressed bytes are taken
	bomb := pairs("a="+strings.Repeat("x", recordbatch.MaxInflated+1), "b=1")
	garbage := testBatch{Attributes: recordbatch.CodecLZ4, Records: pairs("a=1").Records}
	for _, b := range [][]byte{pairs("a=0", "b=0").Encode(), squeezed(t, bomb, recordbatch.CodecZstd), garbage.Encode(), simple("no key"), pairs("a=1").Encode(), pairs("b").Encode()} {
		mustAppend(t, l, b)
	}
	l = openCompacted(t, e)
	sizes := l.Size()
	first := len(pairs("a=0", "b=0").Encode())
	for i := range 3 {
		mustCompact(t, e, time.Now().Add(time.Duration(i)*3*time.Hour))
	}
	mustAppend(t, l, pairs("c=1").Encode())
	mustCompact(t, e, time.Now().Add(10*time.Hour))
	if n := strings.Count(logged.String(), "cannot be looked into"); n != 2 {
		t.Fatalf("told %d times:\n%s", n, logged.String())
	}
	if want := sizes - int64(first) + int64(len(pairs("c=1").Encode())); l.Size() != want {
		t.Fatalf("the log has %d bytes, want %d: b's tombstone stays, as the bomb may hold a b", l.Size(), want)
	}
	if _, err := l.Append(context.Background(), squeezed(t, bomb, recordbatch.CodecZstd), storage.Synced); !errors.Is(err, storage.ErrInvalidBatch) ||
		!strings.Contains(err.Error(), "more than 67108864 bytes") {
		t.Fatal(err)
	}
}

func TestADamagedSegmentIsNotCompacted(t *testing.T) {
	m := newMem()
	l := compactedLog(t, memOptions(m))
	for i := range 40 {
		mustAppend(t, l, pairs(fmt.Sprintf("k%d=%s", i%4, strings.Repeat("x", 60)), "t").Encode())
	}
	damaged := l.segments[2].base
	path, size := l.segments[2].file.path, l.segments[2].size
	m.edit(path, func(b []byte) []byte { b[size-1] ^= 1; return b })
	m = m.killed()
	l = compactedLog(t, memOptions(m))
	mustCompact(t, l.engine, time.Now())
	mustAppend(t, l, pairs("other=1").Encode())
	mustCompact(t, l.engine, time.Now().Add(2*time.Hour))
	for range 2 {
		if !slices.Contains(segmentFiles(t, l), segmentName{base: damaged}.file(logExt)) {
			t.Fatal(segmentFiles(t, l))
		}
		bad := l.segments[slices.IndexFunc(l.segments, func(s *segment) bool { return s.base == damaged })]
		_, err := enginetest.Read(context.Background(), l, bad.next-1, 1)
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Fatal(err)
		}
		for _, o := range []int64{bad.base, bad.next, 76, 79} {
			if b, err := enginetest.Read(context.Background(), l, o, 1); err != nil || len(b) == 0 {
				t.Fatal(o, err)
			}
		}
		if first := len(l.segments); first > 5 {
			t.Fatalf("%d segments: the others were not compacted", first)
		}
		l = compactedLog(t, memOptions(m.killed()))
	}
}

func TestAFullDiskStopsACompactionUntilThereIsRoom(t *testing.T) {
	m := newMem()
	l := compactedLog(t, memOptions(m))
	for i := range 40 {
		mustAppend(t, l, pairs(fmt.Sprintf("k%d=%s", i%4, strings.Repeat("x", 60))).Encode())
	}
	before := stored(t, l)
	for _, op := range []string{"write", "create", "rename"} {
		m.fault = func(o string, _ int) error {
			if o == op {
				return syscall.ENOSPC
			}
			return nil
		}
		if err := l.engine.Compact(time.Now()); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("%s: %v", op, err)
		}
		m.fault = nil
		wantStored(t, l, before...)
		for _, name := range segmentFiles(t, l) {
			if strings.HasSuffix(name, cleanedExt) {
				t.Fatalf("%s: %s is left", op, name)
			}
		}
		mustAppend(t, l, pairs("other="+op).Encode())
		before = append(before, fmt.Sprintf("%d:other=%s", l.EndOffset()-1, op))
	}
	mustCompact(t, l.engine, time.Now())
	if got := stored(t, l); len(got) != 5 {
		t.Fatal(got)
	}
}

func TestALogIsClosedOrDeletedWhileItIsCompacted(t *testing.T) {
	for name, end := range map[string]func(e *Engine) error{
		"closed":  (*Engine).Close,
		"deleted": func(e *Engine) error { return e.Delete(context.Background(), p0) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMem()
			writing, ended := make(chan struct{}), make(chan struct{})
			var once sync.Once
			h := hookFS{FS: m, beforeWrite: func(file string) error {
				if strings.HasSuffix(file, cleanedExt) {
					once.Do(func() { close(writing) })
				}
				return nil
			}}
			l := compactedLog(t, memOptions(h))
			for range 30 {
				mustAppend(t, l, pairs("k="+strings.Repeat("x", 200)).Encode())
			}
			go func() {
				defer close(ended)
				if err := l.engine.Compact(time.Now()); err != nil {
					t.Error(err)
				}
			}()
			<-writing
			if err := end(l.engine); err != nil {
				t.Error(err)
			}
			<-ended
			if name == "deleted" {
				if entries := must(m.ReadDir(workDir)); len(entries) > 1 {
					t.Error(entries)
				}
				return
			}
			l = compactedLog(t, memOptions(m))
			if n := len(stored(t, l)); n < 1 || l.EndOffset() != 30 {
				t.Error(n, l.EndOffset())
			}
		})
	}
}

func TestASegmentOfWhichNothingIsLeftIsPassedOver(t *testing.T) {
	o := memOptions(newMem())
	l := compactedLog(t, o)
	for i := range 30 {
		b := pairs("k=" + strings.Repeat("x", 400))
		b.First = int64(i)
		mustAppend(t, l, b.Encode())
	}
	mustCompact(t, l.engine, time.Now())
	if l.segments[0].size != 0 || len(l.segments) < 5 {
		t.Fatal(l.segments[0].size, len(l.segments))
	}
	check := func(l *commitLog) {
		t.Helper()
		for o := range int64(30) {
			b, err := enginetest.Read(context.Background(), l, o, 100_000)
			if err != nil || len(b) == 0 {
				t.Fatal(o, len(b), err)
			}
			if h, _ := recordbatch.ParseHeader(b); h.Base != 29 {
				t.Fatal(h.Base)
			}
		}
		if o, ts, ok, err := l.OffsetForTime(context.Background(), 3); o != 29 || ts != 29 || !ok || err != nil {
			t.Fatal(o, ts, ok, err)
		}
		wantStart(t, l, 0, 30)
	}
	check(l)
	m := o.FS.(*memFS).killed()
	l = compactedLog(t, memOptions(m))
	check(l)
	for _, s := range l.segments {
		_ = m.Remove(s.indexPath())
	}
	l = compactedLog(t, memOptions(m.killed()))
	check(l)
	mustAppend(t, l, pairs("k=new").Encode())
	mustCompact(t, l.engine, time.Now())
	if len(l.segments) != 2 {
		t.Fatalf("%d segments: empty ones were not merged", len(l.segments))
	}
	wantStored(t, l, "30:k=new")
}

func TestACompactedSegmentTakesNoRecordsWhenTheActiveOneIsLost(t *testing.T) {
	m := newMem()
	l := compactedLog(t, memOptions(m))
	for i := range 10 {
		mustAppend(t, l, pairs(fmt.Sprintf("k%d=%d", i%2, i)).Encode())
	}
	mustCompact(t, l.engine, time.Now())
	mustAppend(t, l, pairs("k0=lost").Encode())
	_ = m.Remove(l.active().file.path)
	l = compactedLog(t, memOptions(m.killed()))
	wantStored(t, l, "8:k0=8", "9:k1=9")
	if base := mustAppend(t, l, pairs("k0=new").Encode()); base != 10 {
		t.Fatal(base)
	}
	wantStored(t, compactedLog(t, memOptions(m.killed())), "8:k0=8", "9:k1=9", "10:k0=new")
}
