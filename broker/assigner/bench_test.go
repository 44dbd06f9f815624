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

func benchmarkAssigner(b *testing.B, a Assigner) {
	for _, size := range []struct{ partitions, members, topics int }{
		{1000, 100, 1}, {10000, 1000, 1}, {10000, 1000, 100},
	} {
		name := fmt.Sprintf("%dx%d", size.partitions, size.members)
		if size.topics > 1 {
			name += fmt.Sprintf("-%dtopics", size.topics)
		}
		fresh := benchInput(size.partitions, size.members, size.topics)
		b.Run(name+"/fresh", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.Assign(fresh)
			}
		})
		same := fresh
		same.Previous = a.Assign(fresh)
		joined := same
		joined.Members = append(slices.Clone(same.Members), Member{ID: "web-new", Topics: same.Members[0].Topics})
		left := same
		left.Members = same.Members[1:]
		for what, in := range map[string]Input{"same": same, "joined": joined, "left": left} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					a.Assign(in)
				}
			})
		}
	}
}

func BenchmarkConsistentHash(b *testing.B) { benchmarkAssigner(b, ConsistentHash{}) }

func BenchmarkSticky(b *testing.B) { benchmarkAssigner(b, Sticky{}) }
