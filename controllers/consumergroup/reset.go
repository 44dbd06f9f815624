// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

// A reset of offsets goes from nothing to Waiting, while brokers that it needs do not answer, to Refused, while members are active, or to InProgress, and from there to Succeeded or Failed, once for each id. The status says InProgress before
// anything is done: that pauses a managed group, and an operator that starts in the middle begins the reset anew, which does no harm while nobody reads. That of a wire group, whose clients
// may have come and gone meanwhile, has failed then.

// The reasons of the condition OffsetsReset of a reset that is refused, and of one that was carried out before another one; else its phase is.
const (
	reasonMembersActive    = "MembersActive"
	reasonCarriedOutBefore = "CarriedOutBefore"
)

// maxEarlierResets is how many ids of earlier resets the API takes.
const maxEarlierResets = 32

// The reasons and the action of the events of resets.
const (
	eventResetBegun    = "OffsetsResetBegun"
	eventResetDone     = "OffsetsReset"
	eventResetWaits    = "OffsetsResetWaits"
	eventResetRefused  = "OffsetsResetRefused"
	eventResetFailed   = "OffsetsResetFailed"
	eventResetRepeated = "OffsetsResetRepeated"
	actionReset        = "ResetOffsets"
)

// resetResult is what became of an attempt to carry a reset out.
type resetResult struct {
	id string
	// phase is Succeeded, Failed, Refused (members are active after all), or InProgress if it is tried again.
	phase      v1alpha1.ResetPhase
	partitions int32
	message    string
}

// observeReset decides what becomes of spec.offsets.reset, and returns the events for that. It is a pure function.
func observeReset(now time.Time, group *v1alpha1.ConsumerGroup, s *v1alpha1.ConsumerGroupStatus, o *Observation) []notice {
	next := nextReset(group, s, o)
	was := s.OffsetsReset
	if was != nil && !beforehand(was) && (next == nil || next.ID != was.ID) {
		s.EarlierResets = remembered(s.EarlierResets, was.ID)
	}
	if next == nil {
		s.OffsetsReset = nil
		return repeatedReset(now, group, s)
	}
	next.Message = apply.Message(next.Message)
	begins := was == nil || was.ID != next.ID || was.Phase != next.Phase
	if next.Time = metav1.NewTime(now.UTC().Truncate(time.Second)); !begins {
		next.Time = was.Time
	}
	s.OffsetsReset = next
	var notices []notice
	if begins {
		notices = []notice{resetNotice(next)}
	}
	if carriedOut(s, group.Spec.Offsets.Reset) {
		return append(notices, repeatedReset(now, group, s)...)
	}
	setResetCondition(now, s)
	return notices
}

// repeatedReset says, in the condition OffsetsReset and by an event, of a reset that was carried out before that it is not again. Where there is none it removes the condition.
func repeatedReset(now time.Time, group *v1alpha1.ConsumerGroup, s *v1alpha1.ConsumerGroupStatus) []notice {
	was := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOffsetsReset)
	if !carriedOut(s, group.Spec.Offsets.Reset) {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionOffsetsReset)
		return nil
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionOffsetsReset, Status: metav1.ConditionTrue, ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
		Reason:  reasonCarriedOutBefore,
		Message: fmt.Sprintf("reset %s was begun before, and others since; it is not carried out again: to set the offsets give it a new id", group.Spec.Offsets.Reset.ID),
	}
	isNew := was == nil || was.Message != c.Message
	meta.SetStatusCondition(&s.Conditions, c)
	if !isNew {
		return nil
	}
	return []notice{{corev1.EventTypeNormal, eventResetRepeated, actionReset, c.Message}}
}

// remembered are the ids of earlier resets, with one more.
func remembered(ids []string, id string) []string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
	ids = slices.Insert(ids, 0, id)
	return ids[:min(len(ids), maxEarlierResets)]
}

// carriedOut says whether a reset was begun before that of status.offsetsReset.
func carriedOut(s *v1alpha1.ConsumerGroupStatus, spec *v1alpha1.OffsetsReset) bool {
	was := s.OffsetsReset
	return spec != nil && (was == nil || was.ID != spec.ID) && slices.Contains(s.EarlierResets, spec.ID)
}

// nextReset is what status.offsetsReset is to be; nil for nothing. Its time is left out.
func nextReset(group *v1alpha1.ConsumerGroup, s *v1alpha1.ConsumerGroupStatus, o *Observation) *v1alpha1.OffsetsResetStatus {
	spec, was := group.Spec.Offsets.Reset, s.OffsetsReset
	switch {
	case spec == nil, carriedOut(s, spec):
		return withdrawn(was)
	case was == nil || was.ID != spec.ID || beforehand(was):
		return begin(group, was, o)
	case was.Phase != v1alpha1.ResetInProgress || o.reset == nil || o.reset.id != spec.ID:
		return was.DeepCopy()
	case o.reset.phase == v1alpha1.ResetRefused:
		return refused(group)
	}
	return &v1alpha1.OffsetsResetStatus{ID: spec.ID, Phase: o.reset.phase, Partitions: o.reset.partitions, Message: o.reset.message}
}

// withdrawn is what becomes of a reset that is no longer in the spec.
func withdrawn(was *v1alpha1.OffsetsResetStatus) *v1alpha1.OffsetsResetStatus {
	switch {
	case was == nil || beforehand(was):
		return nil
	case was.Phase == v1alpha1.ResetInProgress:
		return &v1alpha1.OffsetsResetStatus{
			ID: was.ID, Phase: v1alpha1.ResetFailed, Message: "spec.offsets.reset was removed before it was done; the offsets of some partitions may have been set",
		}
	}
	return was.DeepCopy()
}

