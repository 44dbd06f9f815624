// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConsumerGroup is a consumer group of a BrokerCluster. With a selector its members are the pods that the selector
// matches, and the operator decides which pod reads which partitions; without one its members are the clients that join.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cg,categories=ringmaster
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="STATE",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="MEMBERS",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="PARTITIONS",type=integer,JSONPath=`.status.partitions`
// +kubebuilder:printcolumn:name="GENERATION",type=integer,JSONPath=`.status.generation`
// +kubebuilder:printcolumn:name="LAG",type=integer,JSONPath=`.status.lag.total`
// +kubebuilder:printcolumn:name="ASSIGNER",type=string,JSONPath=`.spec.assigner`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ASSIGNMENTS",type=string,JSONPath=`.status.assignments`,priority=1
type ConsumerGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user asks for.
	Spec ConsumerGroupSpec `json:"spec"`
	// status is what the operator sees and decided.
	Status ConsumerGroupStatus `json:"status,omitempty"`
}

// ConsumerGroupSpec is what the user asks of a ConsumerGroup.
//
// +kubebuilder:validation:XValidation:rule="has(oldSelf.groupID) == has(self.groupID) && (!has(self.groupID) || self.groupID == oldSelf.groupID)",message="groupID cannot be changed: the group would lose its offsets; create another ConsumerGroup and delete this one"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.clusterRef) == has(self.clusterRef) && (!has(self.clusterRef) || self.clusterRef == oldSelf.clusterRef)",message="clusterRef cannot be changed; create another ConsumerGroup in the other cluster and delete this one"
// +kubebuilder:validation:XValidation:rule="!has(self.offsets) || !has(self.offsets.reset) || !has(self.offsets.reset.topics) || self.offsets.reset.topics.all(t, t in self.topics)",message="offsets.reset.topics must be among topics"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || has(self.targetRef)",message="replicas needs targetRef, the workload to scale; set targetRef or remove replicas"
// +kubebuilder:validation:XValidation:rule="has(self.selector) || !has(self.offsets) || !has(self.offsets.initial)",message="offsets.initial needs a selector: clients that join over the wire begin where their own configuration says; set selector or remove offsets.initial"
// +kubebuilder:validation:XValidation:rule="has(self.selector) || !has(self.paused) || !self.paused",message="paused needs a selector: clients that join over the wire cannot be paused; set selector, or remove paused and stop the clients"
type ConsumerGroupSpec struct {
	// clusterRef is the name of the BrokerCluster, in the same namespace. Default: the namespace's only one. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClusterRef string `json:"clusterRef,omitempty"`

	// groupID is the group's id as Kafka clients know it, at most 255 bytes in UTF-8, without control characters. Default: the resource's name. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 255",message="groupID may have at most 255 bytes in UTF-8, where a letter beyond ASCII has two or more; choose a shorter one"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^\\\\x00-\\\\x1f\\\\x7f]*$')",message="groupID must not have control characters, such as a line's end"
	// +optional
	GroupID string `json:"groupID,omitempty"`

	// topics are the names of the topics that the group reads, as Kafka clients see them. From 1 to 100.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=249
	// +kubebuilder:validation:items:Pattern=`^[a-zA-Z0-9._-]+$`
	// +kubebuilder:validation:XValidation:rule="!('.' in self) && !('..' in self)",message="no topic is called '.' or '..'"
	// +listType=set
	Topics []string `json:"topics"`

	// selector selects the pods that are the group's members. Without it, the members are the clients that join over the wire.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="selector must not be empty, for it would match every pod of the namespace; give matchLabels or matchExpressions, or leave selector out"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// assigner decides which member reads which partitions: ConsistentHash, Sticky, RoundRobin or Range. Default ConsistentHash.
	// +kubebuilder:default=ConsistentHash
	// +optional
	Assigner AssignerName `json:"assigner,omitempty"`

	// memberGracePeriod is how long a member that is not alive keeps its partitions if its pod may come back (a container that restarts, a
	// StatefulSet's pod), as a duration. Default 10s, from 0s to 1h.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) <= duration('1h')",message="memberGracePeriod must be a duration from 0s to 1h, such as 10s"
	// +optional
	MemberGracePeriod *metav1.Duration `json:"memberGracePeriod,omitempty"`

	// handoffTimeout is how long a partition that moves waits for its old owner to let go of it, as a duration. Default 30s, from 0s to 1h.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) <= duration('1h')",message="handoffTimeout must be a duration from 0s to 1h, such as 10s"
	// +optional
	HandoffTimeout *metav1.Duration `json:"handoffTimeout,omitempty"`

	// rebalanceDelay is how long a pod that becomes a member waits for others that come at the same time, so that many cost one rebalance; four times that at
	// most, ten times where nobody reads anything yet. A member that is lost is never waited for. As a duration, default 500ms, from 0s to 1m.
	// +kubebuilder:default="500ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) <= duration('1m')",message="rebalanceDelay must be a duration from 0s to 1m, such as 500ms"
	// +optional
	RebalanceDelay *metav1.Duration `json:"rebalanceDelay,omitempty"`

	// paused takes every partition from every member; the members keep their seats, and get partitions again, not necessarily the same ones, when it is false. Needs a selector.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// offsets say where a member starts that finds no committed offset, and set the committed ones.
	// +kubebuilder:default={}
	// +optional
	Offsets OffsetsSpec `json:"offsets,omitempty"`

	// targetRef is the workload (a Deployment or StatefulSet of the same namespace) that replicas scales.
	// +optional
	TargetRef *TargetRef `json:"targetRef,omitempty"`

	// replicas is the number of pods that the workload of targetRef should have: what `kubectl scale consumergroup` sets. Default: left alone.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
}

