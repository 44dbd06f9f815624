// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cost is what a plan costs, in the order of what counts first.
type cost struct {
	// loads is Σ 16^load: of two sums, the one of the descending loads that are lexicographically smaller is smaller, with up to 15 members.
	loads        uint64
	moves, apart int
}

func (c cost) less(d cost) bool {
	if c.loads != d.loads {
		return c.loads < d.loads
	}
	if c.moves != d.moves {
		return c.moves < d.moves
	}
	return c.apart < d.apart
}

// small is a group of at most 15 members and 15 partitions, by numbers.
type small struct {
	counts []int   // partitions by topic
	subs   []int   // topics by member, as bits
	owners []int   // previous owners by partition; one that is no member stands for nobody
	zones  []int   // by member, -1 for none
	led    [][]int // leaders' zones by topic and partition, -1 for none
}

func (s small) input() Input {
	in := Input{Partitions: make(map[string]int32), Previous: make(Assignment)}
	zone := func(z int) string {
		if z < 0 {
			return ""
		}
		return fmt.Sprint("zone-", z)
	}
	g := 0
	for t, n := range s.counts {
		topic := fmt.Sprint("t", t)
		in.Partitions[topic] = int32(n)
		for i := range n {
			if s.owners != nil {
				id := fmt.Sprint("m", s.owners[g])
				in.Previous[id] = append(in.Previous[id], Partition{topic, int32(i)})
				g++
			}
		}
	}
	for m, sub := range s.subs {
		member := Member{ID: fmt.Sprint("m", m)}
		if s.zones != nil {
			member.Zone = zone(s.zones[m])
		}
		for t := range s.counts {
			if sub&(1<<t) != 0 {
				member.Topics = append(member.Topics, fmt.Sprint("t", t))
			}
		}
		in.Members = append(in.Members, member)
	}
	if s.led != nil {
		in.Zones = make(map[string][]string)
		for t := range s.counts {
			for _, z := range s.led[t] {
				in.Zones[fmt.Sprint("t", t)] = append(in.Zones[fmt.Sprint("t", t)], zone(z))
			}
		}
	}
	return in
}

// apart reports whether a partition's leader has a zone that is not the member's.
func (s small) apart(t, i, m int) bool {
	return len(s.led) > 0 && s.led[t][i] >= 0 && s.zones[m] != s.led[t][i]
}

// best tries every assignment.
func (s small) best() cost {
	best := cost{loads: 1 << 63}
	loads := make([]int, len(s.subs))
	var try func(t, i, g int, c cost)
	try = func(t, i, g int, c cost) {
		for t < len(s.counts) && i == s.counts[t] {
			t, i = t+1, 0
		}
		if t == len(s.counts) {
			for _, l := range loads {
				c.loads += 1 << (4 * l)
			}
			if c.less(best) {
				best = c
			}
			return
		}
		read := false
		for m, sub := range s.subs {
			if sub&(1<<t) == 0 {
				continue
			}
			read = true
			next := c
			if len(s.owners) == 0 || s.owners[g] != m {
				next.moves++
			}
			if s.apart(t, i, m) {
				next.apart++
			}
			loads[m]++
			try(t, i+1, g+1, next)
			loads[m]--
		}
		if !read {
			try(t, i+1, g+1, c)
		}
	}
	try(0, 0, 0, cost{})
	return best
}

// of returns what a plan costs.
func (s small) of(in Input, plan Assignment) cost {
	c := cost{moves: Moves(in.Previous, plan)}
	for m := range s.subs {
		share := plan[fmt.Sprint("m", m)]
		c.loads += 1 << (4 * len(share))
		for _, part := range share {
			var t int
			fmt.Sscanf(part.Topic, "t%d", &t)
			if s.apart(t, int(part.Partition), m) {
				c.apart++
			}
		}
	}
	return c
}

// compare checks the assigners' plans against the best of all.
func (s small) compare(t *testing.T) {
	in := s.input()
	want := s.best()
	for _, a := range []Assigner{ConsistentHash{}, Sticky{}} {
		got := a.Assign(in)
		if c := s.of(in, got); c != want {
			t.Fatalf("%s: %+v, best is %+v: %+v\n%v", a.Name(), c, want, s, got)
		}
	}
	if got := Minimum(in); got != want.moves && len(s.subs) > 0 {
		t.Fatalf("Minimum = %d, best is %+v: %+v", got, want, s)
	}
}

// each calls f with every slice of n numbers from 0 to limit-1; f must not keep it.
func each(n, limit int, f func([]int)) {
	digits := make([]int, n)
	var at func(i int)
	at = func(i int) {
		if i == n {
			f(digits)
			return
		}
		for d := range limit {
			digits[i] = d
			at(i + 1)
		}
	}
	at(0)
}

func sum(ns []int) int {
	total := 0
	for _, n := range ns {
		total += n
	}
	return total
}

