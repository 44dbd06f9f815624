// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fetched is what a poll returns: records of a topic's partition from an offset on.
func fetched(partition int32, from int64, n int, value string) kgo.Fetches {
	p := kgo.FetchPartition{Partition: partition}
	for i := range n {
		p.Records = append(p.Records, &kgo.Record{Topic: "t", Partition: partition, Offset: from + int64(i), Value: []byte(value)})
	}
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{p}}}}}
}

// polled puts records into a backlog as a poll does.
func (b *backlog) polled(t *testing.T, fetches ...kgo.Fetches) *poll {
	t.Helper()
	p := b.beginPoll()
	if p == nil {
		t.Fatal("nothing more is read")
	}
	b.endPoll(slices.Concat(fetches...))
	return p
}

// offsets are the partition and the offsets of a handler's records.
func offsets(w *work) []int64 {
	if w == nil {
		return nil
	}
	got := []int64{int64(w.partition)}
	for _, r := range w.records {
		got = append(got, r.Offset)
	}
	return got
}

func wantOffsets(t *testing.T, what string, w *work, want ...int64) {
	t.Helper()
	if diff := cmp.Diff(want, offsets(w)); diff != "" {
		t.Errorf("%s: partition and offsets (-want +got):\n%s", what, diff)
	}
}

func TestABacklogHandsOutOnePartitionAtATime(t *testing.T) {
	b := newBacklog(true, 10, 100, 1000, 100)
	b.polled(t, fetched(0, 0, 5, ""), fetched(1, 0, 1, ""))
	first := b.take(2)
	wantOffsets(t, "first", first, 0, 0, 1)
	second := b.take(2)
	wantOffsets(t, "another partition", second, 1, 0)
	b.polled(t, fetched(0, 5, 1, ""))
	b.finish(second, 1)
	b.finish(first, 1) // one was not begun
	wantOffsets(t, "what is left", b.take(10), 0, 1, 2, 3, 4, 5)
}

func TestABacklogGivesEveryPartitionATurn(t *testing.T) {
	b := newBacklog(true, 10, 100, 1000, 100)
	b.polled(t, fetched(2, 0, 2, ""), fetched(0, 0, 2, ""), fetched(1, 0, 2, ""))
	for i, want := range [][]int64{{2, 0}, {0, 0}, {1, 0}, {2, 1}, {0, 1}, {1, 1}} {
		w := b.take(1)
		if diff := cmp.Diff(want, offsets(w)); diff != "" {
			t.Errorf("turn %d (-want +got):\n%s", i, diff)
		}
		b.finish(w, 1)
	}
}

func TestABacklogEndsAfterItsLimit(t *testing.T) {
	b := newBacklog(true, 10, 100, 1000, 3)
	b.polled(t, fetched(0, 0, 9, ""))
	w := b.take(2)
	b.finish(w, 1)
	w = b.take(10)
	wantOffsets(t, "what the limit leaves", w, 0, 1, 2)
	b.finish(w, 2)
	if b.take(1) != nil || b.beginPoll() != nil {
		t.Error("there is more to do")
	}
}

