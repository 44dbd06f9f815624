// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	// maxWeight is what all partitions together may weigh at most after scaling, so that sums fit into 32 bits.
	maxWeight = 1 << 30
	// floorShare: a partition weighs at least 1/floorShare of the average, so that idle ones are spread too. That adds less than 1% in all.
	floorShare = 128
)

// Quantize makes a weight of a rate that is measured again and again, such as bytes a second or lag. last is what it returned for the
// partition before, 0 for nothing. As long as the rate is within a quarter of last, it returns last, so that noise moves nothing; else
// the rate, rounded to a quarter of the power of two below it (4, 5, 6, 7, 8, 10, 12, 14, 16, …). The result is at least 1.
func Quantize(rate, last int64) int64 {
	rate = max(rate, 1)
	if last > 0 && rate >= last-last/4 && rate-last <= last/4 {
		return last
	}
	shift := max(0, bits.Len64(uint64(rate))-3)
	half := int64(1) << shift >> 1
	if rate > 1<<62 {
		half = 0
	}
	return (rate + half) >> shift << shift
}

// numberWeights fills in the partitions' weights if they differ. They are scaled, so that all together are maxWeight at most.
func (p *problem) numberWeights(weights map[string][]int64) {
	if len(weights) == 0 || len(p.owner) == 0 || len(p.owner) > maxWeight/floorShare {
		return
	}
	known, largest := 0, int64(0)
	for t, topic := range p.topics {
		for _, w := range p.given(t, weights[topic]) {
			known++
			largest = max(largest, w)
		}
	}
	if largest == 0 {
		return
	}
	// Each weight fits into 31 bits first, so that their sum fits into 63.
	shift := max(0, bits.Len64(uint64(largest))-31)
	sum := int64(0)
	for t, topic := range p.topics {
		for _, w := range p.given(t, weights[topic]) {
			sum += max(0, w) >> shift
		}
	}
	average := float64(sum) / float64(known)
	perUnit := maxWeight / 2 / average / float64(len(p.owner))
	typical := int32(average * perUnit)
	list := make([]int32, len(p.owner))
	differ := false
	for t, topic := range p.topics {
		given := p.given(t, weights[topic])
		for g := p.start[t]; g < p.start[t+1]; g++ {
			list[g] = typical
			if i := g - p.start[t]; i < len(given) {
				list[g] = max(int32(float64(max(0, given[i])>>shift)*perUnit), typical/floorShare, 1)
			}
			differ = differ || list[g] != list[0]
		}
	}
	if differ {
		p.weight = list
	}
}

// given returns the weights of those partitions of a topic that have one and exist.
func (p *problem) given(t int, weights []int64) []int64 {
	return weights[:min(len(weights), p.partitions(int32(t)))]
}

// balanceWeights gives every member about the same weight, as far as subscriptions allow. Which loads those are is found as for numbers of
// partitions (see divide); no more can be promised, for to pack weights exactly is NP-hard. What has no owner goes, the heaviest first, to
// whoever has least (Graham 1969). Then, if a member has too much or too little, partitions move or change places.
func (p *problem) balanceWeights(points []uint64) {
	p.zones = nil
	kinds, of := p.findKinds()
	for k := range kinds {
		kinds[k].count = 0
	}
	for g, w := range p.weight {
		kinds[of[g]].count += w
	}
	members := make([]int32, len(p.subs))
	for _, s := range p.sub {
		members[s]++
	}
	parts := divide(kinds, members)
	kindsOf, level := takes(kinds, parts, len(p.subs))
	s := &scales{p: p, of: of, kindsOf: kindsOf, level: level, load: make([]int64, len(p.members))}
	s.release(kinds, parts)
	for g, m := range p.owner {
		if m != none {
			s.load[m] += int64(p.weight[g])
		}
	}
	s.rank = make([]int32, len(p.members))
	for i, m := range p.byPoint(points) {
		s.rank[m] = int32(i)
	}
	s.even(parts, s.place(kinds))
}

// scales balances weights.
type scales struct {
	p *problem
	// of holds each partition's kind, kindsOf the kinds that a subscription's members take, level what each of them should carry.
	of      []int32
	kindsOf [][]int32
	level   []int32
	// load is what each member carries, rank its place on the ring.
	load []int64
	rank []int32
}

// release takes partitions from members that should not have any of their kind, for others have less to carry: much less, so that a
// small change of weights does not count.
func (s *scales) release(kinds []kind, parts []part) {
	lowest := make([]int32, len(kinds))
	for _, part := range parts {
		for _, k := range part.kinds {
			lowest[k] = part.level
		}
	}
	for g, m := range s.p.owner {
		if m == none {
			continue
		}
		if low := int64(lowest[s.of[g]]); int64(s.level[s.p.sub[m]]) > low+low*highest/100 {
			s.p.take(g)
		}
	}
}

// takes reports whether a member takes partitions like g.
func (s *scales) takes(m int32, g int) bool {
	_, ok := slices.BinarySearch(s.kindsOf[s.p.sub[m]], s.of[g])
	return ok
}

// place gives each partition without an owner to the member that carries least, the first on the ring among equals, and reports
// whether there was one.
func (s *scales) place(kinds []kind) bool {
	var orphans []int32
	for g, m := range s.p.owner {
		if m == none {
			orphans = append(orphans, int32(g))
		}
	}
	if len(orphans) == 0 {
		return false
	}
	slices.SortFunc(orphans, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.p.weight[b], s.p.weight[a]), cmp.Compare(a, b))
	})
	bySub := make([]lightest, len(s.p.subs))
	for m := range s.load {
		bySub[s.p.sub[m]].members = append(bySub[s.p.sub[m]].members, int32(m))
	}
	for i := range bySub {
		bySub[i].s = s
		bySub[i].heapify()
	}
	for _, g := range orphans {
		best := int32(none)
		for _, sub := range kinds[s.of[g]].readers {
			m := bySub[sub].members[0]
			if s.takes(m, int(g)) && (best == none || s.lighter(m, best)) {
				best = m
			}
		}
		s.p.give(int(g), best)
		s.load[best] += int64(s.p.weight[g])
		bySub[s.p.sub[best]].sift(0)
	}
	return true
}

// lighter orders members by what they carry beyond their level, then by their place on the ring.
func (s *scales) lighter(a, b int32) bool {
	loadA, loadB := s.load[a]-int64(s.level[s.p.sub[a]]), s.load[b]-int64(s.level[s.p.sub[b]])
	if loadA != loadB {
		return loadA < loadB
	}
	return s.rank[a] < s.rank[b]
}

// lightest is a heap of members, the one that carries least on top.
type lightest struct {
	s       *scales
	members []int32
}

func (l *lightest) heapify() {
	for i := len(l.members)/2 - 1; i >= 0; i-- {
		l.sift(i)
	}
}

// sift moves the heap's entry i down to its place.
func (l *lightest) sift(i int) {
	for {
		child := 2*i + 1
		if child >= len(l.members) {
			return
		}
		if child+1 < len(l.members) && l.s.lighter(l.members[child+1], l.members[child]) {
			child++
		}
		if !l.s.lighter(l.members[child], l.members[i]) {
			return
		}
		l.members[i], l.members[child] = l.members[child], l.members[i]
		i = child
	}
}
