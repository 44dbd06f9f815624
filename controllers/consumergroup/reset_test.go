// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

func TestNextReset(t *testing.T) {
	t.Parallel()
	const (
		none       = v1alpha1.ResetPhase("")
		refused    = v1alpha1.ResetRefused
		inProgress = v1alpha1.ResetInProgress
		succeeded  = v1alpha1.ResetSucceeded
		failed     = v1alpha1.ResetFailed
	)
	asked := func(members ...observedMember) *Observation {
		return &Observation{resetID: "b", group: &description{state: coordinator.StateStable, members: members}}
	}
	reading, idle := observedMember{id: "1", assigned: orders(0)}, observedMember{id: "2"}
	result := func(id string, phase v1alpha1.ResetPhase) *Observation {
		o := asked()
		o.reset = &resetResult{id: id, phase: phase, message: "so it was"}
		return o
	}
	tests := map[string]struct {
		// id and phase are status.offsetsReset's; the spec asks for the reset b, unless it is withdrawn.
		id        string
		phase     v1alpha1.ResetPhase
		withdrawn bool
		wire      bool
		force     bool
		seen      *Observation
		want      v1alpha1.ResetPhase
		wantID    string
	}{
		"nothing is decided before the brokers were asked":            {seen: &Observation{}},
		"nor by what they said before the reset was asked for":        {seen: &Observation{resetID: "a", group: &description{}}},
		"it begins where nobody reads":                                {seen: asked(), want: inProgress, wantID: "b"},
		"clients that hold nothing are not active in a managed group": {seen: asked(idle), want: inProgress, wantID: "b"},
		"it is refused while one does":                                {seen: asked(idle, reading), want: refused, wantID: "b"},
		"any client is active in a wire group":                        {wire: true, seen: asked(idle), want: refused, wantID: "b"},
		"it begins in a wire group without clients":                   {wire: true, seen: asked(), want: inProgress, wantID: "b"},
		"if forced it begins whatever the brokers say":                {force: true, seen: &Observation{}, want: inProgress, wantID: "b"},
		"a refused one waits":                                         {id: "b", phase: refused, seen: asked(reading), want: refused, wantID: "b"},
		"also while the brokers do not answer":                        {id: "b", phase: refused, seen: &Observation{}, want: refused, wantID: "b"},
		"and begins when nobody reads any more":                       {id: "b", phase: refused, seen: asked(idle), want: inProgress, wantID: "b"},
		"or is forced":                                                {id: "b", phase: refused, force: true, seen: asked(reading), want: inProgress, wantID: "b"},
		"what is begun goes on, whoever reads":                        {id: "b", phase: inProgress, seen: asked(reading), want: inProgress, wantID: "b"},
		"the result of another one does not count":                    {id: "b", phase: inProgress, seen: result("a", succeeded), want: inProgress, wantID: "b"},
		"it succeeds":       {id: "b", phase: inProgress, seen: result("b", succeeded), want: succeeded, wantID: "b"},
		"it fails":          {id: "b", phase: inProgress, seen: result("b", failed), want: failed, wantID: "b"},
		"it is tried again": {id: "b", phase: inProgress, seen: result("b", inProgress), want: inProgress, wantID: "b"},
		"it is refused where clients have joined a wire group after all":      {id: "b", phase: inProgress, wire: true, seen: result("b", refused), want: refused, wantID: "b"},
		"what is done is not done again":                                      {id: "b", phase: succeeded, seen: asked(), want: succeeded, wantID: "b"},
		"nor what has failed":                                                 {id: "b", phase: failed, force: true, seen: asked(), want: failed, wantID: "b"},
		"another id begins anew":                                              {id: "a", phase: succeeded, seen: asked(), want: inProgress, wantID: "b"},
		"another id begins anew in the middle":                                {id: "a", phase: inProgress, seen: asked(reading), want: refused, wantID: "b"},
		"the one before stands until the brokers were asked for another":      {id: "a", phase: failed, seen: &Observation{}, want: failed, wantID: "a"},
		"one that was refused is forgotten when it is withdrawn":              {id: "b", phase: refused, withdrawn: true, seen: asked()},
		"one that is under way has failed then":                               {id: "b", phase: inProgress, withdrawn: true, seen: asked(), want: failed, wantID: "b"},
		"one that is done stays, so that its id is not carried out once more": {id: "b", phase: succeeded, withdrawn: true, seen: asked(), want: succeeded, wantID: "b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := &v1alpha1.ConsumerGroup{}
			if !test.wire {
				group.Spec.Selector = &metav1.LabelSelector{}
			}
			if !test.withdrawn {
				group.Spec.Offsets.Reset = &v1alpha1.OffsetsReset{ID: "b", To: v1alpha1.ResetLatest, Force: test.force}
			}
			began := metav1.NewTime(time.Unix(1, 0))
			if test.phase != none {
				group.Status.OffsetsReset = &v1alpha1.OffsetsResetStatus{ID: test.id, Phase: test.phase, Time: began}
			}
			s := group.Status.DeepCopy()
			now := time.Unix(1_000_000, 0)
			notices := observeReset(now, group, s, test.seen)
			got := v1alpha1.OffsetsResetStatus{}
			if s.OffsetsReset != nil {
				got = *s.OffsetsReset
			}
			if got.Phase != test.want || got.ID != test.wantID {
				t.Fatalf("it is %q of id %q, want %q of id %q", got.Phase, got.ID, test.want, test.wantID)
			}
			changed := got.Phase != test.phase || got.ID != test.id
			if wantNotice := changed && test.want != none; (len(notices) == 1) != wantNotice {
				t.Errorf("events: %v", notices)
			}
			if !changed && s.OffsetsReset != nil && !got.Time.Equal(&began) {
				t.Errorf("it began at %v, and not at %v, when its phase did", got.Time, began)
			}
			if s.OffsetsReset != nil && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionOffsetsReset) != (test.want == succeeded) {
				t.Errorf("the condition is %+v", s.Conditions)
			}
			if o := test.seen; o.reset != nil && o.reset.phase == refused {
				return // the same observation would begin it again
			}
			group.Status = *s.DeepCopy()
			if notices := observeReset(now.Add(time.Minute), group, s, test.seen); len(notices) > 0 {
				t.Errorf("decided again it gives events: %v", notices)
			}
			if diff := cmp.Diff(&group.Status, s); diff != "" {
				t.Errorf("decided again it changes the status:\n%s", diff)
			}
		})
	}
}

