// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// The defaults of Options, as in Kafka's group.min.session.timeout.ms, group.max.session.timeout.ms and offset.metadata.max.bytes.
const (
	defaultMinSessionTimeout = 6 * time.Second
	defaultMaxSessionTimeout = 30 * time.Minute
	defaultMaxMembers        = 10_000
	defaultMaxMetadataBytes  = 4096
	// Kafka's group.consumer.session.timeout.ms, group.consumer.heartbeat.interval.ms and offsets.retention.minutes.
	defaultConsumerSessionTimeout    = 45 * time.Second
	defaultConsumerHeartbeatInterval = 5 * time.Second
	defaultOffsetsRetention          = 7 * 24 * time.Hour
)

// Options are the settings of a group. The zero value gives Kafka's defaults where Kafka has them.
type Options struct {
	// InitialRebalanceDelay is how long the first rebalance of an empty ordinary group waits for more members; it is extended while members
	// arrive, up to the rebalance timeout. Default 0: the first member starts at once.
	InitialRebalanceDelay time.Duration
	// MinSessionTimeout and MaxSessionTimeout limit a member's session timeout, default 6 s and 30 min.
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// MaxMembers limits the members and those that were given a member id but have not joined yet, default 10,000.
	MaxMembers int
	// MaxMetadataBytes limits a committed offset's metadata, default 4096.
	MaxMetadataBytes int
	// ConsumerSessionTimeout and ConsumerHeartbeatInterval are those of members that speak KIP-848's protocol, default 45 s and 5 s; in a managed group the interval is
	// half a second at most.
	ConsumerSessionTimeout, ConsumerHeartbeatInterval time.Duration
	// AssignmentInterval is how long a consumer group waits for more members to join, or to change what they read, before it assigns anew, so that many that come at once
	// cost one assignment. Their heartbeats are answered then. Default 0: each is followed at once.
	AssignmentInterval time.Duration
	// OffsetsRetention is how long offsets are kept once their group is empty, or, if nobody reads their topic, once they were committed; default 7 days, negative for
	// ever. A managed group's are kept as long as it is one.
	OffsetsRetention time.Duration
	// Divider divides a pod's share among the clients in one pod, default ConsistentHash.
	Divider assigner.Assigner
}

func (o Options) withDefaults() Options {
	if o.MinSessionTimeout <= 0 {
		o.MinSessionTimeout = defaultMinSessionTimeout
	}
	if o.MaxSessionTimeout <= 0 {
		o.MaxSessionTimeout = defaultMaxSessionTimeout
	}
	if o.MaxMembers <= 0 {
		o.MaxMembers = defaultMaxMembers
	}
	if o.MaxMetadataBytes <= 0 {
		o.MaxMetadataBytes = defaultMaxMetadataBytes
	}
	if o.ConsumerSessionTimeout <= 0 {
		o.ConsumerSessionTimeout = defaultConsumerSessionTimeout
	}
	if o.ConsumerHeartbeatInterval <= 0 {
		o.ConsumerHeartbeatInterval = defaultConsumerHeartbeatInterval
	}
	if o.OffsetsRetention == 0 {
		o.OffsetsRetention = defaultOffsetsRetention
	}
	if o.Divider == nil {
		o.Divider = assigner.ConsistentHash{}
	}
	return o
}

// Group is a consumer group. It begins as an ordinary one, which works as Kafka's classic protocol does; the first member that speaks KIP-848's protocol makes it a
// consumer group, and a Plan a managed one. It is not safe for concurrent use.
type Group struct {
	id   string
	opts Options

	// now is the time of the last step; it never falls, whatever the clock does.
	now time.Time
	// next is a time before which nothing expires, zero if nothing ever does.
	next time.Time
	// out is what the step that is under way has decided so far.
	out Output
	// joins counts the members that ever joined.
	joins uint64

	members map[string]*groupMember
	// sorted are the members by id.
	sorted []*groupMember
	// static holds the member id of each instance id; it names members alone.
	static map[string]string
	// pending holds the member ids that were given to clients that have yet to join with them (KIP-394), and when they lapse. None is a member's.
	pending map[string]time.Time

	// held are the heartbeats that are held back.
	held heldBeats

	offsets map[assigner.Partition]Offset
	dead    bool

	ordinary ordinaryGroup
	// handoff is nil in an ordinary group. Where it is not, one of managed and consumer is not.
	handoff *handoff
	managed *managedGroup
	// consumer is nil but in a consumer group (KIP-848), whose epoch is ordinary's generation.
	consumer *consumerGroup

	// topics are those that there are; nil until the first Topics.
	topics map[string]Topic
	// patterns are the regular expressions of the members' subscriptions.
	patterns map[string]*pattern

	// emptySince is when the last member left, zero while there are some, or if there never was one.
	emptySince time.Time
	// expireNext is a time before which no offset expires, zero if none ever does.
	expireNext time.Time

	// stored is what was stored of the group and its members last, and dirty the members that may differ from that.
	stored storedState
	dirty  map[string]bool
	// loaded says that records were loaded that the next step has to build the members from.
	loaded bool
}

// New returns an empty group.
func New(id string, opts Options) *Group {
	return &Group{
		id:       id,
		opts:     opts.withDefaults(),
		members:  map[string]*groupMember{},
		static:   map[string]string{},
		pending:  map[string]time.Time{},
		offsets:  map[assigner.Partition]Offset{},
		ordinary: ordinaryGroup{state: StateEmpty},
		patterns: map[string]*pattern{},
		stored:   storedState{members: map[string]*MemberState{}},
		dirty:    map[string]bool{},
	}
}

