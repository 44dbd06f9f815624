// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConditionReady is the one condition that every resource of this package carries. It is always present once the
// operator has seen the resource, with the generation that it was computed from, one of the reasons below and a
// message that says what to do.
const ConditionReady = "Ready"

// ConditionOffsetsReset is on a ConsumerGroup once it had a spec.offsets.reset: True when that is done, with its phase as the reason.
const ConditionOffsetsReset = "OffsetsReset"

// Reasons of a BrokerCluster's Ready condition.
const (
	// ReasonBrokersReady says that every broker answers.
	ReasonBrokersReady = "BrokersReady"
	// ReasonBrokersNotReady says that fewer brokers answer than were asked for.
	ReasonBrokersNotReady = "BrokersNotReady"
	// ReasonScaleDownRefused says that spec.replicas would remove a broker that still leads partitions, whose data
	// lives on that broker's volume alone; the brokers are kept until no partition needs them.
	ReasonScaleDownRefused = "ScaleDownRefused"
	// ReasonVolumeGrowthRefused says that the API server refused to grow a broker's volume, usually because its StorageClass
	// does not allow it; the brokers go on with the size that they have.
	ReasonVolumeGrowthRefused = "VolumeGrowthRefused"
	// ReasonApplyFailed says that an object of the cluster could not be written; the message says which and why. It is tried again.
	ReasonApplyFailed = "ApplyFailed"
)

// Reasons of a Topic's Ready condition.
const (
	// ReasonPlaced says that every partition has a leader.
	ReasonPlaced = "Placed"
	// ReasonTopicNameTaken says that an older Topic of the same cluster has the same topic name.
	ReasonTopicNameTaken = "TopicNameTaken"
	// ReasonBrokersPending says that the cluster has not reported any broker yet.
	ReasonBrokersPending = "BrokersPending"
)

// Reasons of a ConsumerGroup's Ready condition.
const (
	// ReasonAssigned says that every partition of the group has exactly one owner.
	ReasonAssigned = "Assigned"
	// ReasonNoMembers says that no pod that the selector matches is alive.
	ReasonNoMembers = "NoMembers"
	// ReasonTopicsPending says that a topic of the group does not exist yet, or has no partitions yet.
	ReasonTopicsPending = "TopicsPending"
	// ReasonGroupIDTaken says that an older ConsumerGroup of the same cluster has the same group id.
	ReasonGroupIDTaken = "GroupIDTaken"
	// ReasonStatusTooLarge says that the assignment does not fit in the status (1 MiB); the last one stands.
	ReasonStatusTooLarge = "StatusTooLarge"
	// ReasonPaused says that the members were asked to read nothing, by spec.paused or a reset of offsets.
	ReasonPaused = "Paused"
	// ReasonWireGroup says that the group has no selector: its members are the clients that join over the wire.
	ReasonWireGroup = "WireGroup"
	// ReasonInvalidSelector says that spec.selector cannot be parsed.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonTargetNotFound says that the workload that spec.targetRef names does not exist.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonTargetTaken says that an older ConsumerGroup scales the workload that spec.targetRef names.
	ReasonTargetTaken = "TargetTaken"
)

// Reasons that Topics and ConsumerGroups share.
const (
	// ReasonClusterNotFound says that spec.clusterRef names no BrokerCluster of the namespace, or that it is not set and
	// the namespace has none.
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonClusterAmbiguous says that spec.clusterRef is not set and the namespace has several BrokerClusters.
	ReasonClusterAmbiguous = "ClusterAmbiguous"
)

// Labels and annotations that the operator puts on what it makes.
const (
	// LabelCluster holds the name of the BrokerCluster that an object belongs to.
	LabelCluster = "ringmaster.dev/cluster"
	// AnnotationInternal is "true" on a Topic that the operator keeps for the brokers' own records.
	AnnotationInternal = "ringmaster.dev/internal"
)

// TopicConsumerOffsets is the topic that holds the committed offsets of consumer groups, as in Kafka.
const TopicConsumerOffsets = "__consumer_offsets"
