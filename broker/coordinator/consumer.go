// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// shortHeartbeatInterval is how often members that speak KIP-848's protocol are to be heard of that may soon be told something: in a managed group, of what the operator
// decides, and in a consumer group, that others have given up what they wait for.
const shortHeartbeatInterval = 500 * time.Millisecond

// shortestHeartbeatInterval is how often members of a managed group are to be heard of that wait for partitions; of more than 200 each waits half a millisecond for each
// member, so that together they ask 2,000 times a second at most.
const shortestHeartbeatInterval = 100 * time.Millisecond

// consumerGroup is what a consumer group (KIP-848) knows beside its members.
type consumerGroup struct {
	// assignor is the name of the assigner of the last assignment.
	assignor string
	// ids are the ids of the topics that were assigned. The map is replaced, never changed.
	ids map[string]TopicID
	// due is when the members that have joined, or changed what they read, are assigned to; zero if there are none.
	due time.Time
}

// consumerMember is a member's part in KIP-848's protocol. Its epoch is the member's generation.
type consumerMember struct {
	rack, regex, assignor string
	// previous is the epoch before, which a client that missed an answer still has.
	previous int32
	// full says that the heartbeat that is being answered asked for everything.
	full bool
	// away says that the static member has left for a while: its seat is kept until its session ends.
	away bool
}

// refuse answers a heartbeat with an error.
func (g *Group) refuse(in ConsumerHeartbeat, code int16, format string, args ...any) {
	g.reply(in.Token, code, ConsumerHeartbeatReply{MemberID: in.Client.MemberID, Epoch: in.Epoch, Message: fmt.Sprintf(format, args...)})
}

// consumerHeartbeat takes a ConsumerGroupHeartbeat, and says, as handle does, whether it changed nothing.
func (g *Group) consumerHeartbeat(in ConsumerHeartbeat) (quiet bool) {
	if code := g.refusal(); code != ErrNone {
		g.refuse(in, code, "the group was deleted, or has no name")
		return true
	}
	if in.Epoch < 0 {
		g.consumerLeave(in)
		return false
	}
	if !g.checkWishes(in) {
		return true
	}
	m, known := g.consumerOf(in)
	if m == nil {
		return true
	}
	g.touch(m)
	changed := g.wish(m, in)
	switch {
	case in.Epoch == EpochJoin:
		g.rejoinConsumer(m)
	case in.Owned != nil:
		if quiet = !g.handoff.acknowledge(m, in.Owned); !quiet {
			g.mark(m)
		}
	default:
		quiet = true
	}
	if in.Epoch == EpochJoin || in.Full {
		m.consumer.full = true
	}
	g.answerBeatWith(m, ErrCoordinatorNotAvailable) // its client has given up on it
	if !known || changed {
		m.beat = waiter{token: in.Token, waiting: true}
		g.seat(m)
		g.follow()
		return false
	}
	if g.consumer != nil && m.generation < 0 { // it waits for its first assignment, and asks again
		m.beat = waiter{token: in.Token, waiting: true}
		return false
	}
	g.answerBeat(m, in.Token)
	return quiet && !g.dirty[m.id]
}

// follow follows a change of what the members want.
func (g *Group) follow() {
	switch {
	case g.managed != nil:
		g.divideAll()
		g.answerBeats()
	case g.opts.AssignmentInterval > 0:
		if g.consumer.due.IsZero() {
			g.consumer.due = g.now.Add(g.opts.AssignmentInterval)
		}
	default:
		g.bump()
		g.assign()
	}
}

// assignDue assigns to those that have waited long enough.
func (g *Group) assignDue() {
	if g.consumer != nil && g.due(g.consumer.due) {
		g.bump()
		g.assign()
	}
}

// answerBeats answers the heartbeats that waited for an assignment.
func (g *Group) answerBeats() {
	for _, m := range g.sorted {
		if m.beat.waiting {
			t := m.beat.token
			m.beat = waiter{}
			g.answerBeat(m, t)
		}
	}
}

// answerBeat tells a member what it may read, if that is something else than it was told last, or if it asked for all.
func (g *Group) answerBeat(m *groupMember, t Token) {
	told := g.advance(m)
	body := ConsumerHeartbeatReply{MemberID: m.id, Epoch: m.generation, Interval: g.consumerInterval(m)}
	if told || m.consumer.full {
		body.Assigned, body.Share = true, group(m.client.last)
	}
	m.consumer.full = false
	g.reply(t, ErrNone, body)
}