// What a poll brings of a partition that has gone must not be handled, even where the partition has come again.
func TestWhatIsPolledOfAPartitionThatHasGone(t *testing.T) {
	one := map[string][]int32{"t": {1}}
	var marked []int64
	fresh := func() *backlog {
		b := newBacklog(false, 10, 100, 1000, 100)
		b.mark = func(r *kgo.Record) { marked = append(marked, r.Offset) }
		marked = nil
		b.assigned(one)
		b.polled(t, fetched(1, 0, 3, ""))
		return b
	}
	t.Run("one that is not ours", func(t *testing.T) {
		b := newBacklog(false, 10, 100, 1000, 100)
		b.polled(t, fetched(1, 0, 3, ""))
		if b.records != 0 {
			t.Errorf("%d records wait", b.records)
		}
	})
	t.Run("a callback interrupts the poll and waits for it", func(t *testing.T) {
		for _, change := range []func(b *backlog){
			func(b *backlog) { b.revoked(one, time.Hour); b.assigned(one) },
			func(b *backlog) { b.lost(); b.assigned(one) },
			func(b *backlog) { b.assigned(one) },
		} {
			b := fresh()
			p := b.beginPoll()
			changed := make(chan struct{})
			go func() { defer close(changed); change(b) }()
			<-p.ctx.Done()
			b.endPoll(fetched(1, 3, 2, ""))
			<-changed
			b.polled(t, fetched(1, 7, 1, ""))
			wantOffsets(t, "after it has come again", b.take(10), 1, 7)
		}
	})
	t.Run("revoked waits for what is being handled", func(t *testing.T) {
		b := fresh()
		w := b.take(1)
		revoked := make(chan struct{})
		go func() { defer close(revoked); b.revoked(one, time.Hour) }()
		<-w.gone
		if !w.over() || w.sleep(time.Hour) {
			t.Error("another record may be begun")
		}
		b.finish(w, 1)
		<-revoked
		if diff := cmp.Diff([]int64{0}, marked); diff != "" || b.records != 0 || b.bytes != 0 {
			t.Errorf("%d records wait, marked (-want +got):\n%s", b.records, diff)
		}
	})
	t.Run("but not for longer than it may", func(t *testing.T) {
		b := fresh()
		w := b.take(1)
		b.revoked(one, time.Nanosecond)
		b.assigned(one)
		b.polled(t, fetched(1, 0, 1, ""), fetched(1, 1, 1, ""))
		if len(b.ready) != 0 {
			t.Error("two handlers have one partition")
		}
		b.finish(w, 1)
		if marked != nil {
			t.Errorf("marked %v", marked)
		}
		wantOffsets(t, "after the late one", b.take(10), 1, 0, 1)
	})
	t.Run("what is lost cannot be committed", func(t *testing.T) {
		b := fresh()
		w := b.take(1)
		b.lost()
		b.finish(w, 1)
		if marked != nil {
			t.Errorf("marked %v", marked)
		}
	})
	t.Run("nothing waits for handlers that are given up", func(t *testing.T) {
		b := fresh()
		w := b.take(1)
		b.abandon()
		b.revoked(one, time.Hour)
		b.finish(w, 1)
		if marked != nil {
			t.Errorf("marked %v", marked)
		}
	})
}

func TestABacklogIsBounded(t *testing.T) {
	tests := map[string]struct {
		most, mostBytes int
		value           string
	}{
		"in records": {4, 1000, ""},
		"in bytes":   {100, 8, "12"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBacklog(true, 4, tc.most, tc.mostBytes, 100)
			b.polled(t, fetched(0, 0, 4, tc.value))
			slow := b.take(1)
			b.polled(t, fetched(0, 4, 1, tc.value))
			begun := make(chan *poll)
			go func() { begun <- b.beginPoll() }()
			// Nobody is idle, so that the poll waits until there is a handler with nothing to do: that one gets a record of another partition.
			taken := make(chan *work)
			go func() { taken <- b.take(1) }()
			p := <-begun
			if diff := cmp.Diff(map[string][]int32{"t": {0}}, p.pause); diff != "" || p.records != 1 || len(p.resume) != 0 {
				t.Errorf("%d records, resumed %v, paused (-want +got):\n%s", p.records, p.resume, diff)
			}
			b.endPoll(fetched(1, 0, 1, tc.value))
			w := <-taken
			wantOffsets(t, "the idle handler has", w, 1, 0)
			b.finish(w, 1)
			go func() { taken <- b.take(1) }()
			p = b.beginPoll() // for the handler that is idle again
			if p.records != 1 {
				t.Errorf("%d records may be read", p.records)
			}
			for range 2 {
				b.finish(slow, 1)
				slow = b.take(1)
			}
			<-p.ctx.Done() // or it would wait for a record of another partition
			b.endPoll(nil)
			p = b.beginPoll()
			if diff := cmp.Diff(map[string][]int32{"t": {0}}, p.resume); diff != "" || len(p.pause) != 0 || p.records != 4 {
				t.Errorf("%d records, paused %v, resumed (-want +got):\n%s", p.records, p.pause, diff)
			}
			b.endPoll(nil)
		})
	}
}