// Delete is a DeleteGroups request: it removes all offsets of a group without members. The group is Dead afterwards and is to be dropped.
type Delete struct{ Token Token }

// DeleteOffsets is an OffsetDelete request (KIP-496), and what follows from a topic's deletion; it is answered with a DeleteOffsetsReply.
type DeleteOffsets struct {
	Token      Token
	Partitions []TopicPartitions
}

// DeleteOffsetsReply answers a DeleteOffsets: an error code for each topic, in the request's order.
type DeleteOffsetsReply struct{ Errs []int16 }

func (Delete) isInput()        {}
func (DeleteOffsets) isInput() {}

// Step takes an input at a time and says what follows from it. Timeouts that are due are dealt with first. A time before that of the last step
// counts as that of the last step.
//
// Every token is answered exactly once, in this step or a later one. A Join or Sync that waits is answered within the longest rebalance timeout
// of the members; if its member sends another one meanwhile it is answered with REBALANCE_IN_PROGRESS, and the newer one waits. A Heartbeat that is held is answered in
// the step that gives it something to say, and by the next Heartbeat, Join, Sync or Disconnect of its member.
func (g *Group) Step(now time.Time, in Input) Output {
	if now.After(g.now) {
		g.now = now
	}
	g.out = Output{}
	resumes := g.loaded
	if resumes {
		g.resume()
	}
	due := !g.next.IsZero() && !g.now.Before(g.next)
	if due {
		g.expire()
	}
	quiet := g.handle(in) && !due && !resumes
	g.letGoDue()
	if !quiet || len(g.dirty) > 0 {
		g.wake()
		g.store()
		g.next = g.nextDeadline()
	}
	out := g.out
	out.Deadline = earliest(g.next, g.held.next())
	g.out = Output{}
	return out
}

// handle takes an input, and says whether it moved no deadline but a session's to a later time: then next still holds, and
// a group of many members need not be searched for the next one on each of their heartbeats.
func (g *Group) handle(in Input) (quiet bool) {
	switch in := in.(type) {
	case Join:
		g.letGo(in.Client.MemberID)
		g.join(in)
	case Sync:
		g.letGo(in.Client.MemberID)
		g.sync(in)
	case Heartbeat:
		g.heartbeat(in)
		return true
	case Release:
		g.released(in)
		return true
	case ConsumerHeartbeat:
		return g.consumerHeartbeat(in)
	case Leave:
		g.leave(in)
	case Commit:
		return g.commit(in)
	case Disconnect:
		g.letGo(in.MemberID)
		g.disconnect(in)
	case Plan:
		g.adopt(in)
	case Topics:
		g.adoptTopics(in)
	case Delete:
		g.deleteGroup(in)
	case DeleteOffsets:
		g.deleteOffsets(in)
		return true
	case Tick:
		return true // what is due was dealt with
	}
	return false
}

// refusal is the error of a request that has to do with membership, 0 if the group takes such requests.
func (g *Group) refusal() int16 {
	switch {
	case g.dead:
		return ErrCoordinatorNotAvailable
	case g.id == "":
		return ErrInvalidGroupID
	}
	return ErrNone
}

// expire removes what has timed out: member ids that nobody joined with, sessions, members that did not fetch their plan, and the rebalance
// that is under way.
func (g *Group) expire() {
	for id, at := range g.pending {
		if g.due(at) {
			delete(g.pending, id)
		}
	}
	gone := false
	for _, m := range g.sortedMembers() {
		switch {
		case g.due(m.expiry()) && m.join.waiting:
			g.notef("member %q: its first rebalance took more than %s", m.id, newMemberJoinTimeout)
		case g.due(m.expiry()):
			g.notef("member %q: session expired after %s", m.id, m.sessionTimeout)
		case g.due(m.syncDue):
			g.notef("member %q: did not fetch its assignment in time", m.id)
		case g.consumer != nil && g.due(m.overdue()):
			g.notef("member %q: did not give up %d partition(s) within its rebalance timeout of %s", m.id, len(m.client.moved), m.rebalanceTimeout)
		default:
			continue
		}
		g.remove(m)
		gone = true
	}
	switch {
	case g.managed != nil:
		g.divideAll()
	case g.consumer != nil:
		g.consumerLoss(gone)
		g.assignDue()
	default:
		g.rebalanceAfterLoss(gone)
		g.expireRebalance()
	}
	g.expireOffsets()
}

// nextDeadline is when something expires next, zero for never.
func (g *Group) nextDeadline() time.Time {
	var next time.Time
	for _, at := range g.pending {
		next = earliest(next, at)
	}
	for _, m := range g.sorted {
		next = earliest(next, earliest(m.expiry(), m.syncDue))
	}
	next = earliest(next, g.expireNext)
	switch {
	case g.managed != nil:
		return earliest(next, g.nextFence())
	case g.consumer != nil:
		for _, m := range g.sorted {
			next = earliest(next, m.overdue())
		}
		return earliest(next, g.consumer.due)
	}
	return earliest(next, g.ordinary.due)
}

// due says whether a deadline has come; a zero one never does.
func (g *Group) due(at time.Time) bool { return !at.IsZero() && !g.now.Before(at) }

// earliest is the earlier of two deadlines, of which a zero one is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func (g *Group) reply(t Token, code int16, body any) {
	g.out.Replies = append(g.out.Replies, Reply{Token: t, Err: code, Body: body})
}

func (g *Group) notef(format string, args ...any) {
	g.out.Notes = append(g.out.Notes, fmt.Sprintf("group %q: ", g.id)+fmt.Sprintf(format, args...))
}
