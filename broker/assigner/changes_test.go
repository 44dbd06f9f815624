// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// arc is an arc of a residual network.
type arc struct {
	from, to int
	cost     int64
}

// residual returns how a plan could be changed, a partition at a time, and what each change costs: first the squares of the loads, then the moves.
// Nodes are the topics, then the members, then a drain that all partitions end in.
func residual(in Input, plan Assignment) (nodes int, arcs []arc) {
	var topics []string
	for topic := range in.Partitions {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	drain := len(topics) + len(in.Members)
	const square = 1 << 32
	for m, member := range in.Members {
		node := len(topics) + m
		had, has := make(map[string]int), make(map[string]int)
		for _, part := range in.Previous[member.ID] {
			if part.Partition < in.Partitions[part.Topic] {
				had[part.Topic]++
			}
		}
		for _, part := range plan[member.ID] {
			has[part.Topic]++
		}
		load := int64(len(plan[member.ID]))
		arcs = append(arcs, arc{node, drain, (2*load + 1) * square})
		if load > 0 {
			arcs = append(arcs, arc{drain, node, -(2*load - 1) * square})
		}
		for t, topic := range topics {
			if !slices.Contains(member.Topics, topic) {
				continue
			}
			get, giveUp := int64(0), int64(0)
			if has[topic] >= had[topic] {
				get = 1
			}
			if has[topic] > had[topic] {
				giveUp = -1
			}
			arcs = append(arcs, arc{t, node, get})
			if has[topic] > 0 {
				arcs = append(arcs, arc{node, t, giveUp})
			}
		}
	}
	return drain + 1, arcs
}

// optimal reports whether no plan has better balanced loads, or the same with fewer moves. Both are convex, so that it is enough if no round of
// changes costs less than nothing (Ahuja, Magnanti, Orlin: Network Flows, 1993, chapters 9 and 14). It knows nothing of how the package
// computes a plan.
func optimal(in Input, plan Assignment) bool {
	nodes, arcs := residual(in, plan)
	dist := make([]int64, nodes)
	for range nodes + 1 {
		changed := false
		for _, a := range arcs {
			if d := dist[a.from] + a.cost; d < dist[a.to] {
				dist[a.to], changed = d, true
			}
		}
		if !changed {
			return true
		}
	}
	return false
}

// TestOptimalTellsPlansApart checks the check: a plan that is worse in balance or in moves is told.
func TestOptimalTellsPlansApart(t *testing.T) {
	in := Input{
		Members: readers("t u", "a", "b"), Partitions: map[string]int32{"t": 2, "u": 2},
		Previous: Assignment{"a": parts("t", 0, 1), "b": parts("u", 0, 1)},
	}
	for name, tc := range map[string]struct {
		plan Assignment
		want bool
	}{
		"what was":      {in.Previous, true},
		"all to one":    {Assignment{"a": append(parts("t", 0, 1), parts("u", 0, 1)...)}, false},
		"all exchanged": {Assignment{"a": parts("u", 0, 1), "b": parts("t", 0, 1)}, false},
	} {
		if got := optimal(in, tc.plan); got != tc.want {
			t.Errorf("%s: optimal = %v", name, got)
		}
	}
}

// changing is a group that changes at random.
type changing struct {
	rng    *rand.Rand
	in     Input
	topics []string
	// unequal says that members read different topics.
	unequal bool
	next    int
}

func newChanging(rng *rand.Rand, unequal bool) *changing {
	c := &changing{rng: rng, unequal: unequal, in: Input{Partitions: make(map[string]int32)}}
	for i := range 1 + rng.IntN(6) {
		topic := fmt.Sprint("topic-", i)
		c.topics = append(c.topics, topic)
		c.in.Partitions[topic] = rng.Int32N(30)
	}
	return c
}

// subscription returns the topics that a member reads.
func (c *changing) subscription() []string {
	if !c.unequal || c.rng.IntN(3) == 0 {
		return c.topics
	}
	topics := []string{c.topics[c.rng.IntN(len(c.topics))]}
	for _, topic := range c.topics {
		if c.rng.IntN(3) == 0 {
			topics = append(topics, topic)
		}
	}
	return topics
}

// change lets several members join and leave at once, topics grow, and members read others.
func (c *changing) change() {
	c.in.Members = slices.Clone(c.in.Members)
	for range c.rng.IntN(5) {
		if n := len(c.in.Members); n > 0 && c.rng.IntN(12) < n {
			at := c.rng.IntN(n)
			c.in.Members = slices.Delete(c.in.Members, at, at+1)
		}
	}
	for range c.rng.IntN(4) {
		c.in.Members = append(c.in.Members, Member{ID: fmt.Sprint("web-", c.next), Topics: c.subscription()})
		c.next++
	}
	if n := len(c.in.Members); n > 0 && c.unequal && c.rng.IntN(3) == 0 {
		c.in.Members[c.rng.IntN(n)].Topics = c.subscription()
	}
	if c.rng.IntN(6) == 0 {
		c.in.Partitions[c.topics[c.rng.IntN(len(c.topics))]] += c.rng.Int32N(9)
	}
}

// TestTenThousandChanges makes 10,000 changes, of one and of several members at once, in groups that read the same topics and in groups that do
// not, and checks after each that no plan is better balanced and none moves less.
func TestTenThousandChanges(t *testing.T) {
	const groups, changes = 100, 100
	moved := 0
	for seed := range uint64(groups) {
		rng := newRand(t, seed)
		c := newChanging(rng, seed%2 == 1)
		a := []Assigner{ConsistentHash{}, Sticky{}}[seed/2%2]
		for i := range changes {
			c.change()
			got := a.Assign(c.in)
			check(t, c.in, got)
			moves, minimum := Moves(c.in.Previous, got), Minimum(c.in)
			moved += moves
			if moves != minimum {
				t.Fatalf("seed %d, change %d, %s: %d moves, the minimum is %d", seed, i, a.Name(), moves, minimum)
			}
			if !c.unequal && len(c.in.Members) > 0 && minimum != formula(c.in) {
				t.Fatalf("seed %d, change %d: Minimum = %d, the formula says %d", seed, i, minimum, formula(c.in))
			}
			if !optimal(c.in, got) {
				t.Fatalf("seed %d, change %d, %s: there is a better plan: %+v", seed, i, a.Name(), c.in)
			}
			c.in.Previous = got
		}
	}
	t.Logf("seeds 0 to %d: %d changes moved %d partitions, each as few as can be", groups-1, groups*changes, moved)
}
