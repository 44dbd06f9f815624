// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// ManagedLeader is the leader's member id in the answers of a managed group. It is no member's, so every client takes itself for a follower
// and leaves the plan to the group.
const ManagedLeader = "ringmaster"

// consumerProtocol is the protocol type of Kafka's consumers, whose assignments alone a managed group can encode.
const consumerProtocol = "consumer"

// managedGroup is what a group knows of the operator's plan.
type managedGroup struct {
	// uid is of the resource that the plan is of.
	uid            string
	generation     int32
	handoffTimeout time.Duration
	// pods are the plan's members by name. No partition is in the share of two.
	pods map[string]managedPod
	// byIP holds the names of the pods of each address.
	byIP map[string][]string
	// holders are the clients that may be reading a partition. A partition has one at most, and is in its holder's held, and in no other's.
	holders map[assigner.Partition]*groupMember
	// blockers is how many members have client.blocking set.
	blockers int
	// changed are the pods whose shares have to be divided anew.
	changed map[string]bool
}

// managedPod is a pod of the plan.
type managedPod struct {
	uid   string
	alive bool
	share []assigner.Partition
}

// managedClient is a member's part in a managed group.
type managedClient struct {
	// pod and uid are of the pod that the client runs in, empty until the plan has it. They stay when the pod leaves the plan.
	pod, uid string
	// noted says that the log has been told that the client is of no known pod.
	noted bool
	// synced says that the client has fetched its share since it last joined.
	synced bool
	// target is the client's part of its pod's share, whoever still holds it.
	target []assigner.Partition
	// last is what the client was last told, nil since it last joined.
	last []assigner.Partition
	// held is what the client may be reading.
	held map[assigner.Partition]bool
	// moved is what of held is not in target, and since when.
	moved map[assigner.Partition]time.Time
	// fenced is what was taken from the client after the handoff timeout, until it joins without it.
	fenced map[assigner.Partition]bool
	// opaque marks a member from before the group was managed, until it joins again: what it reads is not known.
	opaque bool
	// blocking says that an opaque member may be reading anything, until blockingSince plus the handoff timeout.
	blocking      bool
	blockingSince time.Time
}

// adopt takes a plan.
func (g *Group) adopt(p Plan) {
	switch {
	case g.dead, g.managed == nil && !p.Managed:
		return
	case !p.Managed:
		g.release()
		return
	case g.managed == nil:
		g.manage()
	case p.UID == g.managed.uid && p.Generation < g.managed.generation:
		g.notef("ignored a plan of generation %d, which is older than %d", p.Generation, g.managed.generation)
		return
	}
	g.managed.take(p)
	g.matchAll()
	g.buryAll()
	for _, m := range g.sortedMembers() {
		if m.join.waiting {
			t := m.join.token
			m.join = waiter{}
			g.convertJoin(m, t)
		}
	}
	g.divideAll()
}

// take stores a plan. Of two pods that name the same partition the first by name has it.
func (mg *managedGroup) take(p Plan) {
	mg.uid, mg.generation, mg.handoffTimeout = p.UID, p.Generation, p.HandoffTimeout
	mg.pods, mg.byIP, mg.changed = map[string]managedPod{}, map[string][]string{}, map[string]bool{}
	seen := map[assigner.Partition]bool{}
	members := slices.SortedFunc(slices.Values(p.Members), func(a, b PlanMember) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID))
	})
	for _, pm := range members {
		if _, ok := mg.pods[pm.Pod]; ok {
			continue
		}
		pod := managedPod{uid: pm.UID, alive: pm.Alive}
		for _, tp := range flatten(pm.Share) {
			if !seen[tp] {
				seen[tp] = true
				pod.share = append(pod.share, tp)
			}
		}
		mg.pods[pm.Pod], mg.changed[pm.Pod] = pod, true
		if pm.IP != "" {
			mg.byIP[pm.IP] = append(mg.byIP[pm.IP], pm.Pod)
		}
	}
}

// match finds the pod that a client runs in: the only one with the client's address, else the one that the client names as its instance id
// or client id.
func (mg *managedGroup) match(m *groupMember) (pod, uid string) {
	if names := mg.byIP[m.host]; len(names) == 1 {
		return names[0], mg.pods[names[0]].uid
	}
	for _, name := range []string{m.instanceID, m.clientID} {
		if p, ok := mg.pods[name]; ok && name != "" {
			return name, p.uid
		}
	}
	return "", ""
}

// matchAll matches the clients to the pods of a new plan. If an address or a pod's name has become another pod's, the client's own pod is gone for
// good: the client is removed, and what it held need not be waited for.
func (g *Group) matchAll() {
	for _, m := range g.sortedMembers() {
		c := &m.client
		pod, uid := g.managed.match(m)
		if c.pod == "" {
			c.pod, c.uid = pod, uid
			continue
		}
		successor, ok := g.managed.pods[c.pod]
		if (ok && successor.uid != c.uid) || (pod != "" && pod != c.pod) {
			g.notef("member %q: its pod %q was replaced", m.id, c.pod)
			g.remove(m)
		}
	}
}

// disconnect takes note that a member's connection has closed. In an ordinary group that says nothing: the client connects again, or its session ends.
func (g *Group) disconnect(in Disconnect) {
	m, ok := g.members[in.MemberID]
	if !ok {
		return
	}
	m.disconnected = true
	if g.managed != nil && g.buryAll() {
		g.divideAll()
	}
}

