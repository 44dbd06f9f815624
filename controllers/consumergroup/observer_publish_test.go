// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		managed bool
		// described is when the group is described, in milliseconds, generations what each finds.
		described   []int64
		generations []int32
		want        []bool
	}{
		"an unchanged world wakes nobody":                                    {described: []int64{0, 1000, 2000}, generations: []int32{1, 1, 2}, want: []bool{true, false, true}},
		"a wire group's changes are published once a second at most":         {described: []int64{0, 250, 1000, 1500, 2000}, generations: []int32{1, 2, 2, 3, 4}, want: []bool{true, false, true, false, true}},
		"those of a managed group, whose handoffs have an end, as they come": {managed: true, described: []int64{0, 250, 500}, generations: []int32{1, 2, 3}, want: []bool{true, true, true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &Observer{wakes: make(chan event.GenericEvent, maxWakes), observations: map[types.NamespacedName]*Observation{}}
			g := &v1alpha1.ConsumerGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "group"}}
			if test.managed {
				g.Spec.Selector = &metav1.LabelSelector{}
			}
			w := &groupWatch{}
			for i, at := range test.described {
				w.described = time.Unix(1000, 0).Add(time.Duration(at) * time.Millisecond)
				w.seen.group = &description{state: coordinator.StateStable, generation: test.generations[i]}
				o.publish(t.Context(), g, w)
				woke := len(o.wakes) == 1
				if woke {
					<-o.wakes
				}
				if woke != test.want[i] {
					t.Errorf("at %d ms it wakes the reconciler: %t, want %t", at, woke, test.want[i])
				}
				if seen := o.Observation(types.NamespacedName{Namespace: "ns", Name: "group"}); woke && seen.group.generation != test.generations[i] {
					t.Errorf("at %d ms generation %d is known, want %d", at, seen.group.generation, test.generations[i])
				}
			}
		})
	}
}

func TestInterval(t *testing.T) {
	t.Parallel()
	selector := &metav1.LabelSelector{}
	reset := &v1alpha1.OffsetsReset{ID: "a"}
	status := func(phase v1alpha1.ResetPhase) *v1alpha1.OffsetsResetStatus {
		return &v1alpha1.OffsetsResetStatus{ID: "a", Phase: phase}
	}
	tests := map[string]struct {
		selector *metav1.LabelSelector
		state    v1alpha1.GroupState
		reset    *v1alpha1.OffsetsReset
		status   *v1alpha1.OffsetsResetStatus
		want     time.Duration
	}{
		"a managed group that is stable is asked of with its lag alone": {selector: selector, state: v1alpha1.GroupStable},
		"nor is an empty one":                     {selector: selector, state: v1alpha1.GroupEmpty},
		"often while a handoff is open":           {selector: selector, state: v1alpha1.GroupPreparingRebalance, want: tick},
		"until it is over":                        {selector: selector, state: v1alpha1.GroupCompletingRebalance, want: tick},
		"a wire group every second":               {state: v1alpha1.GroupStable, want: wireInterval},
		"often while a reset is new":              {selector: selector, state: v1alpha1.GroupStable, reset: reset, want: tick},
		"and while it is under way":               {selector: selector, state: v1alpha1.GroupStable, reset: reset, status: status(v1alpha1.ResetInProgress), want: tick},
		"every second while it waits for members": {selector: selector, state: v1alpha1.GroupStable, reset: reset, status: status(v1alpha1.ResetRefused), want: wireInterval},
		"unless a handoff is open meanwhile":      {selector: selector, state: v1alpha1.GroupPreparingRebalance, reset: reset, status: status(v1alpha1.ResetRefused), want: tick},
		"no more when it is done":                 {selector: selector, state: v1alpha1.GroupStable, reset: reset, status: status(v1alpha1.ResetSucceeded)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &v1alpha1.ConsumerGroup{}
			g.Spec.Selector, g.Status.State, g.Spec.Offsets.Reset, g.Status.OffsetsReset = test.selector, test.state, test.reset, test.status
			if got := interval(g); got != test.want {
				t.Errorf("it is asked of every %v, want %v", got, test.want)
			}
		})
	}
}
