// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// divideAll gives the clients of the pods that have changed their targets: parts of their pod's share, and what is lent to them. It is to be called after every change
// of the plan, the members and their subscriptions, and takes from the clients what they should have let go of by then.
func (g *Group) divideAll() {
	mg := g.managed
	if mg.awaited {
		return // what the pods are to read is not known yet
	}
	clients := map[string][]*groupMember{}
	var lenders []string
	for _, m := range g.sortedMembers() {
		c := &m.client
		if _, ok := mg.pods[c.pod]; !ok || c.opaque || m.subscription == nil {
			c.lent = nil
			g.retarget(m, nil)
			continue
		}
		clients[c.pod] = append(clients[c.pod], m)
		if len(c.lent) > 0 || len(c.moved) > 0 { // whose turn it is to read that depends on other pods' clients
			lenders = append(lenders, c.pod)
		}
	}
	for _, pod := range lenders {
		mg.changed[pod] = true
	}
	for pod := range mg.changed {
		if members := clients[pod]; len(members) > 0 {
			targets := g.divide(mg.pods[pod].share, members)
			for i, m := range members {
				m.client.lent = g.lend(m, clients)
				g.retarget(m, merge(targets[i], m.client.lent))
			}
		}
	}
	clear(mg.changed)
	g.fence()
}

// lend finds what a member is to read of other pods' shares: what it has read so far, while no client of that pod is there to read it. A pod may be Ready long before its
// client has joined, and the records need not wait for it. Who is not alive, and whose pod has left the plan, gets nothing lent.
func (g *Group) lend(m *groupMember, clients map[string][]*groupMember) []assigner.Partition {
	mg, c := g.managed, &m.client
	if !mg.pods[c.pod].alive {
		return nil
	}
	lent := func(tp assigner.Partition) bool {
		owner, ok := mg.owners[tp]
		return ok && owner != c.pod && !slices.ContainsFunc(clients[owner], func(o *groupMember) bool { return o.reads(tp.Topic) })
	}
	var out []assigner.Partition
	for _, tp := range c.target {
		if holder := g.handoff.holders[tp]; (holder == nil || holder == m) && lent(tp) {
			out = append(out, tp)
		}
	}
	for tp := range c.moved {
		if lent(tp) {
			out = append(out, tp)
		}
	}
	slices.SortFunc(out, comparePartitions)
	return out
}

// merge joins two disjoint sorted lists of partitions.
func merge(a, b []assigner.Partition) []assigner.Partition {
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.SortFunc(out, comparePartitions)
	return out
}

// divide divides a share among the clients of one pod, given in the order of their ids, and returns the part of each, sorted. The assigner knows partitions as a count for
// each topic, so it is given the places of the partitions in the share.
func (g *Group) divide(share []assigner.Partition, members []*groupMember) [][]assigner.Partition {
	if len(members) == 1 {
		return [][]assigner.Partition{subscribed(share, members[0])}
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
		in.Members = append(in.Members, assigner.Member{ID: m.id, Topics: m.topics})
		for _, tp := range m.client.target {
			if place, ok := places[tp]; ok {
				in.Previous[m.id] = append(in.Previous[m.id], place)
			}
		}
	}
	plan := g.opts.Divider.Assign(in)
	parts := make([][]assigner.Partition, len(members))
	for i, m := range members {
		part := make([]assigner.Partition, 0, len(plan[m.id]))
		for _, place := range plan[m.id] {
			part = append(part, actual[place])
		}
		slices.SortFunc(part, comparePartitions)
		parts[i] = part
	}
	return parts
}

// subscribed is the part of a share that is of the member's topics.
func subscribed(share []assigner.Partition, m *groupMember) []assigner.Partition {
	var out []assigner.Partition
	for _, tp := range share {
		if m.reads(tp.Topic) {
			out = append(out, tp)
		}
	}
	return out
}

// reads says whether a member has subscribed to a topic.
func (m *groupMember) reads(topic string) bool {
	_, ok := slices.BinarySearch(m.topics, topic)
	return ok
}
