// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// simClient is a client as real ones are, if they have a bad day.
type simClient struct {
	index int
	// consumer says that it speaks KIP-848's protocol.
	consumer bool
	id       string
	// generation is the last that it was told, of either protocol.
	generation int32
	// reading is what the client believes to be its own and reads, and of which topic each partition is.
	reading map[assigner.Partition]TopicID

	deaf      bool // the next answer is lost
	open      int
	lastInput Input
	restarts  int
	// misled says that the client reads what a broker told it that coordinates its group no longer, and that takes no commits.
	misled bool
	// toldAnew says that the client was told something that it did not know.
	toldAnew bool

	// Of a classic client:
	template    Join
	cooperative bool
	// late says that a static client that keeps its partitions while it joins (KIP-429) has missed a generation, in which they may have become another's. JoinGroup does not say of which
	// generation they are, so that only its assignment tells it.
	late  bool
	plans bool // as a leader it makes a plan
	// holds is how long its broker holds its heartbeats at most.
	holds time.Duration
	phase string // idle, joined or synced; of KIP-848's clients joining or member
	leads bool
	// watches are the topics as a leader knows them: it joins again when they change, for only a leader sees to that in a classic group.
	watches  map[string]Topic
	assigned []JoinMember

	// Of a client of KIP-848:
	beat ConsumerHeartbeat
	// target is what it was told last.
	target map[assigner.Partition]TopicID
	// full says that its next heartbeat says everything, dirty that it says what the client reads, wishes that it says what it wants.
	full, dirty, wishes bool
}

func (s *simulation) newClient(i int) *simClient {
	c := &simClient{index: i, generation: -1, phase: "idle"}
	client := Client{ClientID: fmt.Sprintf("client-%d", i), Host: fmt.Sprintf("10.0.0.%d", s.rng.IntN(5))}
	if s.rng.IntN(3) == 0 {
		client.InstanceID = fmt.Sprintf("instance-%d", i)
	}
	if s.rng.IntN(4) == 0 {
		client.ClientID = fmt.Sprintf("pod-%d", s.rng.IntN(5))
	}
	rebalance := time.Duration(3+s.rng.IntN(58)) * time.Second
	if s.rng.IntN(4) < s.mix.consumers {
		s.newConsumerClient(c, client, rebalance)
		return c
	}
	c.cooperative, c.plans = s.mix.cooperative, s.rng.IntN(2) == 0
	c.template = Join{
		Client:           client,
		RequireMemberID:  s.rng.IntN(2) == 0,
		SkipsAssignment:  s.rng.IntN(2) == 0,
		SessionTimeout:   time.Duration(6+s.rng.IntN(24)) * time.Second,
		RebalanceTimeout: rebalance,
		ProtocolType:     consumerProtocol,
		Subscription:     &Subscription{Topics: s.someTopics()},
	}
	if s.rng.IntN(8) == 0 {
		c.template.RebalanceTimeout = 0 // JoinGroup v0
	}
	if s.rng.IntN(2) == 0 {
		c.holds = time.Duration(s.rng.IntN(3000)) * time.Millisecond
	}
	return c
}

func (s *simulation) someTopics() []string {
	return [][]string{{"orders"}, {"payments", "orders"}, {"payments"}, {}}[min(3, s.rng.IntN(6)%4)]
}

func (s *simulation) self(c *simClient) Client {
	self := c.template.Client
	if c.consumer {
		self = c.beat.Client
	}
	self.MemberID = c.id
	return self
}

// forget makes a client one that has not begun.
func (s *simulation) forget(c *simClient) {
	c.id, c.generation, c.phase, c.reading, c.leads, c.watches = "", -1, "idle", nil, false, nil
	c.target, c.full, c.dirty, c.late = nil, true, false, false
	if c.consumer {
		c.generation = EpochJoin
		s.newID(c)
	}
}

// restart kills a client's program, and starts it or another one anew. The connection closes, or the network forgets it.
func (s *simulation) restart(c *simClient) {
	if s.rng.IntN(2) == 0 {
		s.step(Disconnect{MemberID: c.id})
	}
	s.forget(c)
	c.deaf = false
	s.deafen(c)
	if s.world == nil && s.rng.IntN(4) == 0 {
		open, restarts := c.open, c.restarts
		*c = *s.newClient(c.index)
		c.restarts, c.open = restarts, open
		if c.consumer {
			s.newID(c)
		}
	}
}

