// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// divideAll gives the clients of the pods that have changed their targets: parts of their pod's share. It is to be called after every change
// of the plan, the members and their subscriptions, and takes from the clients what they should have let go of by then.
func (g *Group) divideAll() {
	mg := g.managed
	if mg.awaited {
		return // what the pods are to read is not known yet
	}
	clients := map[string][]*groupMember{}
	for _, m := range g.sortedMembers() {
		pod := m.client.pod
		_, ok := mg.pods[pod]
		switch {
		case !ok || m.client.opaque || m.subscription == nil:
			g.retarget(m, nil)
		case mg.changed[pod]:
			clients[pod] = append(clients[pod], m)
		}
	}
	for pod, members := range clients {
		g.divide(mg.pods[pod].share, members)
	}
	clear(mg.changed)
	g.fence()
}

// divide divides a share among the clients of one pod, given in the order of their ids. The assigner knows partitions as a count for
// each topic, so it is given the places of the partitions in the share.
func (g *Group) divide(share []assigner.Partition, members []*groupMember) {
	if len(members) == 1 {
		g.retarget(members[0], subscribed(share, members[0]))
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
		in.Members = append(in.Members, assigner.Member{ID: m.id, Topics: m.topics})
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
		g.retarget(m, target)
	}
}

// subscribed is the part of a share that is of the member's topics.
func subscribed(share []assigner.Partition, m *groupMember) []assigner.Partition {
	var out []assigner.Partition
	for _, tp := range share {
		if _, reads := slices.BinarySearch(m.topics, tp.Topic); reads {
			out = append(out, tp)
		}
	}
	return out
}
