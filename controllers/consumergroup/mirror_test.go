// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

func TestMirror(t *testing.T) {
	t.Parallel()
	s := &v1alpha1.ConsumerGroupStatus{Generation: 3, Partitions: 6}
	mirror(s, &Observation{})
	if s.Generation != 3 || s.State != "" {
		t.Errorf("a group that nobody has described is %+v", s)
	}
	o := &Observation{group: &description{state: coordinator.StateStable, generation: 4, members: []observedMember{
		{id: "app-5f0c1e2a-9b7d", clientID: "app", host: "10.0.0.1", assigned: orders(0, 1, 2)},
		{id: "db-0-77", instanceID: "db-0", clientID: "app", host: "10.0.0.2", assigned: orders(3, 4, 5)},
		{id: "0c9a8b7e6d5f", clientID: "app", host: "10.0.0.3"},
	}}}
	mirror(s, o)
	want := &v1alpha1.ConsumerGroupStatus{
		State: v1alpha1.GroupStable, Generation: 4, Replicas: 3, Partitions: 6,
		Assignments: "app-0c9a8b7e:- app-5f0c1e2a:orders[0-2] db-0:orders[3-5]",
		Members: []v1alpha1.GroupMember{
			{Name: "app-0c9a8b7e", UID: "0c9a8b7e6d5f", IP: "10.0.0.3", Phase: v1alpha1.MemberActive},
			{Name: "app-5f0c1e2a", UID: "app-5f0c1e2a-9b7d", IP: "10.0.0.1", Phase: v1alpha1.MemberActive, Assignments: orders(0, 1, 2)},
			{Name: "db-0", UID: "db-0-77", IP: "10.0.0.2", Phase: v1alpha1.MemberActive, Assignments: orders(3, 4, 5)},
		},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("the status (-want +got):\n%s", diff)
	}
	mirror(s, &Observation{group: &description{state: coordinator.StateDead, generation: -1}})
	if s.State != v1alpha1.GroupEmpty || s.Generation != 4 || s.Members != nil || s.Assignments != "" || s.Replicas != 0 {
		t.Errorf("a group that there is no more is %+v", s)
	}
}

