// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// managedGroup is what a group knows of the operator's plan.
type managedGroup struct {
	// uid is of the resource that the plan is of.
	uid            string
	generation     int32
	handoffTimeout time.Duration
	// awaited says that the group was loaded and its plan is still to come: the first one counts, however old it is.
	awaited bool
	// pods are the plan's members by name. No partition is in the share of two.
	pods map[string]managedPod
	// owners is the pod of each partition that is in a share.
	owners map[assigner.Partition]string
	// byIP holds the names of the pods of each address.
	byIP map[string][]string
	// changed are the pods whose shares have to be divided anew.
	changed map[string]bool
}

// managedPod is a pod of the plan.
type managedPod struct {
	uid   string
	alive bool
	share []assigner.Partition
	// restarts is how often the pod's containers were started again.
	restarts int32
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
	case p.UID == g.managed.uid && p.Generation < g.managed.generation && !g.managed.awaited:
		g.notef("ignored a plan of generation %d, which is older than %d", p.Generation, g.managed.generation)
		return
	}
	if p.UID != g.managed.uid { // its generations begin anew, and the group's own never fall
		g.ordinary.generation = max(g.ordinary.generation, g.managed.generation)
	}
	restarted := g.managed.take(p)
	g.matchAll()
	g.buryAll(restarted)
	for _, m := range g.sortedMembers() {
		if m.join.waiting {
			t := m.join.token
			m.join = waiter{}
			g.convertJoin(m, t)
		}
	}
	g.divideAll()
	g.answerBeats()
}

// take stores a plan, and returns the pods of which a container was started again since the plan before. Of two pods that name the same partition the first by name has it.
func (mg *managedGroup) take(p Plan) (restarted map[string]bool) {
	if mg.awaited && p.UID == mg.uid { // the broker may know an older plan than the group did, for a while
		p.Generation = max(p.Generation, mg.generation)
	}
	mg.uid, mg.generation, mg.handoffTimeout, mg.awaited = p.UID, p.Generation, p.HandoffTimeout, false
	before := mg.pods
	restarted = map[string]bool{}
	mg.pods, mg.byIP, mg.changed = map[string]managedPod{}, map[string][]string{}, map[string]bool{}
	mg.owners = map[assigner.Partition]string{}
	members := slices.SortedFunc(slices.Values(p.Members), func(a, b PlanMember) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID))
	})
	for _, pm := range members {
		if _, ok := mg.pods[pm.Pod]; ok {
			continue
		}
		pod := managedPod{uid: pm.UID, alive: pm.Alive, restarts: pm.Restarts}
		if old, ok := before[pm.Pod]; ok && old.uid == pm.UID && old.restarts < pm.Restarts {
			restarted[pm.Pod] = true
		}
		for _, tp := range flatten(pm.Share) {
			if _, ok := mg.owners[tp]; !ok {
				mg.owners[tp] = pm.Pod
				pod.share = append(pod.share, tp)
			}
		}
		mg.pods[pm.Pod], mg.changed[pm.Pod] = pod, true
		if pm.IP != "" {
			mg.byIP[pm.IP] = append(mg.byIP[pm.IP], pm.Pod)
		}
	}
	return restarted
}

// match finds the pod that a client runs in: the only one with the client's address, else the one that the client names as its instance id
// or client id, else the only one with the address that is alive: an address may be another pod's by now.
func (mg *managedGroup) match(m *groupMember) (pod, uid string) {
	names := mg.byIP[m.host]
	if len(names) == 1 {
		return names[0], mg.pods[names[0]].uid
	}
	for _, name := range []string{m.instanceID, m.clientID} {
		if p, ok := mg.pods[name]; ok && name != "" {
			return name, p.uid
		}
	}
	alive := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !mg.pods[name].alive })
	if len(alive) == 1 {
		return alive[0], mg.pods[alive[0]].uid
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
			g.mark(m)
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
	if g.managed != nil && !g.managed.awaited && g.buryAll(nil) {
		g.divideAll()
	}
}

