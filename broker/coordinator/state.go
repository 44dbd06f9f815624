// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// storedState is what was stored last.
type storedState struct {
	group   *GroupState
	members map[string]*MemberState
}

// mark says that a member may differ from what is stored of it. Whatever changes one of the fields that memberState takes calls it.
func (g *Group) mark(m *groupMember) { g.dirty[m.id] = true }

// store makes records of what has changed. A member that waits for the answer to a JoinGroup, or to its first heartbeat, is stored when that is answered: before, its client knows nothing that a coordinator
// that begins anew would have to know.
func (g *Group) store() {
	for _, id := range slices.Sorted(maps.Keys(g.dirty)) {
		m := g.members[id]
		switch before := g.stored.members[id]; {
		case m == nil && before == nil, m != nil && (m.join.waiting || (m.beat.waiting && m.generation < 0)):
		case m == nil:
			delete(g.stored.members, id)
			g.out.Records = append(g.out.Records, Record{Kind: MemberRecord, MemberID: id, Deleted: true})
		default:
			if now := g.memberState(m); !reflect.DeepEqual(now, before) {
				g.stored.members[id] = now
				g.out.Records = append(g.out.Records, Record{Kind: MemberRecord, MemberID: id, Member: now})
			}
		}
	}
	clear(g.dirty)
	now := g.groupState()
	switch before := g.stored.group; {
	case g.dead && before != nil:
		g.stored.group = nil
		g.out.Records = append(g.out.Records, Record{Kind: GroupRecord, Deleted: true})
	case g.dead, before == nil && now.Generation == 0 && now.Type == TypeClassic:
	case before == nil || !reflect.DeepEqual(*before, now):
		g.stored.group = &now
		g.out.Records = append(g.out.Records, Record{Kind: GroupRecord, Group: &now})
	}
}

// Load applies a stored record: a group into which all records of an earlier one were loaded, in their order, remembers the same. The members' sessions begin
// anew with the next step.
func (g *Group) Load(r Record) {
	switch r.Kind {
	case OffsetRecord:
		tp := assigner.Partition{Topic: r.Topic, Partition: r.Partition}
		if r.Deleted {
			delete(g.offsets, tp)
		} else {
			g.offsets[tp] = r.Offset
		}
	case GroupRecord:
		g.loaded, g.stored.group = true, r.Group
	case MemberRecord:
		g.loaded = true
		if r.Deleted {
			delete(g.stored.members, r.MemberID)
		} else {
			g.stored.members[r.MemberID] = r.Member
		}
	}
}

// Records returns all that the group remembers, in the order in which it is to be loaded.
func (g *Group) Records() []Record {
	out := g.Offsets()
	for _, id := range slices.Sorted(maps.Keys(g.stored.members)) {
		out = append(out, Record{Kind: MemberRecord, MemberID: id, Member: g.stored.members[id]})
	}
	if g.stored.group != nil {
		out = append(out, Record{Kind: GroupRecord, Group: g.stored.group})
	}
	return out
}

// groupState is what the group remembers of itself.
func (g *Group) groupState() GroupState {
	o := &g.ordinary
	s := GroupState{Type: g.Type(), Generation: o.generation, ProtocolType: o.protocolType}
	if !g.emptySince.IsZero() {
		s.EmptySince = g.emptySince.UnixMilli()
	}
	switch {
	case g.managed != nil:
		s.UID, s.PlanGeneration, s.HandoffTimeoutMillis = g.managed.uid, g.managed.generation, g.managed.handoffTimeout.Milliseconds()
	case g.consumer != nil:
		s.Topics, s.Assignor = g.consumer.ids, g.consumer.assignor
	default:
		s.State, s.Protocol, s.Leader = o.state, o.protocol, o.leader
		if len(g.stored.members) == 0 { // those that wait in their first JoinGroup are not remembered
			s.State, s.Leader = StateEmpty, ""
		}
	}
	return s
}

// memberState is what is remembered of a member.
func (g *Group) memberState(m *groupMember) *MemberState {
	s := &MemberState{
		InstanceID: m.instanceID, ClientID: m.clientID, Host: m.host,
		SessionTimeoutMillis: m.sessionTimeout.Milliseconds(), RebalanceTimeoutMillis: m.rebalanceTimeout.Milliseconds(),
		Order: m.order, Generation: m.generation, Subscription: m.subscription,
	}
	if c := m.consumer; c != nil {
		s.Consumer = &ConsumerState{Rack: c.rack, Regex: c.regex, Assignor: c.assignor, PreviousEpoch: c.previous, Away: c.away}
	} else {
		s.Classic = &ClassicState{
			ProtocolType: m.protocolType, Protocols: m.protocols, Stale: m.stale,
			Planned: m.part.planned, Assignment: m.part.bytes, Share: group(m.part.share), Decoded: m.part.decoded, Computed: m.part.computed,
		}
	}
	if g.handoff != nil {
		c := &m.client
		s.Reader = &ReaderState{
			Pod: c.pod, PodUID: c.uid, Synced: c.synced, Opaque: c.opaque, Blocking: c.blocking,
			Target: group(c.target), Told: group(c.last), Held: group(c.holds()), Fenced: group(keys(c.fenced)),
		}
	}
	return s
}

