// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// Appends go through a queue. While it holds any, one goroutine takes all that have come and writes them with one system call, so that many small
// batches cost about as much as a large one; what comes meanwhile is the next write. A lone append is written at once. Who waits for the disk is
// called by the goroutine that syncs (commit.go).

// pending is an append on its way to the disk.
type pending struct {
	idempotence.Append
	synced bool
	done   func(base int64, err error)
}

// AppendThen appends batches and calls done. See storage.Log.
func (l *commitLog) AppendThen(batches []byte, d storage.Durability, done func(base int64, err error)) {
	l.enqueue(&pending{Append: idempotence.Append{Batches: batches}, synced: d == storage.Synced, done: func(base int64, err error) {
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
	p := &pending{Append: idempotence.Append{Batches: batches}, done: func(int64, error) { close(written) }}
	l.enqueue(p)
	<-written
	if p.Err != nil || d != storage.Synced {
		return p.Base, p.Err
	}
	return p.Base, l.wait(ctx, p.Next)
}

// enqueue checks the batches, so that this is done by many at a time, and lets them be written.
func (l *commitLog) enqueue(p *pending) {
	c := l.topicConfig()
	if p.Headers, p.Err = recordbatch.CheckBatches(p.Batches, &c); p.Err != nil {
		p.done(-1, p.Err)
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
		if p.Err != nil || !p.synced || !l.awaitStored(p) {
			p.done(p.Base, p.Err)
		}
	}
}

// awaitStored lets an append be called once it is stored; false says that it is, or never will be: then its err says why.
func (l *commitLog) awaitStored(p *pending) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isStored(p.Next):
		return false
	case l.failed != nil:
		p.Err = l.failed
		return false
	case l.closed:
		p.Err = storage.ErrClosed
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
		if l.isStored(p.Next) {
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
	g := idempotence.Group{Now: l.engine.now()}
	l.mu.Lock()
	g.Plan.End, g.Stamped = l.end, l.config.LogAppendTime
	room := l.segmentBytes() - l.active().size
	l.mu.Unlock()
	for _, p := range queue {
		if !g.Fits(&p.Append, room) {
			break
		}
		g.Add(l.known, &p.Append)
	}
	if g.Bytes == 0 {
		return g.Taken
	}
	if err := l.writeGroup(&g); err != nil {
		return failAll(queue[:g.Taken], err)
	}
	return g.Taken
}

// failAll notes why appends were not written, in those of which it was not known, and returns how many there are.
func failAll(queue []*pending, err error) int {
	for _, p := range queue {
		if p.Err == nil {
			p.Err = err
		}
	}
	return len(queue)
}
