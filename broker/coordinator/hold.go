// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// heldBeat is the Heartbeat of a member of a managed group that waits until there is something to say, or the Sync of one that has nothing yet.
type heldBeat struct {
	// in is the Heartbeat; of a Sync it has the token, the client, the generation and the hold.
	in Heartbeat
	// sync is the Sync, nil for a Heartbeat. gathering says that something is free for its member, which waits for the rest.
	sync      *Sync
	gathering bool
	// due is when it is answered at the latest.
	due time.Time
	// place is where it stands in heldBeats.byDue.
	place int
}

// gatherTime is how long a Sync is held on when something is free for its member, for the rest of its share: old owners that are told at the same time let go a few
// milliseconds after one another, and what the answer lacks its client hears of with its first heartbeat, a whole interval later.
const gatherTime = 500 * time.Millisecond

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
	g.held.add(&heldBeat{in: in, due: g.now.Add(wait)})
	g.noteLacking(m)
	return true
}

// holdSync makes a member's Sync wait that has nothing to tell it: the next time that it could be told is its first heartbeat, a whole interval later. A client reads
// nothing until the answer is there, so none is kept from anything.
func (g *Group) holdSync(m *groupMember, in Sync) bool {
	wait := min(in.Hold, m.sessionTimeout/3, m.rebalanceTimeout/2)
	if wait <= 0 || !g.mayHoldSync(m) {
		return false
	}
	g.touch(m)
	m.syncDue = time.Time{}
	b := &heldBeat{in: Heartbeat{Token: in.Token, Client: in.Client, Generation: in.Generation, Hold: in.Hold}, sync: &in, due: g.now.Add(wait)}
	g.held.add(b)
	g.held.lacking[m.id] = true
	g.gather(m, b)
	return true
}

// gather shortens the hold of a Sync when something is free for its member.
func (g *Group) gather(m *groupMember, b *heldBeat) {
	if b.gathering || len(g.handoff.share(m)) == 0 {
		return
	}
	b.gathering, b.due = true, earliest(b.due, g.now.Add(gatherTime))
	heap.Fix(&g.held.byDue, b.place)
}

// mayHoldSync says whether a member has nothing yet, holds nothing that it is to hear of, and may be given more than is free: its pod is to read nothing so far, as no member or as
// a standby, or others have yet to let go of what it is to read.
func (g *Group) mayHoldSync(m *groupMember) bool {
	if g.managed == nil || m.consumer != nil || m.client.synced || len(m.client.held) > 0 {
		return false
	}
	return len(m.client.target) == 0 || len(g.handoff.share(m)) < len(m.client.target)
}

func (h *heldBeats) add(b *heldBeat) {
	if h.of == nil {
		h.of, h.lacking = map[string]*heldBeat{}, map[string]bool{}
	}
	h.of[b.in.Client.MemberID] = b
	heap.Push(&h.byDue, b)
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

// letGo answers a member's request that is held, with what is to be said by now.
func (g *Group) letGo(id string) {
	b := g.held.of[id]
	if b == nil {
		return
	}
	delete(g.held.of, id)
	delete(g.held.lacking, id)
	heap.Remove(&g.held.byDue, b.place)
	if b.sync != nil {
		g.letGoSync(*b.sync)
		return
	}
	_, code := g.checkBeat(b.in)
	g.out.Replies = append(g.out.Replies, Reply{Token: b.in.Token, Err: code, Held: true})
}

// letGoSync answers a Sync that was held.
func (g *Group) letGoSync(in Sync) {
	before := len(g.out.Replies)
	g.answerShare(in)
	for i := range g.out.Replies[before:] {
		g.out.Replies[before+i].Held = true
	}
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
		b := g.held.of[id]
		m, ok := g.stillHeld(b)
		switch {
		case !ok:
			g.letGo(id)
		case b.sync != nil:
			g.gather(m, b)
		default:
			g.noteLacking(m)
		}
	}
}

// stillHeld finds the member of a request that is held, and says whether it still has nothing to be told.
func (g *Group) stillHeld(b *heldBeat) (*groupMember, bool) {
	if b.sync != nil {
		m, code := g.checkSync(*b.sync)
		return m, code == ErrNone && g.mayHoldSync(m)
	}
	m, code := g.checkBeat(b.in)
	return m, code == ErrNone && g.mayHold(m)
}

// letGoDue answers the requests that have waited for as long as they may.
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
