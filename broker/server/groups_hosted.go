// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// hosted is a group and what its requests need around it: one step at a time, a durable log, answers.
type hosted struct {
	id   string
	part *groupPartition
	// fleeting marks a group that answers a single request and is not kept.
	fleeting bool

	// mu makes steps follow each other: each is decided, stored and answered before the next.
	mu sync.Mutex
	// group is nil when an append has failed: what is stored is not known then, and the group is built anew from the log at its next use.
	group *coordinator.Group
	// gone says that the group has left the partition's map; requests look there again.
	gone bool
	// waiting holds where the answers of requests go that have none yet.
	waiting map[coordinator.Token]chan<- coordinator.Reply
	// plan is the managed group that was last fed, nil for none.
	plan *metadata.Group
	used time.Time

	timer groupTimer
}

func newHosted(p *groupPartition, id string) *hosted {
	h := &hosted{
		id: id, part: p, group: coordinator.New(id, groupOptions), waiting: make(map[coordinator.Token]chan<- coordinator.Reply),
		used: p.groups.now(),
	}
	h.timer.group = h
	return h
}

// step feeds a request. It says false where the group is gone and the request has to look for it again; otherwise the answer comes on
// answer, now or later.
func (h *hosted) step(ctx context.Context, in coordinator.Input, token coordinator.Token, answer chan<- coordinator.Reply) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return false
	}
	h.waiting[token] = answer
	h.used = h.part.groups.now()
	if err := h.revive(ctx); err != nil {
		h.fail(ctx, err)
		return true
	}
	if h.group != nil {
		h.apply(ctx, in)
	}
	return true
}

// tick tells the group that its deadline has come.
func (h *hosted) tick(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.gone && h.group != nil {
		h.apply(ctx, coordinator.Tick{})
	}
}

// follow feeds the operator's plan where it is another than before; nil makes it an ordinary group again.
func (h *hosted) follow(ctx context.Context, plan *metadata.Group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.plan == plan || plan != nil && h.plan != nil && reflect.DeepEqual(*plan, *h.plan) {
		return
	}
	h.plan = plan
	h.used = h.part.groups.now()
	if h.group == nil {
		return // it is fed when it is built anew
	}
	h.apply(ctx, planInput(plan))
}

// store appends all of the group's offsets once more.
func (h *hosted) store(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return nil
	}
	if err := h.revive(ctx); err != nil {
		return err
	}
	if h.group == nil {
		return errors.New("the group's state is not known")
	}
	if err := h.part.append(ctx, h.id, h.group.Offsets()); err != nil {
		h.fail(ctx, err)
		return err
	}
	return nil
}

// size is how many offsets the group has.
func (h *hosted) size(ctx context.Context) (n int) {
	h.view(ctx, func(g *coordinator.Group) { n = len(g.Offsets()) })
	return n
}

// forgetTopics removes the offsets of topics that were deleted.
func (h *hosted) forgetTopics(ctx context.Context, topics []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.group == nil {
		return
	}
	var in coordinator.DeleteOffsets
	for _, o := range h.group.Offsets() { // sorted by topic
		if !slices.Contains(topics, o.Topic) {
			continue
		}
		if n := len(in.Partitions); n == 0 || in.Partitions[n-1].Topic != o.Topic {
			in.Partitions = append(in.Partitions, coordinator.TopicPartitions{Topic: o.Topic})
		}
		last := &in.Partitions[len(in.Partitions)-1]
		last.Partitions = append(last.Partitions, o.Partition)
	}
	if len(in.Partitions) > 0 {
		h.apply(ctx, in)
	}
}

// apply makes one step: it decides, stores and answers. mu is held.
func (h *hosted) apply(ctx context.Context, in coordinator.Input) {
	before := offsetsBefore(h.group, in)
	out := h.group.Step(h.part.groups.now(), in)
	for _, note := range out.Notes {
		h.part.groups.log.InfoContext(ctx, note)
	}
	switch err := h.part.append(ctx, h.id, out.Records); {
	case err != nil && errors.Is(err, storage.ErrFull) && before != nil:
		h.undo(&out, in, before, err)
	case err != nil:
		h.fail(ctx, err)
		return
	}
	for _, r := range out.Replies {
		h.answer(r)
	}
	switch {
	case h.group.State() == coordinator.StateDead:
		h.forget()
	case !h.fleeting:
		h.part.groups.timers.set(&h.timer, out.Deadline)
	}
}

