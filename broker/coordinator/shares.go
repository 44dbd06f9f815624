// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// handoff says who may be reading what in a group whose members are told their shares by the group: a managed group, where the operator decides them, and a
// consumer group (KIP-848), where the group does. A partition that moves is first taken from the member that holds it, and given to its new owner when that has let
// go of it.
type handoff struct {
	// holders are the members that may be reading a partition. A partition has one at most, and is in its holder's held, and in no other's.
	holders map[assigner.Partition]*groupMember
	// blockers is how many members have client.blocking set.
	blockers int
}

func newHandoff() *handoff { return &handoff{holders: map[assigner.Partition]*groupMember{}} }

// reader is a member's part in a group that tells its members their shares.
type reader struct {
	// pod and uid are of the pod that the member runs in, empty in a consumer group, and until the plan of a managed group has it. They stay when the pod leaves the plan.
	pod, uid string
	// noted says that the log has been told that the member is of no known pod.
	noted bool
	// synced says that the member has been told its share since it last joined.
	synced bool
	// target is what the member is to read, whoever still holds it; sorted.
	target []assigner.Partition
	// lent is what of target is in the share of another pod, of which no client is there to read it yet; sorted.
	lent []assigner.Partition
	// last is what the member was last told, if synced; sorted.
	last []assigner.Partition
	// held is what the member may be reading.
	held map[assigner.Partition]bool
	// moved is what of held is not in target, and since when.
	moved map[assigner.Partition]time.Time
	// asked is what of moved a classic member of a consumer group has been told to give up, by the answer to its SyncGroup: the time for that begins then, once.
	asked map[assigner.Partition]bool
	// since is, of a member that speaks KIP-848's protocol, the epoch in which it got each partition of held. It is not stored: after a restart that is the member's own.
	since map[assigner.Partition]int32
	// due is when the first of moved has to have been given up, once it was computed; nil after a change.
	due *time.Time
	// fenced is what was taken from the member, after the handoff timeout or with its topic, until it joins without it.
	fenced map[assigner.Partition]bool
	// opaque marks a member from before the group was managed, until it joins again: what it reads is not known.
	opaque bool
	// blocking says that an opaque member may be reading anything, until blockingSince plus the handoff timeout.
	blocking      bool
	blockingSince time.Time
}

// share is what a member would be told now: its target less what another live client still holds.
func (h *handoff) share(m *groupMember) []assigner.Partition {
	var share []assigner.Partition
	for _, tp := range m.client.target {
		holder := h.holders[tp]
		if holder == m || (holder == nil && h.blockers == 0) {
			share = append(share, tp)
		}
	}
	return share
}

// hold makes a client the holder of a partition that nobody else holds.
func (h *handoff) hold(m *groupMember, tp assigner.Partition) {
	c := &m.client
	if c.held == nil {
		c.held = map[assigner.Partition]bool{}
	}
	c.held[tp] = true
	h.holders[tp] = m
	delete(c.fenced, tp)
}

// drop ends a client's hold of a partition.
func (h *handoff) drop(m *groupMember, tp assigner.Partition) {
	c := &m.client
	delete(c.held, tp)
	delete(c.moved, tp)
	delete(c.asked, tp)
	delete(c.since, tp)
	delete(h.holders, tp)
	c.due = nil
}

// takeAway ends a client's hold of a partition that it may still read: its commits for it are refused, and it cannot claim it.
func (h *handoff) takeAway(m *groupMember, tp assigner.Partition) {
	h.drop(m, tp)
	if m.client.fenced == nil {
		m.client.fenced = map[assigner.Partition]bool{}
	}
	m.client.fenced[tp] = true
}

// unblock ends the wait for a member from before the group was managed.
func (h *handoff) unblock(m *groupMember) {
	if m.client.blocking {
		m.client.blocking = false
		h.blockers--
	}
}

// forget releases all that a member holds, and what it waits for.
func (h *handoff) forget(m *groupMember) {
	h.unblock(m)
	for tp := range m.client.held {
		h.drop(m, tp)
	}
}

// reshare decides the targets anew. It is to be called after every change of the plan, the members, their subscriptions and their topics.
func (g *Group) reshare() {
	if g.managed != nil {
		g.divideAll()
		return
	}
	g.assign()
}

// retarget sets what a member is to read.
func (g *Group) retarget(m *groupMember, target []assigner.Partition) (changed bool) {
	if changed = !slices.Equal(m.client.target, target); changed {
		m.client.target = target
		g.settle(m)
		g.mark(m)
	}
	return changed
}

// settle notes since when the client holds what is no longer its own.
func (g *Group) settle(m *groupMember) {
	c := &m.client
	c.due = nil
	for tp := range c.held {
		own := contains(c.target, tp)
		_, noted := c.moved[tp]
		switch {
		case own:
			delete(c.moved, tp)
			delete(c.asked, tp)
		case !noted:
			c.giveUp(tp, g.now)
		}
	}
}

// giveUp begins the time that the member has to give up a partition, whether or not it had begun before.
func (c *reader) giveUp(tp assigner.Partition, from time.Time) {
	if c.moved == nil {
		c.moved = map[assigner.Partition]time.Time{}
	}
	c.moved[tp], c.due = from, nil
}

// fence takes from the clients what they should have let go of by now. Their commits for it are refused from here on.
func (g *Group) fence() {
	for _, m := range g.sortedMembers() {
		c := &m.client
		if c.blocking && g.due(c.blockingSince.Add(g.managed.handoffTimeout)) {
			g.handoff.unblock(m)
			g.mark(m)
			g.notef("member %q: fenced, it did not join again within the handoff timeout of %s", m.id, g.managed.handoffTimeout)
		}
		taken := 0
		for tp, since := range c.moved {
			if !g.due(since.Add(g.managed.handoffTimeout)) {
				continue
			}
			g.handoff.takeAway(m, tp)
			taken++
		}
		if taken > 0 {
			g.mark(m)
			g.notef("member %q: fenced from %d partition(s) that it did not let go of within the handoff timeout of %s",
				m.id, taken, g.managed.handoffTimeout)
		}
	}
}

// nextFence is when something is next to be taken from a client, zero for never.
func (g *Group) nextFence() time.Time {
	var next time.Time
	for _, m := range g.sorted {
		if m.client.blocking {
			next = earliest(next, m.client.blockingSince.Add(g.managed.handoffTimeout))
		}
		for _, since := range m.client.moved {
			next = earliest(next, since.Add(g.managed.handoffTimeout))
		}
	}
	return next
}

// contains says whether a partition is among some, which are sorted.
func contains(sorted []assigner.Partition, tp assigner.Partition) bool {
	_, ok := slices.BinarySearchFunc(sorted, tp, comparePartitions)
	return ok
}

func comparePartitions(a, b assigner.Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// flatten lists partitions one by one, sorted, each once.
func flatten(in []TopicPartitions) []assigner.Partition {
	var out []assigner.Partition
	for _, t := range in {
		for _, p := range t.Partitions {
			out = append(out, assigner.Partition{Topic: t.Topic, Partition: p})
		}
	}
	slices.SortFunc(out, comparePartitions)
	return slices.Compact(out)
}

// group is the inverse of flatten, for sorted partitions.
func group(in []assigner.Partition) []TopicPartitions {
	var out []TopicPartitions
	for _, tp := range in {
		if n := len(out); n == 0 || out[n-1].Topic != tp.Topic {
			out = append(out, TopicPartitions{Topic: tp.Topic})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	return out
}
