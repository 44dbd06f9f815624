// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// share is what a client of a managed group would be told now: its target less what another live client still holds.
func (mg *managedGroup) share(m *groupMember) []assigner.Partition {
	var share []assigner.Partition
	for _, tp := range m.client.target {
		holder := mg.holders[tp]
		if holder == m || (holder == nil && mg.blockers == 0) {
			share = append(share, tp)
		}
	}
	return share
}

// hold makes a client the holder of a partition that nobody else holds.
func (mg *managedGroup) hold(m *groupMember, tp assigner.Partition) {
	c := &m.client
	if c.held == nil {
		c.held = map[assigner.Partition]bool{}
	}
	c.held[tp] = true
	mg.holders[tp] = m
	delete(c.fenced, tp)
}

// drop ends a client's hold of a partition.
func (mg *managedGroup) drop(m *groupMember, tp assigner.Partition) {
	delete(m.client.held, tp)
	delete(m.client.moved, tp)
	delete(mg.holders, tp)
}

// unblock ends the wait for a member from before the group was managed.
func (mg *managedGroup) unblock(m *groupMember) {
	if m.client.blocking {
		m.client.blocking = false
		mg.blockers--
	}
}

// forget releases all that a member holds.
func (mg *managedGroup) forget(m *groupMember) {
	mg.unblock(m)
	mg.changed[m.client.pod] = true
	for tp := range m.client.held {
		mg.drop(m, tp)
	}
}

// divideAll gives the clients of the pods that have changed their targets: parts of their pod's share. It is to be called after every change
// of the plan, the members and their subscriptions, and takes from the clients what they should have let go of by then.
func (g *Group) divideAll() {
	mg := g.managed
	clients := map[string][]*groupMember{}
	for _, m := range g.sortedMembers() {
		pod := m.client.pod
		_, ok := mg.pods[pod]
		switch {
		case !ok || m.client.opaque || m.subscription == nil:
			m.client.target = nil
			g.settle(m)
		case mg.changed[pod]:
			clients[pod] = append(clients[pod], m)
		}
	}
	for pod, members := range clients {
		g.divide(mg.pods[pod].share, members)
		for _, m := range members {
			g.settle(m)
		}
	}
	clear(mg.changed)
	g.fence()
}

// divide divides a share among the clients of one pod, given in the order of their ids. The assigner knows partitions as a count for
// each topic, so it is given the places of the partitions in the share.
func (g *Group) divide(share []assigner.Partition, members []*groupMember) {
	if len(members) == 1 {
		members[0].client.target = subscribed(share, members[0])
		return
	}
	in := assigner.Input{Partitions: map[string]int32{}, Previous: assigner.Assignment{}}
	places := map[assigner.Partition]assigner.Partition{}
	actual := map[assigner.Partition]assigner.Partition{}
	for _, tp := range share {
		place := assigner.Partition{Topic: tp.Topic, Partition: in.Partitions[tp.Topic]}
		in.Partitions[tp.Topic]++
		places[tp], actual[place] = place, tp
	}
	for _, m := range members {
		in.Members = append(in.Members, assigner.Member{ID: m.id, Topics: sortedTopics(m.subscription)})
		for _, tp := range m.client.target {
			if place, ok := places[tp]; ok {
				in.Previous[m.id] = append(in.Previous[m.id], place)
			}
		}
	}
	plan := g.opts.Divider.Assign(in)
	for _, m := range members {
		target := make([]assigner.Partition, 0, len(plan[m.id]))
		for _, place := range plan[m.id] {
			target = append(target, actual[place])
		}
		slices.SortFunc(target, comparePartitions)
		m.client.target = target
	}
}

// subscribed is the part of a share that is of the member's topics.
func subscribed(share []assigner.Partition, m *groupMember) []assigner.Partition {
	topics := map[string]bool{}
	for _, t := range m.subscription.Topics {
		topics[t] = true
	}
	var out []assigner.Partition
	for _, tp := range share {
		if topics[tp.Topic] {
			out = append(out, tp)
		}
	}
	return out
}

// settle notes since when the client holds what is no longer its own.
func (g *Group) settle(m *groupMember) {
	c := &m.client
	for tp := range c.held {
		_, own := slices.BinarySearchFunc(c.target, tp, comparePartitions)
		_, noted := c.moved[tp]
		switch {
		case own:
			delete(c.moved, tp)
		case !noted:
			if c.moved == nil {
				c.moved = map[assigner.Partition]time.Time{}
			}
			c.moved[tp] = g.now
		}
	}
}

// fence takes from the clients what they should have let go of by now. Their commits for it are refused from here on.
func (g *Group) fence() {
	for _, m := range g.sortedMembers() {
		c := &m.client
		if c.blocking && g.due(c.blockingSince.Add(g.managed.handoffTimeout)) {
			g.managed.unblock(m)
			g.notef("member %q: fenced, it did not join again within the handoff timeout of %s", m.id, g.managed.handoffTimeout)
		}
		taken := 0
		for tp, since := range c.moved {
			if !g.due(since.Add(g.managed.handoffTimeout)) {
				continue
			}
			g.managed.drop(m, tp)
			if c.fenced == nil {
				c.fenced = map[assigner.Partition]bool{}
			}
			c.fenced[tp] = true
			taken++
		}
		if taken > 0 {
			g.notef("member %q: fenced from %d partition(s) that it did not let go of within the handoff timeout of %s",
				m.id, taken, g.managed.handoffTimeout)
		}
	}
}

// nextFence is when something is next to be taken from a client, zero for never.
func (g *Group) nextFence() time.Time {
	var next time.Time
	for _, m := range g.members {
		if m.client.blocking {
			next = earliest(next, m.client.blockingSince.Add(g.managed.handoffTimeout))
		}
		for _, since := range m.client.moved {
			next = earliest(next, since.Add(g.managed.handoffTimeout))
		}
	}
	return next
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
