// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// newMemberJoinTimeout is how long a member waits in its first JoinGroup at most. It cannot send heartbeats, for it does not know
// its id yet, and clients that gave up on a long rebalance would leave one dead member behind with each try. The figure is Kafka's.
const newMemberJoinTimeout = 5 * time.Minute

// waiter is a request that is answered later.
type waiter struct {
	token   Token
	waiting bool
}

// groupMember is a member of a group.
type groupMember struct {
	id, instanceID, clientID, host   string
	sessionTimeout, rebalanceTimeout time.Duration
	protocolType                     string
	// protocols are what a member of the classic protocol offers, the best first; there is always one.
	protocols    []Protocol
	subscription *Subscription
	// topics are the topics that the member reads, sorted; of those that its subscription names some may not exist. changed says that they are others than before its
	// last join.
	topics  []string
	changed bool
	// consumer is of a member that speaks KIP-848's protocol, nil else.
	consumer *consumerMember

	// order is the member's place in the order of first joins.
	order uint64
	// generation is that of the last answer to a JoinGroup, -1 before the first.
	generation int32
	// session is when the member is removed unless it is heard of; it does not count while a request of the member waits.
	session time.Time
	// syncDue is when the member is removed unless it sends the SyncGroup that follows its JoinGroup; zero if none is awaited.
	syncDue time.Time

	// join and sync are the member's waiting requests; they wait in an ordinary group alone. beat is a heartbeat that waits for an assignment, in a consumer group.
	join, sync, beat waiter
	// part is the member's part of the plan of an ordinary group.
	part part
	// disconnected says that the connection of the member's last request has closed.
	disconnected bool
	// unheard says that the member was loaded and has not been heard of since: nobody has seen its connection close, but it has none to this coordinator.
	unheard bool
	// stale marks a member of a managed group that has become an ordinary one: it has to join again.
	stale bool

	// client is the member's part where the group decides the shares.
	client reader
}

// expiry is when the member's session ends, zero for never.
func (m *groupMember) expiry() time.Time {
	if m.sync.waiting || (m.join.waiting && m.generation >= 0) {
		return time.Time{}
	}
	return m.session
}

// touch says that the member was heard of.
func (g *Group) touch(m *groupMember) {
	m.session = g.now.Add(m.sessionTimeout)
	m.disconnected, m.unheard = false, false
}

// metadata is what the member sent with a protocol.
func (m *groupMember) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *groupMember) offers(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return p.Name == protocol })
}

func sameProtocols(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(a, b Protocol) bool { return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata) })
}

// update takes over what a JoinGroup says of the member.
func (m *groupMember) update(in Join) {
	m.clientID, m.host = in.Client.ClientID, in.Client.Host
	m.sessionTimeout = in.SessionTimeout
	m.rebalanceTimeout, m.client.due = in.RebalanceTimeout, nil
	if m.rebalanceTimeout <= 0 {
		m.rebalanceTimeout = in.SessionTimeout // JoinGroup v0 has none
	}
	m.protocolType, m.protocols, m.subscription = in.ProtocolType, in.Protocols, in.Subscription
	m.stale = false
	var topics []string
	if m.subscription != nil {
		topics = sortedTopics(m.subscription)
	}
	m.changed = m.changed || !slices.Equal(m.topics, topics)
	m.topics = topics
}

// newMember adds a member.
func (g *Group) newMember(id string, in Join) *groupMember {
	m := &groupMember{id: id, instanceID: in.Client.InstanceID, generation: -1}
	m.update(in)
	g.put(m)
	return m
}

// put adds a member, as the last one to join.
func (g *Group) put(m *groupMember) {
	m.order = g.joins
	g.joins++
	g.touch(m)
	g.insert(m)
	g.mark(m)
}

// insert makes a member known by its id and instance id.
func (g *Group) insert(m *groupMember) {
	g.members[m.id] = m
	i, _ := slices.BinarySearchFunc(g.sorted, m.id, compareID)
	g.sorted = slices.Insert(g.sorted, i, m)
	if m.instanceID != "" {
		g.static[m.instanceID] = m.id
	}
}

// drop is the inverse of insert.
func (g *Group) drop(m *groupMember) {
	g.mark(m)
	delete(g.members, m.id)
	if i, ok := slices.BinarySearchFunc(g.sorted, m.id, compareID); ok {
		g.sorted = slices.Delete(g.sorted, i, i+1)
	}
	if g.static[m.instanceID] == m.id {
		delete(g.static, m.instanceID)
	}
	if len(g.members) == 0 {
		g.emptySince = g.now
		g.expireBy(g.now)
	}
}

