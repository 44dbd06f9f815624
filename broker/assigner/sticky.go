// SPDX-License-Identifier: Apache-2.0

package assigner

import "slices"

// Sticky keeps what can stay, as ConsistentHash does and with the same bounds and the same number of moves, and gives the rest, by topic
// and number, to the member that has least, the first by id among equals. It is what people expect who know Kafka's StickyAssignor.
type Sticky struct{}

// Name returns Sticky.
func (Sticky) Name() string { return "Sticky" }

// Assign computes the assignment.
func (Sticky) Assign(in Input) Assignment {
	p := newProblem(in)
	if p.equal() {
		p.shed(p.targets(nil))
		p.level()
	} else {
		p.placeByLoad(nil)
		p.augment()
	}
	return p.assignment()
}

// level gives each partition without an owner to the least loaded member, the first by id, when all read the same topics: it fills the
// members up from the lowest load, in turn.
func (p *problem) level() {
	if len(p.members) == 0 {
		return
	}
	low, m := slices.Min(p.load), 0
	for g, owner := range p.owner {
		if owner != none {
			continue
		}
		for p.load[m] > low {
			m++
			if m == len(p.members) {
				m = 0
				low++
			}
		}
		p.give(g, int32(m))
	}
}