// buryAll removes the clients that are dead by two witnesses: their connection has closed, and the kubelet says that their pod is not alive, or the pod has left
// the plan, or that a container of it was just started again. What they held is free at once, long before their session ends. Either alone proves nothing: a
// client may connect again, and one whose pod fails its probe may still be reading.
func (g *Group) buryAll(restarted map[string]bool) (buried bool) {
	for _, m := range g.sortedMembers() {
		pod := m.client.pod
		if m.disconnected && pod != "" && (restarted[pod] || !g.managed.pods[pod].alive) {
			g.notef("member %q: its connection has closed, and its pod %q is not alive or was started again", m.id, pod)
			g.remove(m)
			buried = true
		}
	}
	return buried
}

// manage makes a group a managed one. Its members go on with what they hold, and hear from their heartbeats when
// that changes. Where that is not known, for only their leader knows it, their next heartbeat tells them to join again, and nobody is given anything until the last one has
// joined, or the handoff timeout has passed.
func (g *Group) manage() {
	g.notef("is now managed")
	g.managed = &managedGroup{changed: map[string]bool{}}
	if g.handoff != nil {
		g.consumer = nil
		return
	}
	g.handoff = newHandoff()
	for _, m := range g.sortedMembers() {
		g.mark(m)
		g.answerSyncWith(m, ErrRebalanceInProgress)
		if m.understood() {
			g.adoptHeld(m)
			continue
		}
		m.syncDue = time.Time{}
		m.part, m.client = part{}, reader{}
		if !m.join.waiting {
			if m.missed(g.ordinary.generation) {
				g.remove(m)
				continue
			}
			m.client = reader{opaque: true, blocking: true, blockingSince: g.now}
			g.handoff.blockers++
		}
	}
	g.ordinary = ordinaryGroup{state: StateEmpty, generation: g.ordinary.generation}
}

// release ends the operator's plans. Where members speak KIP-848's protocol the group goes on as a consumer group, in which nobody loses what it holds; else it becomes
// an ordinary one.
func (g *Group) release() {
	g.notef("is no longer managed")
	g.ordinary.generation = max(g.ordinary.generation, g.managed.generation)
	g.managed = nil
	if len(g.members) == 0 {
		g.emptySince = g.now // its offsets were kept till now
	}
	g.expireBy(g.now)
	if !g.hasConsumers() {
		g.toClassic()
		return
	}
	g.consumer = &consumerGroup{}
	for _, m := range g.sortedMembers() {
		m.client.pod, m.client.uid = "", ""
		for tp := range m.client.moved {
			m.client.giveUp(tp, g.now) // from here on it has its own rebalance timeout for that
		}
		g.mark(m)
		if m.client.opaque {
			g.remove(m)
		}
	}
	g.bump()
	g.assign()
}

// seat finds the pod of a managed group that a member runs in.
func (g *Group) seat(m *groupMember) {
	mg, c := g.managed, &m.client
	if mg == nil {
		return
	}
	if c.pod == "" {
		c.pod, c.uid = mg.match(m)
	}
	if c.pod == "" && !c.noted {
		c.noted = true
		g.notef("member %q: no pod of the group has the address %s or the name %q: it gets no partitions until one does",
			m.id, m.host, cmp.Or(m.instanceID, m.clientID))
	}
	mg.changed[c.pod] = true
	g.mark(m)
}

// managedState is the group's state by Kafka's names, from what its clients are at.
func (g *Group) managedState() string {
	state := StateEmpty
	for _, m := range g.sorted {
		switch {
		case g.needsRejoin(m), len(m.client.moved) > 0:
			return StatePreparingRebalance
		case !m.client.synced && (m.consumer == nil || !m.consumer.away), m.client.synced && len(m.client.last) < len(m.client.target), len(m.client.lent) > 0:
			state = StateCompletingRebalance
		case state == StateEmpty:
			state = StateStable
		}
	}
	return state
}
