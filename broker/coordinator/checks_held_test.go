// SPDX-License-Identifier: Apache-2.0

package coordinator

// checkHeld: a heartbeat is held only while its answer would be a success, and no longer than it may be.
func (k *checker) checkHeld(in Input, out Output) {
	g := k.s.g
	if len(g.held.of) != len(g.held.byDue) {
		k.errorf("%d heartbeats are held, and %d wait for their time", len(g.held.of), len(g.held.byDue))
	}
	for i, b := range g.held.byDue {
		if b.place != i || g.held.of[b.in.Client.MemberID] != b {
			k.errorf("the heartbeat of %s is at %d, and believes to be at %d", b.in.Client.MemberID, i, b.place)
		}
	}
	lacking := 0
	for id, b := range g.held.of {
		m, ok := g.stillHeld(b)
		if !ok || g.managed == nil || m.consumer != nil || m.client.synced != (b.sync == nil) {
			k.errorf("after %T the heartbeat or sync (%t) of %s is held, and is to be answered", in, b.sync != nil, id)
			continue
		}
		if !b.due.After(k.now) || b.due.After(k.now.Add(b.in.Hold)) || b.due.After(m.session) {
			k.errorf("the heartbeat of %s is held at %s until %s; its session ends at %s", id, k.now, b.due, m.session)
		}
		if out.Deadline.IsZero() || out.Deadline.After(b.due) {
			k.errorf("the heartbeat of %s is held until %s, after the deadline %s", id, b.due, out.Deadline)
		}
		waits := b.sync != nil || len(m.client.last) < len(m.client.target)
		if waits {
			lacking++
		}
		if waits != g.held.lacking[id] {
			k.errorf("%s was told %v of %v, and waits for more: %t", id, m.client.last, m.client.target, g.held.lacking[id])
		}
	}
	if lacking != len(g.held.lacking) {
		k.errorf("%d members of %v wait for more", lacking, g.held.lacking)
	}
}

// checkAnswered: a heartbeat that was held is answered with a success only when its time has come, or if its client has said something or gone: whoever has nothing new to hear is not disturbed.
func (k *checker) checkAnswered(q openRequest, r Reply) {
	in, ok := q.in.(Heartbeat)
	due, held := k.held[in.Client.MemberID]
	if !ok || !held || !r.Held || r.Err != ErrNone || !due.After(k.now) || k.s.g.managed == nil {
		return
	}
	id := ""
	switch in := k.input.(type) {
	case Heartbeat:
		id = in.Client.MemberID
	case Join:
		id = in.Client.MemberID
	case Sync:
		id = in.Client.MemberID
	case Release:
		id = in.MemberID
	case Disconnect:
		id = in.MemberID
	}
	if id != in.Client.MemberID {
		k.errorf("%T answers the heartbeat of %s, which is held until %s, with a success", k.input, in.Client.MemberID, due)
	}
}