func TestWhatEndsAReset(t *testing.T) {
	t.Parallel()
	listing := func(err error) kadm.ListedOffsets {
		return kadm.ListedOffsets{"orders": {0: {Topic: "orders", Err: err}}}
	}
	tests := map[string]struct {
		offsets    kadm.ListedOffsets
		err        error
		wantGiveUp bool
		wantError  string
	}{
		"offsets that are known are fine":         {offsets: listing(nil)},
		"brokers that do not answer may do later": {err: errors.New("connection refused"), wantError: "list offsets: connection refused"},
		"a leader that changes is another later":  {offsets: listing(kerr.NotLeaderForPartition), wantError: "list the offsets of topic orders: NOT_LEADER"},
		"a topic that is missing is missing":      {offsets: listing(kerr.UnknownTopicOrPartition), wantGiveUp: true, wantError: "there is no topic orders"},
		"so is one that is not listed":            {wantGiveUp: true, wantError: "topic orders has no partitions"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := listed([]string{"orders"})(test.offsets, test.err)
			if errors.Is(err, errGiveUp) != test.wantGiveUp || (err == nil) != (test.wantError == "") || err != nil && !strings.Contains(err.Error(), test.wantError) {
				t.Errorf("error %v, want %q, given up %t", err, test.wantError, test.wantGiveUp)
			}
		})
	}
	for err, want := range map[error]bool{kerr.GroupAuthorizationFailed: true, kerr.NotCoordinator: false, kerr.CoordinatorLoadInProgress: false, errors.New("timeout"): false} {
		if got := isRefusal(fmt.Errorf("commit: %w", err)); got != want {
			t.Errorf("%v is the last word: %t, want %t", err, got, want)
		}
	}
}
