// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

// A reset of offsets goes from nothing to Refused, while members are active, or to InProgress, and from there to Succeeded or Failed, once for each id. The status says InProgress before
// anything is done: that pauses a managed group, and an operator that starts in the middle begins the reset anew, which does no harm while nobody reads.

// reasonMembersActive is the reason of the condition OffsetsReset of a reset that is refused; else its phase is.
const reasonMembersActive = "MembersActive"

// The reasons and the action of the events of resets.
const (
	eventResetBegun   = "OffsetsResetBegun"
	eventResetDone    = "OffsetsReset"
	eventResetRefused = "OffsetsResetRefused"
	eventResetFailed  = "OffsetsResetFailed"
	actionReset       = "ResetOffsets"
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
	next := nextReset(group, s.OffsetsReset, o)
	was := s.OffsetsReset
	if next == nil {
		if was != nil {
			s.OffsetsReset = nil
			meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionOffsetsReset)
		}
		return nil
	}
	next.Message = apply.Message(next.Message)
	begins := was == nil || was.ID != next.ID || was.Phase != next.Phase
	if next.Time = metav1.NewTime(now.UTC().Truncate(time.Second)); !begins {
		next.Time = was.Time
	}
	s.OffsetsReset = next
	setResetCondition(now, s)
	if !begins {
		return nil
	}
	return []notice{resetNotice(next)}
}

// nextReset is what status.offsetsReset is to be after was; nil for nothing. Its time is left out.
func nextReset(group *v1alpha1.ConsumerGroup, was *v1alpha1.OffsetsResetStatus, o *Observation) *v1alpha1.OffsetsResetStatus {
	spec := group.Spec.Offsets.Reset
	switch {
	case spec == nil:
		return withdrawn(was)
	case was == nil || was.ID != spec.ID:
		return begin(group, was, o)
	case was.Phase == v1alpha1.ResetRefused:
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
	case was == nil || was.Phase == v1alpha1.ResetRefused:
		return nil
	case was.Phase == v1alpha1.ResetInProgress:
		return &v1alpha1.OffsetsResetStatus{
			ID: was.ID, Phase: v1alpha1.ResetFailed, Message: "spec.offsets.reset was removed before it was done; the offsets of some partitions may have been set",
		}
	}
	return was.DeepCopy()
}

// begin begins a reset, or refuses it. Until the brokers have said whether members are active nothing is decided, unless that makes no difference.
func begin(group *v1alpha1.ConsumerGroup, was *v1alpha1.OffsetsResetStatus, o *Observation) *v1alpha1.OffsetsResetStatus {
	spec := group.Spec.Offsets.Reset
	known := o.group != nil && o.resetID == spec.ID
	switch {
	case spec.Force || known && !activeMembers(group, o.group):
		return &v1alpha1.OffsetsResetStatus{ID: spec.ID, Phase: v1alpha1.ResetInProgress, Message: "setting the offsets " + whereTo(spec)}
	case known:
		return refused(group)
	case was == nil:
		return nil
	}
	return was.DeepCopy()
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
	return spec != nil && (was == nil || was.ID != spec.ID || was.Phase == v1alpha1.ResetRefused || was.Phase == v1alpha1.ResetInProgress)
}

// resetWaits says whether a group's reset waits for its members to end.
func resetWaits(group *v1alpha1.ConsumerGroup) bool {
	spec, was := group.Spec.Offsets.Reset, group.Status.OffsetsReset
	return spec != nil && was != nil && was.ID == spec.ID && was.Phase == v1alpha1.ResetRefused && !spec.Force
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
	case v1alpha1.ResetInProgress, v1alpha1.ResetFailed:
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
	case v1alpha1.ResetFailed:
		n.eventType, n.reason = corev1.EventTypeWarning, eventResetFailed
	case v1alpha1.ResetInProgress:
	}
	return n
}
