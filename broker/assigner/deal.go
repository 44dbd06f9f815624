// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"slices"
)

// deal gives every partition of the kind that has no owner to a taker; need says how many each gets. The partitions of a single topic go
// around the ring. Several topics are each spread over the takers.
func (h *hand) deal(need []int32) {
	switch {
	case len(h.takers) == 0:
	case len(h.topics) == 1 && h.hashes != nil:
		h.walk(need)
	case h.fresh():
		h.inTurn(need)
	default:
		h.spread(need)
	}
}

// fresh reports whether no partition of the kind has an owner.
func (h *hand) fresh() bool {
	for _, t := range h.topics {
		for g := h.p.start[t]; g < h.p.start[t+1]; g++ {
			if h.p.owner[g] != none && h.in(g) {
				return false
			}
		}
	}
	return true
}

// before orders two members by their points on the ring, or by their ids.
func (h *hand) before(a, b int32) int {
	if h.points != nil {
		return cmp.Or(cmp.Compare(h.points[a], h.points[b]), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// walk gives each partition to the next taker on the ring, clockwise from the partition's point, that still needs one. It goes around the ring
// once, section by section, so that a large ring need not be in the processor's cache all at once; within a section the partitions come by
// number.
func (h *hand) walk(need []int32) {
	p, t := h.p, h.topics[0]
	r := newRing(h.takers, h.hashes)
	topicHash := hashString(topicSeed, p.topics[t])
	shift := r.sections()
	ends := make([]int32, 1<<(32-shift)+1)
	for g := p.start[t]; g < p.start[t+1]; g++ {
		if p.owner[g] == none && h.in(g) {
			ends[partitionPoint(topicHash, g-p.start[t])>>shift+1]++
		}
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	type orphan struct {
		g     int32
		point uint32
	}
	orphans := make([]orphan, ends[len(ends)-1])
	for g := p.start[t]; g < p.start[t+1]; g++ {
		if p.owner[g] == none && h.in(g) {
			point := partitionPoint(topicHash, g-p.start[t])
			end := &ends[point>>shift]
			orphans[*end] = orphan{int32(g), point}
			*end++
		}
	}
	for _, o := range orphans {
		m := r.walk(o.point, need)
		p.give(int(o.g), m)
		need[m]--
	}
}

// inTurn deals the partitions, by topic and number, to the takers in the order of what they need. If needs differ by one at most, so
// that those who need less are left out of the last round alone, no taker gets two partitions more of a topic than another.
func (h *hand) inTurn(need []int32) {
	slices.SortFunc(h.takers, func(a, b int32) int { return cmp.Or(cmp.Compare(need[b], need[a]), h.before(a, b)) })
	turn := 0
	for _, t := range h.topics {
		for g := h.p.start[t]; g < h.p.start[t+1]; g++ {
			if !h.in(g) {
				continue
			}
			if turn == len(h.takers) || need[h.takers[turn]] == 0 {
				turn = 0
				// Those who need least come last; what they needed is dealt.
				for need[h.takers[len(h.takers)-1]] == 0 {
					h.takers = h.takers[:len(h.takers)-1]
				}
			}
			m := h.takers[turn]
			h.p.give(g, m)
			need[m]--
			turn++
		}
	}
}

// spread gives each partition to the taker that has fewest of the topic, then the one that needs most, then the first on the ring.
func (h *hand) spread(need []int32) {
	slices.SortFunc(h.takers, h.before)
	d := &dealer{need: need, counts: h.counts, rank: make([]int32, len(h.counts)), heap: make([]int32, 0, len(h.takers))}
	for i, m := range h.takers {
		d.rank[m] = int32(i)
	}
	for _, t := range h.topics {
		orphans := false
		for g := h.p.start[t]; g < h.p.start[t+1]; g++ {
			if m := h.p.owner[g]; h.in(g) {
				if m == none {
					orphans = true
				} else {
					d.counts[m]++
				}
			}
		}
		if orphans {
			d.begin(h.takers)
			for g := h.p.start[t]; g < h.p.start[t+1]; g++ {
				if h.p.owner[g] == none && h.in(g) {
					h.p.give(g, d.next())
				}
			}
		}
		clear(d.counts)
	}
}

// dealer is a heap of the members that need partitions of a topic.
type dealer struct {
	need []int32
	// counts is how many partitions of the topic each member has.
	counts []int32
	rank   []int32
	heap   []int32
}

// begin fills the heap.
func (d *dealer) begin(takers []int32) {
	d.heap = d.heap[:0]
	for _, m := range takers {
		if d.need[m] > 0 {
			d.heap = append(d.heap, m)
		}
	}
	for i := len(d.heap)/2 - 1; i >= 0; i-- {
		d.sift(i)
	}
}

// next returns who gets the next partition.
func (d *dealer) next() int32 {
	m := d.heap[0]
	d.need[m]--
	d.counts[m]++
	if d.need[m] == 0 {
		last := len(d.heap) - 1
		d.heap[0] = d.heap[last]
		d.heap = d.heap[:last]
	}
	d.sift(0)
	return m
}

// sift moves the heap's entry i down to its place.
func (d *dealer) sift(i int) {
	for {
		child := 2*i + 1
		if child >= len(d.heap) {
			return
		}
		if child+1 < len(d.heap) && d.before(d.heap[child+1], d.heap[child]) {
			child++
		}
		if !d.before(d.heap[child], d.heap[i]) {
			return
		}
		d.heap[i], d.heap[child] = d.heap[child], d.heap[i]
		i = child
	}
}

// before reports whether a is served before b.
func (d *dealer) before(a, b int32) bool {
	switch {
	case d.counts[a] != d.counts[b]:
		return d.counts[a] < d.counts[b]
	case d.need[a] != d.need[b]:
		return d.need[a] > d.need[b]
	default:
		return d.rank[a] < d.rank[b]
	}
}
