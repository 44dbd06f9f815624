// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"slices"
	"testing"
)

// benchInput returns a group of one topic, or of several that share the partitions.
func benchInput(partitions, members, topics int) Input {
	in := Input{Partitions: make(map[string]int32)}
	var names []string
	for i := range topics {
		name := fmt.Sprint("topic-", i)
		names = append(names, name)
		in.Partitions[name] = int32(partitions / topics)
	}
	for i := range members {
		in.Members = append(in.Members, Member{ID: fmt.Sprintf("web-%05d", i), Topics: names})
	}
	return in
}

// unequalInput returns a group of ten topics whose members have five different subscriptions.
func unequalInput(partitions, members int) Input {
	in := benchInput(partitions, members, 10)
	for i := range in.Members {
		var topics []string
		for t, topic := range in.Members[i].Topics {
			if (t+i)%5 != 0 {
				topics = append(topics, topic)
			}
		}
		in.Members[i].Topics = topics
	}
	return in
}

// zonedInput returns a group of one topic whose members and leaders are spread over three zones.
func zonedInput(partitions, members int) Input {
	in := benchInput(partitions, members, 1)
	zones := []string{"a", "b", "c"}
	for i := range in.Members {
		in.Members[i].Zone = zones[i%3]
	}
	leaders := make([]string, partitions)
	for i := range leaders {
		leaders[i] = zones[i*7/5%3]
	}
	in.Zones = map[string][]string{"topic-0": leaders}
	return in
}

// situation is a group before a plan is made.
type situation struct {
	name string
	in   Input
}

// situations returns a group afresh, unchanged, with a new member, and without one; assign makes the plan before.
func situations(fresh Input, assign func(Input) Assignment) []situation {
	same := fresh
	same.Previous = assign(fresh)
	joined := same
	joined.Members = append(slices.Clone(same.Members), Member{ID: "web-new", Topics: same.Members[0].Topics})
	left := same
	left.Members = slices.Clone(same.Members[1:])
	return []situation{{"fresh", fresh}, {"same", same}, {"joined", joined}, {"left", left}}
}

func benchmarkAssigner(b *testing.B, a Assigner) {
	for _, size := range []struct {
		name  string
		fresh func() Input
	}{
		{"1000x100", func() Input { return benchInput(1000, 100, 1) }},
		{"10000x1000", func() Input { return benchInput(10_000, 1000, 1) }},
		{"10000x1000-100topics", func() Input { return benchInput(10_000, 1000, 100) }},
		{"10000x1000-5subscriptions", func() Input { return unequalInput(10_000, 1000) }},
		{"10000x1000-3zones", func() Input { return zonedInput(10_000, 1000) }},
		{"1000000x10000", func() Input { return benchInput(1_000_000, 10_000, 1) }},
	} {
		b.Run(size.name, func(b *testing.B) {
			for _, s := range situations(size.fresh(), a.Assign) {
				b.Run(s.name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						a.Assign(s.in)
					}
				})
			}
		})
	}
}

func BenchmarkConsistentHash(b *testing.B) { benchmarkAssigner(b, ConsistentHash{}) }

func BenchmarkSticky(b *testing.B) { benchmarkAssigner(b, Sticky{}) }