// AssignerName names an assigner.
//
// +kubebuilder:validation:Enum=ConsistentHash;Sticky;RoundRobin;Range
type AssignerName string

// The assigners.
const (
	AssignerConsistentHash AssignerName = "ConsistentHash"
	AssignerSticky         AssignerName = "Sticky"
	AssignerRoundRobin     AssignerName = "RoundRobin"
	AssignerRange          AssignerName = "Range"
)

// OffsetsSpec says where a group's members start.
type OffsetsSpec struct {
	// initial is where a partition without a committed offset is read from: Earliest or Latest; the broker answers a client's request for
	// its committed offset accordingly. Needs a selector. Default: left to the client's own configuration.
	// +optional
	Initial InitialOffset `json:"initial,omitempty"`

	// reset sets the group's committed offsets, once for each id.
	// +optional
	Reset *OffsetsReset `json:"reset,omitempty"`
}

// OffsetsReset sets a group's committed offsets. It is carried out once for each id, also after others, and refused while members are active, unless forced.
//
// +kubebuilder:validation:XValidation:rule="self.id != oldSelf.id || (self.to == oldSelf.to && has(self.timestamp) == has(oldSelf.timestamp) && (!has(self.timestamp) || self.timestamp == oldSelf.timestamp) && has(self.offset) == has(oldSelf.offset) && (!has(self.offset) || self.offset == oldSelf.offset) && has(self.topics) == has(oldSelf.topics) && (!has(self.topics) || self.topics == oldSelf.topics))",message="what a reset does cannot be changed while its id stays, for it is carried out once for each id; give it a new id"
// +kubebuilder:validation:XValidation:rule="has(self.timestamp) == (self.to == 'Timestamp')",message="timestamp is needed with to: Timestamp, and with nothing else"
// +kubebuilder:validation:XValidation:rule="has(self.offset) == (self.to == 'Offset')",message="offset is needed with to: Offset, and with nothing else"
type OffsetsReset struct {
	// id names the reset: another id is another reset. From 1 to 63 characters.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// to is where each partition's offset is set: Earliest (its first record), Latest (its end), Timestamp (the first record at or after timestamp, or the end) or
	// Offset (offset, or the partition's first record or end where it is beyond them).
	To ResetTarget `json:"to"`
	// timestamp is a time, with to: Timestamp. One before 1970 counts as 1970, which is before every record.
	// +optional
	Timestamp *metav1.Time `json:"timestamp,omitempty"`
	// offset is an offset, with to: Offset.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Offset *int64 `json:"offset,omitempty"`
	// topics are those of the group's topics whose offsets are set. Default: all.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=249
	// +listType=set
	// +optional
	Topics []string `json:"topics,omitempty"`
	// force carries it out although members are active: those of a group with a selector give everything up for it and go on from the new offsets; the clients of
	// a group without one are removed, and join again.
	// +optional
	Force bool `json:"force,omitempty"`
}

// ResetTarget is where offsets are set to.
//
// +kubebuilder:validation:Enum=Earliest;Latest;Timestamp;Offset
type ResetTarget string

// The targets of a reset.
const (
	ResetEarliest  ResetTarget = "Earliest"
	ResetLatest    ResetTarget = "Latest"
	ResetTimestamp ResetTarget = "Timestamp"
	ResetOffset    ResetTarget = "Offset"
)

