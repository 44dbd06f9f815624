// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}

// backlog holds the records that are fetched and not handled yet, by partition. One handler at a time has records of a partition, in their order.
//
// In a group it holds records of the partitions that are this member's alone. The group's callbacks and the poll exclude each other (see fence): without
// that, records that were polled just before their partition went would come into the backlog after it, and be handled and committed by a member that
// may have the partition again by then, beyond what others have handled.
type backlog struct {
	// everything says that there is no group: every partition is this consumer's.
	everything bool
	// perPoll is how many records a poll takes; most and mostBytes bound what is read ahead.
	perPoll, most, mostBytes int
	// mark marks a record, and all before it in its partition, for the next commit.
	mark func(*kgo.Record)

	mu sync.Mutex
	// work wakes handlers; room wakes what waits for anything else.
	work, room *sync.Cond
	// shares are the partitions of this member.
	shares map[topicPartition]*share
	// busy holds the partitions that a handler has records of; they may have gone since.
	busy map[topicPartition]*share
	// ready are the shares with records and without a handler, in the order in which they get one.
	ready []*share
	// paused are the partitions that the client does not fetch.
	paused map[topicPartition]bool
	// records and bytes are the sum of all shares.
	records, bytes int
	// idle is how many handlers wait for records.
	idle int
	// left is how many records may still be begun.
	left int64
	// quiet is when the last record came or was handled.
	quiet time.Time

	// fences is how many callbacks keep the poll from starting, or wait for its end.
	fences    int
	polling   bool
	interrupt context.CancelFunc

	// stopping is closed when nothing more is to be begun.
	stopping chan struct{}
	stopped  bool
	// abandoned says that nobody waits for handlers any more.
	abandoned bool
	failure   error
}

// share is a partition while it is this member's; when it goes and comes again, that is another share.
type share struct {
	topicPartition
	records []*kgo.Record
	bytes   int
	// gone is closed when the partition is taken away: the record that is being handled is the last.
	gone chan struct{}
	// given says that the partition may be another member's: nothing more of it is committed.
	given bool
}

// work is what a handler has: records of one partition.
type work struct {
	*share
	records  []*kgo.Record
	stopping <-chan struct{}
}

// over says that no other record shall be begun.
func (w *work) over() bool {
	select {
	case <-w.gone:
		return true
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// sleep waits, unless no other record shall be begun; then it returns false.
func (w *work) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.gone:
		return false
	case <-w.stopping:
		return false
	case <-timer.C:
		return true
	}
}

// newBacklog returns a backlog of the partitions of a group's member, or of all partitions. left is how many records may be begun.
func newBacklog(everything bool, perPoll, most, mostBytes int, left int64) *backlog {
	b := &backlog{
		everything: everything, perPoll: perPoll, most: most, mostBytes: mostBytes, left: left, quiet: time.Now(),
		shares: map[topicPartition]*share{}, busy: map[topicPartition]*share{}, paused: map[topicPartition]bool{}, stopping: make(chan struct{}),
	}
	b.work, b.room = sync.NewCond(&b.mu), sync.NewCond(&b.mu)
	return b
}

// take waits for at most n records of one partition; nil says that there is nothing more to do.
func (b *backlog) take(n int) *work {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle++
	defer func() { b.idle-- }()
	for {
		switch {
		case b.stopped:
			return nil
		case b.left == 0 && len(b.busy) == 0:
			b.stopLocked()
			return nil
		case b.left > 0 && len(b.ready) > 0:
			return b.takeLocked(n)
		}
		b.room.Broadcast() // a handler without work is a reason to read on
		b.work.Wait()
	}
}

func (b *backlog) takeLocked(n int) *work {
	s := b.ready[0]
	b.ready = b.ready[1:]
	n = int(min(int64(n), int64(len(s.records)), b.left))
	w := &work{share: s, records: s.records[:n:n], stopping: b.stopping}
	s.records = s.records[n:]
	b.count(s, w.records, -1)
	if b.polling && len(b.paused) > 0 && (b.halfEmpty() || len(s.records) == 0) {
		b.interrupt() // the next poll resumes them; this one would wait for the other partitions
	}
	b.left -= int64(n)
	b.busy[s.topicPartition] = s
	b.room.Broadcast()
	return w
}

