// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// segments returns how many segments a log has.
func segments(l *commitLog) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.segments)
}

// openConfig opens the log with a config, of an engine whose clock is now.
func openConfig(t testing.TB, e *Engine, c storage.Config, now *time.Time) *commitLog {
	t.Helper()
	e.now = func() time.Time { return *now }
	l, err := e.Open(context.Background(), p0, 0, c)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*commitLog)
}

func TestSegmentsAreAsLargeAsTheTopicSays(t *testing.T) {
	b := simple(strings.Repeat("x", 100))
	size := int64(len(b))
	tests := map[string]struct {
		engine, topic int64
		want          int // segments of ten batches
	}{
		"the engine's size where the topic says none":       {2 * size, 0, 5},
		"a segment for each batch, where not one fits":      {1 << 20, 14, 10},
		"as many batches as fit":                            {1 << 20, 3 * size, 4},
		"not one byte more":                                 {1 << 20, 3*size - 1, 5},
		"a size above the engine's default":                 {2 * size, 1 << 20, 1},
		"a size above the engine's limit":                   {2 * size, math.MaxInt32, 1},
		"a size that no engine has":                         {2 * size, math.MaxInt64, 1},
		"the engine's size where the topic's is below zero": {2 * size, -1, 5},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o, now := memOptions(newMem()), time.Now()
			o.SegmentBytes = tc.engine
			l := openConfig(t, openEngine(t, workDir, o), storage.Config{SegmentBytes: tc.topic}, &now)
			for range 10 {
				mustAppend(t, l, simple(strings.Repeat("x", 100)))
			}
			if got := segments(l); got != tc.want {
				t.Errorf("%d segments, want %d", got, tc.want)
			}
		})
	}
}

func TestAnOldSegmentIsSealed(t *testing.T) {
	start := time.UnixMilli(1_000_000_000_000)
	now := start
	e := openEngine(t, workDir, memOptions(newMem()))
	l := openConfig(t, e, storage.Config{SegmentTime: time.Hour}, &now)
	check := func(what string, want int) {
		t.Helper()
		if err := e.EnforceRetention(now); err != nil {
			t.Fatal(err)
		}
		if got := segments(l); got != want {
			t.Fatalf("%s: %d segments, want %d", what, got, want)
		}
	}
	check("a new log", 1)
	now = now.Add(10 * time.Hour)
	check("an empty segment is never old", 1)
	mustAppend(t, l, simple("a"))
	check("its age counts from its first record", 1)
	now = now.Add(time.Hour - 1)
	mustAppend(t, l, simple("b"))
	check("a moment before it is old", 1)
	now = now.Add(1)
	check("the check seals it", 2)
	check("once", 2)
	mustAppend(t, l, simple("c"))
	now = now.Add(time.Hour)
	mustAppend(t, l, simple("d"))
	if got := segments(l); got != 3 || l.active().base != 3 {
		t.Fatalf("an append leaves %d segments, the last of which begins at %d", got, l.active().base)
	}
	l = openConfig(t, e, storage.Config{}, &now)
	now = now.Add(1000 * time.Hour)
	mustAppend(t, l, simple("e"))
	check("a topic that says no time", 3)
	l = openConfig(t, e, storage.Config{SegmentTime: time.Hour}, &now)
	check("a topic that says one later", 4)
	wantStart(t, l, 0, 5)
}

