// SPDX-License-Identifier: Apache-2.0

package assigner

// ConsistentHash moves only what must move. With members that all read the same topics, P partitions and n members, every
// member gets ⌊P/n⌋ or ⌈P/n⌉ partitions, and exactly as many partitions get another owner as the best balanced assignment needs:
// P − Σ min(current, cap), the cap being ⌈P/n⌉ for the P mod n members that have most and ⌊P/n⌋ for the others. The previous
// assignment decides what stays; a hash ring with virtual nodes decides who gets the rest and breaks ties. Each topic is spread over the
// members too, as far as that moves nothing more; a fresh assignment spreads each topic with a difference of one at most.
//
// Members that read different topics get the best balance that their subscriptions allow (see augment), with few moves.
type ConsistentHash struct{}

// Name returns ConsistentHash.
func (ConsistentHash) Name() string { return "ConsistentHash" }

// Assign computes the assignment.
func (ConsistentHash) Assign(in Input) Assignment {
	p := newProblem(in)
	hashes := make([]uint64, len(p.members))
	points := make([]uint64, len(p.members))
	for m, id := range p.members {
		hashes[m] = hashString(memberSeed, id)
		points[m] = memberPoint(hashes[m], 0)
	}
	if p.equal() {
		target := p.targets(points)
		p.shed(target)
		p.placeByRing(target, hashes, points)
	} else {
		p.placeByLoad(points)
		p.augment()
	}
	return p.assignment()
}

// placeByRing gives each partition without an owner to a member that is below its target.
func (p *problem) placeByRing(target []int32, hashes, points []uint64) {
	need := make([]int32, len(p.members))
	var receivers []int32
	for m := range p.members {
		if need[m] = target[m] - p.load[m]; need[m] > 0 {
			receivers = append(receivers, int32(m))
		}
	}
	if len(receivers) == 0 {
		return
	}
	r := newRing(receivers, hashes)
	if len(p.topics) == 1 {
		p.walkTopic(0, r, need)
		return
	}
	d := newDealer(p, receivers, need, points)
	for t := range p.topics {
		if orphans := p.orphans(t); orphans > 0 {
			p.walkTopic(t, r, d.deal(t, orphans))
			r.reset()
		}
	}
}

// orphans returns the number of a topic's partitions that have no owner.
func (p *problem) orphans(t int) int {
	n := 0
	for _, m := range p.owner[p.start[t]:p.start[t+1]] {
		if m == none {
			n++
		}
	}
	return n
}

// walkTopic gives each partition of a topic that has no owner to the next member on the ring that has room, and takes it from the room.
func (p *problem) walkTopic(t int, r *ring, room []int32) {
	topicHash := hashString(topicSeed, p.topics[t])
	for g := p.start[t]; g < p.start[t+1]; g++ {
		if p.owner[g] == none {
			m := r.walk(partitionPoint(topicHash, g-p.start[t]), room)
			p.give(g, m)
			room[m]--
		}
	}
}

// dealer decides how many partitions of a topic each member below its target gets: one at a time to the member that has
// fewest of that topic, then the one that is furthest below its target, then the first on the ring. Starting from nothing, that gives every
// topic a spread of one at most: the needs never differ by more than one, since they start so and the largest are served first.
type dealer struct {
	p         *problem
	receivers []int32
	need      []int32
	points    []uint64
	// counts holds the members' partitions by topic, at [m*len(topics)+t].
	counts []int32
	quota  []int32
	heap   []int32
}

func newDealer(p *problem, receivers, need []int32, points []uint64) *dealer {
	return &dealer{
		p: p, receivers: receivers, need: need, points: points,
		counts: p.counts(),
		quota:  make([]int32, len(p.members)),
		heap:   make([]int32, 0, len(receivers)),
	}
}

// deal returns the members' quotas of n partitions of topic t, valid until the next call.
func (d *dealer) deal(t, n int) []int32 {
	d.heap = d.heap[:0]
	for _, m := range d.receivers {
		d.quota[m] = 0
		if d.need[m] > 0 {
			d.heap = append(d.heap, m)
		}
	}
	topics := len(d.p.topics)
	for i := len(d.heap)/2 - 1; i >= 0; i-- {
		d.sift(i, t)
	}
	for range n {
		m := d.heap[0]
		d.quota[m]++
		d.need[m]--
		d.counts[int(m)*topics+t]++
		if d.need[m] == 0 {
			last := len(d.heap) - 1
			d.heap[0] = d.heap[last]
			d.heap = d.heap[:last]
		}
		d.sift(0, t)
	}
	return d.quota
}

// sift moves the heap's entry i down to its place.
func (d *dealer) sift(i, t int) {
	for {
		child := 2*i + 1
		if child >= len(d.heap) {
			return
		}
		if child+1 < len(d.heap) && d.before(d.heap[child+1], d.heap[child], t) {
			child++
		}
		if !d.before(d.heap[child], d.heap[i], t) {
			return
		}
		d.heap[i], d.heap[child] = d.heap[child], d.heap[i]
		i = child
	}
}

// before reports whether a is served before b.
func (d *dealer) before(a, b int32, t int) bool {
	topics := len(d.p.topics)
	countA, countB := d.counts[int(a)*topics+t], d.counts[int(b)*topics+t]
	switch {
	case countA != countB:
		return countA < countB
	case d.need[a] != d.need[b]:
		return d.need[a] > d.need[b]
	case d.points[a] != d.points[b]:
		return d.points[a] < d.points[b]
	default:
		return a < b
	}
}