// deafen lets a client hear none of the answers that it waits for.
func (s *simulation) deafen(c *simClient) {
	for token, q := range s.open {
		if q.client == c {
			q.deaf = true
			s.open[token] = q
		}
	}
}

// leave lets a client leave, or removes others too.
func (s *simulation) leave(c *simClient) {
	if c.consumer && s.rng.IntN(2) == 0 {
		in := ConsumerHeartbeat{Client: s.self(c), Epoch: EpochLeave}
		if c.beat.Client.InstanceID != "" && s.rng.IntN(2) == 0 {
			in.Epoch = EpochLeaveStatic
		}
		c.reading = nil
		c.deaf = true
		s.send(c, in)
	} else {
		c.reading = nil
		c.deaf = true
		s.send(c, Leave{Members: []Client{s.self(c), s.self(s.clients[s.rng.IntN(len(s.clients))])}})
	}
	s.forget(c)
}

// repeat sends a request again that may have been answered: the answer was slow.
func (s *simulation) repeat(c *simClient) {
	switch c.lastInput.(type) {
	case Heartbeat, Commit:
		s.send(c, c.lastInput)
	case Sync:
		if c.phase == "joined" {
			s.send(c, c.lastInput)
		}
	case Join:
		if c.phase == "idle" {
			s.send(c, c.lastInput)
		}
	}
}

// corrupt sends what no good client would.
func (s *simulation) corrupt(c *simClient) {
	last, target, full := c.lastInput, c.target, c.full
	defer func() { c.lastInput = last }()
	c.deaf = true
	self := s.self(c)
	switch s.rng.IntN(3) {
	case 0:
		self.MemberID = s.self(s.clients[s.rng.IntN(len(s.clients))]).MemberID
	case 1:
		self.MemberID = "nobody"
	}
	generation := c.generation + int32(s.rng.IntN(3)) - 1
	switch s.rng.IntN(5) {
	case 0:
		s.send(c, Heartbeat{Client: self, Generation: generation})
	case 1:
		// Not of a right generation: who fetches the share of another in its name cannot be told from the other.
		s.send(c, Sync{Client: self, Generation: generation + 1000, Protocol: "range"})
	case 2:
		s.send(c, Commit{Client: self, Generation: generation, Offsets: s.someOffsets()})
	case 3:
		s.send(c, ConsumerHeartbeat{Client: self, Epoch: generation + 1000, Owned: []TopicPartitions{{Topic: "orders", Partitions: []int32{0}}}})
	default:
		self.MemberID = "nobody"
		in := c.template
		if in.SessionTimeout == 0 {
			break
		}
		in.Client, in.NewMemberID, in.Protocols = self, self.MemberID, s.protocols(c, in.Subscription)
		s.send(c, in)
	}
	if c.open == 0 { // else the coordinator has crashed meanwhile, or the client waits for another answer
		c.target, c.full = target, full
	}
	c.deaf = false
}

func (s *simulation) protocols(c *simClient, sub *Subscription) []Protocol {
	metadata := []byte(strings.Join(sub.Topics, ",") + "|" + cmpString(sub.Owned))
	names := []string{"range", "roundrobin"}
	if c.cooperative {
		names = []string{"cooperative-sticky"}
	}
	var out []Protocol
	for _, n := range names {
		out = append(out, Protocol{Name: n, Metadata: metadata})
	}
	return out
}

// properClassic is what a classic client does that behaves.
func (s *simulation) properClassic(c *simClient) {
	if c.phase == "synced" && c.watches != nil && !maps.Equal(c.watches, s.topics) {
		c.phase = "idle"
	}
	switch c.phase {
	case "idle":
		in := c.template
		in.Client.MemberID = c.id
		c.restarts++
		in.NewMemberID = fmt.Sprintf("%s#%d.%d", in.Client.ClientID, c.index, c.restarts)
		sub := *in.Subscription
		if c.cooperative {
			sub.Owned = group(c.sortedReading())
		} else {
			c.reading = nil
		}
		in.Subscription, in.Protocols = &sub, s.protocols(c, &sub)
		s.send(c, in)
	case "joined":
		in := Sync{Client: s.self(c), Generation: c.generation, Hold: c.holds}
		if c.leads && c.plans {
			in.Assignments, in.Shares = map[string][]byte{}, map[string][]TopicPartitions{}
			for id, share := range s.leaderPlan(c.assigned) {
				in.Assignments[id], in.Shares[id] = []byte(cmpString(group(share))), group(share)
			}
		}
		s.send(c, in)
	case "synced":
		s.send(c, Heartbeat{Client: s.self(c), Generation: c.generation, Hold: c.holds})
	}
}