// offsetsBefore returns the offsets that a step may change, as they are before it; nil where it may change more than offsets.
func offsetsBefore(g *coordinator.Group, in coordinator.Input) []coordinator.Record {
	var before []coordinator.Record
	add := func(topic string, partition int32) {
		o, ok := g.Offset(topic, partition)
		before = append(before, coordinator.Record{Topic: topic, Partition: partition, Offset: o, Deleted: !ok})
	}
	switch in := in.(type) {
	case coordinator.Commit:
		for _, o := range in.Offsets {
			add(o.Topic, o.Partition)
		}
	case coordinator.DeleteOffsets:
		for _, t := range in.Partitions {
			for _, p := range t.Partitions {
				add(t.Topic, p)
			}
		}
	}
	return before
}

// undo takes the offsets of a step back that could not be stored for want of room: nothing of them is on disk, and the members stay, or every
// commit would make the whole group join again for as long as the disk is full. mu is held.
func (h *hosted) undo(out *coordinator.Output, in coordinator.Input, before []coordinator.Record, err error) {
	for _, r := range before {
		h.group.Load(r)
	}
	var asked coordinator.Token
	switch in := in.(type) {
	case coordinator.Commit:
		asked = in.Token
	case coordinator.DeleteOffsets:
		asked = in.Token
	}
	for i := range out.Replies {
		if r := &out.Replies[i]; r.Token == asked {
			r.Err, r.Body = codeCoordinatorMissing, nil
		}
	}
	p := storage.Partition{Topic: h.part.topic.Name, Partition: h.part.number}
	h.part.groups.s.logs.report(p, "cannot store the offsets of consumer groups; their clients try again", err)
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

// fail throws the group's state away after an append that failed: what is on disk decides when the group is next used. mu is held.
func (h *hosted) fail(ctx context.Context, err error) {
	code := codeCoordinatorMissing
	if errors.Is(err, storage.ErrFenced) || errors.Is(err, storage.ErrClosed) {
		code = codeNotCoordinator
	}
	h.part.groups.log.ErrorContext(ctx, "cannot store the offsets of a consumer group; its clients try again", "group", h.id, "error", err)
	h.group = nil
	h.part.groups.timers.set(&h.timer, time.Time{})
	h.answerAll(code)
}

// revive builds the group from the log if its state was thrown away. mu is held.
func (h *hosted) revive(ctx context.Context) error {
	if h.group != nil {
		return nil
	}
	group := coordinator.New(h.id, groupOptions)
	_, err := h.part.read(context.WithoutCancel(ctx), func(r groupRecord) {
		if r.group == h.id {
			group.Load(r.Record)
		}
	})
	if err != nil {
		return fmt.Errorf("load the group's offsets again: %w", err)
	}
	h.group = group
	if h.plan != nil {
		h.apply(ctx, planInput(h.plan))
	}
	return nil
}

// view calls f while nothing changes the group.
func (h *hosted) view(ctx context.Context, f func(*coordinator.Group)) (known bool, code int16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return false, codeNone
	}
	if err := h.revive(ctx); err != nil || h.group == nil {
		return false, codeCoordinatorMissing
	}
	f(h.group)
	return true, codeNone
}

// abandon forgets a request whose client has gone; the group answers its token some time, and nobody hears it.
func (h *hosted) abandon(token coordinator.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, token)
}

// leave takes the group out of the partition, which is no longer led here.
func (h *hosted) leave(code int16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	h.answerAll(code)
}

// forget marks the group as gone. mu is held.
func (h *hosted) forget() {
	h.gone = true
	h.part.groups.timers.set(&h.timer, time.Time{})
	h.part.remove(h)
}

// expire forgets the group if it was not used since, and holds nothing.
func (h *hosted) expire(since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.group == nil || h.plan != nil || len(h.waiting) > 0 || h.used.After(since) {
		return
	}
	if h.group.State() == coordinator.StateEmpty && len(h.group.Offsets()) == 0 {
		h.forget()
	}
}

// planInput translates a managed group; nil is the end of one.
func planInput(plan *metadata.Group) coordinator.Plan {
	if plan == nil {
		return coordinator.Plan{}
	}
	p := coordinator.Plan{Managed: true, UID: plan.UID, Generation: plan.Generation, HandoffTimeout: plan.HandoffTimeout}
	for _, m := range plan.Members {
		p.Members = append(p.Members, coordinator.PlanMember{Pod: m.Pod, UID: m.UID, IP: m.IP, Alive: m.Alive, Share: sortedPartitions(m.Partitions)})
	}
	return p
}

// sortedPartitions makes a list by topic of a map.
func sortedPartitions(m map[string][]int32) []coordinator.TopicPartitions {
	share := make([]coordinator.TopicPartitions, 0, len(m))
	for topic, partitions := range m {
		share = append(share, coordinator.TopicPartitions{Topic: topic, Partitions: slices.Clone(partitions)})
	}
	slices.SortFunc(share, func(a, b coordinator.TopicPartitions) int { return strings.Compare(a.Topic, b.Topic) })
	return share
}
