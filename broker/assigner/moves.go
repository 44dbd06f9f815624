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

// Minimum returns the smallest number of moves that a best balanced assignment of the input can have, by number of partitions: weights do not
// count. If all members read the same topics,
// that is P − Σ min(currentᵢ, capᵢ), where the P mod n members that have most have a cap of ⌊P/n⌋+1 and the others of ⌊P/n⌋.
func Minimum(in Input) int {
	in.Zones, in.Weights = nil, nil
	p := newProblem(in)
	if len(p.members) == 0 {
		return 0
	}
	if !p.equal() {
		return p.quotas(p.byPoint(nil)).moves()
	}
	minimum := len(p.owner)
	for m, target := range p.targets(nil) {
		minimum -= int(min(p.load[m], target))
	}
	return minimum
}
