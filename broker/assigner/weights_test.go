// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// weighted returns a group with weights from a heavy-tailed distribution, none of them more than half of an even share, and at least 10
// partitions for each member, so that an even plan exists.
func weighted(rng *rand.Rand, members, each int) Input {
	topics := []string{"a", "b", "c"}[:1+rng.IntN(3)]
	in := Input{Partitions: make(map[string]int32), Weights: make(map[string][]int64)}
	for i := range members {
		in.Members = append(in.Members, Member{ID: fmt.Sprintf("web-%03d", i), Topics: topics})
	}
	sigma := 0.4 + rng.Float64()
	var all []int64
	for _, topic := range topics {
		n := members * each / len(topics)
		in.Partitions[topic] = int32(n)
		for range n {
			w := Quantize(int64(1000*math.Exp(rng.NormFloat64()*sigma)), 0)
			in.Weights[topic] = append(in.Weights[topic], w)
			all = append(all, w)
		}
	}
	// No single partition is heavier than half a share.
	total := int64(0)
	for _, w := range all {
		total += w
	}
	limit := total / int64(members) / 2
	for _, weights := range in.Weights {
		for i := range weights {
			weights[i] = min(weights[i], limit)
		}
	}
	return in
}

// weights returns the largest and the smallest weight that a member carries, as a share of the mean.
func weights(in Input, plan Assignment) (largest, smallest float64) {
	var loads []float64
	total := 0.0
	for _, share := range plan {
		load := 0.0
		for _, part := range share {
			load += float64(in.Weights[part.Topic][part.Partition])
		}
		loads = append(loads, load)
		total += load
	}
	mean := total / float64(len(loads))
	return slices.Max(loads) / mean, slices.Min(loads) / mean
}

// TestWeightsAreBalanced lets members of a weighted group join and leave, several at once, and weights change, and checks that no member carries
// more than 1.05 times the mean or less than 0.79 times, and that no more partitions move than equal weights would make move.
func TestWeightsAreBalanced(t *testing.T) {
	rng := newRand(t, 23)
	moved, needed := 0, 0
	for range 60 {
		members, each := 2+rng.IntN(40), 10+rng.IntN(30)
		in := weighted(rng, members, each)
		next := members
		for range 10 {
			for _, a := range []Assigner{Sticky{}, ConsistentHash{}} {
				got := a.Assign(in)
				check(t, in, got)
				largest, smallest := weights(in, got)
				if largest > 1.05 || smallest < 0.79 {
					t.Fatalf("%s: of %d members, with %d partitions each at first, one carries %.3f and another %.3f times the mean", a.Name(), len(in.Members), each, largest, smallest)
				}
				if diff := cmp.Diff(got, a.Assign(shuffled(rng, in))); diff != "" {
					t.Fatalf("%s: another order of the input gives another assignment:\n%s", a.Name(), diff)
				}
				if a == (ConsistentHash{}) {
					if in.Previous != nil {
						moved += Moves(in.Previous, got)
						needed += Minimum(in)
					}
					in.Previous = got
				}
			}
			again := ConsistentHash{}.Assign(in)
			if m := Moves(in.Previous, again); m != 0 {
				t.Fatalf("assigning again moved %d partitions", m)
			}
			switch rng.IntN(3) {
			case 0:
				if len(in.Members) < members*5/4 {
					in.Members = append(in.Members, Member{ID: fmt.Sprintf("web-%03d", next), Topics: in.Members[0].Topics})
					next++
				}
			case 1:
				if len(in.Members) > members*2/3 && len(in.Members) > 1 {
					at := rng.IntN(len(in.Members))
					in.Members = slices.Delete(slices.Clone(in.Members), at, at+1)
				}
			default:
				total := int64(0)
				for _, weights := range in.Weights {
					for _, w := range weights {
						total += w
					}
				}
				for _, topic := range in.Members[0].Topics {
					weights := in.Weights[topic]
					i := rng.IntN(len(weights))
					weights[i] = min(2*weights[i], max(weights[i], total/int64(2*len(in.Members))))
				}
			}
		}
	}
	if moved > needed {
		t.Errorf("moved %d partitions, where the numbers of partitions alone would make %d move", moved, needed)
	}
}