// beforehand says whether nothing was done yet of a reset.
func beforehand(r *v1alpha1.OffsetsResetStatus) bool {
	return r.Phase == v1alpha1.ResetRefused || r.Phase == v1alpha1.ResetWaiting
}

// begin begins a reset, refuses it, or says what it waits for. Until the brokers were asked whether members are active, and where the partitions start and end, nothing is decided.
func begin(group *v1alpha1.ConsumerGroup, was *v1alpha1.OffsetsResetStatus, o *Observation) *v1alpha1.OffsetsResetStatus {
	spec, p := group.Spec.Offsets.Reset, o.prepared
	switch {
	case p == nil || p.id != spec.ID:
		return was.DeepCopy()
	case p.phase != v1alpha1.ResetInProgress:
		return &v1alpha1.OffsetsResetStatus{ID: spec.ID, Phase: p.phase, Message: p.message}
	case o.group == nil || o.resetID != spec.ID:
		return was.DeepCopy()
	case spec.Force || !activeMembers(group, o.group):
		return &v1alpha1.OffsetsResetStatus{ID: spec.ID, Phase: v1alpha1.ResetInProgress, Message: "setting the offsets " + whereTo(spec)}
	}
	return refused(group)
}

// activeMembers says whether members are active: those of a managed group while they hold partitions, the clients of a wire group as long as they are there.
func activeMembers(group *v1alpha1.ConsumerGroup, d *description) bool {
	if group.Spec.Selector != nil {
		return d.holding() > 0
	}
	return len(d.members) > 0
}

func refused(group *v1alpha1.ConsumerGroup) *v1alpha1.OffsetsResetStatus {
	message := "members of the group have partitions; the offsets are set once they have none: scale the members down to 0, set spec.paused to true, or set spec.offsets.reset.force to true"
	if group.Spec.Selector == nil {
		message = "clients are in the group; the offsets are set once they have left: stop them, or set spec.offsets.reset.force to true"
	}
	return &v1alpha1.OffsetsResetStatus{ID: group.Spec.Offsets.Reset.ID, Phase: v1alpha1.ResetRefused, Message: message}
}

// whereTo says where the offsets are set, for people.
func whereTo(r *v1alpha1.OffsetsReset) string {
	switch {
	case r.To == v1alpha1.ResetEarliest:
		return "to the first records"
	case r.To == v1alpha1.ResetTimestamp && r.Timestamp != nil:
		return "to the first records at or after " + r.Timestamp.UTC().Format(time.RFC3339)
	case r.To == v1alpha1.ResetOffset && r.Offset != nil:
		return fmt.Sprintf("to %d", *r.Offset)
	}
	return "to the ends"
}

// resetOpen says whether the brokers are to be asked for the sake of a group's reset.
func resetOpen(group *v1alpha1.ConsumerGroup) bool {
	spec, was := group.Spec.Offsets.Reset, group.Status.OffsetsReset
	return spec != nil && !carriedOut(&group.Status, spec) && (was == nil || was.ID != spec.ID || beforehand(was) || was.Phase == v1alpha1.ResetInProgress)
}

// resetBegun says whether a group's reset was begun.
func resetBegun(group *v1alpha1.ConsumerGroup) bool {
	spec, was := group.Spec.Offsets.Reset, group.Status.OffsetsReset
	return was != nil && was.ID == spec.ID && !beforehand(was)
}

// resetWaits says whether a group's reset waits for its members to end, or for brokers.
func resetWaits(group *v1alpha1.ConsumerGroup) bool {
	spec, was := group.Spec.Offsets.Reset, group.Status.OffsetsReset
	return spec != nil && was != nil && was.ID == spec.ID && (was.Phase == v1alpha1.ResetRefused && !spec.Force || was.Phase == v1alpha1.ResetWaiting)
}

// resetDue says whether a group's reset is to be carried out.
func resetDue(group *v1alpha1.ConsumerGroup) bool {
	spec, was := group.Spec.Offsets.Reset, group.Status.OffsetsReset
	return spec != nil && was != nil && was.ID == spec.ID && was.Phase == v1alpha1.ResetInProgress &&
		(group.Spec.Selector == nil || group.Status.Paused)
}

// setResetCondition sets the condition OffsetsReset.
func setResetCondition(now time.Time, s *v1alpha1.ConsumerGroupStatus) {
	r := s.OffsetsReset
	c := metav1.Condition{
		Type: v1alpha1.ConditionOffsetsReset, Status: metav1.ConditionFalse, ObservedGeneration: s.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)), Reason: string(r.Phase), Message: r.Message,
	}
	switch r.Phase {
	case v1alpha1.ResetSucceeded:
		c.Status = metav1.ConditionTrue
	case v1alpha1.ResetRefused:
		c.Reason = reasonMembersActive
	case v1alpha1.ResetWaiting, v1alpha1.ResetInProgress, v1alpha1.ResetFailed:
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

// resetNotice is the event of a reset's new phase.
func resetNotice(r *v1alpha1.OffsetsResetStatus) notice {
	n := notice{corev1.EventTypeNormal, eventResetBegun, actionReset, fmt.Sprintf("reset %s: %s", r.ID, r.Message)}
	switch r.Phase {
	case v1alpha1.ResetSucceeded:
		n.reason = eventResetDone
	case v1alpha1.ResetRefused:
		n.eventType, n.reason = corev1.EventTypeWarning, eventResetRefused
	case v1alpha1.ResetWaiting:
		n.eventType, n.reason = corev1.EventTypeWarning, eventResetWaits
	case v1alpha1.ResetFailed:
		n.eventType, n.reason = corev1.EventTypeWarning, eventResetFailed
	case v1alpha1.ResetInProgress:
	}
	return n
}