func compareID(m *groupMember, id string) int { return cmp.Compare(m.id, id) }

// remove takes a member out of the group and answers what waits of it with UNKNOWN_MEMBER_ID, upon which a client that is alive joins anew. The caller
// sees to what follows for the others.
func (g *Group) remove(m *groupMember) {
	g.answerWaiting(m, ErrUnknownMemberID)
	g.drop(m)
	if g.ordinary.leader == m.id {
		g.ordinary.leader = ""
	}
	if g.handoff != nil {
		g.handoff.forget(m)
	}
	if g.managed != nil {
		g.managed.changed[m.client.pod] = true
	}
}

// answerWaiting answers a member's waiting requests with an error.
func (g *Group) answerWaiting(m *groupMember, code int16) {
	g.answerJoinWith(m, code)
	g.answerSyncWith(m, code)
	g.answerBeatWith(m, code)
}

func (g *Group) answerJoinWith(m *groupMember, code int16) {
	if m.join.waiting {
		g.reply(m.join.token, code, JoinReply{MemberID: m.id, Generation: -1})
		m.join = waiter{}
		g.mark(m)
		g.touch(m)
	}
}

func (g *Group) answerSyncWith(m *groupMember, code int16) {
	if m.sync.waiting {
		g.reply(m.sync.token, code, SyncReply{Shared: g.handoff != nil})
		m.sync = waiter{}
		g.touch(m)
	}
}

// identifyClassic finds the member that a client of the classic protocol says it is.
func (g *Group) identifyClassic(c Client) (*groupMember, int16) {
	m, code := g.identify(c)
	if m != nil && m.consumer != nil {
		return nil, ErrUnknownMemberID
	}
	return m, code
}

// identify finds the member that a client says it is.
func (g *Group) identify(c Client) (*groupMember, int16) {
	if c.InstanceID != "" {
		id, ok := g.static[c.InstanceID]
		switch {
		case !ok:
			return nil, ErrUnknownMemberID
		case id != c.MemberID:
			return nil, ErrFencedInstanceID
		}
	}
	m, ok := g.members[c.MemberID]
	if !ok {
		return nil, ErrUnknownMemberID
	}
	return m, ErrNone
}

// sortedMembers returns the members by id, to be iterated over while members come and go.
func (g *Group) sortedMembers() []*groupMember { return slices.Clone(g.sorted) }

// join takes a JoinGroup as far as it goes the same way in ordinary and managed groups: to the member that joins.
func (g *Group) join(in Join) {
	c := in.Client
	if code := g.checkJoin(in); code != ErrNone {
		g.reply(in.Token, code, JoinReply{MemberID: c.MemberID, Generation: -1})
		return
	}
	id := c.MemberID
	_, known := g.pending[id]
	switch {
	case id != "" && !known:
		if m, code := g.identifyClassic(c); code != ErrNone {
			g.reply(in.Token, code, JoinReply{MemberID: id, Generation: -1})
		} else {
			g.touch(m)
			g.rejoin(m, in)
		}
		return
	case id == "" && c.InstanceID == "" && in.RequireMemberID:
		g.pending[in.NewMemberID] = g.now.Add(min(in.SessionTimeout, pendingTime))
		g.reply(in.Token, ErrMemberIDRequired, JoinReply{MemberID: in.NewMemberID, Generation: -1})
		return
	case id == "":
		id = in.NewMemberID
	}
	delete(g.pending, id)
	if g.consumer != nil && len(g.members) == 0 {
		g.toClassic()
	}
	if old, ok := g.static[c.InstanceID]; ok && c.InstanceID != "" {
		g.replaceStatic(g.members[old], id, in)
		return
	}
	g.admit(g.newMember(id, in), in)
}

// pendingTime is how long a member id that was given out waits at most for its client, which joins with it at once if it joins: such ids count as members.
const pendingTime = 45 * time.Second

// checkJoin is the error of a JoinGroup that is refused whatever member it is of.
func (g *Group) checkJoin(in Join) int16 {
	if code := g.refusal(); code != ErrNone {
		return code
	}
	if in.SessionTimeout < g.opts.MinSessionTimeout || in.SessionTimeout > g.opts.MaxSessionTimeout {
		return ErrInvalidSessionTimeout
	}
	if in.ProtocolType == "" || len(in.Protocols) == 0 || !g.compatible(in) {
		return ErrInconsistentGroupProtocol
	}
	if in.Client.MemberID != "" {
		return ErrNone
	}
	if g.taken(in.NewMemberID) {
		return ErrUnknownMemberID // the caller's ids are not unique; the client tries again
	}
	_, replaces := g.static[in.Client.InstanceID]
	if !replaces && len(g.members)+len(g.pending) >= g.opts.MaxMembers {
		return ErrGroupMaxSizeReached
	}
	return ErrNone
}

