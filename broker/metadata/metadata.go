// SPDX-License-Identifier: Apache-2.0

// Package metadata holds what a broker knows of its cluster: brokers, topics and managed consumer groups.
//
// Its subpackages are the places where that knowledge comes from: file (one broker on its own), kubernetes (Topic,
// ConsumerGroup and BrokerCluster resources) and redis (brokers that share a Redis).
package metadata

import (
	"errors"
	"time"
)

// Errors of changes to topics. They are wrapped with the topic's name and a reason; test with errors.Is.
var (
	// ErrTopicExists says that a topic of that name exists.
	ErrTopicExists = errors.New("topic already exists")
	// ErrUnknownTopic says that no topic of that name exists.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrInvalidTopic says that a topic's name is illegal.
	ErrInvalidTopic = errors.New("invalid topic name")
	// ErrInvalidPartitions says that a number of partitions is out of range or not greater than before.
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	// ErrInvalidReplication says that a replication factor or replica assignment was asked for that is not there.
	ErrInvalidReplication = errors.New("invalid replication factor")
	// ErrInvalidConfig says that a configuration entry is unknown or has an illegal value.
	ErrInvalidConfig = errors.New("invalid configuration")
	// ErrDenied says that the API server refused the change; its message is kept.
	ErrDenied = errors.New("refused")
	// ErrStorage says that a change could not be written to disk; the broker's log says why.
	ErrStorage = errors.New("metadata cannot be stored")
	// ErrUnavailable says that the change cannot be made now; try again.
	ErrUnavailable = errors.New("metadata unavailable")
)

// TopicID is a topic's id, 16 bytes, as in KIP-516. With Kubernetes it is the Topic resource's uid.
type TopicID [16]byte

// Broker is a broker of the cluster.
type Broker struct {
	// ID is the Kafka node id, from 1.
	ID int32
	// Host and Port are where clients reach it.
	Host string
	Port int32
}

// Topic is a topic and the leaders of its partitions.
type Topic struct {
	Name string
	ID   TopicID
	// Leaders holds the id of the broker that leads each partition, by partition; -1 where none does.
	Leaders []int32
	// LeaderEpochs holds the leader epoch of each partition: it grows by one with each change of the leader. Nil where leaders do not change, which is 0 for all.
	LeaderEpochs []int32
	// LeadersSince says since when each partition has its leader, by partition, in milliseconds since 1970; 0 where it has none. Nil where nobody knows.
	LeadersSince []int64
	Config       TopicConfig
	// DeleteData says that the topic's records go when the topic is deleted.
	DeleteData bool
	// Internal marks a topic that holds the brokers' own records.
	Internal bool
}

// LeaderEpoch is the leader epoch of a partition.
func (t *Topic) LeaderEpoch(partition int32) int32 {
	if int(partition) < len(t.LeaderEpochs) {
		return t.LeaderEpochs[partition]
	}
	return 0
}

// TopicConfig is a topic's configuration.
type TopicConfig struct {
	// RetentionTime is how long records are kept at least. Negative: for ever.
	RetentionTime time.Duration
	// RetentionBytes is how many bytes of a partition are kept at most. Negative: no limit.
	RetentionBytes int64
	// CleanupPolicy is delete, compact, or both with a comma between them, as Kafka writes it. Not every source keeps the order of both.
	CleanupPolicy string
	// MaxMessageBytes is the largest record batch that may be produced, in bytes.
	MaxMessageBytes int32
	// TombstoneRetention is how long compaction keeps a record without a value at least (Kafka's delete.retention.ms).
	TombstoneRetention time.Duration
	// FlushOS leaves it to the operating system when records reach the disk: acks=all is answered after the write, and a crash of the machine may
	// lose what was acknowledged.
	FlushOS bool
	// SegmentBytes is the size at which a partition's log starts a new segment. Zero: the storage engine's default.
	SegmentBytes int32
	// SegmentTime is the age at which it starts one, however small the old one is. Zero: age alone starts none.
	SegmentTime time.Duration
	// LogAppendTime gives records the time at which the broker appended them, in the place of their producer's.
	LogAppendTime bool
}

// DefaultTopicConfig is the configuration of a topic that asks for nothing; the figures are Kafka's defaults, but for SegmentBytes, which is the local
// engine's: an eighth of Kafka's.
var DefaultTopicConfig = TopicConfig{
	RetentionTime: 168 * time.Hour, RetentionBytes: -1, CleanupPolicy: "delete", MaxMessageBytes: 1048588, TombstoneRetention: 24 * time.Hour,
	SegmentBytes: 128 << 20, SegmentTime: 168 * time.Hour,
}

// ConfigChange makes a topic's new configuration of the one that it has. It may be called more than once, each time with what the topic has then, and
// returns metadata's errors.
type ConfigChange func(TopicConfig) (TopicConfig, error)

// NewTopic is a topic that a client asks for.
type NewTopic struct {
	Name string
	// Partitions is the number of partitions, or -1 for the cluster's default.
	Partitions int32
	Config     TopicConfig
}

// Group is a managed consumer group: its members are pods, and the operator decides what they read.
type Group struct {
	ID string
	// UID is of the resource that describes the group; it changes when that is deleted and created again.
	UID string
	// Generation grows with every change of the assignment.
	Generation int32
	// Assigner is the name of the assigner that made it.
	Assigner string
	// Topics are the topics that the group reads, sorted.
	Topics []string
	// Members are the pods, by name.
	Members []GroupMember
	// HandoffTimeout is how long a partition waits for its old owner.
	HandoffTimeout time.Duration
	// InitialOffset is "", "Earliest" or "Latest": where a partition without a committed offset is read from.
	InitialOffset string
}

// GroupMember is a pod that is a member of a managed group.
type GroupMember struct {
	Pod string
	UID string
	IP  string
	// Alive says that the pod runs and is ready; one in its grace period is not.
	Alive bool
	// Restarts is how often the pod's containers were started again.
	Restarts int32
	// Partitions are the partitions that the pod reads, by topic, ascending.
	Partitions map[string][]int32
}

// Incarnation is one life of a topic: a topic that is deleted and created again has another id.
type Incarnation struct {
	Topic string
	ID    TopicID
}

// Snapshot is all that a broker knows at one moment. It is immutable: nobody changes it or what it points to.
type Snapshot struct {
	// ClusterID identifies the cluster to clients.
	ClusterID string
	// Brokers are the brokers, by id.
	Brokers []Broker
	// Topics holds the topics by name.
	Topics map[string]*Topic
	// Groups holds the managed groups by group id.
	Groups map[string]*Group
	// Purge are deleted topics whose records are to be removed, by name; they are listed until the broker has said that it did so.
	// A later topic of the same name may exist already: its records start only after that.
	Purge []Incarnation
	// AutoCreateTopics says that a client that names an unknown topic creates it.
	AutoCreateTopics bool
	// DefaultPartitions is the number of partitions of a topic that is created without saying how many.
	DefaultPartitions int32
}
