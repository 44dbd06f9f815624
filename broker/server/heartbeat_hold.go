// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// heartbeatMargin is how long before its client sends the next one a held heartbeat is answered at the latest: a client that waits for the answer is not to be late.
const heartbeatMargin = 100 * time.Millisecond

// The ends of a held heartbeat, as the metric names them.
const (
	// heldForNews: it had something to say.
	heldForNews = "news"
	// heldForTime: its time was over.
	heldForTime = "time"
	// heldForNext: another request came after it, the connection closed, or the broker stops.
	heldForNext = "next"
)

// The kinds of clients, by what becomes of them while a heartbeat is held.
const (
	clientUnknown int32 = iota
	clientBears
	clientSuffers
)

// clientKind tells by the name and version in a client's ApiVersions request (KIP-511) whether it goes on with its work while it waits for the answer to a heartbeat.
// Kafka's own client, librdkafka and what builds on it, franz-go (kgo) and kafka-python 3 do: they send heartbeats in the background, over a connection that
// carries no Fetch. Sarama locks the connection for the whole round trip, so that records and commits would wait; KafkaJS sends heartbeats between the messages
// that it processes. What others do nobody knows.
func clientKind(name, version string) int32 {
	switch {
	case name == "apache-kafka-java", name == "librdkafka", strings.HasPrefix(name, "confluent-kafka-"), name == "kgo",
		name == "kafka-python" && strings.HasPrefix(version, "3."):
		return clientBears
	}
	return clientSuffers
}

// beatPace is what a connection knows of the heartbeats of the member that uses it.
type beatPace struct {
	member     memberKey
	generation int32
	// last is when the last heartbeat came, zero where it does not tell when the next one is due: it was refused, and what followed was something else than waiting.
	last time.Time
	// held says that it was held back.
	held bool
	// interval is how often the client sends heartbeats of its own accord, zero while that is not known.
	interval time.Duration
}

// came notes a heartbeat. The interval is learnt from two of which the first was not held, or from the answer to a SyncGroup and the first one. One that does not fit it any more is forgotten, and learnt anew: in some
// clients the interval begins when they send a heartbeat, in others with its answer, so between a held one and the next it is once or twice as long.
func (p *beatPace) came(member memberKey, generation int32, now time.Time) {
	if p.member != member {
		*p = beatPace{member: member}
	}
	if gap := now.Sub(p.last); !p.last.IsZero() && p.generation == generation {
		switch {
		case !p.held:
			p.interval = gap
		case gap < p.interval-heartbeatMargin || gap > 2*p.interval+heartbeatMargin:
			p.interval = 0
		}
	}
	p.generation, p.last, p.held = generation, now, false
}

// synced notes that a member was given its share. Of one whose interval is not known it is learnt from here to its first heartbeat, which comes an interval later, or sooner.
func (p *beatPace) synced(member memberKey, generation int32, now time.Time) {
	if p.member != member {
		*p = beatPace{member: member}
	}
	if p.interval == 0 {
		p.generation, p.last, p.held = generation, now, false
	}
}

// answered notes what the heartbeat was answered.
func (p *beatPace) answered(r coordinator.Reply) {
	p.held = r.Held
	if r.Err != codeNone {
		p.last = time.Time{}
	}
}

// holdFor is how long a heartbeat may be held, zero for not at all.
func (s *Server) holdFor(r *request, req *kmsg.HeartbeatRequest) time.Duration {
	c := r.from
	if c == nil || s.cfg.Groups.HeartbeatHold == 0 {
		return 0
	}
	c.pace.came(memberKey{req.Group, req.MemberID}, req.Generation, s.groups.now())
	if c.client.Load() != clientBears || c.fetches.Load() || c.pace.interval == 0 || r.followed() {
		return 0
	}
	return max(min(c.pace.interval-heartbeatMargin, s.cfg.Groups.HeartbeatHold), 0)
}

// awaitBeat waits for the answer to a heartbeat, and ends a hold when another request has come, for that has to wait for it, when the connection has closed, and when the
// broker stops.
func (s *Server) awaitBeat(ctx context.Context, r *request, member string, o owed) coordinator.Reply {
	end := heldForTime
	var reply coordinator.Reply
	select {
	case reply = <-o.answer:
		if reply.Err != codeNone {
			end = heldForNews
		}
	case <-r.next: // nil, which is never ready, in tests of handlers
		end = heldForNext
	case <-ctx.Done():
		end = heldForNext
	}
	if end == heldForNext {
		o.by.release(context.WithoutCancel(ctx), member, o.token)
		reply = <-o.answer // it comes even where the group is thrown away, or led elsewhere
	}
	if reply.Held {
		s.metrics.held.WithLabelValues(end).Inc()
	}
	return reply
}

// holdSyncFor is how long a SyncGroup may be held that has nothing for its member yet, zero for not at all. Every client waits for its answer, as for the leader's plan in an
// ordinary group; but one that fetches by the same connection would wait with that, too.
func (s *Server) holdSyncFor(r *request) time.Duration {
	if r.from == nil || r.from.fetches.Load() || r.followed() {
		return 0
	}
	return max(s.cfg.Groups.HeartbeatHold, 0)
}

// awaitSync waits for the answer to a SyncGroup, and ends a hold when another request has come. One that waits for the leader's plan waits on.
func (s *Server) awaitSync(ctx context.Context, r *request, member string, o owed) coordinator.Reply {
	next := r.next
	for {
		select {
		case reply := <-o.answer:
			return reply
		case <-next:
			next = nil
			o.by.release(context.WithoutCancel(ctx), member, o.token)
		case <-ctx.Done():
			o.by.abandon(o.token)
			return coordinator.Reply{Token: o.token, Err: codeCoordinatorMissing}
		}
	}
}
