// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// countSyncs counts the syncs of segments.
func countSyncs(m *memFS, n *atomic.Int64) hookFS {
	return hookFS{FS: m, beforeSync: func(name string) {
		if strings.HasSuffix(name, logExt) {
			n.Add(1)
		}
	}}
}

func openFlush(t testing.TB, e *Engine, f storage.Flush) *commitLog {
	t.Helper()
	l, err := e.Open(context.Background(), p0, 0, storage.Config{Flush: f})
	if err != nil {
		t.Fatal(err)
	}
	return l.(*commitLog)
}

func openMem(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open(workDir, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wantMark checks that the mark says no more than what a crash of the machine leaves.
func wantMark(t *testing.T, m *memFS, l *commitLog, want int64) {
	t.Helper()
	if mark, ok, err := readMark(m, l.dir); mark != want || !ok || err != nil {
		t.Fatalf("the mark says %d, %v, %v; want %d", mark, ok, err, want)
	}
	if end := reopen(t, m.crashed(0)).EndOffset(); end < want {
		t.Fatalf("the mark says %d, and a crash leaves %d", want, end)
	}
}

func TestAnOSFlushedAppendIsStoredOnceItIsWritten(t *testing.T) {
	m := newMem()
	var syncs atomic.Int64
	e := openMem(t, memOptions(countSyncs(m, &syncs)))
	l := openFlush(t, e, storage.FlushOS)
	before := syncs.Load()
	woken := make(chan struct{}, 1)
	defer l.Subscribe(woken)()
	batch := simple("a", "b")
	for i := range int64(4) {
		if base := mustAppend(t, l, batch); base != 2*i {
			t.Fatal(base)
		}
		<-woken
		wantStart(t, l, 0, 2*(i+1))
	}
	if syncs.Load() != before {
		t.Fatal("an append was synced")
	}
	wantMark(t, m, l, 0)
	for l.active().base == 0 { // a new segment is made once all of the old one is on disk
		mustAppend(t, l, batch)
	}
	wantMark(t, m, l, l.active().base)
	end := l.EndOffset()
	if killed := reopen(t, m.killed()); killed.EndOffset() != end {
		t.Fatalf("after a kill the log ends at %d, not %d", killed.EndOffset(), end)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	wantMark(t, m, l, end)
}

func TestAnOSFlushedAppendIsSyncedLater(t *testing.T) {
	m := newMem()
	synced := make(chan struct{}, 10)
	h := hookFS{FS: m, beforeSync: func(name string) {
		if strings.HasSuffix(name, logExt) {
			synced <- struct{}{}
		}
	}}
	o := memOptions(h)
	o.FlushInterval = time.Millisecond
	l := openFlush(t, openMem(t, o), storage.FlushOS)
	for len(synced) > 0 {
		<-synced // what the opening did
	}
	for i := range int64(3) {
		mustAppend(t, l, simple("a"))
		<-synced
		for done := false; !done; runtime.Gosched() {
			l.mu.Lock()
			done = l.onDisk == i+1 && l.unsynced == nil && !l.syncing
			l.mu.Unlock()
		}
		wantMark(t, m, l, i+1)
	}
	o.FlushInterval = time.Hour
	o.SegmentBytes = 0
	o.FS = hookFS{FS: newMem(), beforeSync: h.beforeSync}
	l = openFlush(t, openMem(t, o), storage.FlushOS)
	for len(synced) > 0 {
		<-synced
	}
	large := simple(strings.Repeat("x", 1<<20-200))
	for l.Size() < syncAhead {
		mustAppend(t, l, large)
	}
	<-synced // although it is not time
}

func TestATopicsFlushMayChangeWhileItIsOpen(t *testing.T) {
	m := newMem()
	e := openMem(t, memOptions(m))
	l := openFlush(t, e, storage.FlushOS)
	producer := testBatch{Producer: 5, Records: values("a")}
	mustAppend(t, l, producer.Encode())
	openFlush(t, e, storage.FlushSync)
	if base := mustAppend(t, l, producer.Encode()); base != 0 { // sent again: the answer is that it is on disk
		t.Fatal(base)
	}
	wantMark(t, m, l, 1)
	openFlush(t, e, storage.FlushOS)
	mustAppend(t, l, simple("b"))
	mustAppend(t, l, simple("c"))
	wantMark(t, m, l, 1)
	openFlush(t, e, storage.FlushSync)
	mustAppend(t, l, simple("d"))
	wantMark(t, m, l, 4)
}

func TestAnAppendThatWaitsForTheDiskIsAnsweredWhenTheTopicNeedsNoneAnyMore(t *testing.T) {
	g := newGate()
	e := openMem(t, memOptions(g.fs()))
	l := openFlush(t, e, storage.FlushSync)
	answers := make(chan int64, 2)
	go func() {
		base, err := l.Append(context.Background(), simple("a"), storage.Synced)
		if err != nil {
			t.Error(err)
		}
		answers <- base
	}()
	<-g.started
	l.AppendThen(simple("b"), storage.Synced, func(base int64, err error) {
		if err != nil {
			t.Error(err)
		}
		answers <- base
	})
	for l.EndOffset() < 2 {
		runtime.Gosched()
	}
	openFlush(t, e, storage.FlushOS)
	if sum := <-answers + <-answers; sum != 1 || l.HighWatermark() != 2 {
		t.Fatal(sum, l.HighWatermark())
	}
	close(g.release)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestADeletedLogThatIsNotSyncedLeavesNoFileOpen(t *testing.T) {
	e := openMem(t, memOptions(newMem()))
	l := openFlush(t, e, storage.FlushOS)
	mustAppend(t, l, simple("a"))
	if err := e.Delete(context.Background(), p0); err != nil {
		t.Fatal(err)
	}
	if n := e.files.open(); n != 0 {
		t.Fatalf("%d files are open", n)
	}
}