// answerBeatWith answers a member's heartbeat that waits, with an error.
func (g *Group) answerBeatWith(m *groupMember, code int16) {
	if m.beat.waiting {
		g.reply(m.beat.token, code, ConsumerHeartbeatReply{MemberID: m.id, Epoch: m.generation, Message: "the member has sent another heartbeat, or was removed"})
		m.beat = waiter{}
	}
}

// consumerInterval is how long a member is to wait until its next heartbeat: not long while it is to be given what others have yet to give up, or its pod is about to
// become a member.
func (g *Group) consumerInterval(m *groupMember) time.Duration {
	waits := len(m.client.last) < len(m.client.target)
	switch {
	case g.managed != nil && (waits || m.client.pod == ""):
		return min(g.opts.ConsumerHeartbeatInterval, shortHeartbeatInterval, max(shortestHeartbeatInterval, time.Duration(len(g.members))*time.Millisecond/2))
	case g.managed != nil, waits:
		return min(g.opts.ConsumerHeartbeatInterval, shortHeartbeatInterval)
	}
	return g.opts.ConsumerHeartbeatInterval
}

// checkWishes refuses a request that asks for what cannot be, whoever sends it.
func (g *Group) checkWishes(in ConsumerHeartbeat) bool {
	if in.Assignor != nil && *in.Assignor != "" {
		if _, ok := assignorNamed(*in.Assignor); !ok {
			g.refuse(in, ErrUnsupportedAssignor, "there is no assignor %q: choose one of %s", *in.Assignor, strings.Join(assignors(), ", "))
			return false
		}
	}
	if in.Regex != nil && *in.Regex != "" {
		if err := g.checkPattern(*in.Regex); err != nil {
			g.refuse(in, ErrInvalidRegularExpression, "the regular expression %q is not one of RE2: %s", *in.Regex, err)
			return false
		}
	}
	return true
}

// consumerOf finds the member that a heartbeat is of, or makes it; nil if the heartbeat was refused.
func (g *Group) consumerOf(in ConsumerHeartbeat) (m *groupMember, known bool) {
	if in.Epoch == EpochJoin {
		return g.joinConsumer(in)
	}
	m, code := g.identify(in.Client)
	switch {
	case code == ErrFencedInstanceID:
		g.refuse(in, code, "another member has the instance id %q", in.Client.InstanceID)
		return nil, false
	case code != ErrNone || m.consumer == nil:
		g.refuse(in, ErrUnknownMemberID, "the group has no member %q: join again", in.Client.MemberID)
		return nil, false
	case m.consumer.away:
		g.refuse(in, ErrFencedMemberEpoch, "member %q has left for a while: give up all partitions and join again", m.id)
		return nil, false
	case !g.handoff.sameEpoch(m, in):
		g.refuse(in, ErrFencedMemberEpoch, "the member's epoch is %d and not %d: give up all partitions and join again", m.generation, in.Epoch)
		return nil, false
	}
	return m, true
}

// sameEpoch says whether a heartbeat is of the member's epoch, or of the one before by a client that cannot have seen the answer to its last one: it says that it
// holds no more than the member may.
func (h *handoff) sameEpoch(m *groupMember, in ConsumerHeartbeat) bool {
	if in.Epoch == m.generation {
		return true
	}
	if in.Epoch != m.consumer.previous || in.Owned == nil {
		return false
	}
	return !slices.ContainsFunc(flatten(in.Owned), func(tp assigner.Partition) bool { return h.holders[tp] != m })
}

// joinConsumer finds the member that joins, again after an answer was lost, or makes it, in a group that it makes a consumer group where it is none.
func (g *Group) joinConsumer(in ConsumerHeartbeat) (m *groupMember, known bool) {
	c := in.Client
	if m := g.unready(); m != nil {
		if m.stale && m.protocolType == consumerProtocol {
			g.refuse(in, ErrCoordinatorNotAvailable, "member %q has to join again before it is known what it reads: try again", m.id)
		} else {
			g.refuse(in, ErrGroupIDNotFound, "the group's members use the protocol type %q, whose assignments only they understand: choose another group id", m.protocolType)
		}
		return nil, false
	}
	if c.InstanceID != "" {
		if id, ok := g.static[c.InstanceID]; ok && id != c.MemberID {
			return g.takeSeat(g.members[id], in)
		}
	}
	if m := g.members[c.MemberID]; m != nil {
		switch {
		case m.consumer == nil:
			g.refuse(in, ErrUnknownMemberID, "member %q speaks the classic protocol: join with another id", m.id)
			return nil, false
		case m.instanceID != c.InstanceID:
			g.refuse(in, ErrUnknownMemberID, "member %q has another instance id: join with another member id", m.id)
			return nil, false
		}
		return m, true
	}
	id := cmp.Or(c.MemberID, in.NewMemberID)
	switch {
	case len(g.members)+len(g.pending) >= g.opts.MaxMembers:
		g.refuse(in, ErrGroupMaxSizeReached, "the group has %d members, and may have no more", len(g.members))
		return nil, false
	case c.MemberID == "" && g.taken(id):
		g.refuse(in, ErrUnknownMemberID, "the member id that was made is taken: join again")
		return nil, false
	}
	delete(g.pending, id)
	g.open()
	return g.newConsumer(id, in), false
}

