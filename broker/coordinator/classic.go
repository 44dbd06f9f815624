// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// ordinaryGroup is the state of Kafka's classic protocol.
type ordinaryGroup struct {
	// state is one of the State constants. Members wait in a Join only while it is PreparingRebalance, in a Sync only while it
	// is CompletingRebalance.
	state string
	// generation grows by one with every rebalance and never falls.
	generation int32
	// protocolType and protocol are those of the generation; the protocol is empty when the group is, the type that of its last members.
	protocolType, protocol string
	// leader is the leader's member id, empty if it has left.
	leader string

	// due is when the rebalance under way ends without those that have not joined by then; zero if none is.
	due time.Time
	// delayed says that due is the end of the initial delay, which is extended up to limit while members arrive; arrived says that one has.
	delayed, arrived bool
	limit            time.Time
}

// maxGeneration is the last generation, in which a group stays.
const maxGeneration = math.MaxInt32

// part is a member's part of a leader's plan.
type part struct {
	// planned says that there is a plan.
	planned bool
	// bytes is what the leader sent for the member, share the same, decoded, if decoded says so.
	bytes   []byte
	share   []assigner.Partition
	decoded bool
	// computed says that the group made the plan for the leader: share counts, and bytes does not.
	computed bool
}

// await makes a member's Join wait for the others, in a rebalance that is begun if none is under way.
func (g *Group) await(m *groupMember, t Token) {
	g.answerJoinWith(m, ErrRebalanceInProgress)
	if g.ordinary.state != StatePreparingRebalance {
		g.prepareRebalance()
	}
	m.join = waiter{token: t, waiting: true}
	if m.generation < 0 {
		m.session = g.now.Add(newMemberJoinTimeout)
		g.ordinary.arrived = true
	}
	g.completeIfAllJoined()
}

// prepareRebalance asks all members to join again.
func (g *Group) prepareRebalance() {
	o := &g.ordinary
	for _, m := range g.sortedMembers() {
		g.answerSyncWith(m, ErrRebalanceInProgress)
		m.syncDue = time.Time{}
	}
	timeout := g.rebalanceTimeout()
	o.delayed, o.arrived = false, false
	if o.state == StateEmpty && g.opts.InitialRebalanceDelay > 0 {
		o.delayed, o.limit = true, g.now.Add(timeout)
		timeout = min(timeout, g.opts.InitialRebalanceDelay)
	}
	o.due = g.now.Add(timeout)
	o.state = StatePreparingRebalance
}

// rebalanceTimeout is the longest of the members'.
func (g *Group) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range g.sorted {
		longest = max(longest, m.rebalanceTimeout)
	}
	return longest
}

// rebalanceAfterLoss is afterLoss of an ordinary group.
func (g *Group) rebalanceAfterLoss(gone bool) {
	if gone && (g.ordinary.state == StateStable || g.ordinary.state == StateCompletingRebalance) {
		g.prepareRebalance()
	}
	g.completeIfAllJoined()
}

// expireRebalance ends a rebalance whose time is over.
func (g *Group) expireRebalance() {
	g.completeIfAllJoined()
	o := &g.ordinary
	if o.state != StatePreparingRebalance || !g.due(o.due) {
		return
	}
	if o.delayed && o.arrived && g.now.Before(o.limit) {
		o.arrived = false
		o.due = earliest(g.now.Add(g.opts.InitialRebalanceDelay), o.limit)
		return
	}
	g.completeJoin()
}

func (g *Group) completeIfAllJoined() {
	waits := g.ordinary.delayed || len(g.pending) > 0
	if g.ordinary.state != StatePreparingRebalance || (waits && len(g.members) > 0) {
		return
	}
	for _, m := range g.sorted {
		if !m.join.waiting {
			return
		}
	}
	g.completeJoin()
}

// completeJoin begins the next generation with those that have joined. Static members that have not stay until their session expires,
// for a program that restarts is to find its seat (KIP-345); all others are removed.
func (g *Group) completeJoin() {
	o := &g.ordinary
	o.delayed = false
	joined := g.removeNotJoined()
	if joined == nil && len(g.members) > 0 {
		o.due = g.now.Add(g.rebalanceTimeout())
		return
	}
	g.bump()
	o.due = time.Time{}
	g.emptySince = g.now
	if joined == nil {
		o.state, o.protocol, o.leader = StateEmpty, "", "" // its type stays, as in Kafka: tools tell consumer groups by it
		return
	}
	if leader := g.members[o.leader]; leader == nil || !leader.join.waiting {
		o.leader = slices.MinFunc(joined, func(a, b *groupMember) int { return cmp.Compare(a.order, b.order) }).id
	}
	o.state, o.protocol, o.protocolType = StateCompletingRebalance, g.chooseProtocol(), joined[0].protocolType
	g.emptySince = time.Time{}
	due := g.now.Add(g.rebalanceTimeout())
	for _, m := range joined {
		m.syncDue = due
		g.answerJoin(m, m.join.token)
		m.join = waiter{}
	}
}

