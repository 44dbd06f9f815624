// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// peer is another way to divide partitions, to be measured beside ours.
type peer struct {
	name string
	// prepare returns the work that is timed: everything from what a group's coordinator or leader holds to a plan.
	prepare func(in Input) func() Assignment
}

// franzName is how tables call franz-go's sticky balancer.
const franzName = "franz-go's sticky"

// peers returns ours and theirs.
func peers() []peer {
	ours := func(a Assigner) peer {
		return peer{a.Name(), func(in Input) func() Assignment { return func() Assignment { return a.Assign(in) } }}
	}
	return []peer{
		ours(ConsistentHash{}), ours(Sticky{}), {franzName, franzSticky},
		ours(RoundRobin{}), ours(Range{}),
		{"plain ring", func(in Input) func() Assignment { return func() Assignment { return ringOf(in, 0) } }},
		{"ring, loads up to 1.25", func(in Input) func() Assignment { return func() Assignment { return ringOf(in, 1.25) } }},
	}
}

// franzSticky prepares franz-go's eager sticky balancer: members' metadata as they would arrive in JoinGroup, parsed before the clock runs.
func franzSticky(in Input) func() Assignment {
	balancer := kgo.StickyBalancer()
	members := make([]kmsg.JoinGroupResponseMember, len(in.Members))
	for i, m := range in.Members {
		current := make(map[string][]int32)
		for _, part := range in.Previous[m.ID] {
			current[part.Topic] = append(current[part.Topic], part.Partition)
		}
		topics := slices.Sorted(slices.Values(m.Topics))
		members[i] = kmsg.JoinGroupResponseMember{MemberID: m.ID, ProtocolMetadata: balancer.JoinGroupMetadata(topics, current, 1)}
	}
	b, _, err := balancer.MemberBalancer(members)
	if err != nil {
		panic(err)
	}
	return func() Assignment {
		balanced, err := b.(kgo.GroupMemberBalancerOrError).BalanceOrError(in.Partitions)
		if err != nil {
			panic(err)
		}
		plan := balanced.(*kgo.BalancePlan).AsMemberIDMap()
		out := make(Assignment, len(in.Members))
		for _, m := range in.Members {
			var share []Partition
			for topic, partitions := range plan[m.ID] {
				for _, p := range partitions {
					share = append(share, Partition{topic, p})
				}
			}
			slices.SortFunc(share, comparePartitions)
			out[m.ID] = share
		}
		return out
	}
}

// ringOf divides partitions by a hash ring with 100 points for each member. Without a bound each partition goes to the next member; with one, to
// the next that has fewer than bound times the mean (Mirrokni, Thorup, Zadimoghaddam 2016). All members must read all topics.
func ringOf(in Input, bound float64) Assignment {
	type node struct {
		point uint64
		m     int
	}
	nodes := make([]node, 0, 100*len(in.Members))
	for m := range in.Members {
		h := hashString(memberSeed, in.Members[m].ID)
		for v := range 100 {
			nodes = append(nodes, node{memberPoint(h, v), m})
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.point, b.point) })
	total := 0
	for _, n := range in.Partitions {
		total += int(n)
	}
	limit := total + 1
	if bound > 0 {
		limit = int(bound*float64(total)/float64(len(in.Members))) + 1
	}
	shares := make([][]Partition, len(in.Members))
	for _, topic := range slices.Sorted(slices.Values(in.Members[0].Topics)) {
		h := hashString(topicSeed, topic)
		for i := range in.Partitions[topic] {
			point := uint64(partitionPoint(h, int(i))) << 32
			at, _ := slices.BinarySearchFunc(nodes, point, func(n node, p uint64) int { return cmp.Compare(n.point, p) })
			for at %= len(nodes); len(shares[nodes[at].m]) >= limit; {
				at = (at + 1) % len(nodes)
			}
			shares[nodes[at].m] = append(shares[nodes[at].m], Partition{topic, i})
		}
	}
	out := make(Assignment, len(in.Members))
	for m := range in.Members {
		out[in.Members[m].ID] = shares[m]
	}
	return out
}

// sortedLoads returns the members' numbers of partitions, the largest first.
func sortedLoads(plan Assignment) []int {
	var loads []int
	for _, share := range plan {
		loads = append(loads, len(share))
	}
	slices.Sort(loads)
	slices.Reverse(loads)
	return loads
}

// largeGroup returns a large group of random shape with a previous assignment that no longer fits.
func largeGroup(rng *rand.Rand) Input {
	in := Input{Partitions: make(map[string]int32)}
	var topics []string
	for i := range 1 + rng.IntN(20) {
		topic := fmt.Sprintf("topic-%02d", i)
		topics = append(topics, topic)
		in.Partitions[topic] = 1 + rng.Int32N(100)
	}
	subscriptions := make([][]string, 1+rng.IntN(8))
	for i := range subscriptions {
		for _, topic := range topics {
			if i == 0 || rng.IntN(2) == 0 {
				subscriptions[i] = append(subscriptions[i], topic)
			}
		}
	}
	member := func(i int) Member {
		return Member{ID: fmt.Sprintf("web-%03d", i), Topics: subscriptions[rng.IntN(len(subscriptions))]}
	}
	n := 2 + rng.IntN(100)
	for i := range n {
		in.Members = append(in.Members, member(i))
	}
	in.Members[0].Topics = topics
	in.Previous = ConsistentHash{}.Assign(in)
	in.Members = slices.Clone(in.Members[rng.IntN(n/2+1):])
	for i := range rng.IntN(n/3 + 1) {
		in.Members = append(in.Members, member(n+i))
	}
	for range rng.IntN(3) {
		in.Members[rng.IntN(len(in.Members))].Topics = subscriptions[rng.IntN(len(subscriptions))]
	}
	if rng.IntN(2) == 0 {
		in.Partitions[topics[0]] += rng.Int32N(50)
	}
	return in
}

// TestNeverWorseThanFranzGo compares plans of large random groups, most of them with members that read different topics, with those of franz-go's
// sticky balancer: first the loads, then the moves.
func TestNeverWorseThanFranzGo(t *testing.T) {
	rng := newRand(t, 41)
	better, fewer := 0, 0
	const groups = 300
	for range groups {
		in := largeGroup(rng)
		theirs := franzSticky(in)()
		check(t, in, theirs)
		loads, moves := sortedLoads(theirs), Moves(in.Previous, theirs)
		for _, a := range []Assigner{ConsistentHash{}, Sticky{}} {
			ours := a.Assign(in)
			check(t, in, ours)
			if !optimal(in, ours) {
				t.Fatalf("%s: there is a better plan", a.Name())
			}
			switch c := slices.Compare(sortedLoads(ours), loads); {
			case c > 0:
				t.Fatalf("%s: loads %v, franz-go %v", a.Name(), sortedLoads(ours), loads)
			case c < 0 && a == Sticky{}:
				better++
			case c == 0 && Moves(in.Previous, ours) > moves:
				t.Fatalf("%s: %d moves, franz-go %d", a.Name(), Moves(in.Previous, ours), moves)
			case c == 0 && Moves(in.Previous, ours) < moves && a == Sticky{}:
				fewer++
			}
		}
	}
	t.Logf("of %d groups %d are better balanced, and %d equally well with fewer moves", groups, better, fewer)
}