func TestClientNamesAreUnique(t *testing.T) {
	t.Parallel()
	names := clientNames([]observedMember{{id: "app-12345678-a", clientID: "app"}, {id: "app-12345678-b", clientID: "app"}, {id: "x", clientID: "app"}, {id: "short"}})
	want := map[string]string{"app-12345678-a": "app-12345678-a", "app-12345678-b": "app-12345678-b", "x": "app-x", "short": "short"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	names = clientNames([]observedMember{{id: "zzzzzzzzzzzz"}, {id: "zzzzzzzzyyyy"}, {id: "other", instanceID: "zzzzzzzzzzzz"}, {id: "\xff"}, {id: "\xfe"}})
	want = map[string]string{"zzzzzzzzzzzz": "zzzzzzzzzzzz#2", "zzzzzzzzyyyy": "zzzzzzzzyyyy", "other": "zzzzzzzzzzzz", "\xfe": "\ufffd", "\xff": "\ufffd#2"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names that others have (-want +got):\n%s", diff)
	}
}

// Whatever clients choose as their ids: no two members have one name, each has one, it is short, it is as JSON writes it, and it does not depend on the others' order.
func TestClientNamesWhateverTheIdsAre(t *testing.T) {
	t.Parallel()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	pieces := []string{"", "a", "b", "-", "#2", "#3", "zzzzzzzz", "\xff", "\xfe", "\x00", "\n", "é", "\ufffd", strings.Repeat("long", 40), strings.Repeat("é", 70)}
	text := func() string {
		var b strings.Builder
		for range r.IntN(4) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	for range 20_000 {
		d := &description{}
		for range 1 + r.IntN(8) {
			m := observedMember{id: text(), clientID: text()}
			if r.IntN(3) == 0 {
				m.instanceID = text()
			}
			d.members = append(d.members, m)
		}
		d.sort()
		members := mirroredMembers(d.members)
		raw, err := json.Marshal(members)
		var read []v1alpha1.GroupMember
		if err != nil || json.Unmarshal(raw, &read) != nil || cmp.Diff(members, read) != "" {
			t.Fatalf("the members of %+v are not what the API server reads: %s (%v)", d.members, raw, err)
		}
		seen := map[string]bool{}
		for _, m := range members {
			if seen[m.Name] || m.Name == "" || len(m.Name) > maxNameBytes+len("#99") || len(m.UID) > maxNameBytes {
				t.Fatalf("the members of %+v: %q is the name of two, or too long, or none", d.members, m.Name)
			}
			seen[m.Name] = true
		}
		names := clientNames(d.members)
		r.Shuffle(len(d.members), func(i, j int) { d.members[i], d.members[j] = d.members[j], d.members[i] })
		if diff := cmp.Diff(names, clientNames(d.members)); diff != "" {
			t.Fatalf("in another order the names differ:\n%s", diff)
		}
	}
}

func TestWhatNoTopicCanHaveIsLeftOut(t *testing.T) {
	t.Parallel()
	all := make([]int32, 0, 20_002)
	for p := range int32(20_002) {
		all = append(all, p-1)
	}
	got := tidy([]v1alpha1.TopicAssignment{
		{Topic: "orders", Partitions: all}, {Topic: "a b", Partitions: []int32{0}}, {Topic: "", Partitions: []int32{0}}, {Topic: "\xff", Partitions: []int32{0}},
		{Topic: strings.Repeat("x", 250), Partitions: []int32{0}}, {Topic: "far", Partitions: []int32{-1, 10_000}},
	})
	if len(got) != 1 || len(got[0].Partitions) != 10_000 || got[0].Partitions[0] != 0 || got[0].Partitions[9999] != 9999 {
		t.Errorf("it is %d topics", len(got))
	}
}

func TestTooWide(t *testing.T) {
	t.Parallel()
	m := v1alpha1.GroupMember{Name: "wide", Assignments: make([]v1alpha1.TopicAssignment, 100)}
	if got := tooWide([]v1alpha1.GroupMember{m}); got != "" {
		t.Errorf("100 topics: %s", got)
	}
	m.Assignments = make([]v1alpha1.TopicAssignment, 101)
	if got, want := tooWide([]v1alpha1.GroupMember{m}), "member wide reads 101 topics, which is more than the 100 that a member may have"; got != want {
		t.Errorf("101 topics: %q, want %q", got, want)
	}
}

func TestWireRebalances(t *testing.T) {
	t.Parallel()
	client := func(id string, partitions ...int32) observedMember {
		m := observedMember{id: id, clientID: "app"}
		if len(partitions) > 0 {
			m.assigned = orders(partitions...)
		}
		return m
	}
	steps := []struct {
		name       string
		state      string
		generation int32
		members    []observedMember
		want       *v1alpha1.Rebalance
	}{
		{"what is seen first tells nothing of what was before", coordinator.StateStable, 1, []observedMember{client("app-a", 0, 1, 2, 3)}, nil},
		{"a rebalance is none before it ends", coordinator.StatePreparingRebalance, 1, []observedMember{client("app-a"), client("app-b")}, nil},
		{"nor where members have yet to be told", coordinator.StateCompletingRebalance, 2, []observedMember{client("app-a"), client("app-b")}, nil},
		{"a client joined", coordinator.StateStable, 2, []observedMember{client("app-a", 0, 1), client("app-b", 2, 3)}, &v1alpha1.Rebalance{Reason: "ClientsJoined", Message: "app-b joined", Moved: 2, Minimum: 2}},
		{"nothing changes", coordinator.StateStable, 2, []observedMember{client("app-a", 0, 1), client("app-b", 2, 3)}, nil},
		{"more moved than had to", coordinator.StateStable, 3, []observedMember{client("app-a", 2, 3), client("app-b", 0, 1)}, &v1alpha1.Rebalance{Reason: "ClientsRejoined", Message: "the same clients joined again", Moved: 4}},
		{"one left and one joined", coordinator.StateStable, 4, []observedMember{client("app-b", 0, 1), client("app-c", 2, 3)}, &v1alpha1.Rebalance{
			Reason: "ClientsJoined,ClientsLeft", Message: "app-c joined; app-a left", Moved: 2, Minimum: 2,
		}},
		{"all left", coordinator.StateEmpty, 5, nil, &v1alpha1.Rebalance{Reason: "ClientsLeft", Message: "app-b, app-c left"}},
		{"nobody leaves, and nobody joins", coordinator.StateEmpty, 6, nil, nil},
		{"a broker that has lost what it knew begins anew", coordinator.StateStable, 1, []observedMember{client("app-a", 0)}, nil},
	}
	var w wireWatch
	for _, step := range steps {
		got := w.note(time.Unix(1_000_000, 0), &description{state: step.state, generation: step.generation, members: step.members})
		if got != nil {
			if got.Time.IsZero() {
				t.Errorf("%s: it has no time", step.name)
			}
			got.Time = v1alpha1.Rebalance{}.Time
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