// newConsumer adds a member.
func (g *Group) newConsumer(id string, in ConsumerHeartbeat) *groupMember {
	m := &groupMember{
		id: id, instanceID: in.Client.InstanceID, clientID: in.Client.ClientID, host: in.Client.Host, generation: -1, protocolType: consumerProtocol,
		sessionTimeout: g.opts.ConsumerSessionTimeout, rebalanceTimeout: in.RebalanceTimeout,
		consumer: &consumerMember{}, subscription: &Subscription{},
	}
	g.put(m)
	return m
}

// takeSeat gives the seat of a static member to a client that joins under its instance id: if the one that has it left for a while, if its connection has closed or it
// was not heard of since this coordinator began, or if it speaks the classic protocol, in which the newest client counts (KIP-345).
func (g *Group) takeSeat(old *groupMember, in ConsumerHeartbeat) (m *groupMember, known bool) {
	if old.consumer != nil && !old.consumer.away && !old.disconnected && !old.unheard {
		g.refuse(in, ErrUnreleasedInstanceID, "member %q has the instance id %q and is alive", old.id, old.instanceID)
		return nil, false
	}
	id := cmp.Or(in.Client.MemberID, in.NewMemberID)
	if g.taken(id) {
		g.refuse(in, ErrUnknownMemberID, "the member id is taken: join with another one")
		return nil, false
	}
	g.notef("member %q: replaced by %q, instance id %q", old.id, id, old.instanceID)
	g.open()
	g.answerWaiting(old, ErrFencedInstanceID)
	g.remove(old)
	m = g.newConsumer(id, in)
	m.client.target, m.generation, m.topics = old.client.target, old.generation, old.topics
	if old.consumer != nil {
		m.subscription, *m.consumer = old.subscription, *old.consumer
		m.consumer.away = false
	}
	g.seat(m)
	return m, old.consumer != nil && g.managed == nil // it may run in another pod
}

// wish takes over what a heartbeat says that the member wants, and says whether that is something else than before.
func (g *Group) wish(m *groupMember, in ConsumerHeartbeat) (changed bool) {
	c := m.consumer
	set := func(now, value string) string {
		if now != value {
			g.mark(m)
		}
		return value
	}
	m.clientID, m.host = set(m.clientID, in.Client.ClientID), set(m.host, in.Client.Host)
	if in.Rack != nil {
		c.rack = set(c.rack, *in.Rack)
	}
	if in.RebalanceTimeout > 0 && in.RebalanceTimeout != m.rebalanceTimeout {
		m.rebalanceTimeout, m.client.due = in.RebalanceTimeout, nil
		g.mark(m)
	}
	if in.Topics != nil {
		if !slices.Equal(m.subscription.Topics, in.Topics) {
			m.subscription = &Subscription{Topics: in.Topics}
			g.mark(m)
		}
	}
	if in.Regex != nil && c.regex != *in.Regex {
		c.regex = set(c.regex, *in.Regex)
		g.dropPatterns()
	}
	if in.Assignor != nil && c.assignor != *in.Assignor {
		c.assignor = set(c.assignor, *in.Assignor)
		changed = g.consumer != nil
	}
	if in.Epoch != EpochJoin && in.Topics == nil && in.Regex == nil {
		return changed // it reads what it read before
	}
	return g.resolve(m) || changed
}

// rejoinConsumer follows the first heartbeat of a client that holds nothing: it has just begun, or has given up what it had.
func (g *Group) rejoinConsumer(m *groupMember) {
	c := &m.client
	m.consumer.away = false
	for tp := range c.held {
		g.handoff.drop(m, tp)
	}
	clear(c.fenced)
	c.synced, c.last = false, nil
	g.emptySince = time.Time{}
	g.mark(m)
}

