// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// checkHolders: a partition has one holder at most, and what a member holds that is not its own it is to give up.
func (k *checker) checkHolders() {
	g := k.s.g
	if g.handoff == nil {
		return
	}
	held, blockers := 0, 0
	for id, m := range g.members {
		if m.join.waiting || m.sync.waiting {
			k.errorf("%s waits, and the group decides the shares", id)
		}
		held += len(m.client.held)
		moves := 0
		for tp := range m.client.held {
			if g.handoff.holders[tp] != m {
				k.errorf("%s holds %v, whose holder it is not", id, tp)
			}
			if contains(m.client.target, tp) {
				continue
			}
			moves++
			if m.client.moved[tp].IsZero() && (g.managed == nil || !g.managed.awaited) {
				k.errorf("%s is not meant to hold %v for ever", id, tp)
			}
		}
		if len(m.client.moved) > moves {
			k.errorf("%s is to give up %v, and holds %v", id, m.client.moved, m.client.held)
		}
		if m.client.blocking {
			blockers++
		}
	}
	if held != len(g.handoff.holders) {
		k.errorf("%d partitions are held, and there are %d holders", held, len(g.handoff.holders))
	}
	if blockers != g.handoff.blockers {
		k.errorf("%d blockers, counted %d", blockers, g.handoff.blockers)
	}
}

// checkBeliefs: no two clients believe to be the owner of a partition, but one that the group need not hear any more: it is no member, or of an older generation, or was
// fenced from the partition.
func (k *checker) checkBeliefs() {
	g := k.s.g
	clear(k.owners)
	for _, c := range k.s.clients {
		m := g.members[c.id]
		if m == nil || len(c.reading) == 0 || c.consumer != (m.consumer != nil) || g.static[m.instanceID] != m.id && m.instanceID != "" {
			continue
		}
		for tp, id := range c.reading {
			if !k.counts(c, m, tp, id) {
				continue
			}
			if other := k.owners[tp]; other != nil {
				k.errorf("step %d: %v is read by clients %d (%s) and %d (%s)", k.s.steps, tp, other.index, other.id, c.index, c.id)
			}
			k.owners[tp] = c
		}
	}
}

// counts says whether a client's belief that it reads a partition binds the group.
func (k *checker) counts(c *simClient, m *groupMember, tp assigner.Partition, id TopicID) bool {
	g := k.s.g
	another := k.s.g.topics[tp.Topic].ID != id || id == TopicID{} // it is of a topic that is no more, or that there never was
	switch {
	case g.handoff == nil && (c.misled || c.late):
		return false
	case g.handoff == nil && another:
		return false
	case g.handoff == nil && m.stale:
		return c.generation == m.generation
	case g.handoff == nil:
		return c.generation == g.ordinary.generation && m.generation >= 0
	case m.client.opaque:
		return m.client.blocking && c.generation == m.generation
	case g.handoff.holders[tp] == m:
		return true
	case c.misled, m.client.fenced[tp], !c.consumer && c.generation != m.generation:
		return false
	case !c.consumer && (!m.client.synced || c.phase == "joined"):
		return false // it claimed what another one held, and hears so with its share
	case another:
		return false
	}
	k.errorf("step %d: client %d (%s) reads %v, which it does not hold", k.s.steps, c.index, c.id, tp)
	return false
}

// checkConsumer: who reads what is complete, disjoint, balanced and at the minimum of moves, and nobody keeps for longer than it may what is not its own.
func (k *checker) checkConsumer() {
	g := k.s.g
	for id, m := range g.members {
		if m.generation > g.Generation() {
			k.errorf("%s is of epoch %d, and the group of %d", id, m.generation, g.Generation())
		}
		lost := k.moved[id]
		if lost == nil {
			lost = map[assigner.Partition]time.Time{}
			k.moved[id] = lost
		}
		for tp, since := range lost {
			if m.client.moved[tp].IsZero() {
				delete(lost, tp)
			} else if limit := m.sessionTimeout + m.rebalanceTimeout; k.now.Sub(since) > limit {
				k.errorf("%s has held %v for %s since it was to give it up, more than %s", id, tp, k.now.Sub(since), limit)
			}
		}
		for tp := range m.client.moved {
			if lost[tp].IsZero() {
				lost[tp] = k.now
			}
		}
	}
	for id := range k.moved {
		if g.members[id] == nil {
			delete(k.moved, id)
		}
	}
	if g.topics != nil && g.consumer.due.IsZero() {
		k.checkTargets()
	}
}

