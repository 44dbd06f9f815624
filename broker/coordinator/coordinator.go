// SPDX-License-Identifier: Apache-2.0

// Package coordinator is the state machine of a consumer group, and the decision what its members read.
//
// It is pure: no clock, no goroutine, no lock, no I/O. Input and the time go in; replies, records and the next deadline come
// out. The caller runs one Step at a time for each group, appends Output.Records and sends Output.Replies only when they are durable. If
// the append fails, the caller throws the Group away, answers with an error and builds it anew from the records that are stored.
package coordinator

import "time"

// TopicPartitions are partitions of one topic, ascending.
type TopicPartitions struct {
	Topic      string
	Partitions []int32
}

// Token correlates a reply with its request; the caller chooses it.
type Token uint64

// Input is one of Join, Sync, Heartbeat, Release, ConsumerHeartbeat, Leave, Commit, Disconnect, Plan, Topics, Tick, Delete and DeleteOffsets.
type Input interface{ isInput() }

// Client is what is known of the client that sent a request.
type Client struct {
	// MemberID is the member id that the client sent, empty in a first join.
	MemberID string
	// InstanceID is the client's group.instance.id (KIP-345), empty for none.
	InstanceID string
	// ClientID is the client's client.id.
	ClientID string
	// Host is the client's IP address, without a port.
	Host string
}

// Protocol is an assignment protocol that a client offers.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Subscription is a client's subscription as the consumer protocol encodes it in Protocol.Metadata; the server decodes it.
type Subscription struct {
	Topics []string
	// Owned are the partitions that a cooperative client (KIP-429) still holds.
	Owned []TopicPartitions
}

// Join is a JoinGroup request.
type Join struct {
	Token  Token
	Client Client
	// NewMemberID is the id that the member gets if it has none yet: client id, a dash and something random.
	NewMemberID string
	// RequireMemberID says that the client knows KIP-394 (JoinGroup v4): a first join is answered with MEMBER_ID_REQUIRED.
	RequireMemberID bool
	// SkipsAssignment says that the client knows KIP-814 (JoinGroup v9): it can be told that it leads and need not plan.
	SkipsAssignment  bool
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration
	ProtocolType     string
	Protocols        []Protocol
	// Subscription is decoded from the first protocol; nil where that is not the consumer protocol.
	Subscription *Subscription
}

// Sync is a SyncGroup request.
type Sync struct {
	Token      Token
	Client     Client
	Generation int32
	// ProtocolType and Protocol are empty in old versions.
	ProtocolType string
	Protocol     string
	// Assignments are the leader's plan, by member id, encoded.
	Assignments map[string][]byte
	// Shares is the same, decoded from the consumer protocol; a member whose part is not in that encoding is absent. It is nil in other protocols.
	Shares map[string][]TopicPartitions
	// Hold is how long a managed group may hold the answer back while it has nothing for the member yet; 0 for not at all.
	Hold time.Duration
}

// Heartbeat is a Heartbeat request.
type Heartbeat struct {
	Token      Token
	Client     Client
	Generation int32
	// Hold is how long the answer of a managed group may be held back where it is a success, so that the client hears at once of what is decided meanwhile; zero
	// for not at all. It is held for a third of the member's session timeout at most. The session begins when the request comes, held or not.
	Hold time.Duration
}

// Release answers a Heartbeat that is held, if it is, at once: its client waits for the answer to what it sent after it, or has gone.
type Release struct {
	MemberID string
	// Token is the Heartbeat's. The Release itself is not answered.
	Token Token
}

// The epochs by which a ConsumerHeartbeat says something else than what its member's epoch is (KIP-848).
const (
	// EpochJoin joins the group, or joins it again.
	EpochJoin int32 = 0
	// EpochLeave leaves the group.
	EpochLeave int32 = -1
	// EpochLeaveStatic leaves the group for a while: a static member's program restarts, and its seat is kept until its session ends.
	EpochLeaveStatic int32 = -2
)

// ConsumerHeartbeat is a ConsumerGroupHeartbeat request (KIP-848). The server has refused one whose fields contradict each other. Where a field says nothing, what the
// member said last stands.
type ConsumerHeartbeat struct {
	Token  Token
	Client Client
	// NewMemberID is the id that the member gets if it sent none in its first join, as clients of version 0 do.
	NewMemberID string
	// Epoch is the member's epoch, or one of EpochJoin, EpochLeave and EpochLeaveStatic.
	Epoch int32
	// Rack is the client's rack; nil says nothing.
	Rack *string
	// RebalanceTimeout is how long the member may take to give partitions up; zero says nothing.
	RebalanceTimeout time.Duration
	// Topics are the names of the topics that the member reads, beside those that Regex matches; nil says nothing, an empty slice means none.
	Topics []string
	// Regex is a regular expression (RE2) that matches whole names of topics; nil says nothing, an empty one means none.
	Regex *string
	// Assignor is the name of the assigner that the member prefers; nil says nothing, an empty one leaves it to the group.
	Assignor *string
	// Owned are the partitions that the member holds; nil says nothing, an empty slice means none.
	Owned []TopicPartitions
	// Full says that the request says everything, as a client's does that missed an answer: it is told its assignment even if that is the same.
	Full bool
}

