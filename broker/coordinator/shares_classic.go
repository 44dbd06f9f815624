// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// ManagedLeader is the leader's member id that members of the classic protocol are told where the group decides the shares. It is no member's, so every client takes
// itself for a follower and leaves the plan to the group.
const ManagedLeader = "ringmaster"

// consumerProtocol is the protocol type of Kafka's consumers, whose assignments alone a group can encode.
const consumerProtocol = "consumer"

// shareJoin answers a JoinGroup at once. Unless it is cooperative the client has let go of everything before it sent it.
func (g *Group) shareJoin(m *groupMember, t Token) {
	c := &m.client
	g.mark(m)
	g.handoff.unblock(m)
	unknown := c.opaque
	c.opaque, c.synced, c.last = false, false, nil
	g.seat(m)
	g.claim(m, unknown)
	if g.consumer != nil && (m.generation < 0 || m.changed) {
		g.bump()
	}
	m.changed = false
	m.generation = g.Generation()
	g.emptySince = time.Time{}
	g.touch(m)
	m.syncDue = g.now.Add(m.rebalanceTimeout)
	g.settle(m) // what it claims may not be its own, though that is the same as before
	g.reshare()
	g.reply(t, ErrNone, JoinReply{
		MemberID: m.id, Generation: m.generation, ProtocolType: m.protocolType, Protocol: m.protocols[0].Name, Leader: ManagedLeader,
	})
}

// convertJoin answers a JoinGroup that waited when the group began to decide the shares.
func (g *Group) convertJoin(m *groupMember, t Token) {
	if m.protocolType != consumerProtocol || m.subscription == nil {
		g.reply(t, ErrInconsistentGroupProtocol, JoinReply{MemberID: m.id, Generation: -1})
		g.remove(m)
		return
	}
	g.shareJoin(m, t)
}

// claim lets go of what the client no longer holds. A cooperative one says what it still does (KIP-429), and is believed what it held so far; more only where what it reads is
// unknown, for it was a member before the group decided the shares, and of partitions that there are. What another client holds, and what was fenced, it cannot claim.
func (g *Group) claim(m *groupMember, unknown bool) {
	c := &m.client
	owned := map[assigner.Partition]bool{}
	if m.cooperative() {
		for _, t := range m.subscription.Owned {
			for _, p := range t.Partitions {
				tp := assigner.Partition{Topic: t.Topic, Partition: p}
				if c.held[tp] || c.fenced[tp] || unknown && g.exists(tp) {
					owned[tp] = true
				}
			}
		}
	}
	maps.DeleteFunc(c.fenced, func(tp assigner.Partition, _ bool) bool { return !owned[tp] })
	for tp := range c.held {
		if !owned[tp] {
			g.handoff.drop(m, tp)
		}
	}
	for tp := range owned {
		if g.handoff.holders[tp] == nil && !c.fenced[tp] {
			g.handoff.hold(m, tp)
		}
	}
}

// exists says whether there is a partition, as far as the group knows.
func (g *Group) exists(tp assigner.Partition) bool {
	t, ok := g.topics[tp.Topic]
	return ok && tp.Partition >= 0 && tp.Partition < t.Partitions
}

// cooperative says whether the member keeps its partitions while it joins.
func (m *groupMember) cooperative() bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return strings.Contains(p.Name, "cooperative") })
}

// shareSync answers a SyncGroup at once with the client's share. A repeated one gets the same answer, for the client may have seen the
// first: what has changed since it learns from its heartbeats.
func (g *Group) shareSync(m *groupMember, t Token) {
	c := &m.client
	g.touch(m)
	m.syncDue = time.Time{}
	if !c.synced {
		g.mark(m)
		c.synced, c.last = true, g.handoff.share(m)
		for _, tp := range c.last {
			g.handoff.hold(m, tp)
		}
		g.ask(m)
	}
	share := slices.Clone(c.last)
	share = slices.DeleteFunc(share, func(tp assigner.Partition) bool { return g.handoff.holders[tp] != m })
	g.reply(t, ErrNone, SyncReply{ProtocolType: m.protocolType, Protocol: m.protocols[0].Name, Shared: true, Share: group(share)})
}

// ask begins the time that a classic member of a consumer group has to give up what its SyncGroup has just told it that it may no longer read: a cooperative one lets go of
// that and joins again. What it was told before goes on.
func (g *Group) ask(m *groupMember) {
	c := &m.client
	if g.consumer == nil {
		return
	}
	for tp := range c.moved {
		if c.asked[tp] {
			continue
		}
		if c.asked == nil {
			c.asked = map[assigner.Partition]bool{}
		}
		c.asked[tp] = true
		c.giveUp(tp, g.now)
	}
}

// needsRejoin says whether a client would get something else now than it was told last.
func (h *handoff) needsRejoin(m *groupMember) bool {
	c := &m.client
	switch {
	case c.opaque:
		return true
	case !c.synced:
		return false
	}
	lost := func(tp assigner.Partition) bool { return h.holders[tp] != m }
	return slices.ContainsFunc(c.last, lost) || !slices.Equal(c.last, h.share(m))
}
