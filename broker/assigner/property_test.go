// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// check fails the test if a partition has no or two owners, or an owner that does not read it, or a share is not sorted.
func check(t *testing.T, in Input, got Assignment) {
	t.Helper()
	reads := make(map[string]map[string]bool)
	wanted := make(map[Partition]bool)
	for _, m := range in.Members {
		reads[m.ID] = make(map[string]bool)
		for _, topic := range m.Topics {
			reads[m.ID][topic] = true
			for i := range in.Partitions[topic] {
				wanted[Partition{topic, i}] = true
			}
		}
	}
	if len(got) != len(reads) {
		t.Fatalf("%d members in the assignment, want %d", len(got), len(reads))
	}
	owned := 0
	for id, share := range got {
		if reads[id] == nil {
			t.Fatalf("%s is no member", id)
		}
		for i, part := range share {
			if !wanted[part] || !reads[id][part.Topic] {
				t.Fatalf("%s has %v, which it must not have", id, part)
			}
			if i > 0 && comparePartitions(share[i-1], part) >= 0 {
				t.Fatalf("the share of %s is not sorted: %v", id, share)
			}
			wanted[part] = false
			owned++
		}
	}
	if owned != len(wanted) {
		t.Fatalf("%d partitions have an owner, want %d", owned, len(wanted))
	}
}

func comparePartitions(a, b Partition) int {
	if a.Topic != b.Topic {
		if a.Topic < b.Topic {
			return -1
		}
		return 1
	}
	return int(a.Partition - b.Partition)
}

// spread returns the difference between the largest and the smallest load; of one topic, unless topic is empty.
func spread(a Assignment, topic string) int {
	var loads []int
	for _, share := range a {
		n := 0
		for _, part := range share {
			if topic == "" || part.Topic == topic {
				n++
			}
		}
		loads = append(loads, n)
	}
	if len(loads) == 0 {
		return 0
	}
	return slices.Max(loads) - slices.Min(loads)
}

// formula computes the smallest number of moves from the definition, in another way than the package does.
func formula(in Input) int {
	n := len(in.Members)
	if n == 0 {
		return 0
	}
	total := 0
	for _, topic := range in.Members[0].Topics {
		total += int(in.Partitions[topic])
	}
	current := make([]int, 0, n)
	for _, m := range in.Members {
		count := 0
		for _, part := range in.Previous[m.ID] {
			if slices.Contains(m.Topics, part.Topic) && part.Partition < in.Partitions[part.Topic] {
				count++
			}
		}
		current = append(current, count)
	}
	slices.Sort(current)
	slices.Reverse(current)
	moves := total
	for i, c := range current {
		limit := total / n
		if i < total%n {
			limit++
		}
		moves -= min(c, limit)
	}
	return moves
}

// shuffled returns the same input in another order.
func shuffled(rng *rand.Rand, in Input) Input {
	out := Input{Partitions: in.Partitions, Zones: in.Zones, Weights: in.Weights, Previous: make(Assignment)}
	for _, m := range in.Members {
		topics := slices.Clone(m.Topics)
		rng.Shuffle(len(topics), func(i, j int) { topics[i], topics[j] = topics[j], topics[i] })
		out.Members = append(out.Members, Member{ID: m.ID, Topics: topics, Zone: m.Zone})
	}
	rng.Shuffle(len(out.Members), func(i, j int) { out.Members[i], out.Members[j] = out.Members[j], out.Members[i] })
	for id, share := range in.Previous {
		share = slices.Clone(share)
		rng.Shuffle(len(share), func(i, j int) { share[i], share[j] = share[j], share[i] })
		out.Previous[id] = share
	}
	return out
}