// holds returns what the member may be reading, sorted: what it was told and still holds, and what it is to give up.
func (c *reader) holds() []assigner.Partition {
	held := make([]assigner.Partition, 0, len(c.held))
	for _, tp := range c.last {
		if c.held[tp] {
			held = append(held, tp)
		}
	}
	if len(held) == len(c.held) {
		return held
	}
	return keys(c.held)
}

// keys returns a set of partitions, sorted.
func keys(set map[assigner.Partition]bool) []assigner.Partition {
	return slices.SortedFunc(maps.Keys(set), comparePartitions)
}

// resume builds the members from what was loaded. Nothing that was under way is: whoever waited for an answer asks again.
func (g *Group) resume() {
	g.loaded = false
	s := g.stored.group
	if s == nil {
		s = &GroupState{Type: TypeClassic, State: StateEmpty}
	}
	g.restoreGroup(s)
	for _, id := range slices.Sorted(maps.Keys(g.stored.members)) {
		g.restoreMember(id, g.stored.members[id])
	}
	o := &g.ordinary
	if g.handoff == nil && len(g.members) == 0 {
		o.state, o.leader = StateEmpty, ""
	}
	if o.state == StatePreparingRebalance {
		o.due = g.now.Add(g.rebalanceTimeout())
	}
	if g.members[o.leader] == nil {
		o.leader = ""
	}
	g.next = g.nextDeadline()
}

func (g *Group) restoreGroup(s *GroupState) {
	g.ordinary = ordinaryGroup{state: StateEmpty, generation: s.Generation, protocolType: s.ProtocolType}
	if s.EmptySince != 0 {
		g.emptySince = time.UnixMilli(s.EmptySince)
	}
	switch s.Type {
	case TypeManaged:
		g.handoff = newHandoff()
		g.managed = &managedGroup{
			uid: s.UID, generation: s.PlanGeneration, handoffTimeout: time.Duration(s.HandoffTimeoutMillis) * time.Millisecond,
			awaited: true, changed: map[string]bool{},
		}
	case TypeConsumer:
		g.handoff = newHandoff()
		g.consumer = &consumerGroup{ids: s.Topics, assignor: s.Assignor}
	default:
		g.ordinary.state, g.ordinary.protocol, g.ordinary.leader = s.State, s.Protocol, s.Leader
	}
}

func (g *Group) restoreMember(id string, s *MemberState) {
	if s == nil || (s.Consumer == nil && (s.Classic == nil || len(s.Classic.Protocols) == 0)) {
		g.dirty[id] = true // it is no whole member, so it is none
		return
	}
	m := &groupMember{
		id: id, instanceID: s.InstanceID, clientID: s.ClientID, host: s.Host,
		sessionTimeout: time.Duration(s.SessionTimeoutMillis) * time.Millisecond, rebalanceTimeout: time.Duration(s.RebalanceTimeoutMillis) * time.Millisecond,
		order: s.Order, generation: s.Generation, subscription: s.Subscription, protocolType: consumerProtocol,
	}
	g.joins = max(g.joins, s.Order+1)
	if c := s.Consumer; c != nil {
		m.consumer = &consumerMember{rack: c.Rack, regex: c.Regex, assignor: c.Assignor, previous: c.PreviousEpoch, away: c.Away}
	}
	if c := s.Classic; c != nil {
		m.protocolType, m.protocols, m.stale = c.ProtocolType, c.Protocols, c.Stale
		m.part = part{planned: c.Planned, bytes: c.Assignment, share: flatten(c.Share), decoded: c.Decoded, computed: c.Computed}
	}
	g.insert(m)
	g.touch(m)
	m.unheard = true
	if m.subscription != nil {
		g.resolve(m)
	}
	switch r := s.Reader; {
	case r != nil && g.handoff != nil:
		g.restoreReader(m, r)
	case g.ordinary.state == StateCompletingRebalance && m.generation == g.ordinary.generation:
		m.syncDue = g.now.Add(m.rebalanceTimeout)
	}
}

func (g *Group) restoreReader(m *groupMember, s *ReaderState) {
	c := &m.client
	*c = reader{
		pod: s.Pod, uid: s.PodUID, synced: s.Synced, opaque: s.Opaque, target: flatten(s.Target), last: flatten(s.Told),
	}
	if s.Blocking {
		c.blocking, c.blockingSince = true, g.now
		g.handoff.blockers++
	}
	for _, tp := range flatten(s.Held) {
		g.grant(m, tp)
	}
	for _, tp := range flatten(s.Fenced) {
		if c.fenced == nil {
			c.fenced = map[assigner.Partition]bool{}
		}
		c.fenced[tp] = true
	}
	if m.consumer == nil && !c.synced && !c.opaque {
		m.syncDue = g.now.Add(m.rebalanceTimeout)
	}
	g.settle(m)
}
