// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Topic is a topic of a BrokerCluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=tp,categories=ringmaster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TOPIC",type=string,JSONPath=`.status.topicName`
// +kubebuilder:printcolumn:name="PARTITIONS",type=integer,JSONPath=`.status.partitions`
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="CLUSTER",type=string,JSONPath=`.status.clusterRef`
// +kubebuilder:printcolumn:name="LEADERS",type=string,JSONPath=`.status.placement`,priority=1
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.topicName) || size(self.metadata.name) <= 249",message="a topic name may have at most 249 characters; set spec.topicName or choose a shorter name"
type Topic struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user asks for.
	// +kubebuilder:default={}
	Spec TopicSpec `json:"spec,omitempty"`
	// status is what the operator sees.
	Status TopicStatus `json:"status,omitempty"`
}

// TopicSpec is what the user asks of a Topic.
//
// +kubebuilder:validation:XValidation:rule="has(oldSelf.topicName) == has(self.topicName) && (!has(self.topicName) || self.topicName == oldSelf.topicName)",message="topicName cannot be changed; create another Topic and delete this one"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.clusterRef) == has(self.clusterRef) && (!has(self.clusterRef) || self.clusterRef == oldSelf.clusterRef)",message="clusterRef cannot be changed; create another Topic in the other cluster and delete this one"
// +kubebuilder:validation:XValidation:rule="!has(self.topicName) || self.topicName != '__consumer_offsets' || !has(self.partitions) || !has(oldSelf.partitions) || self.partitions == oldSelf.partitions",message="the number of partitions of __consumer_offsets cannot be changed: groups would lose their offsets"
type TopicSpec struct {
	// clusterRef is the name of the BrokerCluster, in the same namespace. Default: the namespace's only one. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClusterRef string `json:"clusterRef,omitempty"`

	// topicName is the topic's name as Kafka clients see it: letters, digits, '.', '_' and '-', at most 249 characters, not beginning with __,
	// for such names are the brokers' own. Default: the resource's name. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=249
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9._-]+$') && self != '.' && self != '..'",message="topicName may have letters, digits, '.', '_' and '-' only, and must not be '.' or '..'"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('__') || self == '__consumer_offsets'",message="a topicName that begins with __ is the brokers' own; choose another name"
	// +optional
	TopicName string `json:"topicName,omitempty"`

	// partitions is the number of partitions. Default 1, from 1 to 10000. It may only grow.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 10000",message="partitions must be from 1 to 10000"
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="partitions may only grow: removing a partition would delete its records; create another Topic with fewer partitions"
	// +optional
	Partitions int32 `json:"partitions,omitempty"`

	// partitioner is how producers are meant to choose a record's partition: KeyHash (murmur2 of the key, as Kafka's default), RoundRobin,
	// Sticky or ConsistentHash. Default KeyHash. It is kept for those that read this resource: the Kafka protocol does not carry it to clients, which
	// choose for themselves, and no broker enforces it.
	// +kubebuilder:default=KeyHash
	// +optional
	Partitioner Partitioner `json:"partitioner,omitempty"`

	// retention says when records may be removed.
	// +kubebuilder:default={}
	// +optional
	Retention RetentionSpec `json:"retention,omitempty"`

	// cleanupPolicy says how records that are no longer needed go: Delete (by retention), Compact (the last record of each key stays) or
	// CompactDelete (both). Default Delete.
	// +kubebuilder:default=Delete
	// +optional
	CleanupPolicy CleanupPolicy `json:"cleanupPolicy,omitempty"`

	// flush says when a record counts as stored, which is when consumers see it and a producer with acks=all is told so: Sync (when it is on the
	// broker's disk) or Os (when the broker's operating system has it, which writes it to disk in its own time). Default Sync. With Os a node that
	// loses power or crashes loses the records of its last seconds, acknowledged ones among them; a broker that crashes alone loses none.
	// +kubebuilder:default=Sync
	// +optional
	Flush FlushPolicy `json:"flush,omitempty"`

	// segment says when a partition's log starts a new file.
	// +kubebuilder:default={}
	// +optional
	Segment SegmentSpec `json:"segment,omitempty"`

	// timestamps says whose a record's timestamp is: CreateTime (its producer's) or LogAppendTime (the broker's, when it appended the record). Default
	// CreateTime. A change counts for records that are produced after it.
	// +kubebuilder:default=CreateTime
	// +optional
	Timestamps TimestampType `json:"timestamps,omitempty"`

	// maxMessageBytes is the largest record batch that a producer may send, in bytes. Default 1048588, as in Kafka; from 1024 to 104857600.
	// +kubebuilder:default=1048588
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=104857600
	// +optional
	MaxMessageBytes int32 `json:"maxMessageBytes,omitempty"`

	// deletionPolicy says what becomes of the records when this resource is deleted: Retain or Delete. Default Retain: a Topic of the same
	// name that is created later finds them again.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// Partitioner names a way to choose a record's partition.
//
// +kubebuilder:validation:Enum=KeyHash;RoundRobin;Sticky;ConsistentHash
type Partitioner string

