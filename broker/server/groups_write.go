// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// decision is what follows from a step, or what somebody was told of the group; it is kept until it is stored.
type decision struct {
	records []coordinator.Record
	replies []coordinator.Reply
	// before holds the offsets that the records change, as they were; nil where they may change more than offsets. Then asked is the request that they are of.
	before []coordinator.Record
	asked  coordinator.Token
	// last says that the group is dead after it.
	last bool
	// viewed takes an error code when all before it is settled; nil for a step.
	viewed chan<- int16
}

// apply makes one step: it decides, and sees to it that the rest is done. mu is held.
func (h *hosted) apply(ctx context.Context, in coordinator.Input) {
	before, asked := offsetsBefore(h.group, in)
	out := h.group.Step(h.part.groups.now(), in)
	h.tellNotes(ctx, out.Notes)
	d := decision{records: out.Records, replies: out.Replies, asked: asked, last: h.group.Dead()}
	if h.fleeting {
		d.records = nil // nobody knows the group, and there is nothing to remember
	} else if !d.last {
		h.part.groups.timers.set(&h.timer, out.Deadline)
	}
	if restores(before, d.records) {
		d.before = before
	}
	h.decide(ctx, d)
}

// tellNotes logs what a group has to say, which clients that join and leave without end must not make a flood. mu is held.
func (h *hosted) tellNotes(ctx context.Context, notes []string) {
	for _, note := range notes {
		ok, left := h.notes.allow(h.part.groups.now())
		if left > 0 {
			h.part.groups.log.WarnContext(ctx, "a consumer group has changed more often than was logged", "group", h.id, "left out", left)
		}
		if ok {
			h.part.groups.log.InfoContext(ctx, note)
		}
	}
}

// decide takes a decision up, and begins to write where there is something to be written. mu is held.
func (h *hosted) decide(ctx context.Context, d decision) {
	h.decided = append(h.decided, d)
	if h.writing != nil {
		return
	}
	h.deliver(0)
	if len(h.decided) > 0 {
		h.writing = make(chan struct{})
		h.part.groups.work.Go(func() { h.write(context.WithoutCancel(ctx)) })
	}
}

// write stores what is decided, as much at a time as there is, until there is nothing left.
func (h *hosted) write(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.decided) > 0 {
		n := len(h.decided)
		steps := make([][]coordinator.Record, 0, n)
		for _, d := range h.decided {
			if len(d.records) > 0 {
				steps = append(steps, d.records)
			}
		}
		h.mu.Unlock()
		err := h.part.append(ctx, h.id, steps)
		h.mu.Lock()
		h.settle(ctx, n, err)
	}
	close(h.writing)
	h.writing = nil
	if h.gone {
		h.answerAll(codeNotCoordinator)
	}
}

// settle does what follows from an append of the records of the first n decisions. mu is held.
func (h *hosted) settle(ctx context.Context, n int, err error) {
	switch {
	case err == nil:
		h.deliver(n)
	case errors.Is(err, storage.ErrFull) && h.undo(err):
		h.deliver(len(h.decided))
	default:
		h.fail(ctx, err)
	}
}

// deliver sends what the first n decisions answer, and what those behind them answer that have nothing to store. mu is held.
func (h *hosted) deliver(n int) {
	for ; len(h.decided) > 0 && (n > 0 || len(h.decided[0].records) == 0); n-- {
		d := h.decided[0]
		h.decided[0] = decision{}
		h.decided = h.decided[1:]
		for _, r := range d.replies {
			h.answer(r)
		}
		if d.viewed != nil {
			d.viewed <- codeNone // there is room for one
		}
		if d.last && !h.gone {
			h.forget()
		}
	}
}

// offsetsBefore returns the offsets that a request to change offsets names, as they are before it; nil for other inputs.
func offsetsBefore(g *coordinator.Group, in coordinator.Input) (before []coordinator.Record, asked coordinator.Token) {
	add := func(topic string, partition int32) {
		o, ok := g.Offset(topic, partition)
		before = append(before, coordinator.Record{Topic: topic, Partition: partition, Offset: o, Deleted: !ok})
	}
	switch in := in.(type) {
	case coordinator.Commit:
		for _, o := range in.Offsets {
			add(o.Topic, o.Partition)
		}
		return before, in.Token
	case coordinator.DeleteOffsets:
		for _, t := range in.Partitions {
			for _, p := range t.Partitions {
				add(t.Topic, p)
			}
		}
		return before, in.Token
	}
	return nil, 0
}

// restores says whether records change nothing but what before holds: what was due with the step may have changed more.
func restores(before, records []coordinator.Record) bool {
	if len(records) > len(before) {
		return false
	}
	named := make(map[offsetKey]bool, len(before))
	for _, r := range before {
		named[offsetKey{topic: r.Topic, partition: r.Partition}] = true
	}
	for _, r := range records {
		if r.Kind != coordinator.OffsetRecord || !named[offsetKey{topic: r.Topic, partition: r.Partition}] {
			return false
		}
	}
	return true
}

// undo takes back what is decided and could not be stored for want of room, and says whether it did: where it is offsets alone nothing of them is on disk, and the
// group goes on without being read from the log, or that would be done for every commit for as long as the disk is full. Who asked for the offsets is
// told that they are not stored. mu is held.
func (h *hosted) undo(err error) bool {
	for i := range h.decided {
		if d := &h.decided[i]; len(d.records) > 0 && d.before == nil {
			return false
		}
	}
	for i := len(h.decided) - 1; i >= 0; i-- {
		d := &h.decided[i]
		if d.viewed != nil {
			d.viewed <- codeCoordinatorMissing // it has seen what is taken back
			d.viewed = nil
		}
		if len(d.records) == 0 {
			continue
		}
		for _, r := range d.before {
			h.group.Load(r)
		}
		for j := range d.replies {
			if r := &d.replies[j]; r.Token == d.asked {
				r.Err, r.Body = codeCoordinatorMissing, nil
			}
		}
	}
	p := storage.Partition{Topic: h.part.topic.Name, Partition: h.part.number}
	h.part.groups.s.logs.report(p, "cannot store the offsets of consumer groups; their clients try again", err)
	return true
}

// fail throws the group's state away after an append, or a read, that failed: what is on disk decides when the group is next used. mu is held.
func (h *hosted) fail(ctx context.Context, err error) {
	code := codeCoordinatorMissing
	if errors.Is(err, storage.ErrFenced) || errors.Is(err, storage.ErrClosed) {
		code = codeNotCoordinator
	}
	h.part.groups.log.ErrorContext(ctx, "cannot store what a consumer group decided; its clients try again", "group", h.id, "error", err)
	h.group = nil
	h.part.groups.timers.set(&h.timer, time.Time{})
	for _, d := range h.decided {
		if d.viewed != nil {
			d.viewed <- code
		}
	}
	h.decided = nil
	h.answerAll(code)
}

// answer sends a reply to the request that waits for it, if that is still there. mu is held.
func (h *hosted) answer(r coordinator.Reply) {
	if c := h.waiting[r.Token]; c != nil {
		delete(h.waiting, r.Token)
		c <- r // there is room for one, and each token is answered once
	}
}

// answerAll answers every waiting request with an error. mu is held.
func (h *hosted) answerAll(code int16) {
	for token := range h.waiting {
		h.answer(coordinator.Reply{Token: token, Err: code})
	}
}
