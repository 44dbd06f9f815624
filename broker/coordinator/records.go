// SPDX-License-Identifier: Apache-2.0

package coordinator

import "time"

// RecordKind says what a record is about.
type RecordKind int8

const (
	// OffsetRecord is a committed offset.
	OffsetRecord RecordKind = iota
	// GroupRecord is what the group itself remembers.
	GroupRecord
	// MemberRecord is a member.
	MemberRecord
)

// Record is a change of what a group remembers, to be stored under a key of its own: a later record with the same key replaces it, so that the log may be
// compacted. The key is the kind with Topic and Partition, with nothing, or with MemberID. Deleted marks a tombstone, which removes what the key stands for and whose
// values are not set.
type Record struct {
	Kind    RecordKind
	Deleted bool

	// Topic, Partition and Offset are of an OffsetRecord.
	Topic     string
	Partition int32
	Offset    Offset

	// Group is of a GroupRecord.
	Group *GroupState

	// MemberID and Member are of a MemberRecord.
	MemberID string
	Member   *MemberState
}

// Offset is a committed offset.
type Offset struct {
	Offset      int64
	LeaderEpoch int32
	Metadata    string
	CommitTime  time.Time
}

// GroupType says how a group works.
type GroupType string

const (
	// TypeClassic is a group whose leader plans (JoinGroup and SyncGroup).
	TypeClassic GroupType = "Classic"
	// TypeConsumer is a group whose coordinator plans (KIP-848); members that speak the classic protocol may be among its members.
	TypeConsumer GroupType = "Consumer"
	// TypeManaged is a group whose operator plans.
	TypeManaged GroupType = "Managed"
)

// GroupState is what a group remembers of itself, beside its offsets and members. It is stored as JSON, so that a later release may add fields.
type GroupState struct {
	Type GroupType `json:"type"`
	// State is a classic group's state.
	State      string `json:"state,omitempty"`
	Generation int32  `json:"generation,omitempty"`
	// ProtocolType, Protocol and Leader are those of a classic group's generation.
	ProtocolType string `json:"protocolType,omitempty"`
	Protocol     string `json:"protocol,omitempty"`
	Leader       string `json:"leader,omitempty"`
	// EmptySince is when the last member left, in milliseconds of Unix time; zero while there are members, or if there never was one.
	EmptySince int64 `json:"emptySince,omitempty"`
	// Topics are the ids of the topics that a consumer group has assigned, Assignor the name of the assigner.
	Topics   map[string]TopicID `json:"topics,omitempty"`
	Assignor string             `json:"assignor,omitempty"`
	// UID, PlanGeneration and HandoffTimeoutMillis are of a managed group's last plan.
	UID                  string `json:"uid,omitempty"`
	PlanGeneration       int32  `json:"planGeneration,omitempty"`
	HandoffTimeoutMillis int64  `json:"handoffTimeoutMillis,omitempty"`
}

// MemberState is what a group remembers of a member, as of the last answer to it. It is stored as JSON, so that a later release may add fields.
type MemberState struct {
	InstanceID             string `json:"instanceId,omitempty"`
	ClientID               string `json:"clientId,omitempty"`
	Host                   string `json:"host,omitempty"`
	SessionTimeoutMillis   int64  `json:"sessionTimeoutMillis,omitempty"`
	RebalanceTimeoutMillis int64  `json:"rebalanceTimeoutMillis,omitempty"`
	// Order is the member's place in the order of first joins.
	Order      uint64 `json:"order,omitempty"`
	Generation int32  `json:"generation"`
	// Subscription is absent where it is not known.
	Subscription *Subscription `json:"subscription,omitempty"`

	// Classic is of a member that speaks the classic protocol, Consumer of one that speaks KIP-848's; one of them is there.
	Classic  *ClassicState  `json:"classic,omitempty"`
	Consumer *ConsumerState `json:"consumer,omitempty"`
	// Reader is of a member whose share the group decides, of whichever protocol.
	Reader *ReaderState `json:"reader,omitempty"`
}

// ClassicState is a member's part in the classic protocol.
type ClassicState struct {
	ProtocolType string     `json:"protocolType,omitempty"`
	Protocols    []Protocol `json:"protocols,omitempty"`
	// Planned says that the generation has a plan. Assignment is the member's part of it, Share the same, if Decoded says so; Computed says that the group made the plan.
	Planned    bool              `json:"planned,omitempty"`
	Assignment []byte            `json:"assignment,omitempty"`
	Share      []TopicPartitions `json:"share,omitempty"`
	Decoded    bool              `json:"decoded,omitempty"`
	Computed   bool              `json:"computed,omitempty"`
	// Stale says that the member has to join again. It reads Share, if Decoded says so, until then.
	Stale bool `json:"stale,omitempty"`
}

// ConsumerState is a member's part in KIP-848's protocol.
type ConsumerState struct {
	Rack          string `json:"rack,omitempty"`
	Regex         string `json:"regex,omitempty"`
	Assignor      string `json:"assignor,omitempty"`
	PreviousEpoch int32  `json:"previousEpoch,omitempty"`
	// Away says that the static member has left for a while.
	Away bool `json:"away,omitempty"`
}

// ReaderState is what a member reads, and what it is to read.
type ReaderState struct {
	Pod    string `json:"pod,omitempty"`
	PodUID string `json:"podUid,omitempty"`
	// Target is what the member is to read, whoever holds it yet; Told what it was last told to read, if Synced; Held what it may be reading; Fenced what was taken from it.
	Target []TopicPartitions `json:"target,omitempty"`
	Told   []TopicPartitions `json:"told,omitempty"`
	Synced bool              `json:"synced,omitempty"`
	Held   []TopicPartitions `json:"held,omitempty"`
	Fenced []TopicPartitions `json:"fenced,omitempty"`
	// Opaque and Blocking say that what the member reads is not known, and that others wait for it.
	Opaque   bool `json:"opaque,omitempty"`
	Blocking bool `json:"blocking,omitempty"`
}
