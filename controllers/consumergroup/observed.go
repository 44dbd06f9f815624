// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

// Observation is what the brokers say of a group. It is not changed once it was made.
type Observation struct {
	// uid is the group's.
	uid types.UID
	// plan is the generation of the status, and resetID the id of spec.offsets.reset, that there were when the brokers were asked: what came later they may not have
	// known yet.
	plan    int32
	resetID string
	// group is the broker's description; nil until there was one.
	group *description
	// ahead is the generation of a managed group's plan that the brokers have, if it is later than the status's has been for a while; else 0.
	ahead int32
	// lag is how far the group is behind; nil until that was read.
	lag *v1alpha1.LagSummary
	// stalls holds, by name, the members of which it is known whether they read.
	stalls map[string]stall
	// strangers are the clients of a managed group that belong to none of its pods, sorted.
	strangers []stranger
	// rebalance is the last change of a wire group's assignment; nil if none was seen.
	rebalance *v1alpha1.Rebalance
	// prepared says whether the reset that is asked for can be carried out: InProgress, or else Failed, or Waiting for brokers.
	prepared *resetResult
	// reset is what became of the reset of offsets that was carried out last; nil for none.
	reset *resetResult
}

// description is what the coordinator of a group tells of it.
type description struct {
	// state is Kafka's name of the group's state: Dead for one that does not exist.
	state string
	// generation is -1 where the broker does not tell.
	generation int32
	// members are the clients, by member id.
	members []observedMember
}

// observedMember is a client of a group.
type observedMember struct {
	id, instanceID, clientID, host string
	// assigned are the partitions that the client was given, and still has; sorted.
	assigned []v1alpha1.TopicAssignment
	// target is what it is to have in the end, where the broker tells that (KIP-848); nil else.
	target []v1alpha1.TopicAssignment
	// behind says that a member of KIP-848's protocol has not reached the group's epoch: it has yet to hear of it, or to let go of something.
	behind bool
}

// stranger is a client that belongs to no pod of its group.
type stranger struct{ clientID, host string }

func (s stranger) String() string {
	return fmt.Sprintf("%s at %s", cmp.Or(s.clientID, "a client without an id"), s.host)
}

// notice is an event that is recorded once the status that it tells of is written.
type notice struct {
	eventType, reason, action, message string
}

// The reasons and actions of what is observed.
const (
	eventStalled       = "Stalled"
	eventReadsAgain    = "ReadsAgain"
	eventUnknownClient = "UnknownClient"
	eventGeneration    = "GenerationRaised"
	actionObserve      = "Observe"
)

// notify records the events of a status that was written.
func (r *Reconciler) notify(group *v1alpha1.ConsumerGroup, notices []notice) {
	for _, n := range notices {
		r.Recorder.Eventf(group, nil, n.eventType, n.reason, n.action, "%s", apply.Note(n.message))
	}
}

// observed completes a decided status by what the brokers say, and returns the events for that. It is a pure function.
func observed(now time.Time, group *v1alpha1.ConsumerGroup, s *v1alpha1.ConsumerGroupStatus, f facts) []notice {
	if !f.observes {
		return nil
	}
	o := f.observed
	if o == nil {
		o = &Observation{}
	}
	var notices []notice
	if group.Spec.Selector == nil {
		mirror(s, o)
	} else {
		s.State = managedState(s, o)
		notices = observeStalls(group, s, o)
		noteStrangers(s, o)
	}
	observeLag(s, o)
	return append(notices, observeReset(now, group, s, o)...)
}

// aheadWatch finds that the brokers have a plan of a managed group of a later generation than its status says, which was changed by hand, or restored from a backup. They ignore every
// plan of an earlier one.
type aheadWatch struct{ plan, told int32 }

// note takes a description, and the status's generation that there was when it was asked for. It returns the brokers' generation if they were ahead of that one twice in a row: once may be
// because the cache is behind. A group without a plan has generation 1 in KIP-848's protocol.
func (w *aheadWatch) note(plan int32, d *description) int32 {
	was := *w
	*w = aheadWatch{plan, d.generation}
	if d.generation <= max(plan, 1) || was.plan != plan || was.told <= plan {
		return 0
	}
	return d.generation
}

// raiseGeneration raises a managed group's generation above what the brokers have, so that they take its plan, and returns the event for that.
func raiseGeneration(group *v1alpha1.ConsumerGroup, s *v1alpha1.ConsumerGroupStatus, o *Observation) []notice {
	if o == nil || o.ahead < s.Generation || o.ahead <= group.Status.Generation || o.plan != group.Status.Generation {
		return nil
	}
	s.Generation = o.ahead + 1
	if s.State != v1alpha1.GroupEmpty {
		s.State = v1alpha1.GroupPreparingRebalance
	}
	return []notice{{corev1.EventTypeWarning, eventGeneration, actionAssign, fmt.Sprintf(
		"status.generation was %d, but the brokers have a plan of generation %d; was the status changed by hand, or restored from a backup? It is %d now, so that they take the group's plan",
		group.Status.Generation, o.ahead, s.Generation)}}
}

// observeLag takes over the lag, if a figure changed.
func observeLag(s *v1alpha1.ConsumerGroupStatus, o *Observation) {
	if o.lag == nil || s.Lag != nil && s.Lag.Total == o.lag.Total && s.Lag.Max == o.lag.Max {
		return
	}
	s.Lag = o.lag.DeepCopy()
}

