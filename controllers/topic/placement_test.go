// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

func ids(n int) []int32 {
	brokers := make([]int32, n)
	for i := range brokers {
		brokers[i] = int32(i + 1)
	}
	return brokers
}

// spread is the difference between the brokers that lead most and fewest of the partitions.
func spread(leaders, brokers []int32) int {
	load := map[int32]int{}
	for _, l := range leaders {
		load[l]++
	}
	low, high := len(leaders), 0
	for _, b := range brokers {
		low, high = min(low, load[b]), max(high, load[b])
	}
	return high - low
}

func TestPlaceIsEven(t *testing.T) {
	for _, partitions := range []int{1, 2, 3, 12, 100, 10000} {
		for _, n := range []int{1, 2, 3, 7, 100, 999} {
			leaders := place("orders", make([]int32, partitions), ids(n))
			if slices.Contains(leaders, noLeader) || spread(leaders, ids(n)) > 1 {
				t.Errorf("%d partitions on %d brokers: spread %d, leaders %v", partitions, n, spread(leaders, ids(n)), leaders)
			}
		}
	}
}

func TestPlaceNeverMovesALeader(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		topic := fmt.Sprintf("topic-%d", random.IntN(1000))
		brokers := ids(1 + random.IntN(9))
		leaders := []int32{}
		for range 6 {
			leaders = append(leaders, make([]int32, random.IntN(10))...)
			if random.IntN(2) == 0 {
				brokers = ids(1 + random.IntN(9))
			}
			placed := place(topic, leaders, brokers)
			for p := range leaders {
				if leaders[p] != noLeader && placed[p] != leaders[p] {
					t.Fatalf("partition %d of %s moved from broker %d to %d", p, topic, leaders[p], placed[p])
				}
				if placed[p] == noLeader {
					t.Fatalf("partition %d of %s has no leader with brokers %v", p, topic, brokers)
				}
			}
			leaders = placed
		}
	}
}

func TestPlaceIsTheSameHoweverTheTopicGrew(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		topic, brokers := fmt.Sprintf("topic-%d", random.IntN(1000)), ids(1+random.IntN(9))
		leaders := []int32{}
		for range 6 {
			leaders = append(leaders, make([]int32, random.IntN(10))...)
			random.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
			leaders = place(topic, leaders, brokers)
		}
		if diff := cmp.Diff(place(topic, make([]int32, len(leaders)), brokers), leaders); diff != "" {
			t.Fatalf("%s on brokers %v (-at once +in steps):\n%s", topic, brokers, diff)
		}
	}
}

func TestPlaceFillsNewBrokersFirst(t *testing.T) {
	leaders := place("orders", make([]int32, 6), ids(2))
	grown := place("orders", append(leaders, make([]int32, 6)...), ids(4))
	if s := spread(grown, ids(4)); s > 0 {
		t.Errorf("spread %d after growing from 6 partitions on 2 brokers to 12 on 4: %v", s, grown)
	}
}

func TestTopicsOfOnePartitionBeginAtDifferentBrokers(t *testing.T) {
	load := map[int32]int{}
	for i := range 3000 {
		load[place(fmt.Sprintf("topic-%d", i), make([]int32, 1), ids(3))[0]]++
	}
	for broker := int32(1); broker <= 3; broker++ {
		if load[broker] < 500 {
			t.Errorf("of 3000 topics, broker %d leads %d: %v", broker, load[broker], load)
		}
	}
}

// A change of this result strands the records of Topics that are deleted and created anew across an upgrade.
func TestPlacementIsPinned(t *testing.T) {
	got := compact(byBroker(place("orders", make([]int32, 12), ids(3))))
	if want := "1[1,4,7,10] 2[2,5,8,11] 3[0,3,6,9]"; got != want {
		t.Errorf("placement of orders = %q, want %q", got, want)
	}
}

func TestPlaceWithoutBrokers(t *testing.T) {
	if diff := cmp.Diff([]int32{2, noLeader}, place("orders", []int32{2, noLeader}, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLeadersOf(t *testing.T) {
	tests := map[string]struct {
		status []v1alpha1.PartitionLeader
		n      int32
		want   []int32
	}{
		"none":                                    {nil, 2, []int32{0, 0}},
		"some":                                    {[]v1alpha1.PartitionLeader{{Broker: 2, Partitions: []int32{1}}}, 3, []int32{0, 2, 0}},
		"more than the spec has":                  {[]v1alpha1.PartitionLeader{{Broker: 2, Partitions: []int32{3}}}, 2, []int32{0, 0, 0, 2}},
		"a partition of two brokers":              {[]v1alpha1.PartitionLeader{{Broker: 5, Partitions: []int32{0}}, {Broker: 2, Partitions: []int32{0}}}, 1, []int32{2}},
		"partitions and brokers that cannot be":   {[]v1alpha1.PartitionLeader{{Broker: 0, Partitions: []int32{0}}, {Broker: 1, Partitions: []int32{-1, 10000}}}, 1, []int32{0}},
		"a number of partitions that cannot be":   {nil, -1, []int32{}},
		"a number of partitions beyond the limit": {nil, 1 << 30, make([]int32, maxPartitions)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, leadersOf(tc.status, tc.n)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestByBrokerIsTheInverseOfLeadersOf(t *testing.T) {
	want := place("orders", make([]int32, 100), ids(7))
	if diff := cmp.Diff(want, leadersOf(byBroker(want), 100)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompact(t *testing.T) {
	tests := map[string]struct {
		leaders []int32
		want    string
	}{
		"nothing":       {nil, ""},
		"runs":          {[]int32{1, 1, 1, 1, 2, 2, 2, 2}, "1[0-3] 2[4-7]"},
		"single ones":   {[]int32{1, 2, 1, 2}, "1[0,2] 2[1,3]"},
		"both":          {[]int32{2, 10, 10, 2, 10, noLeader, 10}, "2[0,3] 10[1-2,4,6]"},
		"a pair":        {[]int32{1, 1}, "1[0-1]"},
		"no leader yet": {[]int32{noLeader}, ""},
		"a topic of as many partitions as there may be": {
			place("big", make([]int32, maxPartitions), ids(3)),
			"1[1,4,7,10,13,16,19,22,+3325] 2[2,5,8,11,14,17,20,23,+3325] 3[0,3,6,9,12,15,18,21,+3326]",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := compact(byBroker(tc.leaders)); got != tc.want {
				t.Errorf("compact = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCompactOfManyBrokersFitsAColumn(t *testing.T) {
	got := compact(byBroker(place("big", make([]int32, maxPartitions), ids(999))))
	if len(got) > maxCompactBytes+100 || !strings.HasSuffix(got, " more: see .status.leaders") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