// A partition that goes while it is paused is fetched when it comes again.
func TestAPausedPartitionThatGoes(t *testing.T) {
	b := newBacklog(false, 1, 1, 1000, 100)
	b.assigned(map[string][]int32{"t": {0, 1}})
	b.polled(t, fetched(0, 0, 3, ""))
	slow := b.take(1)
	taken := make(chan *work)
	go func() { taken <- b.take(1) }()
	if p := b.polled(t, fetched(1, 0, 1, "")); len(p.pause) != 1 {
		t.Errorf("paused %v", p.pause)
	}
	<-taken
	b.finish(slow, 1)
	b.revoked(map[string][]int32{"t": {0}}, time.Hour)
	if p := b.polled(t); len(p.resume) != 1 || len(b.paused) != 0 {
		t.Errorf("resumed %v, paused %v", p.resume, b.paused)
	}
}

func TestABacklogIsQuiet(t *testing.T) {
	b := newBacklog(true, 10, 100, 1000, 100)
	b.quiet = time.Now().Add(-time.Hour)
	if b.quietIn(time.Minute) > 0 {
		t.Error("it is not quiet without records")
	}
	b.polled(t, fetched(0, 0, 1, ""))
	b.quiet = time.Now().Add(-time.Hour)
	if got := b.quietIn(time.Minute); got != time.Minute {
		t.Errorf("it is quiet in %s while a record waits", got)
	}
	w := b.take(1)
	if got := b.quietIn(time.Minute); got != time.Minute {
		t.Errorf("it is quiet in %s while a record is handled", got)
	}
	b.finish(w, 1)
	if got := b.quietIn(time.Hour); got <= 0 {
		t.Error("it is quiet at once")
	}
}

// Handlers, polls and rebalances at random: what is handled of a partition while it is ours is handled in its order and marked in its order.
func TestABacklogAtRandom(t *testing.T) {
	const partitions, handlers, steps = 5, 4, 2000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBacklog(false, 7, 20, 1000, 1<<40)
	// server is what the group knows: the next offset of each partition, and what the client would fetch next. marked is guarded by b.mu.
	var committed, position [partitions]int64
	var mine [partitions]bool
	var mu sync.Mutex
	busy := map[int32]bool{}
	b.mark = func(r *kgo.Record) {
		if r.Offset < committed[r.Partition] {
			t.Errorf("partition %d: offset %d is marked after %d", r.Partition, r.Offset, committed[r.Partition]-1)
		}
		committed[r.Partition] = r.Offset + 1
	}
	var wg sync.WaitGroup
	for range handlers {
		wg.Go(func() {
			for w := b.take(3); w != nil; w = b.take(3) {
				mu.Lock()
				if busy[w.partition] {
					t.Errorf("partition %d has two handlers", w.partition)
				}
				busy[w.partition] = true
				mu.Unlock()
				n := 0
				for i, r := range w.records {
					if i > 0 && (r.Offset != w.records[i-1].Offset+1 || w.over()) {
						break
					}
					n++
				}
				mu.Lock()
				busy[w.partition] = false
				mu.Unlock()
				b.finish(w, n)
			}
		})
	}
	for range steps {
		p := random.Int32N(partitions)
		one := map[string][]int32{"t": {p}}
		switch k := random.IntN(10); {
		case !mine[p]:
			b.assigned(one)
			b.mu.Lock()
			mine[p], position[p] = true, committed[p]
			b.mu.Unlock()
		case k == 0:
			b.revoked(one, time.Duration(random.IntN(2))*time.Hour)
			mine[p] = false
		case k == 1:
			b.lost()
			mine = [partitions]bool{}
		default:
			if b.beginPoll() == nil {
				t.Fatal("it has stopped")
			}
			b.endPoll(fetched(p, position[p], 3, "value"))
			position[p] += 3
		}
	}
	b.stop()
	wg.Wait()
	want := 0
	for _, s := range b.shares {
		want += len(s.records)
	}
	if b.records != want || len(b.busy) != 0 {
		t.Errorf("it counts %d records, has %d, and %d handlers", b.records, want, len(b.busy))
	}
}