func (g *Group) taken(id string) bool {
	_, member := g.members[id]
	_, pending := g.pending[id]
	return id == "" || member || pending
}

// compatible says whether the one that joins has a protocol in common with all others.
func (g *Group) compatible(in Join) bool {
	if g.managed != nil || (g.consumer != nil && len(g.members) > 0) {
		return in.ProtocolType == consumerProtocol && in.Subscription != nil
	}
	self := in.Client.MemberID
	if id, ok := g.static[in.Client.InstanceID]; ok && in.Client.InstanceID != "" {
		self = id
	}
	if m := g.members[self]; m != nil && !m.stale && m.protocolType == in.ProtocolType && sameNames(m.protocols, in.Protocols) {
		return true // as it was before, and whoever came since had to be with it
	}
	offered := slices.Clone(in.Protocols)
	for _, m := range g.sorted {
		if m.stale || m.id == self {
			continue
		}
		if m.protocolType != in.ProtocolType {
			return false
		}
		if !sameNames(m.protocols, offered) {
			offered = slices.DeleteFunc(offered, func(p Protocol) bool { return !m.offers(p.Name) })
		}
	}
	return len(offered) > 0
}

func sameNames(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(a, b Protocol) bool { return a.Name == b.Name })
}

// admit lets a new member in.
func (g *Group) admit(m *groupMember, in Join) {
	if g.handoff != nil {
		g.shareJoin(m, in.Token)
		return
	}
	g.await(m, in.Token)
}

// rejoin takes the JoinGroup of a member.
func (g *Group) rejoin(m *groupMember, in Join) {
	if g.handoff != nil {
		m.update(in)
		g.shareJoin(m, in.Token)
		return
	}
	g.ordinaryRejoin(m, in)
}

// replaceStatic gives the seat of a static member to a client that has joined under its instance id: that is the same program, started
// anew (KIP-345). The old member id is fenced from here on.
func (g *Group) replaceStatic(old *groupMember, id string, in Join) {
	g.notef("member %q: replaced by %q, instance id %q", old.id, id, old.instanceID)
	if g.handoff == nil {
		g.ordinaryReplace(old, id, in)
		return
	}
	g.answerWaiting(old, ErrFencedInstanceID)
	g.remove(old)
	m := g.newMember(id, in)
	g.inherit(m, old)
	g.shareJoin(m, in.Token)
}

// inherit gives a member the seat of another one, so that nothing moves.
func (g *Group) inherit(m, old *groupMember) {
	m.client.target = old.client.target
	m.generation = old.generation
	m.changed = !slices.Equal(m.topics, old.topics)
}

// leave takes a LeaveGroup of one or more members.
func (g *Group) leave(in Leave) {
	body := LeaveReply{Errs: make([]int16, len(in.Members))}
	code := g.refusal()
	gone := false
	for i, c := range in.Members {
		m, errCode := g.leaving(c, code)
		body.Errs[i] = errCode
		if m != nil {
			g.notef("member %q left", m.id)
			g.remove(m)
			gone = true
		}
	}
	g.reply(in.Token, code, body)
	g.afterLoss(gone)
}

// afterLoss follows the removal of members (gone), or of ids that members were awaited with.
func (g *Group) afterLoss(gone bool) {
	switch {
	case g.handoff == nil:
		g.rebalanceAfterLoss(gone)
	case g.consumer != nil:
		g.consumerLoss(gone)
	case gone:
		g.divideAll()
	}
}

// leaving finds the member that leaves, and forgets a member id that was given out and is given back.
func (g *Group) leaving(c Client, code int16) (*groupMember, int16) {
	if code != ErrNone {
		return nil, code
	}
	if _, ok := g.pending[c.MemberID]; ok && c.InstanceID == "" {
		delete(g.pending, c.MemberID)
		return nil, ErrNone
	}
	if c.InstanceID != "" && c.MemberID == "" { // an administrator removes a static member by its instance id alone
		c.MemberID = g.static[c.InstanceID]
	}
	return g.identify(c)
}