// TestNoiseMovesNothing changes all weights by less than 0.9 % and checks that nothing moves; Quantize keeps noise of a quarter away.
func TestNoiseMovesNothing(t *testing.T) {
	rng := newRand(t, 29)
	for range 200 {
		in := weighted(rng, 2+rng.IntN(30), 10+rng.IntN(20))
		in.Previous = ConsistentHash{}.Assign(in)
		noisy := in
		noisy.Weights = make(map[string][]int64)
		for _, topic := range in.Members[0].Topics {
			for _, w := range in.Weights[topic] {
				noisy.Weights[topic] = append(noisy.Weights[topic], w*1000+w*(rng.Int64N(18)-9))
			}
		}
		if moved := Moves(in.Previous, ConsistentHash{}.Assign(noisy)); moved != 0 {
			t.Fatalf("noise moved %d partitions", moved)
		}
	}
}

func TestQuantize(t *testing.T) {
	cases := map[string]struct{ rate, last, want int64 }{
		"small numbers are themselves":                  {7, 0, 7},
		"a rate is rounded to a quarter of its power":   {1000, 0, 1024},
		"between two steps the nearer counts":           {1153, 0, 1280},
		"nothing weighs a little":                       {0, 0, 1},
		"a negative rate counts as nothing":             {-5, 0, 1},
		"a quarter more changes nothing":                {1280, 1024, 1024},
		"a quarter less changes nothing":                {768, 1024, 1024},
		"more than a quarter more does":                 {1281, 1024, 1280},
		"more than a quarter less does":                 {767, 1024, 768},
		"the largest rate does not overflow":            {math.MaxInt64, 0, 7 << 60},
		"the largest rate is compared without overflow": {math.MaxInt64, 7 << 60, 7 << 60},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Quantize(tc.rate, tc.last); got != tc.want {
				t.Errorf("Quantize(%d, %d) = %d, want %d", tc.rate, tc.last, got, tc.want)
			}
		})
	}
}

// TestEqualWeightsAreNoWeights checks that weights that do not differ change nothing, so that all promises without weights hold.
func TestEqualWeightsAreNoWeights(t *testing.T) {
	rng := newRand(t, 31)
	for range 300 {
		s := randomSmall(rng, true)
		in := s.input()
		equal := in
		equal.Weights = make(map[string][]int64)
		w := rng.Int64N(1 << 40)
		for t := range len(in.Partitions) {
			topic := fmt.Sprint("t", t)
			for range rng.Int32N(in.Partitions[topic] + 3) {
				equal.Weights[topic] = append(equal.Weights[topic], w)
			}
		}
		for _, name := range Names() {
			a, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a.Assign(in), a.Assign(equal)); diff != "" {
				t.Fatalf("%s (-without +with weights of %d):\n%s", name, w, diff)
			}
		}
	}
}

// TestWeightsOfEveryKind checks that any weights give a whole assignment: huge, negative, missing, of topics that do not exist, of members that
// read different topics.
func TestWeightsOfEveryKind(t *testing.T) {
	rng := newRand(t, 37)
	for range 500 {
		in := randomSmall(rng, false).input()
		in.Weights = map[string][]int64{"gone": {1, 2}}
		for t := range len(in.Partitions) {
			topic := fmt.Sprint("t", t)
			for range rng.Int32N(in.Partitions[topic] + 2) {
				in.Weights[topic] = append(in.Weights[topic], []int64{0, 1, 5, 1000, -1, math.MaxInt64, math.MinInt64, rng.Int64()}[rng.IntN(8)])
			}
		}
		for _, a := range []Assigner{Sticky{}, ConsistentHash{}} {
			got := a.Assign(in)
			check(t, in, got)
			if diff := cmp.Diff(got, a.Assign(shuffled(rng, in))); diff != "" {
				t.Fatalf("%s: another order of the input gives another assignment:\n%s", a.Name(), diff)
			}
			in.Previous = got
			if moved := Moves(got, a.Assign(in)); moved != 0 {
				t.Fatalf("%s: assigning again moved %d partitions: %+v", a.Name(), moved, in)
			}
		}
	}
}
