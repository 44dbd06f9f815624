// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

const (
	// maxStatusBytes is the largest status that is written, as JSON. etcd takes objects of 1.5 MiB, and the brokers and every other
	// watcher get each change whole.
	maxStatusBytes = 1_000_000
	// maxMembers is the largest number of members that the API takes.
	maxMembers = 10_000
	// maxGeneration is the largest generation that the API takes. It is reached by nothing but a hand.
	maxGeneration = 2_000_000_000
)

// refusals are the reasons that stand for something that the user must mend.
var refusals = map[string]bool{
	v1alpha1.ReasonClusterNotFound:  true,
	v1alpha1.ReasonClusterAmbiguous: true,
	v1alpha1.ReasonGroupIDTaken:     true,
	v1alpha1.ReasonInvalidSelector:  true,
	v1alpha1.ReasonStatusTooLarge:   true,
	v1alpha1.ReasonTargetNotFound:   true,
	v1alpha1.ReasonTargetTaken:      true,
}

// verdict is what becomes of a ConsumerGroup.
type verdict struct {
	status v1alpha1.ConsumerGroupStatus
	// rebalanced says that the assignment changed; status.lastRebalance says how.
	rebalanced bool
	// notices are the events of what was observed.
	notices []notice
	// deadline is when to decide again although nothing happens, zero for never.
	deadline time.Time
}

// decide is a pure function of the time, the group and the facts.
func decide(now time.Time, group *v1alpha1.ConsumerGroup, f facts) verdict {
	v := verdict{status: *group.Status.DeepCopy()}
	s := &v.status
	s.ObservedGeneration = group.Generation
	s.GroupID = group.KafkaID()
	if s.State == "" {
		s.State = v1alpha1.GroupEmpty
	}
	if f.problem != nil {
		// The assignment stands: a second BrokerCluster, or one that is made anew, must stop no consumer.
		setReady(now, s, f.problem.Reason, f.problem.Message)
		return v
	}
	s.ClusterRef = f.cluster
	if f.invalid != nil {
		setReady(now, s, v1alpha1.ReasonInvalidSelector, fmt.Sprintf("spec.selector cannot be used; correct it: %v", f.invalid))
		return v
	}
	wasManaged := s.Selector != ""
	s.Selector = f.selectorString()
	if f.selector == nil && f.holder == "" && !wasManaged {
		// The members are the clients that join over the wire.
		s.Partitions, s.Paused = partitions(f.topics), false
		reason, message := readiness(group, f, coordinator.PodsOutput{})
		setReady(now, s, reason, message)
	} else {
		v.decideMembers(now, group, f, wasManaged)
	}
	if f.holder == "" {
		v.notices = append(v.notices, observed(now, group, s, f)...)
	}
	if equality.Semantic.DeepEqual(group.Status, v.status) {
		return v
	}
	if size := sizeOf(s); size != "" {
		return tooLarge(now, group, f, size)
	}
	return v
}

// decideMembers decides who is a member and what each reads.
func (v *verdict) decideMembers(now time.Time, group *v1alpha1.ConsumerGroup, f facts, wasManaged bool) {
	s := &v.status
	in := podsInput(group, f)
	if wasManaged {
		in.Seats = seatsOf(group.Status.Members) // else they are the clients of a group that had no selector
	}
	out := coordinator.Decide(now, in)
	s.Paused = in.Paused
	fillStatus(now, s, out)
	if out.Changed && f.observes && s.State != v1alpha1.GroupEmpty {
		s.State = v1alpha1.GroupPreparingRebalance
	}
	if wasManaged && f.holder == "" {
		v.notices = raiseGeneration(group, s, f.observed)
	}
	v.rebalanced, v.deadline = out.Changed, out.Deadline
	reason, message := readiness(group, f, out)
	setReady(now, s, reason, message)
}