// InitialOffset is where a partition without a committed offset is read from.
//
// +kubebuilder:validation:Enum=Earliest;Latest
type InitialOffset string

// The initial offsets.
const (
	InitialEarliest InitialOffset = "Earliest"
	InitialLatest   InitialOffset = "Latest"
)

// TargetRef names a workload of the same namespace.
type TargetRef struct {
	// apiVersion of the workload. Default apps/v1.
	// +kubebuilder:validation:Enum=apps/v1
	// +kubebuilder:default=apps/v1
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the workload: Deployment or StatefulSet.
	// +kubebuilder:validation:Enum=Deployment;StatefulSet
	Kind string `json:"kind"`
	// name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GroupState is the state of a consumer group, in Kafka's words.
//
// +kubebuilder:validation:Enum=Empty;PreparingRebalance;CompletingRebalance;Stable;Dead
type GroupState string

// The states of a consumer group.
const (
	GroupEmpty               GroupState = "Empty"
	GroupPreparingRebalance  GroupState = "PreparingRebalance"
	GroupCompletingRebalance GroupState = "CompletingRebalance"
	GroupStable              GroupState = "Stable"
	GroupDead                GroupState = "Dead"
)

// ConsumerGroupStatus is what the operator sees and decided for a ConsumerGroup. The brokers act on it.
type ConsumerGroupStatus struct {
	// observedGeneration is the generation of the spec that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// clusterRef is the name of the BrokerCluster that the group belongs to.
	// +optional
	ClusterRef string `json:"clusterRef,omitempty"`
	// groupID is the group's id as Kafka clients know it.
	// +optional
	GroupID string `json:"groupID,omitempty"`
	// state is Empty, PreparingRebalance, CompletingRebalance, Stable or Dead.
	// +optional
	State GroupState `json:"state,omitempty"`
	// generation grows by one with every change of the assignment. It is the generation that clients see. At most 2000000000.
	// +kubebuilder:validation:Maximum=2000000000
	// +optional
	Generation int32 `json:"generation"`
	// replicas is the number of members; those in phase Standby do not count.
	// +optional
	Replicas int32 `json:"replicas"`
	// partitions is the number of partitions of the group's topics.
	// +optional
	Partitions int32 `json:"partitions"`
	// selector selects the members' pods, as the scale subresource wants it.
	// +optional
	Selector string `json:"selector,omitempty"`
	// members are the group's members, by pod name. At most 10000, and no more than fit: the whole status may have 1000000 bytes, which is some 4000 members that
	// have 10000 partitions together.
	// +kubebuilder:validation:MaxItems=10000
	// +listType=map
	// +listMapKey=name
	// +optional
	Members []GroupMember `json:"members,omitempty"`
	// assignments is members in a compact form for people: web-0:orders[0-3] web-1:orders[4-7]. It counts what is too much to be listed:
	// web-0:orders[0,3,6,9,12,15,18,21,+92].
	// +optional
	Assignments string `json:"assignments,omitempty"`
	// paused says that no member has partitions because spec.paused, or a reset of offsets that is under way, has taken them.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// lastRebalance describes the last change of the assignment.
	// +optional
	LastRebalance *Rebalance `json:"lastRebalance,omitempty"`
	// lag is how far the group is behind.
	// +optional
	Lag *LagSummary `json:"lag,omitempty"`
	// offsetsReset is what became of spec.offsets.reset.
	// +optional
	OffsetsReset *OffsetsResetStatus `json:"offsetsReset,omitempty"`
	// earlierResets are the ids of the resets that were begun before that of offsetsReset, newest first, 32 at most: they are not carried out again.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	EarlierResets []string `json:"earlierResets,omitempty"`
	// conditions: Ready; OffsetsReset, once there was a spec.offsets.reset.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OffsetsResetStatus is what became of a reset.
type OffsetsResetStatus struct {
	// id is that of the reset.
	ID string `json:"id"`
	// phase is Waiting, Refused, InProgress, Succeeded or Failed.
	Phase ResetPhase `json:"phase"`
	// time is when the phase began.
	Time metav1.Time `json:"time"`
	// partitions is how many partitions' offsets were set.
	// +optional
	Partitions int32 `json:"partitions,omitempty"`
	// message says what was done, what it waits for, or what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// ResetPhase is how far a reset has come.
//
// +kubebuilder:validation:Enum=Waiting;Refused;InProgress;Succeeded;Failed
type ResetPhase string

const (
	// ResetWaiting waits until the brokers answer that it needs: the group's coordinator, and the leaders of its partitions.
	ResetWaiting ResetPhase = "Waiting"
	// ResetRefused waits until no member is active.
	ResetRefused ResetPhase = "Refused"
	// ResetInProgress was begun: nobody reads until it is done.
	ResetInProgress ResetPhase = "InProgress"
	// ResetSucceeded is done.
	ResetSucceeded ResetPhase = "Succeeded"
	// ResetFailed was given up.
	ResetFailed ResetPhase = "Failed"
)

// MemberPhase says whether a member is alive, and reads.
//
// +kubebuilder:validation:Enum=Active;Grace;Standby;Stalled
type MemberPhase string

const (
	// MemberActive is a member whose pod is running, ready and not terminating.
	MemberActive MemberPhase = "Active"
	// MemberGrace is a member whose pod is not alive but may come back; it keeps its partitions until its grace period ends.
	MemberGrace MemberPhase = "Grace"
	// MemberStandby is a live pod beyond the replicas of its workload, such as a rolling update starts before it ends an old one: it has no partitions, and takes over
	// those of the next one that ends.
	MemberStandby MemberPhase = "Standby"
	// MemberStalled is a live member that has committed nothing for a minute although its partitions have lag.
	MemberStalled MemberPhase = "Stalled"
)

// GroupMember is a pod that is a member of a group.
type GroupMember struct {
	// name is the pod's name.
	Name string `json:"name"`
	// uid is the pod's uid; it changes when a pod of the same name takes over the seat.
	UID types.UID `json:"uid"`
	// ip is the pod's address, by which the brokers know its clients. Not set for a pod with the host's network, whose clients are known by the pod's name
	// as their group.instance.id or client.id.
	// +optional
	IP string `json:"ip,omitempty"`
	// node is the name of the node that the pod runs on.
	// +optional
	Node string `json:"node,omitempty"`
	// zone is the zone that the pod runs in, by its label topology.kubernetes.io/zone, which Kubernetes sets from the node's. Not set where it has none.
	// +optional
	Zone string `json:"zone,omitempty"`
	// workload is what made the pod: Deployment/web, StatefulSet/db; not set for a pod that nothing made.
	// +optional
	Workload string `json:"workload,omitempty"`
	// restarts is how often the pod's containers were started again.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// phase is Active, Grace, Standby or Stalled.
	Phase MemberPhase `json:"phase"`
	// graceDeadline is when the member loses its partitions if it has not come back. Set in phase Grace only.
	// +optional
	GraceDeadline *metav1.MicroTime `json:"graceDeadline,omitempty"`
	// assignments are the partitions that the member reads, by topic.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=topic
	// +optional
	Assignments []TopicAssignment `json:"assignments,omitempty"`
}

// TopicAssignment is the partitions of one topic that a member reads.
type TopicAssignment struct {
	// topic is the topic's name as Kafka clients see it.
	Topic string `json:"topic"`
	// partitions are the partitions, ascending.
	// +kubebuilder:validation:MaxItems=10000
	// +listType=atomic
	Partitions []int32 `json:"partitions"`
}

// Rebalance describes one change of a group's assignment.
type Rebalance struct {
	// time is when it was decided.
	Time metav1.Time `json:"time"`
	// reason says what caused it, such as MemberJoined or PartitionsAdded.
	Reason string `json:"reason"`
	// message names the members or topics that caused it.
	// +optional
	Message string `json:"message,omitempty"`
	// moved is the number of partitions that have another owner than before, counting those that had none.
	Moved int32 `json:"moved"`
	// minimum is the smallest moved that any balanced assignment could have had: P - sum of min(current, cap) over the members.
	Minimum int32 `json:"minimum"`
}

// LagSummary is how far a group is behind.
type LagSummary struct {
	// total is the number of records between the committed offsets and the ends of the partitions. A partition without a committed offset counts from its first record, with
	// offsets.initial: Latest from the end that it was first seen with.
	Total int64 `json:"total"`
	// max is the largest lag of a partition.
	Max int64 `json:"max"`
	// time is when it was read.
	Time metav1.Time `json:"time"`
}

// ConsumerGroupList is a list of ConsumerGroups.
//
// +kubebuilder:object:root=true
type ConsumerGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConsumerGroup `json:"items"`
}

// KafkaID returns the group's id as Kafka clients know it.
func (g *ConsumerGroup) KafkaID() string {
	if g.Spec.GroupID != "" {
		return g.Spec.GroupID
	}
	return g.Name
}