// finish ends what take began: the first handled records were handled. The others, if the partition is still this member's, are the next to be handled.
func (b *backlog) finish(w *work, handled int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if handled > 0 && !w.given && b.mark != nil {
		b.mark(w.records[handled-1])
	}
	rest := w.records[handled:]
	b.left += int64(len(rest))
	delete(b.busy, w.topicPartition)
	if b.shares[w.topicPartition] == w.share && len(rest) > 0 {
		w.share.records = append(append(make([]*kgo.Record, 0, len(rest)+len(w.share.records)), rest...), w.share.records...)
		b.count(w.share, rest, 1)
	}
	clear(w.records[:handled]) // the share's memory is this one's too
	if s := b.shares[w.topicPartition]; s != nil && len(s.records) > 0 {
		b.enlist(s)
	}
	b.quiet = time.Now()
	b.room.Broadcast()
	if len(rest) > 0 || b.left == 0 {
		b.work.Broadcast()
	}
}

// enlist makes a share with records and without a handler the last in the row of those that wait for one.
func (b *backlog) enlist(s *share) {
	b.ready = append(b.ready, s)
	b.work.Signal()
}

// count adds records to the sums, or takes them off.
func (b *backlog) count(s *share, records []*kgo.Record, sign int) {
	size := 0
	for _, r := range records {
		size += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			size += len(h.Key) + len(h.Value)
		}
	}
	b.records += sign * len(records)
	b.bytes += sign * size
	s.bytes += sign * size
}

// add takes in what was polled.
func (b *backlog) add(fetches kgo.Fetches) {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		tp := topicPartition{p.Topic, p.Partition}
		if len(p.Records) == 0 {
			return
		}
		s := b.shares[tp]
		if s == nil {
			if !b.everything {
				return
			}
			s = b.own(tp)
		}
		b.quiet = time.Now()
		waiting := len(s.records) > 0 || b.busy[tp] != nil
		s.records = append(s.records, p.Records...)
		b.count(s, p.Records, 1)
		if !waiting {
			b.enlist(s)
		}
	})
}

// own makes a partition this member's.
func (b *backlog) own(tp topicPartition) *share {
	s := &share{topicPartition: tp, gone: make(chan struct{})}
	b.shares[tp] = s
	return s
}

// disown forgets a partition, but for the record that is being handled.
func (b *backlog) disown(s *share) {
	delete(b.shares, s.topicPartition)
	b.count(s, s.records, -1)
	s.records = nil
	close(s.gone)
	for i, r := range b.ready {
		if r == s {
			b.ready = append(b.ready[:i:i], b.ready[i+1:]...)
			break
		}
	}
}

// stop makes handlers end after the record that they have.
func (b *backlog) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopLocked()
}

func (b *backlog) stopLocked() {
	if b.stopped {
		return
	}
	b.stopped = true
	close(b.stopping)
	if b.polling {
		b.interrupt()
	}
	b.work.Broadcast()
	b.room.Broadcast()
}

// fail stops because of an error. It says whether it is the first one, which err returns.
func (b *backlog) fail(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.failure == nil
	if first {
		b.failure = err
	}
	b.stopLocked()
	return first
}

// err is the first error.
func (b *backlog) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// abandon gives up waiting for handlers: what they have is not committed.
func (b *backlog) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandoned = true
	for _, s := range b.busy {
		s.given = true
	}
	b.room.Broadcast()
}

// stopWhenQuiet stops when no record came for this long and none waits or is being handled.
func (b *backlog) stopWhenQuiet(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-b.stopping:
			return
		case <-timer.C:
		}
		wait := b.quietIn(d)
		if wait <= 0 {
			b.stop()
			return
		}
		timer.Reset(wait)
	}
}

// quietIn is how long it takes at least until it has been quiet for d.
func (b *backlog) quietIn(d time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records > 0 || len(b.busy) > 0 {
		return d
	}
	return d - time.Since(b.quiet)
}