// rank orders the states of a handoff, which go one way within a generation.
var rank = map[v1alpha1.GroupState]int{v1alpha1.GroupPreparingRebalance: 1, v1alpha1.GroupCompletingRebalance: 2, v1alpha1.GroupStable: 3}

// managedState is the state of a managed group. Once a handoff is over the state stays what it is until the next plan, whatever single clients do meanwhile. Where nobody
// holds or waits for anything there is nothing to hand over.
func managedState(s *v1alpha1.ConsumerGroupStatus, o *Observation) v1alpha1.GroupState {
	open := s.State == v1alpha1.GroupPreparingRebalance || s.State == v1alpha1.GroupCompletingRebalance
	if !open || o.group == nil || o.plan < s.Generation {
		return s.State
	}
	if len(o.group.members) == 0 {
		return v1alpha1.GroupStable
	}
	if told := o.group.generation; told >= 0 && told < s.Generation { // brokers of an older release do not tell it
		return s.State
	}
	state := groupState(o.group)
	if rank[state] < rank[s.State] {
		return s.State
	}
	return state
}

// groupState is the state of a group in the words of the classic protocol. KIP-848's Reconciling says nothing of how far it has come; the members' epochs, and what they have
// yet to let go of, do.
func groupState(d *description) v1alpha1.GroupState {
	switch d.state {
	case coordinator.StateStable:
		return v1alpha1.GroupStable
	case coordinator.StateCompletingRebalance:
		return v1alpha1.GroupCompletingRebalance
	case coordinator.StateReconciling:
		if slices.ContainsFunc(d.members, func(m observedMember) bool { return m.behind || !within(m.assigned, m.target) }) {
			return v1alpha1.GroupPreparingRebalance
		}
		return v1alpha1.GroupCompletingRebalance
	case coordinator.StateEmpty, coordinator.StateDead:
		return v1alpha1.GroupEmpty
	}
	return v1alpha1.GroupPreparingRebalance
}

// within says whether the partitions of a are all in b. Both are sorted by topic, and the partitions ascend.
func within(a, b []v1alpha1.TopicAssignment) bool {
	for _, share := range a {
		i, found := slices.BinarySearchFunc(b, share.Topic, func(t v1alpha1.TopicAssignment, topic string) int { return strings.Compare(t.Topic, topic) })
		if !found {
			return len(share.Partitions) == 0
		}
		for _, p := range share.Partitions {
			if _, found := slices.BinarySearch(b[i].Partitions, p); !found {
				return false
			}
		}
	}
	return true
}

// holding is how many members have partitions.
func (d *description) holding() int {
	n := 0
	for i := range d.members {
		if len(d.members[i].assigned) > 0 {
			n++
		}
	}
	return n
}

// observeStalls sets and unsets the phase Stalled of members, and returns the events for that. Of members that nothing is known of, such as after a restart of the operator,
// the phase stands.
func observeStalls(group *v1alpha1.ConsumerGroup, s *v1alpha1.ConsumerGroupStatus, o *Observation) []notice {
	var notices []notice
	for i := range s.Members {
		m := &s.Members[i]
		found, known := o.stalls[m.Name]
		if s.Paused {
			found, known = stall{uid: m.UID}, true
		}
		if !known || found.uid != m.UID {
			continue
		}
		switch {
		case m.Phase == v1alpha1.MemberActive && found.stalled:
			m.Phase = v1alpha1.MemberStalled
			notices = append(notices, notice{corev1.EventTypeWarning, eventStalled, actionObserve, found.describe(group.Namespace, m.Name)})
		case m.Phase == v1alpha1.MemberStalled && !found.stalled:
			m.Phase = v1alpha1.MemberActive
			notices = append(notices, notice{corev1.EventTypeNormal, eventReadsAgain, actionObserve, fmt.Sprintf("member %s is no longer stalled", m.Name)})
		}
	}
	return notices
}

// maxStrangers is how many clients of no known pod the Ready condition names.
const maxStrangers = 3

// noteStrangers adds the clients of no known pod to the message of the Ready condition.
func noteStrangers(s *v1alpha1.ConsumerGroupStatus, o *Observation) {
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if len(o.strangers) == 0 || ready == nil || ready.Reason != v1alpha1.ReasonAssigned {
		return
	}
	names := make([]string, 0, maxStrangers)
	for _, stranger := range o.strangers[:min(len(o.strangers), maxStrangers)] {
		names = append(names, stranger.String())
	}
	if more := len(o.strangers) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	ready.Message = apply.Message(fmt.Sprintf("%s; %s of no pod of the group: %s", ready.Message, count(len(o.strangers), "client"), strings.Join(names, ", ")))
}

// stall says whether a member reads.
type stall struct {
	uid     types.UID
	stalled bool
	// client says whether the member has a client in the group, lag how many records its partitions were behind when it was found stalled.
	client bool
	lag    int64
}

// describe says what is wrong with a stalled member, and what to do.
func (f stall) describe(namespace, name string) string {
	what := "has committed nothing for a minute"
	if !f.client {
		what = "has no client in the group"
	}
	return fmt.Sprintf("member %s %s, and its partitions are %s behind; see what it does: kubectl --namespace %s logs %s",
		name, what, count(int(f.lag), "record"), namespace, name)
}
