// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// hosted is a group and what its requests need around it: one step at a time, a durable log, answers.
//
// Steps are decided one after the other, in memory, and then wait for their records to be stored. One append of a group is under way at a time; it takes the
// records of all that wait, so that many steps share one sync. What a step answers, and what is told of the group as it is after it, goes out when its records
// and those of all steps before it are on disk, in the order of the steps. Where an append fails, nothing counts that was decided since the last one: all that
// wait are answered with an error, and the group is built anew from the log.
type hosted struct {
	id   string
	part *groupPartition
	// fleeting marks a group that answers a single request and is not kept.
	fleeting bool

	// mu makes steps follow each other.
	mu sync.Mutex
	// group is nil when an append has failed: what is stored is not known then, and the group is built anew from the log at its next use. Nothing is decided
	// and not settled then.
	group *coordinator.Group
	// gone says that the group has left the partition's map; requests look there again.
	gone bool
	// waiting holds where the answers of requests go that have none yet.
	waiting map[coordinator.Token]chan<- coordinator.Reply
	// decided holds the steps whose answers are not sent yet, the oldest first.
	decided []decision
	// writing is closed when what is decided is written; nil while nothing is being written.
	writing chan struct{}

	// topics are those that the group was last told, nil for none.
	topics *knownTopics
	// plan is the managed group that it is, nil for none; planned says that the group was told.
	plan    *metadata.Group
	planned bool
	used    time.Time
	// notes bounds the lines about the group in the log.
	notes lineLimit

	timer groupTimer
}

// newHosted makes a group that nobody knows yet.
func newHosted(p *groupPartition, id string) *hosted {
	h := &hosted{
		id: id, part: p, group: coordinator.New(id, p.groups.options), waiting: make(map[coordinator.Token]chan<- coordinator.Reply),
		planned: true, // a new group is an ordinary one
		used:    p.groups.now(),
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
	h.apply(ctx, in)
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

// follow feeds what has changed in the metadata: the topics, and the operator's plan; nil makes it an ordinary group again.
func (h *hosted) follow(ctx context.Context, plan *metadata.Group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return
	}
	if h.plan != plan && (plan == nil || h.plan == nil || !reflect.DeepEqual(*plan, *h.plan)) {
		h.plan, h.planned = plan, false
		h.used = h.part.groups.now()
	}
	if h.group != nil { // else it is told when it is built anew
		h.tell(ctx)
	}
}

// tell brings the group up to date with the metadata: topics first, then the plan, so that nobody is served before that. mu is held, and there is a group.
func (h *hosted) tell(ctx context.Context) {
	if topics := h.part.groups.topics.Load(); topics != nil && topics != h.topics {
		h.topics = topics
		h.apply(ctx, coordinator.Topics{Topics: topics.byName})
	}
	if !h.planned {
		h.planned = true
		h.apply(ctx, planInput(h.plan))
	}
}

// revive makes a group that can be used: it builds one from the log if its state was thrown away, and tells it what it has not heard. mu is held.
func (h *hosted) revive(ctx context.Context) error {
	if h.group == nil {
		group := coordinator.New(h.id, h.part.groups.options)
		_, err := h.part.read(context.WithoutCancel(ctx), func(r groupRecord) {
			if r.group == h.id {
				group.Load(r.Record)
			}
		})
		if err != nil {
			return fmt.Errorf("load the group again: %w", err)
		}
		h.group, h.topics, h.planned = group, nil, false
	}
	h.tell(ctx)
	return nil
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

// view calls f with the group as it is, and returns when that is on disk. Where it cannot be stored the code says so, and what f has seen does not count.
func (h *hosted) view(ctx context.Context, f func(*coordinator.Group)) (known bool, code int16) {
	known, stored := h.look(ctx, f)
	code = <-stored
	return known && code == codeNone, code
}

// look is view for whoever does not wait: stored takes an error code when what f has seen is on disk, or cannot be stored.
func (h *hosted) look(ctx context.Context, f func(*coordinator.Group)) (known bool, stored <-chan int16) {
	viewed := make(chan int16, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		viewed <- codeNone
		return false, viewed
	}
	if err := h.revive(ctx); err != nil {
		viewed <- codeCoordinatorMissing
		return false, viewed
	}
	f(h.group)
	known = !h.group.Dead()
	h.decide(ctx, decision{viewed: viewed})
	return known, viewed
}

// release has a heartbeat answered that is held.
func (h *hosted) release(ctx context.Context, member string, token coordinator.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[token] != nil && !h.gone && h.group != nil { // else the answer is on its way
		h.apply(ctx, coordinator.Release{MemberID: member, Token: token})
	}
}

// abandon forgets a request whose client has gone; the group answers its token some time, and nobody hears it.
func (h *hosted) abandon(token coordinator.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, token)
}

// leave takes the group out of the partition, which is no longer led here. It returns what is closed when nothing more is written and all that waited is
// answered: what was decided with what becomes of its records, the others with NOT_COORDINATOR.
func (h *hosted) leave() (written <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	if h.writing != nil {
		return h.writing
	}
	h.answerAll(codeNotCoordinator)
	done := make(chan struct{})
	close(done)
	return done
}

// forget marks the group as gone. mu is held.
func (h *hosted) forget() {
	h.gone = true
	h.part.groups.timers.set(&h.timer, time.Time{})
	h.part.remove(h)
}

// expire deletes the group if it was not used since, and holds nothing: what it remembers of itself goes from the log too.
func (h *hosted) expire(ctx context.Context, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.group == nil || h.plan != nil || len(h.waiting) > 0 || h.used.After(since) || !h.group.Idle() {
		return
	}
	h.apply(ctx, coordinator.Delete{}) // nobody waits for the answer
}

// planInput translates a managed group; nil is the end of one.
func planInput(plan *metadata.Group) coordinator.Plan {
	if plan == nil {
		return coordinator.Plan{}
	}
	p := coordinator.Plan{Managed: true, UID: plan.UID, Generation: plan.Generation, HandoffTimeout: plan.HandoffTimeout}
	for _, m := range plan.Members {
		p.Members = append(p.Members, coordinator.PlanMember{Pod: m.Pod, UID: m.UID, IP: m.IP, Alive: m.Alive, Restarts: m.Restarts, Share: sortedPartitions(m.Partitions)})
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
