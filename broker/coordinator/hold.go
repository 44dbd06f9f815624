// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// heldBeat is the Heartbeat of a member of a managed group that waits until there is something to say.
type heldBeat struct {
	in Heartbeat
	// due is when it is answered at the latest.
	due time.Time
	// place is where it stands in heldBeats.byDue.
	place int
}

// heldBeats are the heartbeats that wait. Each is of a member that has been told all that is free of its share, in the group's answer to Heartbeat.in still a
// success: whatever step makes it another one answers it.
type heldBeats struct {
	// of holds them by member id, one for each member.
	of map[string]*heldBeat
	// byDue is a heap, so that a group of many members need not be searched for the next one that is due.
	byDue beatHeap
	// lacking are the members among them that wait for partitions which others still hold: what those let go of gives them something to say. Of the others only what
	// changes about themselves does, which is marked dirty.
	lacking map[string]bool
}

// hold makes a member's Heartbeat wait, unless it is to be answered at once. A third of the session timeout leaves its client the time to be heard of twice more.
func (g *Group) hold(m *groupMember, in Heartbeat) bool {
	wait := min(in.Hold, m.sessionTimeout/3)
	if wait <= 0 || !g.mayHold(m) {
		return false
	}
	b := &heldBeat{in: in, due: g.now.Add(wait)}
	if g.held.of == nil {
		g.held.of, g.held.lacking = map[string]*heldBeat{}, map[string]bool{}
	}
	g.held.of[m.id] = b
	heap.Push(&g.held.byDue, b)
	g.noteLacking(m)
	return true
}

// mayHold says whether a member whose heartbeat has nothing to say is one whose heartbeats are held: others hear of what is new by asking, or ask for it.
func (g *Group) mayHold(m *groupMember) bool {
	return g.managed != nil && m.consumer == nil && m.client.synced
}

// noteLacking notes whether a member waits for partitions that others still hold.
func (g *Group) noteLacking(m *groupMember) {
	if len(m.client.last) < len(m.client.target) {
		g.held.lacking[m.id] = true
	} else {
		delete(g.held.lacking, m.id)
	}
}

// letGo answers a member's heartbeat that is held, with what is to be said by now.
func (g *Group) letGo(id string) {
	b := g.held.of[id]
	if b == nil {
		return
	}
	delete(g.held.of, id)
	delete(g.held.lacking, id)
	heap.Remove(&g.held.byDue, b.place)
	_, code := g.checkBeat(b.in)
	g.out.Replies = append(g.out.Replies, Reply{Token: b.in.Token, Err: code, Held: true})
}

// released takes a Release.
func (g *Group) released(in Release) {
	if b := g.held.of[in.MemberID]; b != nil && b.in.Token == in.Token {
		g.letGo(in.MemberID)
	}
}

// wake answers the heartbeats that are to say something else by now, or that are held no longer. It is to be called at the end of every step that may have
// changed anything, while the members that it changed are marked.
func (g *Group) wake() {
	if len(g.held.of) == 0 {
		return
	}
	changed := slices.Collect(maps.Keys(g.held.lacking))
	for id := range g.dirty {
		if g.held.of[id] != nil && !g.held.lacking[id] {
			changed = append(changed, id)
		}
	}
	if g.managed == nil {
		changed = slices.Collect(maps.Keys(g.held.of))
	}
	slices.Sort(changed)
	for _, id := range changed {
		m, code := g.checkBeat(g.held.of[id].in)
		if code != ErrNone || !g.mayHold(m) {
			g.letGo(id)
			continue
		}
		g.noteLacking(m)
	}
}

// letGoDue answers the heartbeats that have waited for as long as they may.
func (g *Group) letGoDue() {
	for len(g.held.byDue) > 0 && g.due(g.held.byDue[0].due) {
		g.letGo(g.held.byDue[0].in.Client.MemberID)
	}
}

// next is when a heartbeat is next to be answered, zero for never.
func (h *heldBeats) next() time.Time {
	if len(h.byDue) == 0 {
		return time.Time{}
	}
	return h.byDue[0].due
}

// beatHeap is a container/heap: the one that is due first comes first, and of several the one of the first member by id.
type beatHeap []*heldBeat

func (h beatHeap) Len() int { return len(h) }

func (h beatHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].in.Client.MemberID < h[j].in.Client.MemberID
	}
	return h[i].due.Before(h[j].due)
}

func (h beatHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is heap.Interface's.
func (h *beatHeap) Push(x any) {
	b, _ := x.(*heldBeat)
	b.place = len(*h)
	*h = append(*h, b)
}

// Pop is heap.Interface's.
func (h *beatHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}
