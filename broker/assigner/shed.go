// SPDX-License-Identifier: Apache-2.0

package assigner

// shed takes from every member what it has above its target, the highest-numbered partitions of a topic first. Which topics it gives
// up is chosen so that each topic stays spread: how many partitions move does not depend on it.
func (p *problem) shed(target []int32) {
	var over []int32
	for m := range p.members {
		if p.load[m] > target[m] {
			over = append(over, int32(m))
		}
	}
	if len(over) == 0 {
		return
	}
	topics := len(p.topics)
	drop := make([]int32, len(p.members)*topics)
	if topics == 1 {
		for _, m := range over {
			drop[m] = p.load[m] - target[m]
		}
	} else {
		s := newShedder(p, target)
		for _, m := range over {
			s.choose(m, p.load[m]-target[m], drop[int(m)*topics:int(m+1)*topics])
		}
	}
	for t := topics - 1; t >= 0; t-- {
		for g := p.start[t+1] - 1; g >= p.start[t]; g-- {
			if m := p.owner[g]; m != none && drop[int(m)*topics+t] > 0 {
				drop[int(m)*topics+t]--
				p.take(g)
			}
		}
	}
}

// shedder chooses the topics that members give up.
type shedder struct {
	p      *problem
	counts []int32
	// want holds, for each topic, how many partitions the members below their targets lack of an even share, less the ones without an owner.
	want []int32
	// low and high are ⌊Pₜ/n⌋ and ⌈Pₜ/n⌉.
	low, high []int32
}

func newShedder(p *problem, target []int32) *shedder {
	topics, n := len(p.topics), len(p.members)
	s := &shedder{
		p: p, counts: p.counts(),
		want: make([]int32, topics), low: make([]int32, topics), high: make([]int32, topics),
	}
	for t := range p.topics {
		count := p.partitions(int32(t))
		s.low[t] = int32(count / n)
		s.high[t] = int32((count + n - 1) / n)
		s.want[t] = -int32(p.orphans(t))
	}
	for m := range p.members {
		if p.load[m] >= target[m] {
			continue
		}
		for t := range p.topics {
			s.want[t] += max(0, s.low[t]-s.counts[m*topics+t])
		}
	}
	return s
}

// choose adds n partitions of member m to drop, which is by topic.
func (s *shedder) choose(m, n int32, drop []int32) {
	topics := len(s.p.topics)
	counts := s.counts[int(m)*topics : int(m+1)*topics]
	for range n {
		best := none
		for t := range counts {
			if counts[t] > 0 && (best == none || s.better(counts, t, best)) {
				best = t
			}
		}
		counts[best]--
		drop[best]++
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
