// SPDX-License-Identifier: Apache-2.0

package assigner

// Sticky keeps what can stay, as ConsistentHash does and with the same loads, number of moves and preference for zones, and gives the rest, by
// topic and number, to the member that has fewest of the topic, then the one that needs most, the first by id among equals. It is what people expect
// who know Kafka's StickyAssignor.
type Sticky struct{}

// Name returns Sticky.
func (Sticky) Name() string { return "Sticky" }

// Assign computes the assignment.
func (Sticky) Assign(in Input) Assignment {
	p := newProblem(in)
	p.solve(nil, nil)
	return p.assignment()
}
