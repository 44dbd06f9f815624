// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// poll is a poll that may begin now.
type poll struct {
	ctx context.Context
	// records is how many it may take.
	records int
	// pause and resume are the partitions that the client must no longer fetch, and those that it must fetch again.
	pause, resume map[string][]int32
}

// beginPoll waits until there is room for records, and until no callback keeps the poll out. It returns nil when nothing more is to be read.
func (b *backlog) beginPoll() *poll {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.stopped {
		if records := b.roomFor(); records > 0 && b.fences == 0 {
			p := &poll{records: records}
			b.pauses(p)
			p.ctx, b.interrupt = context.WithCancel(context.Background())
			b.polling = true
			return p
		}
		b.room.Wait()
	}
	return nil
}

// endPoll takes in what was polled.
func (b *backlog) endPoll(fetches kgo.Fetches) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(fetches)
	b.interrupt()
	b.polling = false
	b.room.Broadcast()
}

func (b *backlog) full() bool { return b.records >= b.most || b.bytes >= b.mostBytes }

func (b *backlog) halfEmpty() bool { return b.records <= b.most/2 && b.bytes <= b.mostBytes/2 }

// roomFor is how many records may be polled. Where the backlog is full of records that wait for busy handlers, one is read for each handler that has
// nothing to do, from other partitions: a slow record holds up its own partition alone.
func (b *backlog) roomFor() int {
	switch {
	case !b.full():
		return b.perPoll
	case b.idle > len(b.ready):
		return 1
	}
	return 0
}

// pauses says which partitions the client must stop or start fetching. They are paused where they would fill a full backlog further, and resumed
// when they have nothing in it or when it is half empty: each pause costs a fetch, since the client forgets what it has of a paused partition.
func (b *backlog) pauses(p *poll) {
	p.pause, p.resume = map[string][]int32{}, map[string][]int32{}
	for tp := range b.paused {
		s := b.shares[tp]
		if s == nil || len(s.records) == 0 || b.halfEmpty() {
			delete(b.paused, tp)
			p.resume[tp.topic] = append(p.resume[tp.topic], tp.partition)
		}
	}
	if !b.full() {
		return
	}
	for tp, s := range b.shares {
		if len(s.records) > 0 && !b.paused[tp] {
			b.paused[tp] = true
			p.pause[tp.topic] = append(p.pause[tp.topic], tp.partition)
		}
	}
}

// fence changes what partitions are this member's, while no poll is between the client and the backlog.
func (b *backlog) fence(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fences++
	if b.polling {
		b.interrupt()
	}
	for b.polling {
		b.room.Wait()
	}
	change()
	b.fences--
	b.room.Broadcast()
}

// assigned takes in partitions that the group gave to this member.
func (b *backlog) assigned(partitions map[string][]int32) {
	b.fence(func() {
		each(partitions, func(tp topicPartition) {
			if s := b.shares[tp]; s != nil {
				s.given = true
				b.disown(s)
			}
			b.own(tp)
		})
	})
}

// revoked forgets partitions that the group takes away, and waits for the records of theirs that are being handled, for at most this long: what is
// handled by then may be committed, what takes longer will be handled again by another member.
func (b *backlog) revoked(partitions map[string][]int32, wait time.Duration) {
	var gone []*share
	b.fence(func() {
		each(partitions, func(tp topicPartition) {
			if s := b.shares[tp]; s != nil {
				b.disown(s)
				gone = append(gone, s)
			}
		})
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	late := false
	timer := time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		late = true
		b.room.Broadcast()
	})
	defer timer.Stop()
	for _, s := range gone {
		for b.busy[s.topicPartition] == s && !late && !b.abandoned {
			b.room.Wait()
		}
	}
	for _, s := range gone {
		s.given = true
	}
}

// lost forgets all partitions: the group has put this member out, and nothing that it has can be committed.
func (b *backlog) lost() {
	b.fence(func() {
		for _, s := range b.shares {
			s.given = true
			b.disown(s)
		}
	})
}

// each calls f for each partition.
func each(partitions map[string][]int32, f func(topicPartition)) {
	for topic, numbers := range partitions {
		for _, n := range numbers {
			f(topicPartition{topic, n})
		}
	}
}
