// SPDX-License-Identifier: Apache-2.0

package assigner

// ConsistentHash moves only what must move. With members that all read the same topics, P partitions and n members, every
// member gets ⌊P/n⌋ or ⌈P/n⌉ partitions, and exactly as many partitions get another owner as the best balanced assignment needs:
// P − Σ min(current, cap), the cap being ⌈P/n⌉ for the P mod n members that have most and ⌊P/n⌋ for the others. The previous
// assignment decides what stays; a hash ring with virtual nodes decides who gets the rest and breaks ties. Each topic is spread over the
// members too, as far as that moves nothing more; a fresh assignment spreads each topic with a difference of one at most.
//
// Members that read different topics get the loads whose descending order is lexicographically smallest of all that their subscriptions
// allow (see divide), and no assignment with such loads moves fewer partitions (see network). Among those, one with the most partitions whose leader
// is in their owner's zone is chosen, if zones are given. With weights, see Input.Weights.
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
	p.solve(hashes, points)
	return p.assignment()
}

// balance gives every member as many partitions as its target says, when all read the same topics.
func (p *problem) balance(target []int32, hashes, points []uint64) {
	drop, need := make([]int32, len(p.members)), make([]int32, len(p.members))
	topics := make([]int32, len(p.topics))
	for t := range topics {
		topics[t] = int32(t)
	}
	h := newHand(p, hashes, points)
	h.begin(topics, nil, 0)
	for m, load := range p.load {
		h.add(int32(m), load-target[m], drop, need)
	}
	h.shed(drop)
	h.deal(need)
}
