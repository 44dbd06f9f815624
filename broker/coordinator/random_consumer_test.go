// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// newConsumerClient makes a client one that speaks KIP-848's protocol.
func (s *simulation) newConsumerClient(c *simClient, client Client, rebalance time.Duration) {
	c.consumer, c.phase, c.generation, c.full = true, "joining", EpochJoin, true
	c.beat = ConsumerHeartbeat{Client: client, RebalanceTimeout: rebalance, Topics: s.someTopics()}
	if s.rng.IntN(3) == 0 {
		regex := []string{"pay.*", "log-.*", "(orders|log-[0-2])"}[s.rng.IntN(3)]
		c.beat.Regex = &regex
	}
	if s.rng.IntN(3) == 0 {
		assignor := []string{"uniform", "uniform", "range", "Sticky"}[s.rng.IntN(4)]
		c.beat.Assignor = &assignor
	}
	s.newID(c)
}

// newID gives a program that begins a member id, if it makes one itself.
func (s *simulation) newID(c *simClient) {
	c.restarts++
	c.phase, c.id = "joining", ""
	if s.rng.IntN(4) > 0 {
		c.id = fmt.Sprintf("consumer#%d.%d", c.index, c.restarts)
	}
}

func sameReading(a, b map[assigner.Partition]TopicID) bool { return maps.Equal(a, b) }

// properConsumer is what a client does that behaves: it gives up or begins to read what it was told to, if not at once, and sends heartbeats.
func (s *simulation) properConsumer(c *simClient) {
	if c.open > 0 {
		if s.calming || s.rng.IntN(4) > 0 {
			return // it waits for the answer
		}
		s.deafen(c) // it does not any more
		c.lose()
	}
	if c.phase == "member" && !sameReading(c.reading, c.target) && (s.calming || s.rng.IntN(5) > 1) {
		s.reconcile(c)
		if !s.calming && s.rng.IntN(2) == 0 {
			return
		}
	}
	if c.phase == "member" && !s.calming && s.rng.IntN(100) == 0 {
		c.beat.Topics, c.wishes = s.someTopics(), true
	}
	in := ConsumerHeartbeat{Client: s.self(c), Epoch: c.generation}
	if c.full || c.phase == "joining" {
		in = c.beat
		in.Client, in.Epoch, in.Full = s.self(c), c.generation, true
	}
	if c.wishes {
		in.Topics = c.beat.Topics
	}
	if c.full || c.dirty || c.phase == "joining" {
		in.Owned = group(c.sortedReading())
		if in.Owned == nil {
			in.Owned = []TopicPartitions{}
		}
	}
	if c.phase == "joining" {
		c.restarts++
		in.NewMemberID = fmt.Sprintf("made#%d.%d", c.index, c.restarts)
	}
	s.send(c, in)
}

// lose lets a client find that an answer is lost. What it was told before and has not begun to read it waits to be told again, for what it says that it holds is taken at its
// word: a client that began to read it now might be a second owner, and KIP-848 gives the coordinator no means against that.
func (c *simClient) lose() {
	c.full, c.target = true, maps.Clone(c.reading)
}

// reconcile does one of the things that the client was told to do: first it gives up, then it begins.
func (s *simulation) reconcile(c *simClient) {
	c.dirty = true
	stopped := false
	for tp, id := range c.reading {
		if c.target[tp] != id {
			delete(c.reading, tp)
			stopped = true
		}
	}
	if stopped && !s.calming && s.rng.IntN(2) == 0 {
		return
	}
	c.reading = maps.Clone(c.target)
}

// hearConsumer lets a client of KIP-848's protocol react to the answer to a heartbeat.
func (s *simulation) hearConsumer(c *simClient, in ConsumerHeartbeat, r Reply) {
	body, _ := r.Body.(ConsumerHeartbeatReply)
	if in.Epoch < 0 || !c.consumer {
		return
	}
	began := c.phase == "member" && !sameReading(c.reading, c.target) && s.rng.IntN(4) == 0
	if began { // while the heartbeat was under way, so that it does not say so
		c.reading = maps.Clone(c.target)
	}
	switch r.Err {
	case ErrNone:
	case ErrUnknownMemberID, ErrFencedMemberEpoch:
		c.generation, c.phase, c.reading, c.target, c.full, c.dirty, c.toldAnew = EpochJoin, "joining", nil, nil, true, false, true
		return
	case ErrFencedInstanceID:
		c.toldAnew = true
		s.forget(c)
		return
	case ErrUnreleasedInstanceID, ErrGroupMaxSizeReached, ErrCoordinatorNotAvailable:
		c.full = true
		return
	default:
		s.t.Errorf("step %d: client %d is told %s: %s", s.steps, c.index, codeName(r.Err), body.Message)
		return
	}
	if c.generation != body.Epoch {
		c.toldAnew = true
	}
	if c.phase == "joining" && !body.Assigned {
		s.t.Errorf("step %d: client %d joined and is told no assignment", s.steps, c.index)
	}
	c.id, c.generation, c.phase, c.full, c.dirty, c.wishes = body.MemberID, body.Epoch, "member", false, began, false
	if !body.Assigned {
		return
	}
	target := map[assigner.Partition]TopicID{}
	for _, tp := range flatten(body.Share) {
		target[tp] = s.g.topics[tp.Topic].ID
	}
	if !sameReading(target, c.target) {
		c.toldAnew = true
	}
	c.target = target
}
