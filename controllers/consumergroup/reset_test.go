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
		waiting    = v1alpha1.ResetWaiting
	)
	prepared := func(phase v1alpha1.ResetPhase) *Observation {
		return &Observation{resetID: "b", prepared: &resetResult{id: "b", phase: phase, message: "so it is"}}
	}
	asked := func(members ...observedMember) *Observation {
		return &Observation{resetID: "b", group: &description{state: coordinator.StateStable, members: members}, prepared: &resetResult{id: "b", phase: inProgress}}
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
		"if forced it begins whoever reads":                           {force: true, seen: asked(reading), want: inProgress, wantID: "b"},
		"but not before the brokers were asked":                       {force: true, seen: &Observation{}},
		"nor while one that it needs does not answer":                 {force: true, seen: prepared(waiting), want: waiting, wantID: "b"},
		"it fails before anybody is paused":                           {force: true, seen: prepared(failed), want: failed, wantID: "b"},
		"it waits as long as that lasts":                              {id: "b", phase: waiting, force: true, seen: prepared(waiting), want: waiting, wantID: "b"},
		"and begins then":                                             {id: "b", phase: waiting, force: true, seen: asked(), want: inProgress, wantID: "b"},
		"one that waited is forgotten when it is withdrawn":           {id: "b", phase: waiting, withdrawn: true, seen: asked()},
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
		wantGiveUp bool
		wantError  string
	}{
		"offsets that are known are fine":         {offsets: listing(nil)},
		"a leader that does not answer may later": {offsets: listing(silence{2}), wantError: "list the offsets of topic orders: broker 2 does not answer"},
		"a leader that changes is another later":  {offsets: listing(kerr.NotLeaderForPartition), wantError: "list the offsets of topic orders: NOT_LEADER"},
		"a refusal is the last word":              {offsets: listing(kerr.UnsupportedVersion), wantGiveUp: true, wantError: "the brokers refuse to list the offsets of topic orders: UNSUPPORTED_VERSION"},
		"a topic that is missing is missing":      {offsets: listing(kerr.UnknownTopicOrPartition), wantGiveUp: true, wantError: "there is no topic orders"},
		"so is one that is not listed":            {wantGiveUp: true, wantError: "topic orders has no partitions"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkListed([]string{"orders"}, test.offsets)
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

func TestAResetIsCarriedOutOnceForEachID(t *testing.T) {
	t.Parallel()
	seen := func(id string) *Observation {
		return &Observation{resetID: id, group: &description{state: coordinator.StateEmpty}, prepared: &resetResult{id: id, phase: v1alpha1.ResetInProgress}}
	}
	group := &v1alpha1.ConsumerGroup{}
	now := time.Unix(1_000_000, 0)
	// ask asks for a reset, as often as it takes until nothing changes, and returns the events.
	ask := func(id string) (events []string) {
		group.Spec.Offsets.Reset = nil
		if id != "" {
			group.Spec.Offsets.Reset = &v1alpha1.OffsetsReset{ID: id, To: v1alpha1.ResetLatest}
		}
		for {
			o := seen(id)
			if r := group.Status.OffsetsReset; r != nil && r.ID == id && r.Phase == v1alpha1.ResetInProgress {
				o.reset = &resetResult{id: id, phase: v1alpha1.ResetSucceeded}
			}
			s := group.Status.DeepCopy()
			notices := observeReset(now, group, s, o)
			for _, n := range notices {
				events = append(events, n.reason)
			}
			same := cmp.Diff(group.Status, *s) == ""
			group.Status = *s
			if same {
				return events
			}
		}
	}
	steps := []struct {
		id          string
		wantEvents  []string
		wantID      string
		wantReason  string
		wantEarlier []string
	}{
		{"a", []string{"OffsetsResetBegun", "OffsetsReset"}, "a", "Succeeded", nil},
		{"b", []string{"OffsetsResetBegun", "OffsetsReset"}, "b", "Succeeded", []string{"a"}},
		{"a", []string{"OffsetsResetRepeated"}, "b", "CarriedOutBefore", []string{"a"}},
		{"", nil, "b", "Succeeded", []string{"a"}},
		{"b", nil, "b", "Succeeded", []string{"a"}},
		{"a", []string{"OffsetsResetRepeated"}, "b", "CarriedOutBefore", []string{"a"}},
		{"c", []string{"OffsetsResetBegun", "OffsetsReset"}, "c", "Succeeded", []string{"b", "a"}},
		{"b", []string{"OffsetsResetRepeated"}, "c", "CarriedOutBefore", []string{"b", "a"}},
	}
	for i, step := range steps {
		events := ask(step.id)
		s := &group.Status
		condition := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOffsetsReset)
		if diff := cmp.Diff(step.wantEvents, events); diff != "" || s.OffsetsReset.ID != step.wantID || condition.Reason != step.wantReason || resetOpen(group) {
			t.Errorf("step %d: id %s, condition %+v, open %t, events (-want +got):\n%s", i, s.OffsetsReset.ID, condition, resetOpen(group), diff)
		}
		if diff := cmp.Diff(step.wantEarlier, s.EarlierResets); diff != "" {
			t.Errorf("step %d: earlier (-want +got):\n%s", i, diff)
		}
	}

	// One that was refused was not carried out, and takes nothing of what was with it when it goes.
	refused := &Observation{resetID: "d", group: &description{members: []observedMember{{id: "1"}}}, prepared: &resetResult{id: "d", phase: v1alpha1.ResetInProgress}}
	group.Spec.Offsets.Reset = &v1alpha1.OffsetsReset{ID: "d", To: v1alpha1.ResetLatest}
	observeReset(now, group, &group.Status, refused)
	group.Spec.Offsets.Reset = nil
	observeReset(now, group, &group.Status, refused)
	if s := group.Status; s.OffsetsReset != nil || cmp.Diff([]string{"c", "b", "a"}, s.EarlierResets) != "" {
		t.Errorf("after a refused reset was withdrawn: %+v, %v", s.OffsetsReset, s.EarlierResets)
	}
	if events := ask("c"); cmp.Diff([]string{"OffsetsResetRepeated"}, events) != "" || group.Status.OffsetsReset != nil {
		t.Errorf("c again: events %v, status %+v", events, group.Status.OffsetsReset)
	}
	for i := range 40 {
		ask(fmt.Sprint("many-", i))
	}
	if got := group.Status.EarlierResets; len(got) != maxEarlierResets || got[0] != "many-38" || got[31] != "many-7" {
		t.Errorf("earlier: %v", got)
	}
}

func TestWhatAResetSaysThatItSet(t *testing.T) {
	t.Parallel()
	g := &v1alpha1.ConsumerGroup{}
	g.Spec.Topics = []string{"orders"}
	offset, at := int64(70), metav1.NewTime(time.Unix(0, 0))
	targets := func(n int) kadm.Offsets {
		out := kadm.Offsets{}
		for p := range n {
			out.AddOffset("orders", int32(p), 5, -1)
		}
		return out
	}
	tests := map[string]struct {
		reset   v1alpha1.OffsetsReset
		targets resetTargets
		want    string
	}{
		"what was asked for": {v1alpha1.OffsetsReset{To: v1alpha1.ResetOffset, Offset: &offset}, resetTargets{offsets: targets(2)}, "2 offsets of orders set to 70"},
		"what is beyond partitions": {v1alpha1.OffsetsReset{To: v1alpha1.ResetOffset, Offset: &offset}, resetTargets{offsets: targets(4), toStarts: 1, toEnds: 2},
			"4 offsets of orders set to 70; but 1 of them to the first record of the partition, which begins later; but 2 of them to the end of the partition, which is not that long"},
		"a time after the last record": {v1alpha1.OffsetsReset{To: v1alpha1.ResetTimestamp, Timestamp: &at}, resetTargets{offsets: targets(1), toEnds: 1},
			"1 offset of orders set to the first records at or after 1970-01-01T00:00:00Z; but 1 of them to the end of the partition, which has no such record"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := g.DeepCopy()
			g.Spec.Offsets.Reset = &test.reset
			if got := test.targets.describe(g); got != test.want {
				t.Errorf("it says\n%s, want\n%s", got, test.want)
			}
		})
	}
}
