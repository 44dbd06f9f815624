// SPDX-License-Identifier: Apache-2.0

package coordinator

// apiPlan is a version of the group as a broker reads it.
func apiPlan(g apiGroup) Plan {
	if g.gone {
		return Plan{}
	}
	p := Plan{Managed: true, UID: g.uid, Generation: g.generation, HandoffTimeout: g.handoff}
	for _, seat := range g.seats {
		p.Members = append(p.Members, PlanMember{
			Pod: seat.Pod, UID: seat.UID, IP: seat.IP, Alive: seat.Phase != SeatGrace, Restarts: seat.Restarts, Share: seat.Share,
		})
	}
	return p
}

// plan is what the broker that coordinates the group knows of it.
func (w *world) plan() Plan {
	w.told = apiPlan(w.groups.at(w.brokers[w.host].seen))
	return w.told
}

// follow lets a broker see the next version of the group.
func (w *world) follow(i int) {
	w.brokers[i].follow(w.rng, len(w.groups.all)-1)
	if i == w.host {
		w.tell()
	}
}

// tell tells the group what its broker knows, if that is new.
func (w *world) tell() {
	before := w.told
	if now := w.plan(); difference(before, now) != "" {
		w.s.step(now)
	}
}

// moveCoordinator makes another broker the one that coordinates the group, which it loads from the log. The one before may not know that yet.
func (w *world) moveCoordinator() {
	w.zombie = nil
	if w.rng.IntN(2) == 0 {
		w.zombie = w.s.g
	}
	w.host = (w.host + 1 + w.rng.IntN(len(w.brokers)-1)) % len(w.brokers)
	w.s.reload()
}

// restartBroker lets a broker begin anew: it knows what is on its disk, or what the API server tells it.
func (w *world) restartBroker() {
	i := w.rng.IntN(len(w.brokers))
	if w.rng.IntN(2) == 0 {
		w.brokers[i].seen = max(0, w.brokers[i].seen-w.rng.IntN(3))
	} else {
		w.brokers[i].list(w.rng, len(w.groups.all)-1)
	}
	if i == w.host {
		w.s.reload()
	}
}

// misdirect lets a request go to the broker that coordinated the group before, and says whether it did. Of what that decides nothing can be stored, and it knows then that it is no longer the one.
func (w *world) misdirect(c *simClient, in Input, token Token) bool {
	if w.zombie == nil || w.zombie == w.s.g || w.rng.IntN(3) > 0 {
		return false
	}
	if beat, ok := in.(Heartbeat); ok {
		beat.Hold = 0
		in = beat
	}
	out := w.zombie.Step(w.s.now, in)
	c.deaf = false
	if len(out.Records) > 0 {
		w.zombie = nil
		if c.consumer {
			c.lose()
		}
		return true
	}
	for _, r := range out.Replies {
		if r.Token != token {
			continue
		}
		w.checkZombie(in, r)
		reading, generation := c.sortedReading(), c.generation
		w.s.hear(c, in, r)
		c.misled = c.misled || difference(reading, c.sortedReading()) != "" || generation != c.generation || c.consumer && !sameReading(c.reading, c.target)
		return true
	}
	if c.consumer {
		c.lose()
	}
	return true
}