// release ends the wait of a client's heartbeat, or of one that is none.
func (s *simulation) release(c *simClient) {
	in := Release{MemberID: c.id, Token: s.token - Token(s.rng.IntN(3))}
	if b := s.g.held.of[c.id]; b != nil && s.rng.IntN(4) > 0 {
		in.Token = b.in.Token
	}
	s.step(in)
}

// leaderPlan is a plan as a client's leader makes it: who owns a partition keeps it, the rest goes to whoever has least.
func (s *simulation) leaderPlan(members []JoinMember) assigner.Assignment {
	plan, reads, owners := assigner.Assignment{}, map[string][]string{}, map[assigner.Partition]string{}
	for _, m := range members {
		topics, owned, _ := strings.Cut(string(m.Metadata), "|")
		plan[m.MemberID] = nil
		for topic := range strings.SplitSeq(topics, ",") {
			reads[topic] = append(reads[topic], m.MemberID)
		}
		for _, tp := range flatten(parsePartitions(owned)) {
			owners[tp] = m.MemberID
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(s.topics)) {
		for p := range s.topics[topic].Partitions {
			if readers := reads[topic]; len(readers) > 0 {
				tp := assigner.Partition{Topic: topic, Partition: p}
				owner := owners[tp]
				if !slices.Contains(readers, owner) {
					owner = slices.MinFunc(readers, func(a, b string) int { return cmp.Or(cmp.Compare(len(plan[a]), len(plan[b])), cmp.Compare(a, b)) })
				}
				plan[owner] = append(plan[owner], tp)
			}
		}
	}
	for _, share := range plan {
		slices.SortFunc(share, comparePartitions)
	}
	return plan
}

// hearClassic lets a client of the classic protocol react to an answer.
func (s *simulation) hearClassic(c *simClient, in Input, r Reply) {
	_, commit := in.(Commit)
	switch r.Err {
	case ErrUnknownMemberID, ErrFencedInstanceID:
		if !c.consumer {
			c.toldAnew = true
			s.forget(c)
			s.deafen(c)
		}
		return
	case ErrMemberIDRequired:
		body, _ := r.Body.(JoinReply)
		c.id = body.MemberID
		return
	case ErrNone:
	default:
		if !commit && !c.consumer {
			c.phase = "idle"
			c.toldAnew = true
			if r.Err == ErrIllegalGeneration { // it begins anew: what it asked before, as one that still read something, it does not want to know
				c.reading = nil
				s.deafen(c)
			}
		}
		return
	}
	switch body := r.Body.(type) {
	case JoinReply:
		c.late = c.cooperative && c.template.Client.InstanceID != "" && c.generation >= 0 && body.Generation > c.generation+1
		c.id, c.generation, c.phase = body.MemberID, body.Generation, "joined"
		c.leads, c.assigned = body.Leader == body.MemberID && !body.SkipAssignment, body.Members
		c.watches = nil
		if body.Leader == body.MemberID {
			c.watches = s.topics
		}
	case SyncReply:
		share := flatten(body.Share)
		if !body.Shared {
			share = flatten(parsePartitions(string(body.Assignment)))
		}
		c.phase, c.late = "synced", false
		before := len(c.reading)
		kept := 0
		reading := map[assigner.Partition]TopicID{}
		for _, tp := range share {
			if _, ok := c.reading[tp]; ok {
				kept++
			}
			reading[tp] = s.g.topics[tp.Topic].ID
		}
		c.reading = reading
		if c.cooperative && kept < before { // it has given up something, and says so (KIP-429)
			c.phase = "idle"
			c.toldAnew = true
		}
	}
}

// settled says whether the client has what it wants, and nothing new is told to it.
func (c *simClient) settled() bool {
	if c.consumer {
		return c.phase == "member" && !c.toldAnew && sameReading(c.reading, c.target)
	}
	return c.phase == "synced" && !c.toldAnew
}
