// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"strconv"
)

// The largest group that Simulate takes, so that a slip of the keyboard does not fill the memory.
const (
	maxSimulatedPartitions = 1_000_000
	maxSimulatedMembers    = 100_000
)

// Simulation is what a change of the number of members does to a group.
type Simulation struct {
	// Moved is the number of partitions that get another owner.
	Moved int `json:"moved"`
	// Minimum is the smallest Moved that a balanced assignment can have.
	Minimum int `json:"minimum"`
	// MaxLoad and MinLoad are the largest and the smallest number of partitions of a member after the change; zero without members.
	MaxLoad int `json:"maxLoad"`
	MinLoad int `json:"minLoad"`
}

// Simulate assigns one topic's partitions to a number of members afresh, changes the number of members to then (the newest ones leave,
// or new ones join), assigns again, and returns what that did. The error says which number is out of bounds: partitions from 1 to
// 1,000,000, members and then from 0 to 100,000.
func Simulate(a Assigner, partitions, members, then int) (Simulation, error) {
	if partitions < 1 || partitions > maxSimulatedPartitions {
		return Simulation{}, fmt.Errorf("partitions must be from 1 to %d, not %d", maxSimulatedPartitions, partitions)
	}
	for _, n := range []int{members, then} {
		if err := CheckMembers(n); err != nil {
			return Simulation{}, err
		}
	}
	const topic = "topic"
	topics := []string{topic}
	all := make([]Member, max(members, then))
	for i := range all {
		all[i] = Member{ID: "member-" + strconv.Itoa(i), Topics: topics}
	}
	counts := map[string]int32{topic: int32(partitions)}
	before := a.Assign(Input{Members: all[:members], Partitions: counts})
	in := Input{Members: all[:then], Partitions: counts, Previous: before}
	return Measure(in, a.Assign(in)), nil
}

// CheckMembers returns an error unless n is from 0 to 100,000, the members that a plan may have.
func CheckMembers(n int) error {
	if n < 0 || n > maxSimulatedMembers {
		return fmt.Errorf("the number of members must be from 0 to %d, not %d", maxSimulatedMembers, n)
	}
	return nil
}

// Measure returns what an assignment of an input does to the group.
func Measure(in Input, after Assignment) Simulation {
	sim := Simulation{Moved: Moves(in.Previous, after), Minimum: Minimum(in)}
	first := true
	for _, share := range after {
		sim.MaxLoad = max(sim.MaxLoad, len(share))
		if first || len(share) < sim.MinLoad {
			sim.MinLoad = len(share)
		}
		first = false
	}
	return sim
}