// TestEverySmallGroup tries every group of up to three members and two topics of up to two partitions, or three topics of one, with all
// subscriptions and all previous assignments, against every assignment.
func TestEverySmallGroup(t *testing.T) {
	cases := 0
	for _, size := range []struct{ topics, partitions, members int }{{1, 3, 3}, {2, 2, 3}, {3, 1, 3}} {
		for members := 1; members <= size.members; members++ {
			each(size.topics, size.partitions+1, func(counts []int) {
				each(members, 1<<size.topics, func(subs []int) {
					each(sum(counts), members+1, func(owners []int) {
						small{counts: counts, subs: subs, owners: owners}.compare(t)
						cases++
					})
				})
			})
		}
	}
	t.Logf("%d groups", cases)
}

// randomSmall returns a random group; zones are left out unless wanted.
func randomSmall(rng *rand.Rand, zones bool) small {
	topics := 1 + rng.IntN(3)
	s := small{counts: make([]int, topics), subs: make([]int, 1+rng.IntN(4))}
	for total := 100; total > 8; total = sum(s.counts) {
		for t := range s.counts {
			s.counts[t] = rng.IntN(4)
		}
	}
	for m := range s.subs {
		s.subs[m] = rng.IntN(1 << topics)
		if rng.IntN(3) == 0 {
			s.subs[m] = 1<<topics - 1
		}
	}
	if rng.IntN(4) > 0 {
		crowd := rng.IntN(len(s.subs) + 1) // whoever had most
		for range sum(s.counts) {
			owner := rng.IntN(len(s.subs) + 1)
			if rng.IntN(3) == 0 {
				owner = crowd
			}
			s.owners = append(s.owners, owner)
		}
	}
	if zones {
		for range s.subs {
			s.zones = append(s.zones, rng.IntN(4)-1)
		}
		for _, n := range s.counts {
			var led []int
			for range n {
				led = append(led, rng.IntN(4)-1)
			}
			s.led = append(s.led, led)
		}
	}
	return s
}

// TestRandomSmallGroups goes beyond TestEverySmallGroup: up to four members and three topics of up to three partitions.
func TestRandomSmallGroups(t *testing.T) {
	rng := newRand(t, 17)
	for range 3000 {
		s := randomSmall(rng, false)
		s.compare(t)
		in := s.input()
		for _, a := range []Assigner{ConsistentHash{}, Sticky{}} {
			got := a.Assign(in)
			check(t, in, got)
			if diff := cmp.Diff(got, a.Assign(shuffled(rng, in))); diff != "" {
				t.Fatalf("%s: another order of the input gives another assignment: %+v\n%s", a.Name(), s, diff)
			}
		}
	}
}

// TestZonesDecideAmongEqualPlans compares plans of groups with zones with the best that there are: first in balance, then in moves, then in
// the number of partitions whose leader is in another zone.
func TestZonesDecideAmongEqualPlans(t *testing.T) {
	rng := newRand(t, 19)
	for range 3000 {
		s := randomSmall(rng, true)
		if rng.IntN(2) == 0 { // all read the same topics
			for m := range s.subs {
				s.subs[m] = 1<<len(s.counts) - 1
			}
		}
		s.compare(t)
	}
}

// TestZonesCostNothing compares plans of large groups with zones with those of the same groups without: loads and moves are the same, and no
// more partitions are in another zone than their leader.
func TestZonesCostNothing(t *testing.T) {
	rng := newRand(t, 43)
	names := []string{"a", "b", "c"}
	apart, without := 0, 0
	for range 100 {
		in := largeGroup(rng)
		plain := ConsistentHash{}.Assign(in)
		in.Zones = make(map[string][]string)
		zone := make(map[string]string)
		for m := range in.Members {
			in.Members[m].Zone = names[rng.IntN(3)]
			zone[in.Members[m].ID] = in.Members[m].Zone
		}
		for t := range len(in.Partitions) {
			topic := fmt.Sprintf("topic-%02d", t)
			for range in.Partitions[topic] {
				in.Zones[topic] = append(in.Zones[topic], names[rng.IntN(3)])
			}
		}
		zoned := ConsistentHash{}.Assign(in)
		check(t, in, zoned)
		if !slices.Equal(sortedLoads(plain), sortedLoads(zoned)) || Moves(in.Previous, plain) != Moves(in.Previous, zoned) {
			t.Fatal("zones change loads or moves")
		}
		count := func(plan Assignment) int {
			n := 0
			for id, share := range plan {
				for _, part := range share {
					if in.Zones[part.Topic][part.Partition] != zone[id] {
						n++
					}
				}
			}
			return n
		}
		if count(zoned) > count(plain) {
			t.Fatalf("%d partitions are in another zone, %d without the preference", count(zoned), count(plain))
		}
		apart, without = apart+count(zoned), without+count(plain)
	}
	t.Logf("%d partitions are in another zone than their leader, %d without the preference", apart, without)
}
