// SPDX-License-Identifier: Apache-2.0

package assigner

// RoundRobin deals the partitions, by topic and number, to the members in the order of their ids, as Kafka's RoundRobinAssignor does:
// a member that does not read a topic is passed over. It ignores the previous assignment.
type RoundRobin struct{}

// Name returns RoundRobin.
func (RoundRobin) Name() string { return "RoundRobin" }

// Assign deals the partitions in turn.
func (RoundRobin) Assign(in Input) Assignment {
	in.Previous, in.Zones, in.Weights = nil, nil, nil
	p := newProblem(in)
	turn := 0
	for t := range p.topics {
		for g := p.start[t]; g < p.start[t+1]; g++ {
			for !p.reads(int32(turn), int32(t)) { // ends: every topic of a problem has a reader
				turn = (turn + 1) % len(p.members)
			}
			p.give(g, int32(turn))
			turn = (turn + 1) % len(p.members)
		}
	}
	return p.assignment()
}

// Range gives each member a run of consecutive partitions of each topic, as Kafka's RangeAssignor does: of P partitions and n
// readers, the first P mod n readers by id get one more than the others. Over many topics the first members get more than the
// last, which is Range's nature; equal partition numbers of topics of the same size go to the same member. It ignores the previous assignment.
type Range struct{}

// Name returns Range.
func (Range) Name() string { return "Range" }

// Assign cuts each topic into runs.
func (Range) Assign(in Input) Assignment {
	in.Previous, in.Zones, in.Weights = nil, nil, nil
	p := newProblem(in)
	for t, readers := range p.readers() {
		count := p.partitions(int32(t))
		each, extra := count/len(readers), count%len(readers)
		g := p.start[t]
		for i, m := range readers {
			run := each
			if i < extra {
				run++
			}
			for range run {
				p.give(g, m)
				g++
			}
		}
	}
	return p.assignment()
}
