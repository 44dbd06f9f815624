// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// kind is a set of partitions that the same subscriptions read and, if zones count, whose leaders are in the same zone: it does not matter
// for balance, moves and zones which of them a member gets that had none of them.
type kind struct {
	topics  []int32
	readers []int32 // subscriptions
	zone    int32
	count   int32
}

// quotas is how many partitions of each kind each member shall have.
type quotas struct {
	kinds []kind
	// of holds each partition's kind.
	of  []int32
	net *network
}

// findKinds sorts the partitions into kinds.
func (p *problem) findKinds() ([]kind, []int32) {
	readers := make([][]int32, len(p.topics))
	for s := range p.subs {
		for _, t := range p.subs[s].topics {
			readers[t] = append(readers[t], int32(s))
		}
	}
	var kinds []kind
	of := make([]int32, len(p.owner))
	known := make(map[string][]int32) // the kinds of a set of readers, by zone
	var key []byte
	for t := range p.topics {
		key = key[:0]
		for _, s := range readers[t] {
			key = binary.BigEndian.AppendUint32(key, uint32(s))
		}
		byZone := known[string(key)]
		if byZone == nil {
			byZone = slices.Repeat([]int32{none}, p.zoneCount+1)
			known[string(key)] = byZone
		}
		for g := p.start[t]; g < p.start[t+1]; g++ {
			zone := p.zone(g)
			k := byZone[zone+1]
			if k == none {
				k = int32(len(kinds))
				byZone[zone+1] = k
				kinds = append(kinds, kind{readers: readers[t], zone: zone})
			}
			if i := len(kinds[k].topics) - 1; i < 0 || kinds[k].topics[i] != int32(t) {
				kinds[k].topics = append(kinds[k].topics, int32(t))
			}
			of[g] = k
			kinds[k].count++
		}
	}
	return kinds, of
}

// quotas finds how many partitions of each kind each member shall have, so that the loads are best balanced, the fewest partitions move
// and, among those, the fewest are in another zone than their owner. It takes the partitions away that no best balanced assignment
// leaves where they are. Members of a subscription are tried in the order of order.
func (p *problem) quotas(order []int32) *quotas {
	kinds, of := p.findKinds()
	members := make([]int32, len(p.subs))
	for _, s := range p.sub {
		members[s]++
	}
	kindsOf, level := takes(kinds, divide(kinds, members), len(p.subs))
	q := &quotas{kinds: kinds, of: of, net: newNetwork(len(kinds), kindsOf, p.sub)}
	for c := range q.net.columns {
		q.net.columns[c] = q.net.columns[c][:0]
	}
	for _, m := range order {
		q.net.columns[p.sub[m]] = append(q.net.columns[p.sub[m]], m)
	}
	if p.zones != nil {
		kindZone := make([]int32, len(kinds))
		for k := range kinds {
			kindZone[k] = kinds[k].zone
		}
		q.net.prefer(kindZone, p.memberZone, len(p.owner))
	}
	p.fill(q, level)
	if !q.net.zoned && slices.Max(q.net.had) == 0 {
		q.net.start()
	}
	q.net.run()
	q.net.mix()
	return q
}

// takes returns, by subscription, the kinds that its members take in a best balanced assignment, ascending, and the members' level.
func takes(kinds []kind, parts []part, subs int) (kindsOf [][]int32, level []int32) {
	kindsOf, level = make([][]int32, subs), make([]int32, subs)
	partOf := make([]int, subs)
	for i, part := range parts {
		for _, s := range part.subs {
			partOf[s], level[s] = i, part.level
		}
	}
	for i, part := range parts {
		for _, k := range part.kinds {
			for _, s := range kinds[k].readers {
				if partOf[s] == i {
					kindsOf[s] = append(kindsOf[s], k)
				}
			}
		}
	}
	return kindsOf, level
}

// fill puts the previous assignment into the network, and what is too many or too few of it.
func (p *problem) fill(q *quotas, level []int32) {
	n := q.net
	for g, m := range p.owner {
		if m == none {
			n.excess[q.of[g]]++
			continue
		}
		if entry := q.entry(g, m); entry != none {
			n.had[entry]++
		} else {
			p.take(g)
			n.excess[q.of[g]]++
		}
	}
	copy(n.has, n.had)
	n.excess[n.drain()] = -int32(len(p.owner))
	for m, load := range p.load {
		hi := level[p.sub[m]]
		lo := max(0, hi-1)
		n.lo[m], n.hi[m] = lo, hi
		n.drained[m] = min(max(load, lo), hi)
		n.excess[n.column(int32(m))] = load - n.drained[m]
		n.excess[n.drain()] += n.drained[m]
	}
}

// entry returns the entry of a member for the kind of a partition, none if it takes nothing of that kind.
func (q *quotas) entry(g int, m int32) int {
	place, takes := slices.BinarySearch(q.net.kindsOf[q.net.class[m]], q.of[g])
	if !takes {
		return none
	}
	return q.net.row[m] + place
}

// moves returns how many partitions get another owner.
func (q *quotas) moves() int {
	moves := 0
	for entry, has := range q.net.has {
		moves += max(0, int(has-q.net.had[entry]))
	}
	return moves
}

// byPoint returns the members in the order of their points on the ring, or of their ids if points is nil.
func (p *problem) byPoint(points []uint64) []int32 {
	order := make([]int32, len(p.members))
	for m := range order {
		order[m] = int32(m)
	}
	if points != nil {
		slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(points[a], points[b]), cmp.Compare(a, b)) })
	}
	return order
}

// settle moves partitions from the members that have more of a kind than their quota to those that have less.
func (p *problem) settle(q *quotas, hashes, points []uint64) {
	h := newHand(p, hashes, points)
	drop, need := make([]int32, len(p.members)), make([]int32, len(p.members))
	for k := range q.kinds {
		h.begin(q.kinds[k].topics, q.of, int32(k))
		for _, r := range q.net.readers[k] {
			for _, m := range q.net.columns[r.class] {
				entry := q.net.row[m] + int(r.place)
				h.add(m, q.net.had[entry]-q.net.has[entry], drop, need)
			}
		}
		h.shed(drop)
		h.deal(need)
	}
}
