// SPDX-License-Identifier: Apache-2.0

package assigner

// hand takes partitions from members that have too many of a kind, and gives them, and those without an owner, to members that have
// too few. How many a member loses or gains is decided before; hand chooses which, so that each topic stays spread.
type hand struct {
	p *problem
	// hashes and points are the members' on the ring; without, members come in the order of their ids.
	hashes, points []uint64
	// topics are those of the kind; of, if not empty, holds each partition's kind.
	topics []int32
	of     []int32
	kind   int32
	// readers is the number of members; givers are those that lose and takers those that gain partitions.
	readers        int
	givers, takers []int32
	// counts is scratch space by member, all zero between uses.
	counts []int32
}

func newHand(p *problem, hashes, points []uint64) *hand {
	return &hand{p: p, hashes: hashes, points: points, counts: make([]int32, len(p.members))}
}

// begin turns to another kind.
func (h *hand) begin(topics, of []int32, kind int32) {
	h.topics, h.of, h.kind = topics, of, kind
	h.readers, h.givers, h.takers = 0, h.givers[:0], h.takers[:0]
}

// add adds a member that has n partitions too many, or -n too few, and notes that.
func (h *hand) add(m, n int32, drop, need []int32) {
	h.readers++
	drop[m], need[m] = max(0, n), max(0, -n)
	switch {
	case n > 0:
		h.givers = append(h.givers, m)
	case n < 0:
		h.takers = append(h.takers, m)
	}
}

// in reports whether a partition is of the kind.
func (h *hand) in(g int) bool { return len(h.of) == 0 || h.of[g] == h.kind }

// shed takes from every giver what drop says, the highest-numbered partitions of a topic first.
func (h *hand) shed(drop []int32) {
	if len(h.givers) == 0 {
		return
	}
	if len(h.topics) == 1 {
		t := h.topics[0]
		for g := h.p.start[t+1] - 1; g >= h.p.start[t]; g-- {
			if m := h.p.owner[g]; m != none && drop[m] > 0 && h.in(g) {
				drop[m]--
				h.p.take(g)
			}
		}
		return
	}
	s := newShedder(h)
	for i, m := range h.givers {
		s.choose(i, drop[m])
		drop[m] = 0
	}
	for i, t := range h.topics {
		for g := h.p.start[t+1] - 1; g >= h.p.start[t]; g-- {
			if m := h.p.owner[g]; m != none && s.row[m] != none && s.drop[int(s.row[m])+i] > 0 && h.in(g) {
				s.drop[int(s.row[m])+i]--
				h.p.take(g)
			}
		}
	}
}

// shedder chooses the topics that the givers give up.
type shedder struct {
	topics int
	// row is where a giver's entries of counts and drop begin, one for each topic; none for the other members.
	row []int32
	// counts is how many partitions a giver has, drop how many it gives up.
	counts, drop []int32
	// want holds, for each topic, how many partitions the takers lack of an even share, less the ones without an owner.
	want []int32
	// low and high are ⌊Pₜ/n⌋ and ⌈Pₜ/n⌉.
	low, high []int32
}

func newShedder(h *hand) *shedder {
	topics := len(h.topics)
	s := &shedder{
		topics: topics, row: make([]int32, len(h.p.members)),
		counts: make([]int32, len(h.givers)*topics), drop: make([]int32, len(h.givers)*topics),
		want: make([]int32, topics), low: make([]int32, topics), high: make([]int32, topics),
	}
	const taker = none - 1
	for m := range s.row {
		s.row[m] = none
	}
	for i, m := range h.givers {
		s.row[m] = int32(i * topics)
	}
	for _, m := range h.takers {
		s.row[m] = taker
	}
	for i, t := range h.topics {
		count, have := 0, 0
		for g := h.p.start[t]; g < h.p.start[t+1]; g++ {
			if h.in(g) {
				count++
			}
		}
		s.low[i], s.high[i] = int32(count/h.readers), int32((count+h.readers-1)/h.readers)
		for g := h.p.start[t]; g < h.p.start[t+1]; g++ {
			if !h.in(g) {
				continue
			}
			switch m := h.p.owner[g]; {
			case m == none:
				have++
			case s.row[m] == taker:
				h.counts[m]++
				if h.counts[m] <= s.low[i] {
					have++
				}
			case s.row[m] != none:
				s.counts[int(s.row[m])+i]++
			}
		}
		for _, m := range h.takers {
			h.counts[m] = 0
		}
		s.want[i] = int32(len(h.takers))*s.low[i] - int32(have)
	}
	for _, m := range h.takers {
		s.row[m] = none
	}
	return s
}

// choose chooses n partitions that a giver gives up.
func (s *shedder) choose(giver int, n int32) {
	counts := s.counts[giver*s.topics : (giver+1)*s.topics]
	for range n {
		best := none
		for t := range counts {
			if counts[t] > 0 && (best == none || s.better(counts, t, best)) {
				best = t
			}
		}
		counts[best]--
		s.drop[giver*s.topics+best]++
		s.want[best]--
	}
}

// better reports whether a member with these counts should rather give up a partition of topic a than one of b: first what it has beyond
// ⌈Pₜ/n⌉, then what leaves it at least ⌊Pₜ/n⌋; among those, the topic that the others lack most.
func (s *shedder) better(counts []int32, a, b int) bool {
	excessA, excessB := max(0, counts[a]-s.high[a]), max(0, counts[b]-s.high[b])
	if excessA != excessB {
		return excessA > excessB
	}
	spareA, spareB := counts[a] > s.low[a], counts[b] > s.low[b]
	if spareA != spareB {
		return spareA
	}
	if s.want[a] != s.want[b] {
		return s.want[a] > s.want[b]
	}
	return counts[a] > counts[b]
}
