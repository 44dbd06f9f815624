// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parts returns partitions of a topic.
func parts(topic string, numbers ...int32) []Partition {
	out := make([]Partition, 0, len(numbers))
	for _, n := range numbers {
		out = append(out, Partition{Topic: topic, Partition: n})
	}
	return out
}

// readers returns members that all read the same topics.
func readers(topics string, ids ...string) []Member {
	out := make([]Member, 0, len(ids))
	for _, id := range ids {
		out = append(out, Member{ID: id, Topics: strings.Fields(topics)})
	}
	return out
}

func TestAssign(t *testing.T) {
	cases := map[string]struct {
		assigner Assigner
		in       Input
		want     Assignment
	}{
		"RoundRobin deals two topics in turn, going on where the first one ended": {
			assigner: RoundRobin{},
			in:       Input{Members: readers("a b", "m2", "m1"), Partitions: map[string]int32{"a": 3, "b": 3}},
			want: Assignment{
				"m1": append(parts("a", 0, 2), parts("b", 1)...),
				"m2": append(parts("a", 1), parts("b", 0, 2)...),
			},
		},
		"RoundRobin passes over members that do not read the topic (the example of Kafka's documentation)": {
			assigner: RoundRobin{},
			in: Input{
				Members: []Member{
					{ID: "c0", Topics: []string{"t0"}}, {ID: "c1", Topics: []string{"t0", "t1"}}, {ID: "c2", Topics: []string{"t0", "t1", "t2"}},
				},
				Partitions: map[string]int32{"t0": 1, "t1": 2, "t2": 3},
			},
			want: Assignment{
				"c0": parts("t0", 0),
				"c1": parts("t1", 0),
				"c2": append(parts("t1", 1), parts("t2", 0, 1, 2)...),
			},
		},
		"Range gives the first members one more of each topic (the example of Kafka's documentation)": {
			assigner: Range{},
			in:       Input{Members: readers("t0 t1", "c1", "c0"), Partitions: map[string]int32{"t0": 3, "t1": 3}},
			want: Assignment{
				"c0": append(parts("t0", 0, 1), parts("t1", 0, 1)...),
				"c1": append(parts("t0", 2), parts("t1", 2)...),
			},
		},
		"Range leaves members without partitions when there are more members than partitions": {
			assigner: Range{},
			in:       Input{Members: readers("t", "a", "b", "c"), Partitions: map[string]int32{"t": 2}},
			want:     Assignment{"a": parts("t", 0), "b": parts("t", 1), "c": nil},
		},
		"Sticky gives a leaving member's partitions to the least loaded, the first by id": {
			assigner: Sticky{},
			in: Input{
				Members: readers("t", "a", "c"), Partitions: map[string]int32{"t": 5},
				Previous: Assignment{"a": parts("t", 0), "b": parts("t", 1, 4), "c": parts("t", 2, 3)},
			},
			want: Assignment{"a": parts("t", 0, 1, 4), "c": parts("t", 2, 3)},
		},
		"Sticky takes the highest-numbered partitions for a new member": {
			assigner: Sticky{},
			in: Input{
				Members: readers("t", "a", "b", "c"), Partitions: map[string]int32{"t": 6},
				Previous: Assignment{"a": parts("t", 0, 1, 2), "b": parts("t", 3, 4, 5)},
			},
			want: Assignment{"a": parts("t", 0, 1), "b": parts("t", 3, 4), "c": parts("t", 2, 5)},
		},
		"ConsistentHash changes nothing when nothing changed": {
			assigner: ConsistentHash{},
			in: Input{
				Members: readers("t", "a", "b"), Partitions: map[string]int32{"t": 5},
				Previous: Assignment{"a": parts("t", 4, 1), "b": parts("t", 0, 2, 3)},
			},
			want: Assignment{"a": parts("t", 1, 4), "b": parts("t", 0, 2, 3)},
		},
		"ConsistentHash ignores what no longer holds, and counts the smaller id of two owners": {
			assigner: ConsistentHash{},
			in: Input{
				Members: readers("t", "a", "b"), Partitions: map[string]int32{"t": 2},
				Previous: Assignment{
					"a":    append(parts("t", 1, 1, -1, 2, 1<<31-1), parts("gone", 0)...),
					"b":    parts("t", 1, 0),
					"gone": parts("t", 0, 1),
				},
			},
			want: Assignment{"a": parts("t", 1), "b": parts("t", 0)},
		},
		"ConsistentHash has the extra partitions stay with those that have most, and go to those that gain anyway": {
			assigner: ConsistentHash{},
			in: Input{
				Members: readers("t", "a", "b", "c", "d"), Partitions: map[string]int32{"t": 10},
				Previous: Assignment{"a": parts("t", 0, 1, 2, 3, 4), "b": parts("t", 5, 6), "c": parts("t", 7, 8)},
			},
			want: Assignment{"a": parts("t", 0, 1, 2), "b": parts("t", 5, 6), "c": parts("t", 7, 8), "d": parts("t", 3, 4, 9)},
		},
		"A topic that nobody reads, one without partitions and one that is unknown are nobody's": {
			assigner: ConsistentHash{},
			in:       Input{Members: readers("t none unknown", "a"), Partitions: map[string]int32{"t": 1, "none": 0, "unread": 3, "negative": -1}},
			want:     Assignment{"a": parts("t", 0)},
		},
		"An id that occurs twice is one member that reads the topics of both": {
			assigner: Sticky{},
			in: Input{
				Members:    []Member{{ID: "a", Topics: []string{"u", "u"}}, {ID: "a", Topics: []string{"t"}}},
				Partitions: map[string]int32{"t": 1, "u": 1},
			},
			want: Assignment{"a": append(parts("t", 0), parts("u", 0)...)},
		},
		"Handing on along a chain evens out members that read different topics": {
			assigner: Sticky{},
			in: Input{
				Members: []Member{
					{ID: "a", Topics: []string{"t", "u"}}, {ID: "b", Topics: []string{"u", "v"}}, {ID: "c", Topics: []string{"v"}},
				},
				Partitions: map[string]int32{"t": 2, "u": 2, "v": 2},
				Previous:   Assignment{"a": append(parts("t", 0, 1), parts("u", 0, 1)...), "b": parts("v", 0, 1)},
			},
			want: Assignment{"a": parts("t", 0, 1), "b": parts("u", 0, 1), "c": parts("v", 0, 1)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.assigner.Assign(tc.in)); diff != "" {
				t.Errorf("assignment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoMembersOrNoPartitions(t *testing.T) {
	for _, name := range Names() {
		a, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Assign(Input{Partitions: map[string]int32{"t": 4}}); len(got) != 0 {
			t.Errorf("%s without members: %v", name, got)
		}
		want := Assignment{"a": nil, "b": nil}
		if diff := cmp.Diff(want, a.Assign(Input{Members: readers("t", "b", "a")})); diff != "" {
			t.Errorf("%s without partitions (-want +got):\n%s", name, diff)
		}
	}
}

func TestByName(t *testing.T) {
	if diff := cmp.Diff([]string{"ConsistentHash", "Range", "RoundRobin", "Sticky"}, Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for _, name := range Names() {
		if a, err := ByName(name); err != nil || a.Name() != name {
			t.Errorf("ByName(%q) = %v, %v", name, a, err)
		}
	}
	_, err := ByName("range")
	want := `unknown assigner "range": choose one of ConsistentHash, Range, RoundRobin, Sticky`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestMoves(t *testing.T) {
	cases := map[string]struct {
		prev, next Assignment
		want       int
	}{
		"nothing before: all move":             {next: Assignment{"a": parts("t", 0, 1)}, want: 2},
		"nothing changed":                      {prev: Assignment{"a": parts("t", 1, 0)}, next: Assignment{"a": parts("t", 0, 1)}, want: 0},
		"one changes hands":                    {prev: Assignment{"a": parts("t", 0, 1)}, next: Assignment{"a": parts("t", 0), "b": parts("t", 1)}, want: 1},
		"one that vanished does not count":     {prev: Assignment{"a": parts("t", 0, 1)}, next: Assignment{"a": parts("t", 0)}, want: 0},
		"the same number of another topic":     {prev: Assignment{"a": parts("t", 0)}, next: Assignment{"a": parts("u", 0)}, want: 1},
		"of two owners the smaller id counts":  {prev: Assignment{"a": parts("t", 0), "b": parts("t", 0)}, next: Assignment{"a": nil, "b": parts("t", 0)}, want: 1},
		"of two owners one that left does not": {prev: Assignment{"a": parts("t", 0), "b": parts("t", 0)}, next: Assignment{"b": parts("t", 0)}, want: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Moves(tc.prev, tc.next); got != tc.want {
				t.Errorf("Moves = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestMinimum(t *testing.T) {
	cases := map[string]struct {
		in   Input
		want int
	}{
		"no members": {in: Input{Partitions: map[string]int32{"t": 3}}, want: 0},
		"fresh":      {in: Input{Members: readers("t", "a", "b"), Partitions: map[string]int32{"t": 3}}, want: 3},
		"a third member of 12 partitions": {
			in: Input{
				Members: readers("t", "a", "b", "c"), Partitions: map[string]int32{"t": 12},
				Previous: Assignment{"a": parts("t", 0, 1, 2, 3, 4, 5), "b": parts("t", 6, 7, 8, 9, 10, 11)},
			},
			want: 4,
		},
		"members that read different topics: what has lost its owner": {
			in: Input{
				Members: []Member{{ID: "a", Topics: []string{"t"}}, {ID: "b", Topics: []string{"u"}}}, Partitions: map[string]int32{"t": 2, "u": 2},
				Previous: Assignment{"a": append(parts("t", 0), parts("u", 0, 1)...)},
			},
			want: 3,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Minimum(tc.in); got != tc.want {
				t.Errorf("Minimum = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSimulate(t *testing.T) {
	cases := map[string]struct {
		assigner                  Assigner
		partitions, members, then int
		want                      Simulation
		wantErr                   string
	}{
		"one more of a thousand":       {assigner: ConsistentHash{}, partitions: 10000, members: 1000, then: 1001, want: Simulation{Moved: 9, Minimum: 9, MaxLoad: 10, MinLoad: 9}},
		"one less":                     {assigner: Sticky{}, partitions: 12, members: 4, then: 3, want: Simulation{Moved: 3, Minimum: 3, MaxLoad: 4, MinLoad: 4}},
		"Range moves more than needed": {assigner: Range{}, partitions: 12, members: 3, then: 4, want: Simulation{Moved: 6, Minimum: 3, MaxLoad: 3, MinLoad: 3}},
		"to nobody":                    {assigner: ConsistentHash{}, partitions: 12, members: 3, then: 0, want: Simulation{}},
		"from nobody":                  {assigner: ConsistentHash{}, partitions: 12, members: 0, then: 5, want: Simulation{Moved: 12, Minimum: 12, MaxLoad: 3, MinLoad: 2}},
		"no partitions":                {assigner: ConsistentHash{}, partitions: 0, members: 1, then: 1, wantErr: "partitions must be from 1 to 1000000, not 0"},
		"less than nobody":             {assigner: ConsistentHash{}, partitions: 1, members: 1, then: -1, wantErr: "the number of members must be from 0 to 100000, not -1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Simulate(tc.assigner, tc.partitions, tc.members, tc.then)
			if gotErr := fmt.Sprint(err); tc.wantErr != "" && gotErr != tc.wantErr || tc.wantErr == "" && err != nil {
				t.Fatalf("error %v, want %s", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("simulation (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRing checks the ring against a search over sorted points.
func TestRing(t *testing.T) {
	hashes := make([]uint64, 50)
	members := make([]int32, 0, 25)
	for m := range hashes {
		hashes[m] = hashString(memberSeed, fmt.Sprint("web-", m))
		if m%2 == 0 {
			members = append(members, int32(m))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		r := newRing(members, hashes)
		if !slices.IsSorted(r.slots) {
			t.Fatal("the points are not sorted")
		}
		walk := func(point uint32, room []int32) int32 {
			start, _ := slices.BinarySearch(r.slots, newSlot(point, 0))
			for i := range r.slots {
				if m := r.slots[(start+i)%len(r.slots)].member(); room[m] > 0 {
					return m
				}
			}
			return none
		}
		room := make([]int32, len(hashes))
		total := 0
		for _, m := range members {
			room[m] = rng.Int32N(4)
			total += int(room[m])
		}
		for range total {
			point := rng.Uint32()
			want := walk(point, room)
			got := r.walk(point, room)
			if got != want {
				t.Fatalf("walk from %x: member %d, want %d", point, got, want)
			}
			room[got]--
		}
	}
}

// TestHashIsPinned fails if a change of the hash would move the partitions of every group at the next rebalance after an upgrade.
func TestHashIsPinned(t *testing.T) {
	got := ConsistentHash{}.Assign(Input{Members: readers("orders", "web-0", "web-1", "web-2"), Partitions: map[string]int32{"orders": 12}})
	want := Assignment{
		"web-0": parts("orders", 0, 3, 4, 9),
		"web-1": parts("orders", 2, 5, 10, 11),
		"web-2": parts("orders", 1, 6, 7, 8),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("assignment (-want +got):\n%s", diff)
	}
}
