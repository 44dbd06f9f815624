// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"slices"
)

// Bounds of what a member carries, in percent of its level. Nothing moves while all are within lowest and highest. Once one is not, members are
// brought to within low and high: so what a small change of weights does to a plan is nothing.
const (
	lowest, low   = 80, 90
	high, highest = 102, 104
	// worthwhile is by how much an exchange must improve things, in thousandths of the level.
	worthwhile = 5
	// maxTries bounds the partners that are tried for a member, so that a group that cannot be balanced costs no more than one that can.
	maxTries = 64
)

// bounds are the least and the most that a member should carry.
type bounds struct{ min, max int64 }

func (s *scales) bounds(m int32, lowPercent, highPercent int64) bounds {
	level := int64(s.level[s.p.sub[m]])
	return bounds{level * lowPercent / 100, level * highPercent / 100}
}

// off is how far a load is out of bounds.
func (b bounds) off(load int64) int64 { return max(0, load-b.max, b.min-load) }

// even moves partitions between the members of each part until all are within bounds or nothing helps. placed says that partitions without an
// owner were given one.
func (s *scales) even(parts []part, placed bool) {
	partOf := make([]int32, len(s.p.subs))
	for i, part := range parts {
		for _, sub := range part.subs {
			partOf[sub] = int32(i)
		}
	}
	members := make([][]int32, len(parts))
	for m := range s.load {
		at := partOf[s.p.sub[m]]
		members[at] = append(members[at], int32(m))
	}
	var shares [][]int32
	for i, list := range members {
		within := s.bounds(list[0], lowest, highest)
		if placed {
			within = s.bounds(list[0], low, high)
		}
		if !slices.ContainsFunc(list, func(m int32) bool { return within.off(s.load[m]) > 0 }) {
			continue
		}
		if shares == nil {
			shares = s.shares()
		}
		slices.SortFunc(list, s.byLoad)
		e := &evener{scales: s, members: list, shares: shares, bounds: s.bounds(list[0], low, high), whole: len(parts[i].subs) == 1}
		worth := max(1, int64(parts[i].level)*worthwhile/1000)
		if e.worth = worth; !placed {
			// A plan that could not be evened out is not tried again because of a small change.
			e.worth *= 2
		}
		for progress := e.improve(); progress; {
			e.worth, e.stuck = worth, nil
			for progress = false; e.improve(); {
				progress = true
			}
		}
	}
}

// shares returns each member's partitions, the lightest first.
func (s *scales) shares() [][]int32 {
	shares := make([][]int32, len(s.load))
	for g, m := range s.p.owner {
		if m != none {
			shares[m] = append(shares[m], int32(g))
		}
	}
	for _, share := range shares {
		slices.SortFunc(share, s.byWeight)
	}
	return shares
}

func (s *scales) byWeight(a, b int32) int {
	return cmp.Or(cmp.Compare(s.p.weight[a], s.p.weight[b]), cmp.Compare(a, b))
}

// evener improves the loads of the members of a part.
type evener struct {
	*scales
	// members are in the order of byLoad.
	members []int32
	shares  [][]int32
	bounds  bounds
	worth   int64
	// stuck are the members that nothing helped since the last look at all.
	stuck map[int32]bool
	// whole says that every member takes every partition of the part.
	whole bool
}

// exchange is a partition that goes from one member to another, and what comes back.
type exchange struct {
	from, to, goes int32
	back           []int32
	// helps is the one of the two that is helped. off is how far the two are out of bounds afterwards, partner how far the other one is.
	helps        int32
	off, partner int64
}

// improve makes one exchange that helps a member that is out of bounds, the one that is furthest first, and reports whether there was one.
func (e *evener) improve() bool {
	var out []int32
	for _, m := range e.members {
		if e.bounds.off(e.load[m]) > 0 && !e.stuck[m] {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(e.bounds.off(e.load[b]), e.bounds.off(e.load[a])) })
	for _, m := range out[:min(len(out), maxTries)] {
		if x, ok := e.help(m); ok {
			e.carryOut(x)
			return true
		}
		if e.stuck == nil {
			e.stuck = make(map[int32]bool)
		}
		e.stuck[m] = true
	}
	return false
}