// buryAll removes the clients that are dead by two witnesses: their connection has closed, and the kubelet says that their pod is not alive, or the pod has left
// the plan. What they held is free at once, long before their session ends. Either alone proves nothing: a client may connect again, and one whose pod
// fails its probe may still be reading.
func (g *Group) buryAll() (buried bool) {
	for _, m := range g.sortedMembers() {
		if m.disconnected && m.client.pod != "" && !g.managed.pods[m.client.pod].alive {
			g.notef("member %q: its connection has closed and its pod %q is not alive", m.id, m.client.pod)
			g.remove(m)
			buried = true
		}
	}
	return buried
}

// manage makes an ordinary group a managed one. Its members go on with what they have until their next heartbeat tells them to join again; what that is only
// their leader knows, so nobody is given anything until the last one has joined, or the handoff timeout has passed.
func (g *Group) manage() {
	g.notef("is now managed")
	g.managed = &managedGroup{holders: map[assigner.Partition]*groupMember{}}
	for _, m := range g.sortedMembers() {
		g.answerSyncWith(m, ErrRebalanceInProgress)
		m.syncDue, m.assignment = time.Time{}, nil
		m.client = managedClient{}
		if !m.join.waiting {
			m.client = managedClient{opaque: true, blocking: true, blockingSince: g.now}
			g.managed.blockers++
		}
	}
	g.ordinary = ordinaryGroup{state: StateEmpty, generation: g.ordinary.generation}
}

// convertJoin answers a JoinGroup that waited when the group became managed.
func (g *Group) convertJoin(m *groupMember, t Token) {
	if m.protocolType != consumerProtocol || m.subscription == nil {
		g.reply(t, ErrInconsistentGroupProtocol, JoinReply{MemberID: m.id, Generation: -1})
		g.remove(m)
		return
	}
	g.managedJoin(m, t)
}

// release makes a managed group an ordinary one. Its members are told by their next heartbeat to join again; until then they may commit.
func (g *Group) release() {
	g.notef("is no longer managed")
	o := &g.ordinary
	o.generation = max(o.generation, g.managed.generation)
	g.managed = nil
	for _, m := range g.members {
		m.client = managedClient{}
		m.syncDue = time.Time{}
		m.stale = true
	}
	if len(g.members) > 0 {
		o.state, o.due = StatePreparingRebalance, g.now.Add(g.rebalanceTimeout())
	}
}

// managedJoin answers a JoinGroup at once. Unless it is cooperative the client has let go of everything before it sent it.
func (g *Group) managedJoin(m *groupMember, t Token) {
	mg := g.managed
	c := &m.client
	mg.unblock(m)
	c.opaque, c.synced, c.last = false, false, nil
	if c.pod == "" {
		c.pod, c.uid = mg.match(m)
	}
	if c.pod == "" && !c.noted {
		c.noted = true
		g.notef("member %q: no pod of the group has the address %s or the name %q: it gets no partitions until one does",
			m.id, m.host, cmp.Or(m.instanceID, m.clientID))
	}
	mg.changed[c.pod] = true
	mg.claim(m)
	m.generation = mg.generation
	g.touch(m)
	m.syncDue = g.now.Add(m.rebalanceTimeout)
	g.divideAll()
	g.reply(t, ErrNone, JoinReply{
		MemberID: m.id, Generation: m.generation, ProtocolType: m.protocolType, Protocol: m.protocols[0].Name, Leader: ManagedLeader,
	})
}

// claim lets go of what the client no longer holds, and takes note of what a cooperative one says that it still does (KIP-429). What another client holds,
// and what was fenced, it cannot claim.
func (mg *managedGroup) claim(m *groupMember) {
	c := &m.client
	owned := map[assigner.Partition]bool{}
	if m.cooperative() {
		for _, tp := range flatten(m.subscription.Owned) {
			owned[tp] = true
		}
	}
	maps.DeleteFunc(c.fenced, func(tp assigner.Partition, _ bool) bool { return !owned[tp] })
	for tp := range c.held {
		if !owned[tp] {
			mg.drop(m, tp)
		}
	}
	for tp := range owned {
		if mg.holders[tp] == nil && !c.fenced[tp] {
			mg.hold(m, tp)
		}
	}
}

// cooperative says whether the member keeps its partitions while it joins.
func (m *groupMember) cooperative() bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return strings.Contains(p.Name, "cooperative") })
}

// managedSync answers a SyncGroup at once with the client's share. A repeated one gets the same answer, for the client may have seen the
// first: what has changed since it learns from its heartbeats.
func (g *Group) managedSync(m *groupMember, t Token) {
	c := &m.client
	g.touch(m)
	m.syncDue = time.Time{}
	if !c.synced {
		c.synced, c.last = true, g.managed.share(m)
		for _, tp := range c.last {
			g.managed.hold(m, tp)
		}
	}
	share := slices.Clone(c.last)
	share = slices.DeleteFunc(share, func(tp assigner.Partition) bool { return g.managed.holders[tp] != m })
	g.reply(t, ErrNone, SyncReply{ProtocolType: m.protocolType, Protocol: m.protocols[0].Name, Managed: true, Share: group(share)})
}

// needsRejoin says whether a client would get something else now than it was told last.
func (mg *managedGroup) needsRejoin(m *groupMember) bool {
	c := &m.client
	switch {
	case c.opaque:
		return true
	case !c.synced:
		return false
	}
	lost := func(tp assigner.Partition) bool { return mg.holders[tp] != m }
	return slices.ContainsFunc(c.last, lost) || !slices.Equal(c.last, mg.share(m))
}

// state is the group's state by Kafka's names, from what its clients are at.
func (g *Group) managedState() string {
	state := StateEmpty
	for _, m := range g.members {
		switch {
		case g.managed.needsRejoin(m):
			return StatePreparingRebalance
		case !m.client.synced:
			state = StateCompletingRebalance
		case state == StateEmpty:
			state = StateStable
		}
	}
	return state
}
