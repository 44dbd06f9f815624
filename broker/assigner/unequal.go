// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"slices"
)

// readers returns each topic's readers, by id.
func (p *problem) readers() [][]int32 {
	readers := make([][]int32, len(p.topics))
	for m := range p.members {
		for _, t := range p.subs[p.sub[m]].topics {
			readers[t] = append(readers[t], int32(m))
		}
	}
	return readers
}

// placeByLoad gives each partition without an owner to the reader of its topic that has least. Ties break clockwise from the
// partition's point on a ring with one point for each member, or by id if points is nil. Topics with few readers come first, for they have
// least choice.
func (p *problem) placeByLoad(points []uint64) {
	readers := p.readers()
	order := make([]int, len(p.topics))
	for t := range order {
		order[t] = t
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(readers[a]), len(readers[b])) })
	for _, t := range order {
		topicHash := hashString(topicSeed, p.topics[t])
		for g := p.start[t]; g < p.start[t+1]; g++ {
			if p.owner[g] == none {
				p.give(g, p.leastLoaded(readers[t], points, partitionPoint(topicHash, g-p.start[t])))
			}
		}
	}
}

func (p *problem) leastLoaded(readers []int32, points []uint64, from uint64) int32 {
	best := readers[0]
	for _, m := range readers[1:] {
		if p.load[m] < p.load[best] || p.load[m] == p.load[best] && points != nil && points[m]-from < points[best]-from {
			best = m
		}
	}
	return best
}

// augment improves the balance until nothing can: while partitions can be handed on, from member to member along topics that both
// read, from a member to one that has at least two fewer, it does so. Where no such path is left, the loads are as even as the subscriptions
// allow (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing, 2006). It ends, since every step makes the
// sum of the squares of the loads smaller.
func (p *problem) augment() {
	a := &augmenter{p: p, readers: p.readers(), counts: p.counts(), via: make([]step, len(p.members)), seen: make([]bool, len(p.topics))}
	for changed := true; changed; {
		changed = false
		for _, m := range a.byLoad() {
			for a.relieve(m) {
				changed = true
			}
		}
	}
}

// step says how a search reached a member: from another one, which would hand it a partition of a topic.
type step struct{ from, topic int32 }

type augmenter struct {
	p       *problem
	readers [][]int32
	counts  []int32
	via     []step
	seen    []bool
	queue   []int32
}

// byLoad returns the members, the most loaded first, then by id.
func (a *augmenter) byLoad() []int32 {
	order := make([]int32, len(a.p.members))
	for m := range order {
		order[m] = int32(m)
	}
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(a.p.load[y], a.p.load[x]) })
	return order
}

// relieve looks breadth-first for the shortest path from m to a member with at least two partitions fewer, hands a partition on along each
// of its steps, and reports whether there was one.
func (a *augmenter) relieve(m int32) bool {
	for i := range a.via {
		a.via[i] = step{from: none}
	}
	clear(a.seen)
	a.via[m].from = m
	a.queue = append(a.queue[:0], m)
	for len(a.queue) > 0 {
		from := a.queue[0]
		a.queue = a.queue[1:]
		for _, t := range a.p.subs[a.p.sub[from]].topics {
			if a.seen[t] || a.counts[int(from)*len(a.p.topics)+int(t)] == 0 {
				continue
			}
			a.seen[t] = true
			for _, to := range a.readers[t] {
				if a.via[to].from != none {
					continue
				}
				a.via[to] = step{from: from, topic: t}
				if a.p.load[to] <= a.p.load[m]-2 {
					a.handOn(m, to)
					return true
				}
				a.queue = append(a.queue, to)
			}
		}
	}
	return false
}

// handOn moves one partition along each step of the path from m that ends at to.
func (a *augmenter) handOn(m, to int32) {
	topics := len(a.p.topics)
	for to != m {
		s := a.via[to]
		for g := a.p.start[s.topic+1] - 1; ; g-- { // ends: the search saw that s.from has one
			if a.p.owner[g] == s.from {
				a.p.take(g)
				a.p.give(g, to)
				break
			}
		}
		a.counts[int(s.from)*topics+int(s.topic)]--
		a.counts[int(to)*topics+int(s.topic)]++
		to = s.from
	}
}
