// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
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
	for l.active().base == 0 {
		mustAppend(t, l, batch)
	}
	if err := l.waitSealed(l.EndOffset()); err != nil {
		t.Fatal(err)
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

// heldSyncs is a log of many segments of which none is on disk, because every sync is held up until release is closed.
func heldSyncs(t *testing.T, m *memFS, batch []byte, segments int) (l *commitLog, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	var held atomic.Bool
	o := memOptions(hookFS{FS: m, beforeSync: func(name string) {
		if held.Load() && strings.HasSuffix(name, logExt) {
			<-release
		}
	}})
	l = openFlush(t, openMem(t, o), storage.FlushOS)
	held.Store(true)
	for len(l.segments) < segments {
		mustAppend(t, l, batch)
	}
	return l, release
}

func TestNobodyWaitsForTheDiskToStartASegment(t *testing.T) {
	seed := testSeed(t)
	batch := simple("a", "b")
	for keep, name := range map[float64]string{0: "nothing", 0.5: "some", 0.9: "most", 1: "everything"} {
		t.Run("a crash keeps "+name, func(t *testing.T) {
			m := newMemFS(rand.New(rand.NewPCG(seed, 1)))
			l, release := heldSyncs(t, m, batch, maxUnsealed+1)
			end := l.EndOffset()
			batches := map[int64][]byte{}
			for o := int64(0); o < end; o += 2 {
				batches[o] = bytes.Clone(batch)
				recordbatch.SetPlace(batches[o], o, 0)
			}
			served(t, l, batches, nil)
			killed := reopen(t, m.clone())
			wantStart(t, killed, 0, end)
			served(t, killed, batches, nil)
			for range 20 {
				after := m.crashed(keep)
				crashed := reopen(t, after)
				there := maps.Clone(batches)
				maps.DeleteFunc(there, func(o int64, _ []byte) bool { return o >= crashed.EndOffset() })
				if keep == 1 && crashed.EndOffset() != end {
					t.Fatalf("the log ends at %d, not %d", crashed.EndOffset(), end)
				}
				served(t, crashed, there, nil)
				mustAppend(t, crashed, batch)
				wantStart(t, reopen(t, after.crashed(0)), 0, crashed.EndOffset())
			}
			close(release)
			if err := l.engine.Close(); err != nil {
				t.Fatal(err)
			}
			wantMark(t, m, l, end)
		})
	}
}

func TestWhoStartsASegmentWaitsWhereManyAreNotOnDisk(t *testing.T) {
	l, release := heldSyncs(t, newMem(), simple("a", "b"), maxUnsealed+1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			mustAppend(t, l, simple("a", "b"))
		}
	}()
	for waits := false; !waits; runtime.Gosched() {
		l.mu.Lock()
		waits = l.wanted == l.end && l.synced != nil
		l.mu.Unlock()
	}
	close(release)
	<-done
	if err := l.Trim(context.Background(), l.HighWatermark()); err != nil {
		t.Fatal(err)
	}
	if err := l.waitSealed(l.EndOffset()); err != nil {
		t.Fatal(err)
	}
	if n := len(segmentFiles(t, l)); n != 1 {
		t.Fatalf("%d segments are left", n)
	}
	for _, e := range must(l.engine.fs.ReadDir(l.dir)) {
		if strings.HasSuffix(e.Name, indexExt) {
			t.Fatalf("%s is left", e.Name)
		}
	}
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