// removeNotJoined removes whoever does not take part in the next generation and returns those that have joined.
func (g *Group) removeNotJoined() []*groupMember {
	var joined []*groupMember
	for _, m := range g.sortedMembers() {
		m.part = part{share: m.part.share} // what a member read before makes a plan of the group's sticky
		g.mark(m)
		switch {
		case m.join.waiting:
			joined = append(joined, m)
		case m.instanceID == "" || m.stale:
			g.notef("member %q: did not rejoin within the rebalance timeout", m.id)
			g.remove(m)
		}
	}
	return joined
}

// answerJoin answers a JoinGroup with the generation as it is.
func (g *Group) answerJoin(m *groupMember, t Token) {
	o := &g.ordinary
	m.generation = o.generation
	g.mark(m)
	g.touch(m)
	body := JoinReply{MemberID: m.id, Generation: o.generation, ProtocolType: o.protocolType, Protocol: o.protocol, Leader: o.leader}
	if m.id == o.leader {
		for _, other := range g.sortedMembers() {
			body.Members = append(body.Members, JoinMember{MemberID: other.id, InstanceID: other.instanceID, Metadata: other.metadata(o.protocol)})
		}
	}
	g.reply(t, ErrNone, body)
}

// chooseProtocol is the protocol that most members prefer of those that all offer; of several the first by name.
func (g *Group) chooseProtocol() string {
	offers := map[string]int{}
	for _, m := range g.sorted {
		for _, p := range m.protocols {
			offers[p.Name]++
		}
	}
	votes := map[string]int{}
	for _, m := range g.sorted {
		for _, p := range m.protocols {
			if offers[p.Name] == len(g.members) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// ordinaryRejoin takes the JoinGroup of a member of an ordinary group.
func (g *Group) ordinaryRejoin(m *groupMember, in Join) {
	o := &g.ordinary
	same := sameProtocols(m.protocols, in.Protocols) && m.protocolType == in.ProtocolType
	m.update(in)
	// A member that has joined and asks again has lost the answer, and gets the same one. The leader of a stable group asks for a rebalance.
	lost := same && (o.state == StateCompletingRebalance || (o.state == StateStable && m.id != o.leader))
	if lost {
		g.answerJoin(m, in.Token)
		return
	}
	g.await(m, in.Token)
}

// ordinaryReplace lets a static member of an ordinary group go on under a new member id. If nothing changes for the others they do not notice; the leader
// is told that it leads but need not plan (KIP-814), or, if its client does not know that, that its former self leads, so that it follows.
func (g *Group) ordinaryReplace(old *groupMember, id string, in Join) {
	o := &g.ordinary
	g.answerWaiting(old, ErrFencedInstanceID)
	g.drop(old)
	m := *old
	m.id = id
	m.update(in)
	g.insert(&m)
	g.mark(&m)
	if o.leader == old.id {
		o.leader = id
	}
	if o.state != StateStable || g.chooseProtocol() != o.protocol || !sameSubscription(old, &m, o.protocol) {
		m.generation = -1
		g.await(&m, in.Token)
		return
	}
	g.emptySince = time.Time{}
	g.answerJoin(&m, in.Token)
	last := &g.out.Replies[len(g.out.Replies)-1]
	if body, ok := last.Body.(JoinReply); ok && o.leader == id {
		if body.SkipAssignment = in.SkipsAssignment; !in.SkipsAssignment {
			body.Leader, body.Members = old.id, nil
		}
		last.Body = body
	}
}

// sameSubscription says whether a member that was started anew wants what it wanted before. In the consumer protocol that is the topics, for
// the rest of its metadata tells what it owned.
func sameSubscription(a, b *groupMember, protocol string) bool {
	if a.subscription == nil || b.subscription == nil {
		return bytes.Equal(a.metadata(protocol), b.metadata(protocol))
	}
	return slices.Equal(sortedTopics(a.subscription), sortedTopics(b.subscription))
}

func sortedTopics(s *Subscription) []string {
	return slices.Compact(slices.Sorted(slices.Values(s.Topics)))
}

// sync takes a SyncGroup.
func (g *Group) sync(in Sync) {
	m, code := g.checkSync(in)
	if code != ErrNone || g.handoff != nil {
		if code != ErrNone || !g.holdSync(m, in) {
			g.answerShare(in)
		}
		return
	}
	g.answerSyncWith(m, ErrRebalanceInProgress)
	m.syncDue = time.Time{}
	switch {
	case g.ordinary.state == StateStable:
		g.touch(m)
		g.answerSync(m, in.Token)
	case m.id == g.ordinary.leader:
		m.sync = waiter{token: in.Token, waiting: true}
		g.distribute(in)
	default:
		m.sync = waiter{token: in.Token, waiting: true}
	}
}

// answerShare answers a Sync where the group decides the shares, or refuses it.
func (g *Group) answerShare(in Sync) {
	m, code := g.checkSync(in)
	if code == ErrNone && g.handoff == nil { // it was held until the group became an ordinary one
		code = ErrRebalanceInProgress
	}
	if code != ErrNone {
		g.reply(in.Token, code, SyncReply{Shared: g.handoff != nil})
		return
	}
	g.shareSync(m, in.Token)
}

// checkSync finds the member that a SyncGroup is of, or why it is refused.
func (g *Group) checkSync(in Sync) (*groupMember, int16) {
	m, code := g.checkMember(in.Client, in.Generation)
	if code != ErrNone {
		return nil, code
	}
	protocolType, protocol := g.protocolOf(m)
	switch {
	case g.handoff == nil && g.ordinary.state == StatePreparingRebalance, g.handoff != nil && m.client.opaque:
		return nil, ErrRebalanceInProgress
	case in.ProtocolType != "" && in.ProtocolType != protocolType, in.Protocol != "" && in.Protocol != protocol:
		return nil, ErrInconsistentGroupProtocol
	}
	return m, ErrNone
}

// protocolOf is the protocol that a member was told to use.
func (g *Group) protocolOf(m *groupMember) (protocolType, protocol string) {
	switch {
	case m.consumer != nil:
		return consumerProtocol, ""
	case g.handoff != nil:
		return m.protocolType, m.protocols[0].Name
	}
	return g.ordinary.protocolType, g.ordinary.protocol
}

// checkMember finds the member that a request of some generation is of.
func (g *Group) checkMember(c Client, generation int32) (*groupMember, int16) {
	if code := g.refusal(); code != ErrNone {
		return nil, code
	}
	m, code := g.identifyClassic(c)
	if code != ErrNone {
		return nil, code
	}
	current := m.generation
	if g.handoff == nil && !m.stale {
		current = g.ordinary.generation
	}
	// A member that has not been told its first generation yet knows none, whatever the request says.
	if generation != current || m.generation < 0 {
		return nil, ErrIllegalGeneration
	}
	return m, ErrNone
}

// distribute hands the leader's plan to those that wait for it, and to the others when they ask. A member that the plan does not name gets nothing. A leader that
// sends no plan leaves it to the group.
func (g *Group) distribute(in Sync) {
	g.ordinary.state = StateStable
	computed := map[string][]assigner.Partition(nil)
	if len(in.Assignments) == 0 {
		computed = g.compute()
	}
	for _, m := range g.sortedMembers() {
		g.mark(m)
		if computed != nil {
			m.part = part{planned: true, share: computed[m.id], decoded: true, computed: true}
		} else {
			share, decoded := in.Shares[m.id]
			decoded = decoded || (in.Shares != nil && len(in.Assignments[m.id]) == 0)
			m.part = part{planned: true, bytes: in.Assignments[m.id], share: flatten(share), decoded: decoded}
		}
		if m.sync.waiting {
			g.touch(m)
			g.answerSync(m, m.sync.token)
			m.sync = waiter{}
		}
	}
}

func (g *Group) answerSync(m *groupMember, t Token) {
	body := SyncReply{ProtocolType: g.ordinary.protocolType, Protocol: g.ordinary.protocol}
	if m.part.computed {
		body.Shared, body.Share = true, group(m.part.share)
	} else if body.Assignment = m.part.bytes; body.Assignment == nil {
		body.Assignment = []byte{}
	}
	g.reply(t, ErrNone, body)
}

// heartbeat takes a Heartbeat.
func (g *Group) heartbeat(in Heartbeat) {
	m, code := g.checkBeat(in)
	if m != nil {
		g.touch(m)
		if b := g.held.of[m.id]; b != nil && b.sync == nil {
			g.letGo(m.id) // its client has given up on it
		}
	}
	if code != ErrNone || !g.hold(m, in) {
		g.reply(in.Token, code, nil)
	}
}

// checkBeat finds the member that a Heartbeat is of, nil if it is of none, and what it is to be told.
func (g *Group) checkBeat(in Heartbeat) (*groupMember, int16) {
	m, code := g.checkMember(in.Client, in.Generation)
	if code == ErrNone && g.needsRejoin(m) {
		code = ErrRebalanceInProgress
	}
	return m, code
}

// needsRejoin says whether a member is to be told to join again.
func (g *Group) needsRejoin(m *groupMember) bool {
	if g.handoff != nil {
		return g.handoff.needsRejoin(m)
	}
	return g.ordinary.state == StatePreparingRebalance
}
