// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// gate lets a test hold the syncs of segments.
type gate struct {
	started chan struct{} // one for each sync that begins
	release chan struct{} // one for each that may go on
}

func (g gate) fs() hookFS {
	return hookFS{FS: newMemFS(rand.New(rand.NewPCG(1, 1))), beforeSync: func(name string) {
		if strings.HasSuffix(name, logExt) {
			g.started <- struct{}{}
			<-g.release
		}
	}}
}

func newGate() gate { return gate{make(chan struct{}, 100), make(chan struct{}, 100)} }

func TestAppendsThatComeDuringASyncShareTheNextOne(t *testing.T) {
	g := newGate()
	l := reopen(t, g.fs())
	ctx := context.Background()
	var wg sync.WaitGroup
	appendOne := func(ts int64) {
		wg.Go(func() {
			b := testBatch{First: ts, Records: values("x")}.Encode()
			if _, err := l.Append(ctx, b, storage.Synced); err != nil {
				t.Error(err)
			}
		})
	}
	woken := make(chan struct{}, 1)
	defer l.Subscribe(woken)()
	appendOne(1000)
	<-g.started
	for range 8 {
		appendOne(2000)
	}
	for l.EndOffset() < 9 { // until all are written; nothing else tells
		runtime.Gosched()
	}
	if hw := l.HighWatermark(); hw != 0 {
		t.Fatalf("%d records are shown before they are on disk", hw)
	}
	if b, err := enginetest.Read(ctx, l, 0, 1000); len(b) != 0 || err != nil {
		t.Fatal("a record is served before it is on disk", err)
	}
	if _, _, ok, err := l.OffsetForTime(ctx, 0); ok || err != nil {
		t.Fatal("a record is found by time before it is on disk", err)
	}
	g.release <- struct{}{}
	<-woken
	<-g.started
	if hw := l.HighWatermark(); hw != 1 {
		t.Fatal(hw)
	}
	if _, _, ok, err := l.OffsetForTime(ctx, 2000); ok || err != nil {
		t.Fatal("a record is found by time before it is on disk", err)
	}
	g.release <- struct{}{}
	wg.Wait()
	if l.HighWatermark() != 9 || len(g.started) != 0 {
		t.Fatalf("%d records on disk, %d more syncs", l.HighWatermark(), len(g.started))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.syncing || l.unsynced != nil {
		t.Fatal("an idle log has a goroutine or a file in use")
	}
}

func TestAWrittenAppendDoesNotWaitButIsSynced(t *testing.T) {
	g := newGate()
	l := reopen(t, g.fs())
	woken := make(chan struct{}, 1)
	cancel := l.Subscribe(woken)
	if base, err := l.Append(context.Background(), simple("x"), storage.Written); base != 0 || err != nil {
		t.Fatal(base, err)
	}
	if l.HighWatermark() != 0 || l.EndOffset() != 1 {
		t.Fatal(l.HighWatermark(), l.EndOffset())
	}
	g.release <- struct{}{}
	<-woken
	if l.HighWatermark() != 1 {
		t.Fatal(l.HighWatermark())
	}
	cancel()
	g.release <- struct{}{}
	mustAppend(t, l, simple("y"))
	select {
	case <-woken:
		t.Fatal("woken after cancel")
	default:
	}
}

func TestAnAppendGivesUpWaitingWithItsContext(t *testing.T) {
	g := newGate()
	l := reopen(t, g.fs())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := l.Append(ctx, simple("x"), storage.Synced)
		done <- err
	}()
	<-g.started
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, simple("y"), storage.Synced); !errors.Is(err, context.Canceled) || l.EndOffset() != 1 {
		t.Fatal(err, l.EndOffset())
	}
	if _, err := enginetest.Read(ctx, l, 0, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(g.release)
	if err := l.engine.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskAtTheEndLeavesNoHalfMarker(t *testing.T) {
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	l := reopen(t, m)
	mustAppend(t, l, testBatch{Producer: 4, Records: values("x")}.Encode())
	m.fault = func(op string, _ int) error {
		if op == "write" {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := l.engine.Close(); err != nil { // everything is on disk
		t.Errorf("Close returned %v", err)
	}
	m.fault = nil
	for _, e := range must(m.ReadDir(l.dir)) {
		if e.Name == cleanFile {
			t.Errorf("there is a marker of %d bytes", e.Size)
		}
	}
	if l := reopen(t, m); l.EndOffset() != 1 {
		t.Errorf("the log ends at %d", l.EndOffset())
	}
}

func TestManyErrorsOfAKindAreSummedUp(t *testing.T) {
	some := []error{nil, errors.New("a"), nil, errors.New("b")}
	if got := firstFew(some).Error(); got != "a\nb" {
		t.Errorf("%q", got)
	}
	many := append(slices.Repeat(some, 9), errors.New("c"))
	if got := firstFew(many).Error(); !strings.HasSuffix(got, "\nand 16 more like these") {
		t.Errorf("%q", got)
	}
	if err := firstFew(make([]error, 2)); err != nil {
		t.Error(err)
	}
}

func TestAFullDiskRefusesAppendsUntilThereIsRoom(t *testing.T) {
	for name, prefix := range map[string]string{"in a segment": "x", "in a new segment": strings.Repeat("x", 800)} {
		t.Run(name, func(t *testing.T) {
			m := newMemFS(rand.New(rand.NewPCG(1, 1)))
			l := reopen(t, m)
			mustAppend(t, l, testBatch{Producer: 4, Records: values(prefix)}.Encode())
			size := l.Size()
			full := true
			m.fault = func(op string, _ int) error {
				if full && (op == "write" || op == "create") {
					return syscall.ENOSPC
				}
				return nil
			}
			b := testBatch{Producer: 4, Sequence: 1, Records: values(strings.Repeat("y", 200))}.Encode()
			for range 3 {
				if _, err := l.Append(context.Background(), b, storage.Synced); !errors.Is(err, storage.ErrFull) {
					t.Fatal(err)
				}
				got, err := enginetest.Read(context.Background(), l, 0, 1)
				if err != nil || len(got) == 0 || l.EndOffset() != 1 || l.Size() != size {
					t.Fatal(err, l.EndOffset(), l.Size())
				}
				for _, e := range must(m.ReadDir(l.dir)) {
					if strings.HasSuffix(e.Name, logExt) && e.Size != 0 && e.Size != size {
						t.Fatalf("%s has %d bytes, of which %d are batches", e.Name, e.Size, size)
					}
				}
			}
			full = false
			if base := mustAppend(t, l, b); base != 1 {
				t.Fatal(base)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAfterAFailedSyncTheLogIsReadButNotAppendedTo(t *testing.T) {
	ctx := context.Background()
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	l := reopen(t, m)
	mustAppend(t, l, simple("on disk"))
	fail := true
	m.fault = func(op string, _ int) error {
		if fail && op == "sync" {
			return syscall.EIO
		}
		return nil
	}
	if _, err := l.Append(ctx, simple("lost"), storage.Synced); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	fail = false
	for _, d := range []storage.Durability{storage.Synced, storage.Written} {
		if _, err := l.Append(ctx, simple("refused"), d); !errors.Is(err, syscall.EIO) ||
			!strings.Contains(err.Error(), "until it is opened again") {
			t.Fatal(err)
		}
	}
	if b, err := enginetest.Read(ctx, l, 0, 1000); err != nil || !strings.Contains(string(b), "on disk") {
		t.Fatal(err)
	}
	if b, err := enginetest.Read(ctx, l, 1, 1000); err != nil || len(b) > 0 {
		t.Fatal("what is not on disk is served", err)
	}
	again := openLog(t, l.engine, p0)
	if again == l {
		t.Fatal("the failed log")
	}
	hw := again.HighWatermark()
	base := mustAppend(t, again, simple("works"))
	if hw != base {
		t.Fatal(hw, base)
	}
	// The machine dies: all that was served is there.
	last := reopen(t, m.crashed(0))
	for o := range base + 1 {
		if b, err := enginetest.Read(ctx, last, o, 1); err != nil || len(b) == 0 {
			t.Fatal(o, err)
		}
	}
}

func TestReadersAndWritersAtTheSameTime(t *testing.T) {
	ctx := context.Background()
	const appenders, each = 4, 120
	e := openEngine(t, t.TempDir(), Options{SegmentBytes: 4000, IndexIntervalBytes: 500, MaxOpenFiles: 3})
	l := openLog(t, e, p0)
	var wg, readers sync.WaitGroup
	for a := range appenders {
		wg.Go(func() {
			for i := range each {
				d := storage.Durability(i % 2)
				if _, err := l.Append(ctx, simple(fmt.Sprintf("%d-%d", a, i), strings.Repeat("x", i)), d); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var trimmed atomic.Int64
	for r := range 2 {
		readers.Go(func() {
			woken := make(chan struct{}, 1)
			defer l.Subscribe(woken)()
			for o := int64(0); o < 2*appenders*each; {
				b, err := enginetest.Read(ctx, l, o, 700)
				if errors.Is(err, storage.ErrOffsetOutOfRange) && o < trimmed.Load() {
					o = trimmed.Load()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(b) == 0 {
					<-woken
					continue
				}
				forEachBatch(t, b, func(h *recordbatch.Header) { o = h.Next() })
				if r == 0 && o%100 == 0 {
					trimmed.Store(o)
					if err := l.Trim(ctx, o); err != nil {
						t.Error(err)
					}
				}
				if _, _, _, err := l.OffsetForTime(ctx, 1001); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	readers.Wait()
}

func forEachBatch(t testing.TB, b []byte, fn func(h *recordbatch.Header)) {
	for len(b) > 0 {
		h, err := recordbatch.ParseHeader(b)
		if err != nil || h.Size > len(b) {
			t.Error(err)
			return
		}
		fn(&h)
		b = b[h.Size:]
	}
}
