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
	// slots are ascending: by point, then by member.
	slots []slot
	// first holds, for each value of a point's high bits, the first slot of that value or a higher one.
	first []int32
	shift uint
	// next leads from a slot whose member has no room to a later one, 0 to the one that follows: a disjoint-set forest with path
	// compression, without which a walk over a nearly full ring would visit every slot.
	next []int32
}

// slot is a virtual node: the high half of its point, then its member.
type slot uint64

func newSlot(point uint32, member int32) slot { return slot(point)<<32 | slot(uint32(member)) }

func (s slot) point() uint32 { return uint32(s >> 32) }
func (s slot) member() int32 { return int32(uint32(s)) }

// newRing returns the ring of the given members; hashes holds every member's hash. It sorts by the high bits of the points, which
// are evenly spread, in linear time.
func newRing(members []int32, hashes []uint64) *ring {
	n := len(members) * virtualNodes
	width := uint(bits.Len(uint(n)))
	r := &ring{
		slots: make([]slot, n),
		first: make([]int32, 1<<width+2),
		shift: 32 - width,
		next:  make([]int32, n),
	}
	points := make([]uint32, n)
	for i, m := range members {
		for v := range virtualNodes {
			point := uint32(memberPoint(hashes[m], v) >> 32)
			points[i*virtualNodes+v] = point
			r.first[point>>r.shift+2]++
		}
	}
	// While the slots are filled, first is one ahead: the entry of a value holds where the next slot of the value before goes.
	for i := 2; i < len(r.first); i++ {
		r.first[i] += r.first[i-1]
	}
	ends := r.first[1:]
	for i, point := range points {
		end := &ends[point>>r.shift]
		r.slots[*end] = newSlot(point, members[i/virtualNodes])
		*end++
	}
	for i := 1; i < n; i++ { // only slots of equal high bits are out of order
		s, at := r.slots[i], i
		for ; at > 0 && r.slots[at-1] > s; at-- {
			r.slots[at] = r.slots[at-1]
		}
		r.slots[at] = s
	}
	return r
}

// sectionSlots is about how many slots a section of the ring has; they fit into a processor's first cache.
const sectionSlots = 256

// sections returns by how much to shift a point for the number of its section.
func (r *ring) sections() uint {
	return min(32, r.shift+uint(bits.Len(sectionSlots-1)))
}

// after returns the slot that a slot leads to.
func (r *ring) after(at int32) int32 {
	if next := r.next[at]; next != 0 {
		return next
	}
	if int(at)+1 < len(r.slots) {
		return at + 1
	}
	return 0
}

// find returns the first slot at or after a point, clockwise.
func (r *ring) find(point uint32) int32 {
	i := int(r.first[point>>r.shift])
	for i < len(r.slots) && r.slots[i].point() < point {
		i++
	}
	if i == len(r.slots) {
		return 0
	}
	return int32(i)
}

// walk returns the first member with room at or after a point, clockwise. Some member must have room, and between two walks room
// may only shrink.
func (r *ring) walk(point uint32, room []int32) int32 {
	start := r.find(point)
	m := r.slots[start].member()
	if room[m] > 0 {
		return m
	}
	end := start
	for room[r.slots[end].member()] == 0 {
		end = r.after(end)
	}
	for s := start; s != end; {
		following := r.after(s)
		r.next[s] = end // a slot that leads to slot 0 is left to find it by itself
		s = following
	}
	return r.slots[end].member()
}
