// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// orders is a share of the topic orders.
func orders(partitions ...int32) []v1alpha1.TopicAssignment {
	return []v1alpha1.TopicAssignment{{Topic: "orders", Partitions: partitions}}
}

func TestManagedState(t *testing.T) {
	t.Parallel()
	const (
		stable     = v1alpha1.GroupStable
		preparing  = v1alpha1.GroupPreparingRebalance
		completing = v1alpha1.GroupCompletingRebalance
	)
	client := observedMember{id: "a", assigned: orders(0)}
	of := func(state string, generation int32, members ...observedMember) *Observation {
		return &Observation{plan: 5, group: &description{state: state, generation: generation, members: members}}
	}
	tests := map[string]struct {
		state v1alpha1.GroupState
		seen  *Observation
		want  v1alpha1.GroupState
	}{
		"the last state stands while nothing is known":                         {preparing, &Observation{}, preparing},
		"clients that were told an older plan say nothing of this one":         {preparing, of(coordinator.StateStable, 4, client), preparing},
		"brokers that do not tell the generation are believed":                 {preparing, of(coordinator.StateStable, -1, client), stable},
		"a client has yet to let go":                                           {preparing, of(coordinator.StatePreparingRebalance, 5, client), preparing},
		"clients have joined, and have not all yet":                            {preparing, of(coordinator.StateCompletingRebalance, 5, client), completing},
		"clients hold what is theirs":                                          {completing, of(coordinator.StateStable, 5, client), stable},
		"a later plan counts, too":                                             {preparing, of(coordinator.StateStable, 6, client), stable},
		"a handoff goes one way":                                               {completing, of(coordinator.StatePreparingRebalance, 5, client), completing},
		"where it is over, single clients change nothing":                      {stable, of(coordinator.StatePreparingRebalance, 5, client), stable},
		"seats without clients have nothing to hand over":                      {preparing, of(coordinator.StateDead, -1), stable},
		"that there were no clients before the plan says nothing":              {preparing, &Observation{plan: 4, group: &description{state: coordinator.StateEmpty, generation: 4}}, preparing},
		"a group without members is empty, whatever clients there are":         {v1alpha1.GroupEmpty, of(coordinator.StateStable, 5, client), v1alpha1.GroupEmpty},
		"KIP-848: a client that holds more than its target has to let go":      {preparing, of(coordinator.StateReconciling, 5, observedMember{id: "a", assigned: orders(0, 1), target: orders(0)}), preparing},
		"KIP-848: a client that is behind has yet to let go, or to hear of it": {preparing, of(coordinator.StateReconciling, 5, observedMember{id: "a", assigned: orders(0), target: orders(0), behind: true}), preparing},
		"KIP-848: a client that waits for its target has only to be given it":  {preparing, of(coordinator.StateReconciling, 5, observedMember{id: "a", assigned: orders(0), target: orders(0, 1)}), completing},
		"KIP-848: a client that holds a topic that is not its own, has to too": {preparing, of(coordinator.StateReconciling, 5, observedMember{id: "a", assigned: orders(0)}), preparing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &v1alpha1.ConsumerGroupStatus{State: test.state, Generation: 5}
			if got := managedState(s, test.seen); got != test.want {
				t.Errorf("the state is %s, want %s", got, test.want)
			}
		})
	}
}

func TestObservedIsIdempotent(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	group := &v1alpha1.ConsumerGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "group"}}
	group.Spec.Selector = &metav1.LabelSelector{}
	s := &v1alpha1.ConsumerGroupStatus{State: v1alpha1.GroupPreparingRebalance, Members: []v1alpha1.GroupMember{
		{Name: "web-0", UID: "u0", Phase: v1alpha1.MemberActive}, {Name: "web-1", UID: "u1", Phase: v1alpha1.MemberStalled}, {Name: "web-2", UID: "u2", Phase: v1alpha1.MemberActive},
	}}
	f := facts{observes: true, observed: &Observation{
		group:  &description{state: coordinator.StateStable},
		lag:    &v1alpha1.LagSummary{Total: 12, Max: 7, Time: metav1.NewTime(now)},
		stalls: map[string]stall{"web-0": {uid: "u0", stalled: true, lag: 12}, "web-1": {uid: "u1"}, "web-2": {uid: "another pod's", stalled: true}},
	}}
	setReady(now, s, v1alpha1.ReasonAssigned, "all is well")
	notices := observed(now, group, s, f)
	var reasons []string
	for _, n := range notices {
		reasons = append(reasons, n.reason)
	}
	if diff := cmp.Diff([]string{eventStalled, eventReadsAgain}, reasons); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var phases []v1alpha1.MemberPhase
	for _, m := range s.Members {
		phases = append(phases, m.Phase)
	}
	if diff := cmp.Diff([]v1alpha1.MemberPhase{v1alpha1.MemberStalled, v1alpha1.MemberActive, v1alpha1.MemberActive}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if s.State != v1alpha1.GroupStable || s.Lag == nil || s.Lag.Total != 12 {
		t.Errorf("state %s, lag %+v", s.State, s.Lag)
	}
	before := s.DeepCopy()
	f.observed.lag = &v1alpha1.LagSummary{Total: 12, Max: 7, Time: metav1.NewTime(now.Add(time.Minute))}
	if notices := observed(now.Add(time.Minute), group, s, f); len(notices) > 0 {
		t.Errorf("the same world gives events: %v", notices)
	}
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("the same world changes the status (-before +after):\n%s", diff)
	}
	s.Paused = true
	observed(now, group, s, f)
	if s.Members[0].Phase != v1alpha1.MemberActive {
		t.Error("a member of a paused group is stalled")
	}
}

