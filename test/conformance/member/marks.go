// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"maps"
	"sync"
	"time"
)

// commitEvery is the time between two commits of a client whose partitions are read each by a goroutine of its own.
const commitEvery = 100 * time.Millisecond

// Marks are how far the partitions have been read, for clients that read each in a goroutine of its own. The zero value is ready for use.
type Marks struct {
	mu   sync.Mutex
	next map[Partition]int64
}

// Read prints that a record was read, and notes what is to be committed.
func (m *Marks) Read(out *Output, p Partition, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out.Print(Event{Kind: Read, Partition: p, First: offset, Last: offset})
	if m.next == nil {
		m.next = map[Partition]int64{}
	}
	m.next[p] = offset + 1
}

// Commit commits over and over what was marked since the last time, until ctx ends, and prints what has been committed. commit returns the member's
// id and generation. Nothing is read while it commits.
func (m *Marks) Commit(ctx context.Context, out *Output, commit func(next map[Partition]int64) (id string, generation int32, err error)) {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.commitOnce(ctx, out, commit)
	}
}

func (m *Marks) commitOnce(ctx context.Context, out *Output, commit func(map[Partition]int64) (string, int32, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(m.next)
	clear(m.next)
	if len(next) == 0 {
		return
	}
	id, generation, err := commit(next)
	if err != nil || ctx.Err() != nil {
		return // a rebalance has overtaken it: it counts for nothing, and the next owner reads again
	}
	for p, offset := range next {
		out.Print(Event{Kind: Committed, Partition: p, Next: offset, Member: id, Generation: generation})
	}
}

// Forget has a partition that is about to go not be committed any more. It returns when a commit that has begun is done.
func (m *Marks) Forget(p Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.next, p)
}
