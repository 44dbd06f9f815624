// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"slices"
	"testing"
)

// shape returns the largest and the smallest number of partitions of a member, as a share of the mean.
func shape(plan Assignment) (largest, smallest float64) {
	loads := sortedLoads(plan)
	mean := float64(sum(loads)) / float64(len(loads))
	return float64(loads[0]) / mean, float64(loads[len(loads)-1]) / mean
}

// BenchmarkPeers times ours beside others in one run. Besides time and allocations it reports the plan's largest load as a multiple of the mean, how
// many partitions the plan moves, and the fewest that a best balanced plan moves.
func BenchmarkPeers(b *testing.B) {
	for _, size := range []struct {
		name  string
		fresh func() Input
		equal bool
	}{
		{"1000x100", func() Input { return benchInput(1000, 100, 1) }, true},
		{"10000x1000", func() Input { return benchInput(10_000, 1000, 1) }, true},
		{"10000x1000-5subscriptions", func() Input { return unequalInput(10_000, 1000) }, false},
	} {
		b.Run(size.name, func(b *testing.B) {
			for _, p := range peers() {
				if !size.equal && !slices.Contains([]string{"ConsistentHash", "Sticky", franzName}, p.name) {
					continue // they do not balance what members do not all read
				}
				plan := func(in Input) Assignment { return p.prepare(in)() }
				for _, s := range situations(size.fresh(), plan) {
					b.Run(p.name+"/"+s.name, func(b *testing.B) {
						run := p.prepare(s.in)
						b.ReportAllocs()
						var after Assignment
						for b.Loop() {
							after = run()
						}
						largest, _ := shape(after)
						b.ReportMetric(largest, "max/mean")
						b.ReportMetric(float64(Moves(s.in.Previous, after)), "moved")
						b.ReportMetric(float64(Minimum(s.in)), "minimum")
					})
				}
			}
		})
	}
}