// acknowledge takes note of what a client says that it holds: what it was told to give up and no longer names is free. It says whether there was any.
func (h *handoff) acknowledge(m *groupMember, owned []TopicPartitions) (freed bool) {
	c := &m.client
	if len(c.moved) == 0 && len(c.fenced) == 0 {
		return false
	}
	still := map[assigner.Partition]bool{}
	for _, tp := range flatten(owned) {
		still[tp] = true
	}
	for tp := range c.moved {
		// A client that has not been told yet may have another answer on its way in, by which it will begin to read the partition.
		if !contains(c.last, tp) && !still[tp] {
			h.drop(m, tp)
			freed = true
		}
	}
	for tp := range c.fenced {
		if !contains(c.last, tp) && !still[tp] {
			delete(c.fenced, tp)
			freed = true
		}
	}
	return freed
}

// advance decides what the member is told now, and says whether that is something else than it was told last. First it is to give up what is no longer its own; when
// it has, it gets what is free of the rest, and has reached the group's epoch.
func (g *Group) advance(m *groupMember) (told bool) {
	c := &m.client
	if len(c.moved) == 0 {
		if epoch := max(m.generation, g.Generation(), 1); epoch != m.generation {
			m.consumer.previous, m.generation = m.generation, epoch
			g.mark(m)
		}
	}
	if c.synced && !g.handoff.news(m) {
		return false
	}
	next := g.handoff.share(m)
	if len(c.moved) > 0 {
		next = slices.DeleteFunc(next, func(tp assigner.Partition) bool { return g.handoff.holders[tp] != m })
	}
	for _, tp := range c.last {
		if _, moves := c.moved[tp]; moves {
			c.giveUp(tp, g.now) // its time begins when it is told to
		}
	}
	c.synced, c.last, c.due = true, next, nil
	for _, tp := range next {
		g.grant(m, tp)
	}
	g.mark(m)
	return true
}

// grant makes a member the holder of a partition, from its epoch on.
func (g *Group) grant(m *groupMember, tp assigner.Partition) {
	c := &m.client
	if c.since == nil {
		c.since = map[assigner.Partition]int32{}
	}
	if !c.held[tp] {
		c.since[tp] = m.generation
	}
	g.handoff.hold(m, tp)
}

// news says whether a member that was told its share would be told something else now: also where it lacks what it was told, since the topic was created anew.
func (h *handoff) news(m *groupMember) bool {
	c, told := &m.client, 0
	for _, tp := range c.target {
		switch holder := h.holders[tp]; {
		case holder == m && told < len(c.last) && c.last[told] == tp:
			told++
		case holder == m, holder == nil && h.blockers == 0 && len(c.moved) == 0:
			return true
		}
	}
	return told < len(c.last)
}

// overdue is when a member is removed unless it gives up what is no longer its own, zero for never.
func (m *groupMember) overdue() time.Time {
	if len(m.client.moved) == 0 {
		return time.Time{}
	}
	if m.client.due != nil {
		return *m.client.due
	}
	var first time.Time
	for tp, since := range m.client.moved {
		if m.consumer == nil || !contains(m.client.last, tp) { // else it has not been told yet
			first = earliest(first, since.Add(m.rebalanceTimeout))
		}
	}
	m.client.due = &first
	return first
}

// consumerLeave takes the heartbeat by which a member leaves.
func (g *Group) consumerLeave(in ConsumerHeartbeat) {
	m, code := g.identify(in.Client)
	if code == ErrNone && m.consumer == nil {
		code = ErrUnknownMemberID
	}
	if code != ErrNone {
		g.refuse(in, code, "the group has no such member %q", in.Client.MemberID)
		return
	}
	if in.Epoch == EpochLeaveStatic && m.instanceID != "" {
		g.notef("member %q left for a while, instance id %q", m.id, m.instanceID)
		g.touch(m)
		g.rejoinConsumer(m)
		m.consumer.away = true
	} else {
		g.notef("member %q left", m.id)
		g.remove(m)
		g.afterLoss(true)
	}
	g.reply(in.Token, ErrNone, ConsumerHeartbeatReply{MemberID: m.id, Epoch: in.Epoch})
}

// consumerLoss follows the removal of members (gone) of a consumer group. One whose last member of KIP-848's protocol has gone, and that has others, becomes an
// ordinary group.
func (g *Group) consumerLoss(gone bool) {
	if !gone {
		return
	}
	g.bump()
	if len(g.members) > 0 && !g.hasConsumers() {
		g.notef("is now of the classic protocol: its last member of the consumer protocol has gone")
		g.toClassic()
		return
	}
	g.assign()
}

// hasConsumers says whether there is a member that speaks KIP-848's protocol.
func (g *Group) hasConsumers() bool {
	return slices.ContainsFunc(g.sorted, func(m *groupMember) bool { return m.consumer != nil })
}

// bump begins the next epoch.
func (g *Group) bump() {
	if o := &g.ordinary; o.generation < maxGeneration {
		o.generation++
	}
}