// newRand returns a source of random numbers, and prints its seed if the test fails.
func newRand(t *testing.T, seed uint64) *rand.Rand {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// TestRandomChanges lets members join and leave, several at once, and topics come, grow and go, and checks every assignment.
func TestRandomChanges(t *testing.T) {
	for _, a := range []Assigner{ConsistentHash{}, Sticky{}, RoundRobin{}, Range{}} {
		for seed := range uint64(60) {
			t.Run(fmt.Sprintf("%s/%d", a.Name(), seed), func(t *testing.T) {
				randomChanges(t, a, newRand(t, seed))
			})
		}
	}
}

func randomChanges(t *testing.T, a Assigner, rng *rand.Rand) {
	topics := []string{"orders", "payments", "clicks", "audit"}[:1+rng.IntN(4)]
	in := Input{Partitions: make(map[string]int32)}
	for _, topic := range topics {
		in.Partitions[topic] = rng.Int32N(40)
	}
	next := 0
	for step := range 40 {
		for range rng.IntN(5) {
			in.Members = append(in.Members, Member{ID: fmt.Sprint("web-", next), Topics: topics})
			next++
		}
		for range rng.IntN(5) {
			if n := len(in.Members); n > 0 {
				in.Members = slices.Delete(in.Members, n-1, n)
				rng.Shuffle(n-1, func(i, j int) { in.Members[i], in.Members[j] = in.Members[j], in.Members[i] })
			}
		}
		if rng.IntN(4) == 0 {
			in.Partitions[topics[rng.IntN(len(topics))]] += rng.Int32N(10)
		}
		if rng.IntN(10) == 0 {
			in.Partitions[topics[rng.IntN(len(topics))]] = 0
		}
		got := a.Assign(in)
		check(t, in, got)
		if diff := cmp.Diff(got, a.Assign(shuffled(rng, in))); diff != "" {
			t.Fatalf("step %d: another order of the input gives another assignment:\n%s", step, diff)
		}
		if a.Name() != (Range{}).Name() && spread(got, "") > 1 {
			t.Fatalf("step %d: spread %d", step, spread(got, ""))
		}
		if want := formula(in); Minimum(in) != want {
			t.Fatalf("step %d: Minimum = %d, want %d", step, Minimum(in), want)
		} else if moved := Moves(in.Previous, got); moved < want && a.Name() != (Range{}).Name() {
			t.Fatalf("step %d: moved %d, less than the minimum %d", step, moved, want)
		} else if moved != want && (a == ConsistentHash{} || a == Sticky{}) {
			t.Fatalf("step %d: moved %d, minimum %d", step, moved, want)
		}
		in.Previous = got
	}
}

// TestFreshAssignmentSpreadsEachTopic checks that starting from nothing no member has two more partitions of a topic than another.
func TestFreshAssignmentSpreadsEachTopic(t *testing.T) {
	rng := newRand(t, 7)
	for range 500 {
		in := Input{Partitions: make(map[string]int32)}
		var topics []string
		for i := range 1 + rng.IntN(8) {
			topic := fmt.Sprint("topic-", i)
			topics = append(topics, topic)
			in.Partitions[topic] = rng.Int32N(50)
		}
		for i := range 1 + rng.IntN(20) {
			in.Members = append(in.Members, Member{ID: fmt.Sprint("web-", i), Topics: topics})
		}
		for _, a := range []Assigner{ConsistentHash{}, Sticky{}} {
			got := a.Assign(in)
			check(t, in, got)
			for _, topic := range append(topics, "") {
				if s := spread(got, topic); s > 1 {
					t.Fatalf("%s: topic %q is spread by %d over %d members: %v", a.Name(), topic, s, len(in.Members), in.Partitions)
				}
			}
		}
	}
}

// TestTopicsStaySpread checks that scaling up and down does not heap a topic on few members.
func TestTopicsStaySpread(t *testing.T) {
	topics := []string{"a", "b", "c", "d", "e"}
	in := Input{Partitions: map[string]int32{"a": 30, "b": 30, "c": 30, "d": 30, "e": 30}}
	worst := 0
	for _, n := range []int{3, 4, 5, 10, 9, 8, 15, 5, 3, 2, 6} {
		in.Members = in.Members[:0]
		for i := range n {
			in.Members = append(in.Members, Member{ID: fmt.Sprint("web-", i), Topics: topics})
		}
		in.Previous = ConsistentHash{}.Assign(in)
		check(t, in, in.Previous)
		for _, topic := range topics {
			worst = max(worst, spread(in.Previous, topic))
		}
	}
	if worst > 2 {
		t.Errorf("a topic of 30 partitions is spread by %d", worst)
	}
}

// everyAssignment calls f with the owners of the partitions, member numbers, in every way that reads allows.
func everyAssignment(owners []int, members int, reads func(m, part int) bool, at int, f func([]int)) {
	if at == len(owners) {
		f(owners)
		return
	}
	for m := range members {
		if reads(m, at) {
			owners[at] = m
			everyAssignment(owners, members, reads, at+1, f)
		}
	}
}

// TestAgainstEveryAssignment compares small groups with the best of all assignments that there are.
func TestAgainstEveryAssignment(t *testing.T) {
	rng := newRand(t, 11)
	for range 300 {
		n, count := 1+rng.IntN(4), 1+rng.IntN(6)
		in := Input{Partitions: map[string]int32{"t": int32(count)}, Previous: make(Assignment)}
		before := make([]int, count)
		for i := range before {
			before[i] = rng.IntN(n+2) - 1 // -1: nobody's, n: a member that left
			id := fmt.Sprint("m", before[i])
			in.Previous[id] = append(in.Previous[id], Partition{"t", int32(i)})
		}
		for m := range n {
			in.Members = append(in.Members, Member{ID: fmt.Sprint("m", m), Topics: []string{"t"}})
		}
		best := count + 1
		everyAssignment(make([]int, count), n, func(int, int) bool { return true }, 0, func(owners []int) {
			loads, moved := make([]int, n), 0
			for i, m := range owners {
				loads[m]++
				if m != before[i] {
					moved++
				}
			}
			if slices.Max(loads)-slices.Min(loads) <= 1 {
				best = min(best, moved)
			}
		})
		for _, a := range []Assigner{ConsistentHash{}, Sticky{}} {
			got := a.Assign(in)
			check(t, in, got)
			if moved := Moves(in.Previous, got); moved != best || spread(got, "") > 1 {
				t.Fatalf("%s: moved %d with spread %d, the best moves %d: %v", a.Name(), moved, spread(got, ""), best, in)
			}
		}
		if got := Minimum(in); got != best {
			t.Fatalf("Minimum = %d, the best moves %d: %v", got, best, in)
		}
	}
}

// TestUnequalSubscriptionsAreBalanced compares the loads of members that read different topics with the most even ones that there are.
func TestUnequalSubscriptionsAreBalanced(t *testing.T) {
	rng := newRand(t, 13)
	names := []string{"a", "b", "c", "d"}
	for range 200 {
		n := 1 + rng.IntN(4)
		in := Input{Partitions: make(map[string]int32), Previous: make(Assignment)}
		for m := range n {
			member := Member{ID: fmt.Sprint("m", m)}
			for _, topic := range names {
				if rng.IntN(2) == 0 {
					member.Topics = append(member.Topics, topic)
				}
			}
			in.Members = append(in.Members, member)
		}
		var parts []Partition
		for _, topic := range names {
			if !slices.ContainsFunc(in.Members, func(m Member) bool { return slices.Contains(m.Topics, topic) }) {
				continue
			}
			in.Partitions[topic] = rng.Int32N(3)
			for i := range in.Partitions[topic] {
				parts = append(parts, Partition{topic, i})
				id := fmt.Sprint("m", rng.IntN(n+1))
				in.Previous[id] = append(in.Previous[id], Partition{topic, i})
			}
		}
		squares := func(loads []int) int {
			sum := 0
			for _, l := range loads {
				sum += l * l
			}
			return sum
		}
		best := 1 << 30
		reads := func(m, part int) bool { return slices.Contains(in.Members[m].Topics, parts[part].Topic) }
		everyAssignment(make([]int, len(parts)), n, reads, 0, func(owners []int) {
			loads := make([]int, n)
			for _, m := range owners {
				loads[m]++
			}
			best = min(best, squares(loads))
		})
		for _, a := range []Assigner{ConsistentHash{}, Sticky{}, RoundRobin{}, Range{}} {
			got := a.Assign(in)
			check(t, in, got)
			if diff := cmp.Diff(got, a.Assign(shuffled(rng, in))); diff != "" {
				t.Fatalf("%s: another order of the input gives another assignment:\n%s", a.Name(), diff)
			}
			var loads []int
			for _, share := range got {
				loads = append(loads, len(share))
			}
			if sum := squares(loads); sum != best && (a == ConsistentHash{} || a == Sticky{}) {
				t.Fatalf("%s: loads %v, the sum of squares could be %d: %v", a.Name(), loads, best, in)
			}
		}
	}
}

// TestLeaverIsInheritedByMany checks that the ring spreads what a member leaves behind, and that coming back costs no more than leaving.
func TestLeaverIsInheritedByMany(t *testing.T) {
	topics := []string{"t"}
	in := Input{Partitions: map[string]int32{"t": 1000}}
	for i := range 50 {
		in.Members = append(in.Members, Member{ID: fmt.Sprint("web-", i), Topics: topics})
	}
	full := ConsistentHash{}.Assign(in)
	without := in
	without.Members, without.Previous = in.Members[:49], full
	less := ConsistentHash{}.Assign(without)
	if moved := Moves(full, less); moved != 20 {
		t.Errorf("moved %d partitions when a member with 20 left", moved)
	}
	heirs := 0
	for id, share := range less {
		if len(share) > len(full[id]) {
			heirs++
		}
	}
	if heirs != 20 {
		t.Errorf("%d members inherited 20 partitions", heirs)
	}
	in.Previous = less
	if moved := Moves(less, ConsistentHash{}.Assign(in)); moved != 20 {
		t.Errorf("moved %d partitions when the member came back", moved)
	}
}

// TestRingIsStable checks that even without a previous assignment one more member changes little: the ring, not chance, places partitions.
func TestRingIsStable(t *testing.T) {
	fewer, more := benchInput(1000, 100, 1), benchInput(1000, 101, 1)
	moved := Moves(ConsistentHash{}.Assign(fewer), ConsistentHash{}.Assign(more))
	if moved > 100 {
		t.Errorf("%d of 1000 partitions are elsewhere with a 101st member", moved)
	}
}

// FuzzAssign makes inputs of any bytes and checks what every assigner promises.
func FuzzAssign(f *testing.F) {
	f.Add([]byte{3, 2, 5, 9, 7, 7, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{1, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b)
		}
		in := Input{Partitions: make(map[string]int32), Previous: make(Assignment)}
		members, topics := next()%9, 1+next()%5
		rng := rand.New(rand.NewPCG(uint64(members)<<8+uint64(topics), uint64(next())))
		for i := range topics {
			in.Partitions[fmt.Sprint("t", i)] = int32(next()%33) - 1
		}
		for m := range members {
			member, mask := Member{ID: fmt.Sprint("m", m)}, next()
			for i := range topics {
				if mask&(1<<i) != 0 {
					member.Topics = append(member.Topics, fmt.Sprint("t", i))
				}
			}
			in.Members = append(in.Members, member)
		}
		for len(data) > 2 {
			id := fmt.Sprint("m", next()%10)
			in.Previous[id] = append(in.Previous[id], Partition{fmt.Sprint("t", next()%6), int32(next()%40) - 2})
		}
		if mode := rng.IntN(3); mode > 0 {
			in.Zones, in.Weights = make(map[string][]string), make(map[string][]int64)
			for m := range in.Members {
				in.Members[m].Zone = []string{"", "a", "b"}[rng.IntN(3)]
			}
			for i := range topics {
				topic := fmt.Sprint("t", i)
				for range rng.IntN(40) {
					in.Zones[topic] = append(in.Zones[topic], []string{"", "a", "b", "c"}[rng.IntN(4)])
					if mode == 2 {
						in.Weights[topic] = append(in.Weights[topic], rng.Int64N(1<<rng.IntN(63)))
					}
				}
			}
		}
		clean := Input{Members: in.Members, Partitions: make(map[string]int32), Previous: in.Previous}
		for topic, n := range in.Partitions {
			if n > 0 {
				clean.Partitions[topic] = n
			}
		}
		for _, name := range Names() {
			a, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			got := a.Assign(in)
			check(t, clean, got)
			if diff := cmp.Diff(got, a.Assign(shuffled(rng, in))); diff != "" {
				t.Fatalf("%s: another order of the input gives another assignment:\n%s", name, diff)
			}
			again := in
			again.Previous = got
			if moved := Moves(got, a.Assign(again)); moved != 0 {
				t.Fatalf("%s: assigning again moved %d partitions", name, moved)
			}
		}
	})
}