func TestARestartBeginsTheAgeOfASegmentAnew(t *testing.T) {
	for name, clean := range map[string]bool{"after a clean stop": true, "after a kill": false} {
		t.Run(name, func(t *testing.T) {
			m, now := newMem(), time.Now()
			e, config := openEngine(t, workDir, memOptions(m)), storage.Config{SegmentTime: time.Hour}
			mustAppend(t, openConfig(t, e, config, &now), simple("a"))
			if clean {
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
			e = openEngine(t, workDir, memOptions(m.killed()))
			now = now.Add(2 * time.Hour)
			l := openConfig(t, e, config, &now)
			now = now.Add(time.Hour - 1)
			if err := e.EnforceRetention(now); err != nil || segments(l) != 1 {
				t.Fatal(segments(l), err)
			}
			now = now.Add(1)
			if err := e.EnforceRetention(now); err != nil || segments(l) != 2 {
				t.Fatal(segments(l), err)
			}
			mustAppend(t, l, simple("b"))
			wantStart(t, reopen(t, e.fs.(*memFS).killed()), 0, 2)
		})
	}
}

func TestAFullDiskThatCannotSealASegmentStillLosesWhatRetentionRemoves(t *testing.T) {
	m, now := newMem(), time.UnixMilli(1_000_000_000_000)
	var full atomic.Bool
	m.fault = func(op string, _ int) error {
		if op == "create" && full.CompareAndSwap(true, false) { // the index of the segment that is to be sealed
			return syscall.ENOSPC
		}
		return nil
	}
	e := openEngine(t, workDir, memOptions(m))
	l := openConfig(t, e, storage.Config{SegmentTime: time.Hour, RetentionBytes: 1}, &now)
	for range 3 {
		mustAppend(t, l, simple(strings.Repeat("x", 600)))
	}
	now = now.Add(time.Hour)
	full.Store(true)
	if err := e.EnforceRetention(now); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("a full disk is answered with %v", err)
	}
	if l.StartOffset() != 2 {
		t.Fatalf("the log starts at %d", l.StartOffset())
	}
	if err := e.EnforceRetention(now); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, simple("y"))
	wantStart(t, l, 2, 4)
}

func TestCompactionMergesUpToTheTopicsSegments(t *testing.T) {
	o, now := memOptions(newMem()), time.Now()
	o.SegmentBytes = 1 << 20
	e := openEngine(t, workDir, o)
	l := openConfig(t, e, storage.Config{Compact: true, SegmentBytes: 300}, &now)
	for range 8 {
		mustAppend(t, l, pairs("k="+strings.Repeat("x", 100), "l="+strings.Repeat("y", 50)).Encode())
		mustAppend(t, l, pairs("k"+strings.Repeat("z", 100+segments(l))+"=1").Encode())
	}
	mustCompact(t, e, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.segments); n < 5 {
		t.Errorf("%d segments are left", n)
	}
	for _, s := range l.segments {
		if s.size > 300 {
			t.Errorf("segment %d has %d bytes", s.base, s.size)
		}
	}
}

func TestAStampedBatchIsSoundAndIsIndexedByItsTime(t *testing.T) {
	m, now := newMem(), time.UnixMilli(1_000_000_000_000)
	o := memOptions(m)
	l := openConfig(t, openEngine(t, workDir, o), storage.Config{LogAppendTime: true}, &now)
	for i := range 20 {
		now = now.Add(time.Second)
		mustAppend(t, l, testBatch{First: int64(i), Records: values(strings.Repeat("x", 200), "second")}.Encode())
	}
	for _, l := range []*commitLog{l, reopen(t, m.killed())} {
		for i := range int64(20) {
			b, err := enginetest.Read(context.Background(), l, 2*i, 1)
			if err != nil {
				t.Fatal(err)
			}
			h, err := recordbatch.ParseHeader(b)
			want := time.UnixMilli(1_000_000_000_000).Add(time.Duration(i+1) * time.Second).UnixMilli()
			if err != nil || h.AppendTime() != want || h.FirstTimestamp != i || !recordbatch.CRCMatches(b, &h) {
				t.Fatalf("batch %d: %+v, %v; want time %d", i, h, err, want)
			}
			offset, ts, ok, err := l.OffsetForTime(context.Background(), want-999)
			if err != nil || !ok || offset != 2*i || ts != want {
				t.Fatalf("batch %d is found by its time at %d, %d, %v, %v", i, offset, ts, ok, err)
			}
		}
	}
}
