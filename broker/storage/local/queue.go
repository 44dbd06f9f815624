// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Appends go through a queue. While it holds any, one goroutine takes all that have come and writes them with one system call, so that many small
// batches cost about as much as a large one; what comes meanwhile is the next write. A lone append is written at once. Who waits for the disk is
// called by the goroutine that syncs (commit.go).

const (
	// maxGroup and maxGroupBatches bound one write; Linux takes 1,024 buffers at once.
	maxGroup        = 8 << 20
	maxGroupBatches = 512
)

// pending is an append on its way to the disk.
type pending struct {
	batches []byte
	headers []header
	synced  bool
	done    func(base int64, err error)

	// base is the first offset of the first batch, and next the offset below which everything must be stored for the append to be; err says why
	// it was not written.
	base, next int64
	err        error
}

// AppendThen appends batches and calls done. See storage.Log.
func (l *commitLog) AppendThen(batches []byte, d storage.Durability, done func(base int64, err error)) {
	l.enqueue(&pending{batches: batches, synced: d == storage.Synced, done: func(base int64, err error) {
		if err != nil {
			base, err = -1, fmt.Errorf("append to %s: %w", l, err)
		}
		done(base, err)
	}})
}

// Append appends whole batches. See storage.Log and, for what is refused, the package comment.
func (l *commitLog) Append(ctx context.Context, batches []byte, d storage.Durability) (int64, error) {
	base, err := l.append(ctx, batches, d)
	if err != nil {
		return -1, fmt.Errorf("append to %s: %w", l, err)
	}
	return base, nil
}

func (l *commitLog) append(ctx context.Context, batches []byte, d storage.Durability) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	written := make(chan struct{})
	p := &pending{batches: batches, done: func(int64, error) { close(written) }}
	l.enqueue(p)
	<-written
	if p.err != nil || d != storage.Synced {
		return p.base, p.err
	}
	return p.base, l.wait(ctx, p.next)
}

// enqueue checks the batches, so that this is done by many at a time, and lets them be written.
func (l *commitLog) enqueue(p *pending) {
	c := l.topicConfig()
	if p.headers, p.err = checkBatches(p.batches, &c); p.err != nil {
		p.done(-1, p.err)
		return
	}
	l.qmu.Lock()
	defer l.qmu.Unlock()
	l.queue = append(l.queue, p)
	if !l.writing {
		l.writing = true
		go l.writeLoop()
	}
}

// topicConfig is what the topic asks for now.
func (l *commitLog) topicConfig() storage.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config
}

// writeLoop writes what is in the queue until it is empty.
func (l *commitLog) writeLoop() {
	var taken []*pending
	for {
		l.qmu.Lock()
		taken, l.queue = l.queue, taken[:0]
		if len(taken) == 0 {
			l.writing, l.queue = false, nil
			l.qmu.Unlock()
			return
		}
		l.qmu.Unlock()
		for rest := taken; len(rest) > 0; {
			n := l.writeSome(rest)
			l.settle(rest[:n])
			rest = rest[n:]
		}
		clear(taken)
	}
}

// settle calls those who appended: with an error, or once it is written, or once it is stored.
func (l *commitLog) settle(group []*pending) {
	for _, p := range group {
		if p.err != nil || !p.synced || !l.awaitStored(p) {
			p.done(p.base, p.err)
		}
	}
}

// awaitStored lets an append be called once it is stored; false says that it is, or never will be: then its err says why.
func (l *commitLog) awaitStored(p *pending) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isStored(p.next):
		return false
	case l.failed != nil:
		p.err = l.failed
		return false
	case l.closed:
		p.err = storage.ErrClosed
		return false
	}
	l.waiting = append(l.waiting, p)
	return true
}

// takeStored takes those who wait for what is stored now; mu is held.
func (l *commitLog) takeStored() []*pending {
	var stored []*pending
	rest := l.waiting[:0]
	for _, p := range l.waiting {
		if l.isStored(p.next) {
			stored = append(stored, p)
		} else {
			rest = append(rest, p)
		}
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
	return stored
}

// failWaiting calls those who wait for what will not be stored; mu is held.
func (l *commitLog) failWaiting(err error) {
	if len(l.waiting) == 0 {
		return
	}
	waiting := l.waiting
	l.waiting = nil
	go func() {
		for _, p := range waiting {
			p.done(-1, err)
		}
	}()
}

// writeSome writes the first appends of a queue, as many as go into one write, and returns how many those are. It notes in each what became of it.
func (l *commitLog) writeSome(queue []*pending) int {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return failAll(queue, err)
	}
	if l.engine.saving.Load() > 0 {
		return failAll(queue, storage.ErrFull)
	}
	g := group{now: l.engine.now()}
	l.mu.Lock()
	g.plan.end, g.stamped = l.end, l.config.LogAppendTime
	room := l.segmentBytes() - l.active().size
	l.mu.Unlock()
	for _, p := range queue {
		if g.taken > 0 && !g.fits(p, room) {
			break
		}
		g.add(l.known, p)
	}
	if g.bytes == 0 {
		return g.taken
	}
	if err := l.writeGroup(&g); err != nil {
		return failAll(queue[:g.taken], err)
	}
	return g.taken
}

// failAll notes why appends were not written, in those of which it was not known, and returns how many there are.
func failAll(queue []*pending, err error) int {
	for _, p := range queue {
		if p.err == nil {
			p.err = err
		}
	}
	return len(queue)
}

// fits says whether an append may be part of a write that has begun, where the active segment has room for so many bytes. One of several batches
// is written on its own, so that all of it is refused where one batch is.
func (g *group) fits(p *pending, room int64) bool {
	bytes := int64(g.bytes + len(p.batches))
	return len(p.headers) == 1 && !g.alone && len(g.headers) < maxGroupBatches && bytes <= maxGroup && bytes <= room
}