// The partitioners.
const (
	PartitionerKeyHash        Partitioner = "KeyHash"
	PartitionerRoundRobin     Partitioner = "RoundRobin"
	PartitionerSticky         Partitioner = "Sticky"
	PartitionerConsistentHash Partitioner = "ConsistentHash"
)

// CleanupPolicy says how records that are no longer needed go.
//
// +kubebuilder:validation:Enum=Delete;Compact;CompactDelete
type CleanupPolicy string

// The cleanup policies.
const (
	CleanupDelete        CleanupPolicy = "Delete"
	CleanupCompact       CleanupPolicy = "Compact"
	CleanupCompactDelete CleanupPolicy = "CompactDelete"
)

// FlushPolicy says when a record counts as stored.
//
// +kubebuilder:validation:Enum=Sync;Os
type FlushPolicy string

const (
	// FlushSync counts a record as stored when it is on disk.
	FlushSync FlushPolicy = "Sync"
	// FlushOS counts a record as stored when the operating system has it.
	FlushOS FlushPolicy = "Os"
)

// TimestampType says whose a record's timestamp is.
//
// +kubebuilder:validation:Enum=CreateTime;LogAppendTime
type TimestampType string

const (
	// TimestampCreate is the time that a record's producer set.
	TimestampCreate TimestampType = "CreateTime"
	// TimestampLogAppend is the time at which the broker appended a record.
	TimestampLogAppend TimestampType = "LogAppendTime"
)

// SegmentSpec says when a partition's log starts a new file, a segment. Retention removes whole segments, and compaction leaves the newest one alone, so
// that small ones keep closer to what the two ask for, and cost more.
type SegmentSpec struct {
	// bytes is the size at which a segment is started. Default 134217728 (128 MiB), from 14 to 2147483647; more than 1073741824 (1 GiB) counts as that.
	// +kubebuilder:default=134217728
	// +kubebuilder:validation:Minimum=14
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	Bytes int32 `json:"bytes,omitempty"`
	// time is the age at which one is started, however small the old one is, as a duration of at least 1ms, such as 168h. Default 168h, as in Kafka. The age is counted
	// from the segment's first record, or from the broker's start where that is later.
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1ms')",message="segment.time must be a duration of at least 1ms, such as 168h or 90m"
	// +optional
	Time string `json:"time,omitempty"`
}

// RetentionSpec says when records of a topic may be removed.
type RetentionSpec struct {
	// time is how long a record is kept at least, as a duration such as 168h. Default 168h, as in Kafka; "-1" keeps records for ever.
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '-1' || (self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s'))",message="retention.time must be a duration of at least 1s, such as 168h or 90m, or -1 to keep records for ever"
	// +optional
	Time string `json:"time,omitempty"`
	// bytes is how many bytes of a partition are kept at most. Default -1: no limit. Otherwise at least 1048576.
	// +kubebuilder:default=-1
	// +kubebuilder:validation:XValidation:rule="self == -1 || self >= 1048576",message="retention.bytes must be -1 (no limit) or at least 1048576"
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// tombstones is how long compaction keeps a tombstone, a record without a value, at least, as a duration such as 24h. Default 24h, as in
	// Kafka. A consumer that is behind by more may miss that a key was deleted.
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s')",message="retention.tombstones must be a duration, such as 24h or 90m"
	// +optional
	Tombstones string `json:"tombstones,omitempty"`
}

// TopicStatus is what the operator sees of a Topic.
type TopicStatus struct {
	// observedGeneration is the generation of the spec that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// clusterRef is the name of the BrokerCluster that the topic belongs to.
	// +optional
	ClusterRef string `json:"clusterRef,omitempty"`
	// topicName is the topic's name as Kafka clients see it.
	// +optional
	TopicName string `json:"topicName,omitempty"`
	// topicID is the topic's id as Kafka clients see it: the resource's uid in unpadded URL-safe base64.
	// +optional
	TopicID string `json:"topicID,omitempty"`
	// partitions is the number of partitions that have a leader.
	// +optional
	Partitions int32 `json:"partitions"`
	// leaders are the brokers that lead partitions, by broker.
	// +kubebuilder:validation:MaxItems=999
	// +listType=map
	// +listMapKey=broker
	// +optional
	Leaders []PartitionLeader `json:"leaders,omitempty"`
	// placement is leaders in a compact form for people: 1[0-3] 2[4-7]. It counts what is too much to be listed: 1[0,3,6,9,12,15,18,21,+92].
	// +optional
	Placement string `json:"placement,omitempty"`
	// conditions: Ready.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PartitionLeader is a broker and the partitions that it leads.
type PartitionLeader struct {
	// broker is the broker's id.
	Broker int32 `json:"broker"`
	// partitions are the partitions that it leads, ascending.
	// +kubebuilder:validation:MaxItems=10000
	// +listType=atomic
	Partitions []int32 `json:"partitions"`
}

// TopicList is a list of Topics.
//
// +kubebuilder:object:root=true
type TopicList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Topic `json:"items"`
}

// KafkaName returns the topic's name as Kafka clients see it.
func (t *Topic) KafkaName() string {
	if t.Spec.TopicName != "" {
		return t.Spec.TopicName
	}
	return t.Name
}