// TopicID identifies a topic: one that was deleted and created again has another.
type TopicID [16]byte

// Topic is what a group knows of a topic.
type Topic struct {
	ID         TopicID
	Partitions int32
	// Internal says that no regular expression matches the topic.
	Internal bool
}

// Topics says which topics there are. It is to be fed before the first request, and whenever something has changed. The map is shared with the caller and
// with other groups, and nobody changes it.
type Topics struct{ Topics map[string]Topic }

// Leave is a LeaveGroup request for one or more members, by member id or instance id.
type Leave struct {
	Token   Token
	Members []Client
}

// OffsetCommit is one offset to be committed.
type OffsetCommit struct {
	Topic       string
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// Commit is an OffsetCommit request. A Generation of -1 with an empty member id is a commit of a client that is no member.
type Commit struct {
	Token      Token
	Client     Client
	Generation int32
	Offsets    []OffsetCommit
}

// Disconnect says that the connection by which a member's last request came has closed.
type Disconnect struct{ MemberID string }

// Plan is the operator's decision for a managed group. A nil Members with Managed false makes it an ordinary group again.
type Plan struct {
	Managed bool
	// UID identifies the resource that the plan is of: the generations of one that was created anew start again.
	UID            string
	Generation     int32
	Members        []PlanMember
	HandoffTimeout time.Duration
}

// PlanMember is a pod and its share.
type PlanMember struct {
	Pod   string
	UID   string
	IP    string
	Share []TopicPartitions
	// Alive says that the kubelet finds the pod running and ready; a pod in its grace period is not.
	Alive bool
	// Restarts is how often the pod's containers were started again.
	Restarts int32
}

// Tick says that time has passed.
type Tick struct{}

func (Join) isInput()       {}
func (Sync) isInput()       {}
func (Heartbeat) isInput()  {}
func (Release) isInput()    {}
func (Leave) isInput()      {}
func (Commit) isInput()     {}
func (Disconnect) isInput() {}
func (Plan) isInput()       {}
func (Tick) isInput()       {}
func (Topics) isInput()     {}

func (ConsumerHeartbeat) isInput() {}

// Output is what a Step decided.
type Output struct {
	// Replies answer requests of this and of earlier steps.
	Replies []Reply
	// Records are to be appended, in order and durably, before the replies are sent.
	Records []Record
	// Deadline is when Step is to be called with a Tick at the latest; zero for never.
	Deadline time.Time
	// Notes are for the log, one line each.
	Notes []string
}

// Reply answers the request with the same token. Err is a Kafka error code, 0 for none. Body is one of JoinReply, SyncReply, ConsumerHeartbeatReply, LeaveReply,
// CommitReply and DeleteOffsetsReply, or nil for a Heartbeat's.
type Reply struct {
	Token Token
	Err   int16
	Body  any
	// Held says that a Heartbeat was held back.
	Held bool
}

// JoinReply answers a Join.
type JoinReply struct {
	MemberID     string
	Generation   int32
	ProtocolType string
	Protocol     string
	Leader       string
	// SkipAssignment tells a static leader that it need not compute a plan (KIP-814).
	SkipAssignment bool
	// Members are all members with their metadata, for the leader alone.
	Members []JoinMember
}

// JoinMember is a member as the leader sees it.
type JoinMember struct {
	MemberID   string
	InstanceID string
	Metadata   []byte
}

// SyncReply answers a Sync. Of Assignment (what the leader sent, encoded) and Share (what the group decided, to be encoded by the server) one counts; Shared says
// that it is Share.
type SyncReply struct {
	ProtocolType string
	Protocol     string
	Assignment   []byte
	Shared       bool
	Share        []TopicPartitions
}

// ConsumerHeartbeatReply answers a ConsumerHeartbeat.
type ConsumerHeartbeatReply struct {
	// Message says what is wrong, for people; empty without an error.
	Message  string
	MemberID string
	Epoch    int32
	// Interval is how long the client is to wait until its next heartbeat.
	Interval time.Duration
	// Assigned says that Share counts: the partitions that the member may read, and no others.
	Assigned bool
	Share    []TopicPartitions
}

// LeaveReply answers a Leave: an error code for each member, in the request's order.
type LeaveReply struct{ Errs []int16 }

// CommitReply answers a Commit: an error code for each offset, in the request's order.
type CommitReply struct{ Errs []int16 }