// podsInput is the coordinator's input, but for the seats. A group that does not hold its id, or has lost its selector, has no pods.
func podsInput(group *v1alpha1.ConsumerGroup, f facts) coordinator.PodsInput {
	in := coordinator.PodsInput{
		Generation: group.Status.Generation,
		Topics:     f.topics,
		Zones:      f.zones,
		Workloads:  f.workloads,
		Paused:     paused(group),
		WasPaused:  group.Status.Paused,
	}
	if f.holder == "" {
		in.Pods = f.pods
	}
	if group.Spec.MemberGracePeriod != nil {
		in.GracePeriod = group.Spec.MemberGracePeriod.Duration
	}
	if group.Spec.RebalanceDelay != nil {
		in.RebalanceDelay = group.Spec.RebalanceDelay.Duration
	}
	// The API server lets only the names of assigners pass, and sets the default; Decide takes nil for that default.
	if a, err := assigner.ByName(string(group.Spec.Assigner)); err == nil {
		in.Assigner = a
	}
	return in
}

// paused says whether nobody is to read.
func paused(group *v1alpha1.ConsumerGroup) bool {
	reset := group.Status.OffsetsReset
	return group.Spec.Paused || reset != nil && reset.Phase == v1alpha1.ResetInProgress
}

// fillStatus writes a decision of the coordinator into a status.
//
// The state of a group with members is left as it is, and so are the members that are stalled: what clients do is observed.
func fillStatus(now time.Time, s *v1alpha1.ConsumerGroupStatus, out coordinator.PodsOutput) {
	switch {
	case len(out.Seats) == 0:
		s.State = v1alpha1.GroupEmpty
	case s.State == v1alpha1.GroupEmpty:
		s.State = v1alpha1.GroupStable
	}
	s.Generation = out.Generation
	s.Partitions = int32(out.Partitions)
	s.Members = keepStalled(s.Members, membersOf(out.Seats))
	s.Replicas = int32(counting(s.Members))
	s.Assignments = compact(s.Members)
	if out.Changed {
		s.LastRebalance = &v1alpha1.Rebalance{
			Time: metav1.NewTime(now.UTC().Truncate(time.Second)), Reason: out.Reason, Message: out.Message,
			Moved: int32(out.Moved), Minimum: int32(out.Minimum),
		}
	}
}

// readiness returns the reason and message of the Ready condition for a group whose members were decided.
func readiness(group *v1alpha1.ConsumerGroup, f facts, out coordinator.PodsOutput) (reason, message string) {
	pending := pendingTopics(f)
	switch {
	case f.holder != "":
		return v1alpha1.ReasonGroupIDTaken, fmt.Sprintf(
			"group id %s of BrokerCluster %s is already that of the ConsumerGroup %s; delete one of the two, or create this one anew with another groupID",
			group.KafkaID(), f.cluster, f.holder)
	case group.Spec.TargetRef != nil && f.target == nil:
		return v1alpha1.ReasonTargetNotFound, fmt.Sprintf(
			"there is no %s %s in this namespace; create it, or correct targetRef", group.Spec.TargetRef.Kind, group.Spec.TargetRef.Name)
	case f.scaler != "":
		return v1alpha1.ReasonTargetTaken, fmt.Sprintf(
			"%s %s is already scaled by the ConsumerGroup %s; remove replicas from one of the two", group.Spec.TargetRef.Kind, group.Spec.TargetRef.Name, f.scaler)
	case f.selector == nil:
		return v1alpha1.ReasonWireGroup, wireMessage(group)
	case paused(group) && len(out.Seats) > 0:
		return v1alpha1.ReasonPaused, "nobody reads: " + whyPaused(group)
	case pending != "":
		return v1alpha1.ReasonTopicsPending, pending
	case len(out.Seats) == 0:
		return v1alpha1.ReasonNoMembers, fmt.Sprintf(
			"no pod that matches %s is running and ready; start one, or look at them: kubectl --namespace %s get pods --selector '%s'",
			f.selector, group.Namespace, f.selector)
	}
	return v1alpha1.ReasonAssigned, fmt.Sprintf("%s of %s, read by %s",
		count(out.Partitions, "partition"), count(len(f.topics), "topic"), count(counting(membersOf(out.Seats)), "member"))
}

// whyPaused says why nobody reads, and what ends it.
func whyPaused(group *v1alpha1.ConsumerGroup) string {
	if group.Spec.Paused {
		return "spec.paused is true; set it to false to go on"
	}
	return fmt.Sprintf("the group's offsets are being reset (%s); its members go on by themselves when that is done", group.Status.OffsetsReset.ID)
}

func wireMessage(group *v1alpha1.ConsumerGroup) string {
	return "without a selector the members are the clients that join; see them with: ringmaster group describe " + group.KafkaID()
}

