// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// unready is a member that keeps the group from being one in which members that speak KIP-848's protocol take part, nil if there is none: each of its members has to be able
// to follow what the group decides, and what each reads has to be known.
func (g *Group) unready() *groupMember {
	if g.handoff != nil {
		return nil
	}
	for _, m := range g.sorted {
		if !m.understood() {
			return m
		}
	}
	return nil
}

// understood says whether a member of an ordinary group can be told its share by the group, and it is known what it reads until then. What one reads that a leader has given
// its part is known if that could be decoded, and of one that has to join again if the group knew it.
func (m *groupMember) understood() bool {
	return m.protocolType == consumerProtocol && m.subscription != nil && (m.part.decoded || !m.part.planned && !m.stale)
}

// open makes an ordinary group a consumer group, with its members if it has any.
func (g *Group) open() {
	if g.handoff == nil {
		g.toConsumer()
	}
}

// toConsumer makes an ordinary group a consumer group. Its members go on with what they have, and hear from their heartbeats when that changes.
func (g *Group) toConsumer() {
	generation := g.ordinary.generation
	g.handoff, g.consumer = newHandoff(), &consumerGroup{}
	g.ordinary = ordinaryGroup{state: StateEmpty, generation: generation, protocolType: consumerProtocol}
	if len(g.members) == 0 {
		return
	}
	g.notef("is now of the consumer protocol")
	for _, m := range g.sortedMembers() {
		g.mark(m)
		g.answerSyncWith(m, ErrRebalanceInProgress)
		g.adoptHeld(m)
	}
	for _, m := range g.sortedMembers() {
		if m.join.waiting {
			t := m.join.token
			m.join = waiter{}
			g.shareJoin(m, t)
		}
	}
}

// adoptHeld takes note of what a member of an ordinary group may be reading: its part of the plan, or, where there is no plan yet, what it said that it kept
// (KIP-429). A cooperative one that has a plan may have yet to fetch it, and still read what it kept. The first one keeps what a leader gave to two. A static member that missed the generation has what is kept for it, when it joins.
func (g *Group) adoptHeld(m *groupMember) {
	if m.missed(g.ordinary.generation) {
		m.generation = -1
		m.client = reader{target: m.part.share}
		m.part, m.changed = part{}, false
		return
	}
	var held []assigner.Partition
	if m.part.planned || m.stale {
		held = m.part.share
	}
	m.client = reader{synced: m.part.planned || m.stale, target: held}
	if m.cooperative() && !m.stale {
		held = slices.Concat(held, flatten(m.subscription.Owned))
	}
	for _, tp := range held {
		if g.handoff.holders[tp] == nil {
			g.handoff.hold(m, tp)
		}
	}
	m.client.last = keys(m.client.held)
	g.settle(m)
	m.part, m.changed, m.stale = part{}, false, false
	if m.client.synced {
		m.syncDue = time.Time{}
	}
}

// missed says whether the member has not joined a generation of an ordinary group, so that nothing that it says of an older one may count.
func (m *groupMember) missed(generation int32) bool { return m.generation != generation && !m.stale }

// claims says whether a member may be reading more than it holds: it has not heard yet that something was taken from it, or that another one has what it claims.
func (g *Group) claims(m *groupMember) bool {
	c := &m.client
	if len(c.fenced) > 0 || (c.opaque && !c.blocking) {
		return true
	}
	return m.cooperative() && !c.synced && !c.opaque &&
		slices.ContainsFunc(flatten(m.subscription.Owned), func(tp assigner.Partition) bool { return g.handoff.holders[tp] != m })
}

// toClassic makes a group whose shares were decided here an ordinary one. Its members are told by their next heartbeat to join again; until then they may commit.
func (g *Group) toClassic() {
	o := &g.ordinary
	for _, m := range g.sortedMembers() {
		if g.claims(m) {
			g.notef("member %q: it may still read what was taken from it", m.id)
			g.remove(m)
		}
	}
	g.managed, g.consumer, g.handoff = nil, nil, nil
	o.state, o.protocolType = StateEmpty, consumerProtocol
	for _, m := range g.sorted {
		g.mark(m)
		m.part = part{share: keys(m.client.held), decoded: !m.client.opaque}
		m.client = reader{}
		m.syncDue = time.Time{}
		m.stale = true
	}
	if len(g.members) > 0 {
		o.state, o.due = StatePreparingRebalance, g.now.Add(g.rebalanceTimeout())
	}
}

// compute makes the plan of an ordinary group for a leader that sent none, by the assigner that the group's protocol names, or else ConsistentHash; nil where the group
// does not know what its members read. A cooperative member has to give up a partition before another gets it, so what one still holds no other is given (KIP-429).
func (g *Group) compute() map[string][]assigner.Partition {
	if g.ordinary.protocolType != consumerProtocol || g.topics == nil {
		return nil
	}
	previous, owners := assigner.Assignment{}, map[assigner.Partition]string{}
	for _, m := range g.sorted {
		if m.subscription == nil {
			return nil
		}
		previous[m.id] = m.part.share
		if m.cooperative() {
			previous[m.id] = flatten(m.subscription.Owned)
			for _, tp := range previous[m.id] {
				owners[tp] = m.id
			}
		}
	}
	a, ok := assignorNamed(g.ordinary.protocol)
	if !ok {
		a = assigner.ConsistentHash{}
	}
	plan := a.Assign(g.assignerInput(previous))
	for id, share := range plan {
		plan[id] = withoutOthers(share, id, owners)
	}
	return plan
}

func withoutOthers(share []assigner.Partition, id string, owners map[assigner.Partition]string) []assigner.Partition {
	var out []assigner.Partition
	for _, tp := range share {
		if owner, owned := owners[tp]; !owned || owner == id {
			out = append(out, tp)
		}
	}
	return out
}
