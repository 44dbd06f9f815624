// SPDX-License-Identifier: Apache-2.0

package assigner

// Moves returns the number of partitions of next that have another owner than in prev, counting those that had none. Should prev give
// a partition to several members of next, the one with the smallest id counts, as in Assign.
func Moves(prev, next Assignment) int {
	owner := make(map[Partition]string)
	for id, parts := range prev {
		if _, member := next[id]; !member {
			continue
		}
		for _, part := range parts {
			if before, ok := owner[part]; !ok || id < before {
				owner[part] = id
			}
		}
	}
	moved := 0
	for id, parts := range next {
		for _, part := range parts {
			if before, ok := owner[part]; !ok || before != id {
				moved++
			}
		}
	}
	return moved
}

// Minimum returns the smallest number of moves that a balanced assignment of the input can have if all members read the same topics:
// P − Σ min(currentᵢ, capᵢ), where the P mod n members that have most have a cap of ⌊P/n⌋+1 and the others of ⌊P/n⌋. If they read
// different topics, it returns a lower bound: the number of partitions whose previous owner no longer reads them.
func Minimum(in Input) int {
	p := newProblem(in)
	if len(p.members) == 0 {
		return 0
	}
	minimum := len(p.owner)
	target := p.targets(nil)
	for m, load := range p.load {
		if p.equal() {
			load = min(load, target[m])
		}
		minimum -= int(load)
	}
	return minimum
}