// pendingTopics says which topics the group waits for, empty for none.
func pendingTopics(f facts) string {
	var phrases []string
	if len(f.missing) > 0 {
		phrases = append(phrases, fmt.Sprintf("waiting for %s of BrokerCluster %s; create a Topic for each", strings.Join(f.missing, ", "), f.cluster))
	}
	var unplaced []string
	for _, name := range slices.Sorted(maps.Keys(f.topics)) {
		if f.topics[name] <= 0 {
			unplaced = append(unplaced, name)
		}
	}
	if len(unplaced) > 0 {
		phrases = append(phrases, fmt.Sprintf("waiting for BrokerCluster %s to take up %s", f.cluster, strings.Join(unplaced, ", ")))
	}
	if len(phrases) == 0 {
		return ""
	}
	if len(unplaced) == len(f.topics) {
		return strings.Join(phrases, "; ")
	}
	return strings.Join(phrases, "; ") + "; the group's other topics are read"
}

// sizeOf says what is too large about a status, empty for nothing. It gives no figures that grow with it: a message that changes is another write of the whole.
func sizeOf(s *v1alpha1.ConsumerGroupStatus) string {
	if len(s.Members) > maxMembers {
		return fmt.Sprintf("there are more members than the %d that a group may have", maxMembers)
	}
	if s.Generation < 0 || s.Generation > maxGeneration {
		return "status.generation cannot grow any further; delete the ConsumerGroup and create it anew"
	}
	if wide := tooWide(s.Members); wide != "" {
		return wide
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf("the status cannot be encoded: %v", err)
	}
	if len(raw) > maxStatusBytes {
		return fmt.Sprintf("the status would be larger than the %d bytes that a ConsumerGroup may have", maxStatusBytes)
	}
	return ""
}

// tooLarge refuses a decision that does not fit. Pods without a seat wait then, so that members that are lost still give their partitions to the others; where that does not fit, either, the
// last assignment stands.
func tooLarge(now time.Time, group *v1alpha1.ConsumerGroup, f facts, size string) verdict {
	if seated := seatedPods(group, f.pods); len(seated) < len(f.pods) {
		f.pods = seated
		v := decide(now, group, f)
		if is := meta.FindStatusCondition(v.status.Conditions, v1alpha1.ConditionReady); is.Reason != v1alpha1.ReasonStatusTooLarge {
			if was := ready(group); was != nil {
				*is = *was // else the time of its transition would be that of every decision
			}
			setReady(now, &v.status, v1alpha1.ReasonStatusTooLarge, size+"; pods that are no members yet have to wait; use fewer members or partitions, or several groups")
		}
		return v
	}
	v := verdict{status: *group.Status.DeepCopy()}
	s := &v.status
	s.ObservedGeneration = group.Generation
	s.GroupID = group.KafkaID()
	s.ClusterRef = f.cluster
	s.Selector = f.selectorString()
	if s.State == "" {
		s.State = v1alpha1.GroupEmpty
	}
	setReady(now, s, v1alpha1.ReasonStatusTooLarge, size+"; the last assignment stands; use fewer members or partitions, or several groups")
	return v
}

// seatedPods are the pods that have a seat.
func seatedPods(group *v1alpha1.ConsumerGroup, pods []coordinator.Pod) []coordinator.Pod {
	names := make(map[string]bool, len(group.Status.Members))
	for i := range group.Status.Members {
		names[group.Status.Members[i].Name] = true
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p coordinator.Pod) bool { return !names[p.Name] })
}

// setReady sets the Ready condition.
func setReady(now time.Time, s *v1alpha1.ConsumerGroupStatus, reason, message string) {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: s.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
		Reason:             reason,
		Message:            apply.Message(message),
	}
	if reason == v1alpha1.ReasonAssigned || reason == v1alpha1.ReasonWireGroup {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, condition)
}

func ready(group *v1alpha1.ConsumerGroup) *metav1.Condition {
	return meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady)
}

func partitions(topics map[string]int32) int32 {
	var sum int32
	for _, n := range topics {
		sum += n
	}
	return sum
}

// countOf is how many of those that were named before.
func countOf(n int) string { return fmt.Sprintf("%d of them", n) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