func TestMatchClients(t *testing.T) {
	t.Parallel()
	members := []v1alpha1.GroupMember{{Name: "web-0", IP: "10.0.0.1"}, {Name: "web-1", IP: "10.0.0.9"}, {Name: "web-2", IP: "10.0.0.9"}, {Name: "web-3"}}
	clients := []observedMember{
		{id: "by address", host: "10.0.0.1"}, {id: "by address, whatever it is called", host: "10.0.0.1", clientID: "web-3"},
		{id: "by instance id", host: "10.0.0.9", instanceID: "web-1", clientID: "web-2"}, {id: "by client id", host: "10.0.0.9", clientID: "web-2"},
		{id: "of the host's network", host: "192.168.0.1", clientID: "web-3"}, {id: "of nobody", host: "192.168.0.1", clientID: "app"}, {id: "of two", host: "10.0.0.9"},
	}
	byPod, unknown := matchClients(members, clients)
	if diff := cmp.Diff(map[string]int{"web-0": 2, "web-1": 1, "web-2": 1, "web-3": 1}, byPod); diff != "" {
		t.Errorf("clients of pods (-want +got):\n%s", diff)
	}
	if len(unknown) != 2 || unknown[0].id != "of nobody" || unknown[1].id != "of two" {
		t.Errorf("clients of no pod: %v", unknown)
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	debug := observedMember{id: "1", clientID: "debug", host: "10.0.0.7"}
	again := observedMember{id: "2", clientID: "debug", host: "10.0.0.7"}
	dead := observedMember{id: "3", clientID: "app", host: "10.0.0.8"}
	want := []stranger{{"debug", "10.0.0.7"}}
	steps := []struct {
		name                   string
		unknown, clients       []observedMember
		wantSeen, wantReported []stranger
	}{
		{"a client that was not seen twice may be that of a pod which is about to be ready", []observedMember{debug}, []observedMember{debug, dead}, nil, nil},
		{"seen twice it is told of", []observedMember{debug}, []observedMember{debug, dead}, want, want},
		{"once; and a client whose pod has gone is no stranger", []observedMember{debug, dead}, []observedMember{debug, dead}, want, nil},
		{"not even later, nor is a second client of that name one more", []observedMember{debug, again, dead}, []observedMember{debug, again, dead}, want, nil},
		{"really", []observedMember{debug, again, dead}, []observedMember{debug, again, dead}, want, nil},
		{"it leaves", nil, nil, nil, nil},
	}
	var w strangerWatch
	for _, step := range steps {
		seen, reported := w.note(step.unknown, step.clients)
		if diff := cmp.Diff(step.wantSeen, seen, cmp.AllowUnexported(stranger{})); diff != "" {
			t.Errorf("%s: seen (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.wantReported, reported, cmp.AllowUnexported(stranger{})); diff != "" {
			t.Errorf("%s: reported (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestTheGenerationIsRaisedAboveTheBrokers(t *testing.T) {
	t.Parallel()
	type reading struct{ plan, told int32 }
	tests := map[string]struct {
		readings []reading
		// decided is the generation of the decision; the status's is the last reading's plan.
		decided, want int32
	}{
		"brokers that have the plan are not ahead":                 {readings: []reading{{5, 5}, {5, 5}}, decided: 5, want: 5},
		"nor are those that are behind":                            {readings: []reading{{5, 4}, {5, 4}}, decided: 5, want: 5},
		"once may be because the cache is behind":                  {readings: []reading{{5, 5}, {5, 6}}, decided: 5, want: 5},
		"or twice, of different plans":                             {readings: []reading{{5, 6}, {6, 7}}, decided: 6, want: 6},
		"twice in a row it is above them":                          {readings: []reading{{1, 9}, {1, 9}}, decided: 1, want: 10},
		"also if the assignment changes at the same time":          {readings: []reading{{1, 9}, {1, 9}}, decided: 2, want: 10},
		"not where that is above them by itself":                   {readings: []reading{{8, 9}, {8, 9}}, decided: 10, want: 10},
		"a group without a plan has generation 1 and is not ahead": {readings: []reading{{0, 1}, {0, 1}}, decided: 0, want: 0},
		"brokers that do not tell it are not ahead":                {readings: []reading{{0, -1}, {0, -1}}, decided: 0, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w aheadWatch
			o := &Observation{}
			group := &v1alpha1.ConsumerGroup{}
			for _, r := range test.readings {
				o.plan, o.ahead = r.plan, w.note(r.plan, &description{generation: r.told})
				group.Status.Generation = r.plan
			}
			s := &v1alpha1.ConsumerGroupStatus{Generation: test.decided, State: v1alpha1.GroupStable}
			notices := raiseGeneration(group, s, o)
			if s.Generation != test.want || (len(notices) > 0) != (test.want != test.decided) || (s.State == v1alpha1.GroupPreparingRebalance) != (test.want != test.decided) {
				t.Errorf("generation %d, want %d; state %s, events %v", s.Generation, test.want, s.State, notices)
			}
			group.Status = *s
			if again := raiseGeneration(group, s.DeepCopy(), o); len(again) > 0 {
				t.Errorf("the same observation raises it again: %v", again)
			}
		})
	}
}