// help looks for an exchange that helps a member that is out of bounds, with those that carry least or most: first a partition, with or
// without one that comes back, then one for several.
func (e *evener) help(m int32) (exchange, bool) {
	heavy := e.load[m] > e.bounds.max
	for _, find := range []func(*exchange, int64){e.best, e.several} {
		for i := range min(len(e.members), maxTries) {
			partner := e.members[i]
			if heavy {
				partner = e.members[len(e.members)-1-i]
			}
			x := exchange{from: m, to: partner, helps: m, goes: none}
			if !heavy {
				x.from, x.to = partner, m
			}
			difference := e.load[x.from] - e.load[x.to]
			if difference <= e.worth {
				break
			}
			before := e.bounds.off(e.load[x.from]) + e.bounds.off(e.load[x.to])
			find(&x, difference)
			if x.goes != none && before-x.off >= e.worth {
				return x, true
			}
		}
	}
	return exchange{}, false
}

// best finds the best partition to go from one member to another, alone or for one that comes back. One is better than two.
func (e *evener) best(x *exchange, difference int64) {
	for _, g := range e.shares[x.from] {
		w := int64(e.p.weight[g])
		if w >= difference {
			break
		}
		if e.may(x.to, g) {
			e.consider(x, g, nil, w)
		}
	}
	if x.goes != none && x.off == 0 {
		return
	}
	// The lighter the partition that goes, the lighter the one that comes back.
	back := e.shares[x.to]
	at := 0
	for _, g := range e.shares[x.from] {
		if !e.may(x.to, g) {
			continue
		}
		w := int64(e.p.weight[g])
		for at+1 < len(back) && w-int64(e.p.weight[back[at+1]]) >= difference/2 {
			at++
		}
		for i := at; i < min(at+2, len(back)); i++ {
			if net := w - int64(e.p.weight[back[i]]); net > 0 && net < difference && e.may(x.from, back[i]) {
				e.consider(x, g, back[i:i+1], net)
			}
		}
	}
}

// several finds the best partition to go from one member to another for several that come back, the heavy ones first.
func (e *evener) several(x *exchange, difference int64) {
	for _, g := range e.shares[x.from] {
		net := int64(e.p.weight[g])
		if net < difference || !e.may(x.to, g) {
			continue
		}
		var back []int32
		for _, b := range slices.Backward(e.shares[x.to]) {
			if w := int64(e.p.weight[b]); net-w >= difference/2 && e.may(x.from, b) {
				net -= w
				back = append(back, b)
			}
		}
		if net < difference {
			e.consider(x, g, back, net)
		}
	}
}

// may reports whether a member takes a partition.
func (e *evener) may(m, g int32) bool { return e.whole || e.takes(m, int(g)) }

// consider takes an exchange that moves a net weight if it leaves the two members less far out of bounds than the best one so far, or as far
// but the partner less. Among equals, one partition is better than two, and a heavy one than a light one.
func (e *evener) consider(x *exchange, goes int32, back []int32, net int64) {
	from, to := e.bounds.off(e.load[x.from]-net), e.bounds.off(e.load[x.to]+net)
	off, partner := from+to, to
	if x.helps == x.to {
		partner = from
	}
	if c := cmp.Or(cmp.Compare(off, x.off), cmp.Compare(partner, x.partner)); x.goes == none || c < 0 || c == 0 && len(back) == 0 {
		x.goes, x.back, x.off, x.partner = goes, back, off, partner
	}
}

// byLoad orders members by what they carry, the most first, then by their place on the ring.
func (s *scales) byLoad(a, b int32) int {
	return cmp.Or(cmp.Compare(s.load[b], s.load[a]), cmp.Compare(s.rank[a], s.rank[b]))
}

// carryOut makes an exchange.
func (e *evener) carryOut(x exchange) {
	for _, m := range []int32{x.from, x.to} {
		at, _ := slices.BinarySearchFunc(e.members, m, e.byLoad)
		e.members = slices.Delete(e.members, at, at+1)
	}
	back := slices.Clone(x.back)
	e.hand(x.goes, x.from, x.to)
	for _, g := range back {
		e.hand(g, x.to, x.from)
	}
	for _, m := range []int32{x.from, x.to} {
		at, _ := slices.BinarySearchFunc(e.members, m, e.byLoad)
		e.members = slices.Insert(e.members, at, m)
	}
}

func (e *evener) hand(g, from, to int32) {
	at, _ := slices.BinarySearchFunc(e.shares[from], g, e.byWeight)
	e.shares[from] = slices.Delete(e.shares[from], at, at+1)
	at, _ = slices.BinarySearchFunc(e.shares[to], g, e.byWeight)
	e.shares[to] = slices.Insert(e.shares[to], at, g)
	e.p.take(int(g))
	e.p.give(int(g), to)
	e.load[from] -= int64(e.p.weight[g])
	e.load[to] += int64(e.p.weight[g])
}
