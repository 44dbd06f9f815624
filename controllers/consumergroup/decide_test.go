// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/clusterref"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// newGroup returns a group that reads orders, with what a spec and a status are changed to.
func newGroup(change ...func(*v1alpha1.ConsumerGroup)) *v1alpha1.ConsumerGroup {
	group := &v1alpha1.ConsumerGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 3}}
	group.Spec.Topics = []string{"orders"}
	group.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, f := range change {
		f(group)
	}
	return group
}

// newFacts returns facts in which all is well: 4 partitions and one pod.
func newFacts(change ...func(*facts)) facts {
	f := facts{
		cluster:  "demo",
		topics:   map[string]int32{"orders": 4},
		selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
		pods:     []coordinator.Pod{{Name: "web-0", UID: "uid", IP: "10.0.0.1", Node: "node", Alive: true}},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// assigned makes the group one whose member web-0 reads everything.
func assigned(group *v1alpha1.ConsumerGroup) {
	group.Status = decide(now, group, newFacts()).status
}

func TestDecideReadiness(t *testing.T) {
	cases := map[string]struct {
		group           *v1alpha1.ConsumerGroup
		facts           facts
		wantStatus      metav1.ConditionStatus
		wantReason      string
		wantMessage     string
		wantState       v1alpha1.GroupState
		wantMembers     int32
		wantGeneration  int32
		wantAssignments string
	}{
		"a member reads everything": {
			group: newGroup(), facts: newFacts(),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAssigned, wantMessage: "4 partitions of 1 topic, read by 1 member",
			wantState: v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"no pods": {
			group: newGroup(), facts: newFacts(func(f *facts) { f.pods = nil }),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonNoMembers,
			wantMessage: "no pod that matches app=web is running and ready; start one, or look at them: kubectl --namespace shop get pods --selector 'app=web'",
			wantState:   v1alpha1.GroupEmpty,
		},
		"no BrokerCluster: the assignment stands": {
			group: newGroup(assigned), facts: facts{problem: &clusterref.Problem{Reason: v1alpha1.ReasonClusterNotFound, Message: "create one"}},
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonClusterNotFound, wantMessage: "create one",
			wantState: v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"no BrokerCluster from the start": {
			group: newGroup(), facts: facts{problem: &clusterref.Problem{Reason: v1alpha1.ReasonClusterNotFound, Message: "create one"}},
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonClusterNotFound, wantMessage: "create one",
			wantState: v1alpha1.GroupEmpty,
		},
		"the group id is another's: the members go": {
			group: newGroup(assigned), facts: newFacts(func(f *facts) { f.holder = "old" }),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonGroupIDTaken,
			wantMessage: "group id web of BrokerCluster demo is already that of the ConsumerGroup old; delete one of the two, or create this one anew with another groupID",
			wantState:   v1alpha1.GroupEmpty, wantGeneration: 2,
		},
		"a selector that cannot be used: the assignment stands": {
			group: newGroup(assigned), facts: newFacts(func(f *facts) { f.selector, f.invalid = nil, errors.New("bad") }),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonInvalidSelector, wantMessage: "spec.selector cannot be used; correct it: bad",
			wantState: v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"no selector": {
			group: newGroup(), facts: newFacts(func(f *facts) { f.selector, f.pods = nil, nil }),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonWireGroup,
			wantMessage: "without a selector the members are the clients that join; see them with: ringmaster group describe web",
			wantState:   v1alpha1.GroupEmpty,
		},
		"no selector any more: the pods are no members": {
			group: newGroup(assigned), facts: newFacts(func(f *facts) { f.selector, f.pods = nil, nil }),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonWireGroup,
			wantMessage: "without a selector the members are the clients that join; see them with: ringmaster group describe web",
			wantState:   v1alpha1.GroupEmpty, wantGeneration: 2,
		},
		"no selector any more: the clients that stay are mirrored": {
			group: newGroup(assigned, func(g *v1alpha1.ConsumerGroup) { g.Spec.Selector = nil }),
			facts: newFacts(func(f *facts) {
				f.selector, f.pods, f.observes = nil, nil, true
				f.observed = &Observation{plan: 1, group: &description{state: "Stable", generation: 2, members: []observedMember{
					{id: "a-1", instanceID: "a", host: "10.0.0.1", assigned: []v1alpha1.TopicAssignment{share("orders", 0, 1, 2, 3)}},
				}}}
			}),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonWireGroup,
			wantMessage: "without a selector the members are the clients that join; see them with: ringmaster group describe web",
			wantState:   v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 2, wantAssignments: "a:orders[0-3]",
		},
		"topics that do not exist or have no partitions": {
			group: newGroup(), facts: newFacts(func(f *facts) {
				f.topics["clicks"], f.topics["audit"] = 0, 0
				f.missing = []string{"a", "b"}
			}),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTopicsPending,
			wantMessage: "waiting for a, b of BrokerCluster demo; create a Topic for each; waiting for BrokerCluster demo to take up audit, clicks; " +
				"the group's other topics are read",
			wantState: v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"paused": {
			group: newGroup(assigned, func(g *v1alpha1.ConsumerGroup) { g.Spec.Paused = true }), facts: newFacts(),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonPaused, wantMessage: "nobody reads: spec.paused is true; set it to false to go on",
			wantState: v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 2, wantAssignments: "web-0:-",
		},
		"paused while offsets are reset": {
			group: newGroup(assigned, func(g *v1alpha1.ConsumerGroup) {
				g.Status.OffsetsReset = &v1alpha1.OffsetsResetStatus{ID: "replay-1", Phase: v1alpha1.ResetInProgress}
			}),
			facts:      newFacts(),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonPaused,
			wantMessage: "nobody reads: the group's offsets are being reset (replay-1); its members go on by themselves when that is done",
			wantState:   v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 2, wantAssignments: "web-0:-",
		},
		"a reset that is done pauses nobody": {
			group: newGroup(assigned, func(g *v1alpha1.ConsumerGroup) {
				g.Status.OffsetsReset = &v1alpha1.OffsetsResetStatus{ID: "replay-1", Phase: v1alpha1.ResetSucceeded}
			}),
			facts:      newFacts(),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAssigned, wantMessage: "4 partitions of 1 topic, read by 1 member",
			wantState: v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"a handoff that is open stays so until somebody knows better": {
			group: newGroup(assigned, func(g *v1alpha1.ConsumerGroup) { g.Status.State = v1alpha1.GroupCompletingRebalance }), facts: newFacts(),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAssigned, wantMessage: "4 partitions of 1 topic, read by 1 member",
			wantState: v1alpha1.GroupCompletingRebalance, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"a rebalance that brokers are asked about": {
			group: newGroup(), facts: newFacts(func(f *facts) { f.observes = true }),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAssigned, wantMessage: "4 partitions of 1 topic, read by 1 member",
			wantState: v1alpha1.GroupPreparingRebalance, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"a selector where there was none: the clients that were mirrored are no members": {
			group: newGroup(func(g *v1alpha1.ConsumerGroup) {
				g.Status.Members, g.Status.Generation = []v1alpha1.GroupMember{member("client-1", share("orders", 0, 1, 2, 3))}, 8
			}),
			facts:      newFacts(),
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAssigned, wantMessage: "4 partitions of 1 topic, read by 1 member",
			wantState: v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 9, wantAssignments: "web-0:orders[0-3]",
		},
		"a workload to scale that does not exist": {
			group: newGroup(func(g *v1alpha1.ConsumerGroup) {
				g.Spec.TargetRef = &v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}
			}),
			facts:      newFacts(),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTargetNotFound,
			wantMessage: "there is no Deployment web in this namespace; create it, or correct targetRef",
			wantState:   v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
		"a workload that another group scales": {
			group: newGroup(func(g *v1alpha1.ConsumerGroup) {
				g.Spec.TargetRef = &v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}
			}),
			facts:      newFacts(func(f *facts) { f.target, f.scaler = &target{}, "old" }),
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTargetTaken,
			wantMessage: "Deployment web is already scaled by the ConsumerGroup old; remove replicas from one of the two",
			wantState:   v1alpha1.GroupStable, wantMembers: 1, wantGeneration: 1, wantAssignments: "web-0:orders[0-3]",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := decide(now, tc.group, tc.facts)
			s := v.status
			if len(s.Conditions) != 1 {
				t.Fatalf("%d conditions, want Ready alone", len(s.Conditions))
			}
			c := s.Conditions[0]
			if c.Type != v1alpha1.ConditionReady || c.Status != tc.wantStatus || c.Reason != tc.wantReason || c.ObservedGeneration != 3 {
				t.Errorf("condition %+v, want %s with reason %s", c, tc.wantStatus, tc.wantReason)
			}
			if diff := cmp.Diff(tc.wantMessage, c.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if s.State != tc.wantState || s.Replicas != tc.wantMembers || int32(len(s.Members)) != tc.wantMembers || s.Generation != tc.wantGeneration {
				t.Errorf("state %s, %d members (%v), generation %d; want %s, %d, %d",
					s.State, s.Replicas, s.Members, s.Generation, tc.wantState, tc.wantMembers, tc.wantGeneration)
			}
			if s.Assignments != tc.wantAssignments {
				t.Errorf("assignments %q, want %q", s.Assignments, tc.wantAssignments)
			}
			if s.GroupID != "web" || s.ObservedGeneration != 3 {
				t.Errorf("group id %q, observed generation %d", s.GroupID, s.ObservedGeneration)
			}
			again := tc.group.DeepCopy()
			again.Status = s
			if w := decide(now.Add(time.Second), again, tc.facts); !equality.Semantic.DeepEqual(w.status, s) || w.rebalanced {
				t.Errorf("deciding again changes the status:\n%s", cmp.Diff(s, w.status))
			}
		})
	}
}

func TestDecideDescribesTheRebalance(t *testing.T) {
	group := newGroup(assigned, func(g *v1alpha1.ConsumerGroup) { g.Status.Lag = &v1alpha1.LagSummary{Total: 5} })
	v := decide(now, group, newFacts(func(f *facts) {
		f.pods = append(f.pods, coordinator.Pod{Name: "web-1", UID: "other", IP: "10.0.0.2", Alive: true})
	}))
	want := &v1alpha1.Rebalance{
		Time: metav1.NewTime(now.Truncate(time.Second)), Reason: "MemberJoined", Message: "member web-1 joined", Moved: 2, Minimum: 2,
	}
	if diff := cmp.Diff(want, v.status.LastRebalance); diff != "" || !v.rebalanced {
		t.Errorf("rebalance (-want +got):\n%s", diff)
	}
	if v.status.Lag == nil || v.status.Lag.Total != 5 {
		t.Errorf("the lag is lost: %v", v.status.Lag)
	}
	if v.status.Selector != "app=web" || v.status.Partitions != 4 {
		t.Errorf("selector %q, %d partitions", v.status.Selector, v.status.Partitions)
	}
}

func TestDecideGivesTheNextDeadline(t *testing.T) {
	group := newGroup(assigned, func(g *v1alpha1.ConsumerGroup) {
		g.Spec.MemberGracePeriod = &metav1.Duration{Duration: 10 * time.Second}
	})
	f := newFacts(func(f *facts) { f.pods[0].Alive, f.pods[0].MayReturn = false, true })
	v := decide(now, group, f)
	if want := now.Add(10 * time.Second).Truncate(time.Microsecond); !v.deadline.Equal(want) {
		t.Errorf("deadline %v, want %v", v.deadline, want)
	}
	if m := v.status.Members[0]; m.Phase != v1alpha1.MemberGrace || m.GraceDeadline == nil || len(m.Assignments) != 1 || v.rebalanced {
		t.Errorf("member %+v", m)
	}
}

func TestDecideRefusesAStatusThatIsTooLarge(t *testing.T) {
	cases := map[string]struct {
		pods        int
		partitions  int32
		wantMessage string
	}{
		"more members than the API takes":    {pods: maxMembers + 1, partitions: 10, wantMessage: "there are more members than the 10000 that a group may have"},
		"more bytes than a group may have":   {pods: 7000, partitions: 10_000, wantMessage: "larger than the 1000000 bytes that a ConsumerGroup may have"},
		"many partitions with large numbers": {pods: 10, partitions: 300_000, wantMessage: "larger than the 1000000 bytes that a ConsumerGroup may have"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group := newGroup(assigned)
			f := newFacts(func(f *facts) {
				f.topics["orders"] = tc.partitions
				for i := range tc.pods {
					f.pods = append(f.pods, coordinator.Pod{Name: fmt.Sprint("a-pod-with-a-name-of-some-length-", i), UID: "0e8dc9a4-62b7-4c5e-9d0a-3f1d1f4b7a10", IP: "10.0.0.1", Alive: true})
				}
			})
			v := decide(now, group, f)
			c := v.status.Conditions[0]
			if c.Reason != v1alpha1.ReasonStatusTooLarge || !strings.Contains(c.Message, tc.wantMessage) {
				t.Errorf("condition %+v, want a message with %q", c, tc.wantMessage)
			}
			seated := f
			seated.pods = f.pods[:1]
			if diff := cmp.Diff(decide(now, group, seated).status.Members, v.status.Members); diff != "" {
				t.Errorf("the members are not those that had seats (-want +got):\n%s", diff)
			}
			group.Status = v.status
			more := f
			more.pods = append(slices.Clone(f.pods), coordinator.Pod{Name: "one-more", UID: "uid", IP: "10.0.0.9", Alive: true})
			if again := decide(now.Add(time.Second), group, more); !equality.Semantic.DeepEqual(again.status, v.status) {
				t.Errorf("one more pod changes the status:\n%s", cmp.Diff(v.status, again.status))
			}
			if again := decide(now.Add(time.Second), group, f); !equality.Semantic.DeepEqual(again.status, v.status) {
				t.Errorf("deciding again changes the status:\n%s", cmp.Diff(v.status, again.status))
			}
		})
	}
}

func TestMembersThatAreLostCountWhereAStatusIsTooLarge(t *testing.T) {
	group := newGroup()
	f := newFacts(func(f *facts) {
		f.topics["orders"] = 10_000
		f.pods = append(f.pods, coordinator.Pod{Name: "web-1", UID: "uid", IP: "10.0.0.2", Alive: true})
	})
	group.Status = decide(now, group, f).status
	f.pods = f.pods[:1]
	for i := range 7000 {
		f.pods = append(f.pods, coordinator.Pod{Name: fmt.Sprint("a-pod-with-a-name-of-some-length-", i), UID: "0e8dc9a4-62b7-4c5e-9d0a-3f1d1f4b7a10", IP: "10.0.0.3", Alive: true})
	}
	v := decide(now, group, f)
	if len(v.status.Members) != 1 || !v.rebalanced || v.status.Assignments != "web-0:orders[0-9999]" {
		t.Errorf("members %d, assignments %q", len(v.status.Members), v.status.Assignments)
	}
	if c := v.status.Conditions[0]; c.Reason != v1alpha1.ReasonStatusTooLarge || !strings.Contains(c.Message, "pods that are no members yet have to wait") {
		t.Errorf("condition %+v", c)
	}
	group.Status = v.status
	if again := decide(now.Add(time.Minute), group, f); !equality.Semantic.DeepEqual(again.status, v.status) {
		t.Errorf("deciding again changes the status:\n%s", cmp.Diff(v.status, again.status))
	}
}

func TestAGenerationThatCannotGrowIsRefused(t *testing.T) {
	group := newGroup(assigned, func(g *v1alpha1.ConsumerGroup) { g.Status.Generation = maxGeneration })
	v := decide(now, group, newFacts(func(f *facts) { f.topics["orders"] = 5 }))
	if c := v.status.Conditions[0]; c.Reason != v1alpha1.ReasonStatusTooLarge || !strings.HasPrefix(c.Message, "status.generation cannot grow any further") || v.status.Generation != maxGeneration {
		t.Errorf("generation %d, condition %+v", v.status.Generation, c)
	}
}

func TestAWireGroupsWorkloadIsNamedIfItIsMissing(t *testing.T) {
	group := newGroup(func(g *v1alpha1.ConsumerGroup) {
		g.Spec.Selector, g.Spec.TargetRef = nil, &v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}
	})
	v := decide(now, group, newFacts(func(f *facts) { f.selector = nil }))
	if c := v.status.Conditions[0]; c.Reason != v1alpha1.ReasonTargetNotFound {
		t.Errorf("condition %+v", c)
	}
}
