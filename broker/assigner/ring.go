// SPDX-License-Identifier: Apache-2.0

package assigner

import "math/bits"

// virtualNodes is the number of points that each member has on the ring. The bounds on the members' loads keep the balance, so
// the points need only mix the members well; more of them cost time in every fresh assignment.
const virtualNodes = 16

// ring is a hash ring of the members that still have room, with virtualNodes points each. A walk goes clockwise from a
// partition's point to the first member with room: consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016), where the
// bound is exact.
type ring struct {
	// points are ascending; equal ones are ordered by member.
	points  []uint64
	members []int32
	// first holds, for each value of a point's high bits, the first slot of that value or a higher one.
	first []int32
	shift uint
	// next leads from a slot whose member has no room to a later one: a disjoint-set forest with path compression, without which a
	// walk over a nearly full ring would visit every slot.
	next    []int32
	touched []int32
}

// newRing returns the ring of the given members; hashes holds every member's hash. It sorts by the high bits of the points, which
// are evenly spread, in linear time.
func newRing(members []int32, hashes []uint64) *ring {
	n := len(members) * virtualNodes
	width := uint(bits.Len(uint(n)))
	r := &ring{
		points:  make([]uint64, n),
		members: make([]int32, n),
		first:   make([]int32, 1<<width+1),
		shift:   64 - width,
		next:    make([]int32, n),
	}
	for _, m := range members {
		for v := range virtualNodes {
			r.first[memberPoint(hashes[m], v)>>r.shift+1]++
		}
	}
	for i := 1; i < len(r.first); i++ {
		r.first[i] += r.first[i-1]
	}
	filled := make([]int32, len(r.first)) // how many slots of each value are taken
	for _, m := range members {
		for v := range virtualNodes {
			point := memberPoint(hashes[m], v)
			value := point >> r.shift
			r.insert(int(r.first[value]), int(r.first[value]+filled[value]), point, m)
			filled[value]++
		}
	}
	for i := range r.next {
		r.next[i] = r.after(i)
	}
	return r
}

// insert puts a point into the sorted slots [from, to), shifting the larger ones into the free slot to.
func (r *ring) insert(from, to int, point uint64, member int32) {
	for to > from && (r.points[to-1] > point || r.points[to-1] == point && r.members[to-1] > member) {
		r.points[to], r.members[to] = r.points[to-1], r.members[to-1]
		to--
	}
	r.points[to], r.members[to] = point, member
}

// after returns the slot that follows, clockwise.
func (r *ring) after(slot int) int32 {
	if slot+1 == len(r.points) {
		return 0
	}
	return int32(slot + 1)
}

// slot returns the first slot at or after a point, clockwise.
func (r *ring) slot(point uint64) int32 {
	i := int(r.first[point>>r.shift])
	for i < len(r.points) && r.points[i] < point {
		i++
	}
	if i == len(r.points) {
		return 0
	}
	return int32(i)
}

// walk returns the first member with room at or after a point, clockwise. Some member must have room; between two calls of
// reset, room may only shrink.
func (r *ring) walk(point uint64, room []int32) int32 {
	start := r.slot(point)
	end := start
	for room[r.members[end]] == 0 {
		end = r.next[end]
	}
	for s := start; s != end; {
		following := r.next[s]
		if following != end {
			r.next[s] = end
			r.touched = append(r.touched, s)
		}
		s = following
	}
	return r.members[end]
}

// reset makes the ring forget which members have no room.
func (r *ring) reset() {
	for _, s := range r.touched {
		r.next[s] = r.after(int(s))
	}
	r.touched = r.touched[:0]
}