// checkTargets looks at the targets where they have changed.
func (k *checker) checkTargets() {
	g := k.s.g
	changed := len(k.targets) != len(g.members)
	for id, m := range g.members {
		before, ok := k.targets[id]
		changed = changed || !ok || !slices.Equal(before, m.client.target)
	}
	if !changed && k.turn%20 != 0 {
		return
	}
	in := g.assignerInput(nil)
	of := map[assigner.Partition]string{}
	for id, m := range g.members {
		for _, tp := range m.client.target {
			if other, ok := of[tp]; ok {
				k.errorf("%v is meant for %s and %s", tp, id, other)
			}
			of[tp] = id
			if tp.Partition >= k.s.g.topics[tp.Topic].Partitions || !slices.Contains(m.topics, tp.Topic) {
				k.errorf("%s is to get %v, which there is not or which it does not want", id, tp)
			}
		}
	}
	all := 0
	for _, n := range in.Partitions {
		all += int(n)
	}
	if len(of) != all {
		k.errorf("%d of %d partitions are meant for somebody", len(of), all)
	}
	if changed && k.single && k.kind == TypeConsumer {
		k.checkMoves(in)
	}
}

// checkMoves: the plan is balanced and moves no more than that takes.
func (k *checker) checkMoves(in assigner.Input) {
	g := k.s.g
	if a, _ := assignorNamed(g.consumer.assignor); a == nil || a.Name() == "Range" || a.Name() == "RoundRobin" {
		return
	}
	in.Previous = assigner.Assignment{}
	for id, target := range k.targets {
		in.Previous[id] = target
	}
	after := assigner.Assignment{}
	for id, m := range g.members {
		after[id] = m.client.target
		if before := k.static[m.instanceID]; m.instanceID != "" && before != "" && before != id { // the same program under another id
			in.Previous[id] = k.targets[before]
			delete(in.Previous, before)
		}
	}
	if got, want := assigner.Moves(in.Previous, after), assigner.Minimum(in); got != want {
		k.errorf("step %d: %d partitions moved, %d suffice: %v -> %v", k.s.steps, got, want, in.Previous, after)
	}
	in.Previous = nil
	if got, want := loads(after), loads(assigner.ConsistentHash{}.Assign(in)); !slices.Equal(got, want) {
		k.errorf("step %d: loads %v, the best are %v", k.s.steps, got, want)
	}
}

// loads are how many partitions the members have, sorted.
func loads(a assigner.Assignment) []int {
	var out []int
	for _, share := range a {
		out = append(out, len(share))
	}
	slices.Sort(out)
	return out
}

// checkManaged: the targets of a pod's clients are its share, as far as they read its topics, and what is lent to them, each partition once, and nothing is held for longer
// than the handoff timeout. Nobody who is alive is to let go of a partition that nobody else could read.
func (k *checker) checkManaged() {
	g := k.s.g
	if g.managed.awaited {
		return
	}
	of, inPlan := map[assigner.Partition]string{}, map[assigner.Partition]bool{}
	for _, pod := range g.managed.pods {
		for _, tp := range pod.share {
			inPlan[tp] = true
		}
	}
	for id, m := range g.members {
		for tp, since := range m.client.moved {
			if !k.now.Before(since.Add(g.managed.handoffTimeout)) {
				k.errorf("%s should have been fenced from %v", id, tp)
			}
		}
		for _, tp := range m.client.target {
			if other, ok := of[tp]; ok {
				k.errorf("%v is meant for %s and %s", tp, id, other)
			}
			of[tp] = id
		}
	}
	for name, pod := range g.managed.pods {
		for _, tp := range pod.share {
			k.checkShared(name, tp, of[tp])
		}
	}
	for id, m := range g.members {
		for _, tp := range m.client.target {
			if !inPlan[tp] {
				k.errorf("%s is to read %v, which is in no pod's share", id, tp)
			}
		}
	}
}

// checkShared: a partition of a pod's share is meant for a client of that pod, where one can read it, else for nobody, or for one that is alive and read it before. Who
// holds it meanwhile may keep it.
func (k *checker) checkShared(pod string, tp assigner.Partition, meant string) {
	g := k.s.g
	for id, m := range g.members {
		if m.client.pod == pod && !m.client.opaque && slices.Contains(m.topics, tp.Topic) {
			if meant == "" || g.members[meant].client.pod != pod {
				k.errorf("%v is meant for %q, though %s of its pod could read it", tp, meant, id)
			}
			return
		}
	}
	if meant != "" && !g.managed.pods[g.members[meant].client.pod].alive {
		k.errorf("%v is lent to %s, whose pod is not alive", tp, meant)
	}
	if holder := g.handoff.holders[tp]; holder != nil && holder.id != meant && holder.client.pod != pod && !holder.client.opaque && g.managed.pods[holder.client.pod].alive {
		k.errorf("%s is to let go of %v, which nobody else could read", holder.id, tp)
	}
}
