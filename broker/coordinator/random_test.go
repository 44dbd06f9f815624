// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

var (
	seedFlag = flag.Uint64("seed", 0, "the seed of the random runs, 0 for a new one")
	episodes = flag.Int("episodes", 120, "how many random runs of 1000 steps")
	history  = flag.Int("history", 25, "how many of the last steps to print when an invariant does not hold")
)

const (
	longestSession   = 30 * time.Second
	longestRebalance = 60 * time.Second
)

// TestRandomRuns lets clients talk to a group that join, read, commit, fall silent, restart, lose answers and repeat requests, while plans come and
// go and the clock jumps. The invariants of checks_test.go hold after every step. Then the clients behave, and the group has to settle.
func TestRandomRuns(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed=%d", seed)
	steps := 0
	for episode := range *episodes {
		s := newSimulation(t, seed+uint64(episode))
		s.chaos(1000)
		s.calm()
		steps += s.steps
		if t.Failed() {
			t.Fatalf("in the first episode of -seed=%d -episodes=1; the last steps:\n%s", seed+uint64(episode), s.history())
		}
	}
	t.Logf("%d steps", steps)
}

// simClient is a client as real ones are, if they have a bad day.
type simClient struct {
	index        int
	id           string
	generation   int32
	template     Join
	cooperative  bool
	phase        string // idle, joined or synced
	leads        bool
	assigned     []JoinMember
	reading      []TopicPartitions
	deaf         bool // the next answer is lost
	open         int
	lastInput    Input
	restarts     int
	toldToRejoin bool
}

type openRequest struct {
	client *simClient
	in     Input
	asked  time.Time
	deaf   bool
}

type simulation struct {
	t       *testing.T
	rng     *rand.Rand
	g, twin *Group
	now     time.Time
	clients []*simClient
	open    map[Token]openRequest
	token   Token
	next    time.Time
	steps   int
	plan    Plan
	chk     *checker
	lines   []string
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	rng := rand.New(rand.NewPCG(seed, 1))
	opts := Options{MaxMembers: 25}
	if rng.IntN(4) == 0 {
		opts.InitialRebalanceDelay = 3 * time.Second
	}
	s := &simulation{
		t: t, rng: rng, g: New("g", opts), twin: New("g", opts), now: time.Unix(1_700_000_000, 0), open: map[Token]openRequest{},
	}
	s.chk = newChecker(s)
	for i := range 3 + rng.IntN(6) {
		s.clients = append(s.clients, s.newClient(i))
	}
	if rng.IntN(3) > 0 {
		s.step(s.randomPlan(1))
	}
	return s
}

func (s *simulation) newClient(i int) *simClient {
	c := &simClient{index: i, generation: -1, phase: "idle", cooperative: s.rng.IntN(2) == 0}
	in := Join{
		Client:           Client{ClientID: fmt.Sprintf("client-%d", i), Host: fmt.Sprintf("10.0.0.%d", s.rng.IntN(5))},
		RequireMemberID:  s.rng.IntN(2) == 0,
		SessionTimeout:   time.Duration(6+s.rng.IntN(24)) * time.Second,
		RebalanceTimeout: time.Duration(3+s.rng.IntN(58)) * time.Second,
		ProtocolType:     "consumer",
	}
	if s.rng.IntN(3) == 0 {
		in.Client.InstanceID = fmt.Sprintf("instance-%d", i)
	}
	if s.rng.IntN(4) == 0 {
		in.Client.ClientID = fmt.Sprintf("pod-%d", s.rng.IntN(5))
	}
	names := []string{"range", "roundrobin"}
	if c.cooperative {
		names = []string{"cooperative-sticky", "range", "roundrobin"}
	}
	for _, n := range names {
		in.Protocols = append(in.Protocols, Protocol{Name: n, Metadata: []byte{byte(s.rng.IntN(3))}})
	}
	in.Subscription = &Subscription{Topics: [][]string{{"orders"}, {"payments", "orders"}, {"payments"}, {}}[min(3, s.rng.IntN(6)%4)]}
	c.template = in
	return c
}

// randomPlan deals the partitions of two topics to a few pods.
func (s *simulation) randomPlan(generation int32) Plan {
	p := Plan{Managed: true, Generation: generation, HandoffTimeout: []time.Duration{0, 5 * time.Second, 20 * time.Second}[s.rng.IntN(3)]}
	var pods []PlanMember
	for i := range 5 {
		if s.rng.IntN(3) == 0 {
			continue
		}
		uid := "u"
		if s.rng.IntN(20) == 0 {
			uid = fmt.Sprintf("u%d", s.rng.IntN(100))
		}
		ip := fmt.Sprintf("10.0.0.%d", i)
		if s.rng.IntN(10) == 0 {
			ip = "10.0.0.1"
		}
		pods = append(pods, PlanMember{Pod: fmt.Sprintf("pod-%d", i), UID: uid, IP: ip, Alive: s.rng.IntN(4) > 0})
	}
	if len(pods) > 0 {
		for _, topic := range []string{"orders", "payments"} {
			for partition := range int32(6) {
				pod := &pods[s.rng.IntN(len(pods))]
				pod.Share = append(pod.Share, TopicPartitions{Topic: topic, Partitions: []int32{partition}})
			}
		}
	}
	s.rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	p.Members = pods
	return p
}

// chaos lets anything happen.
func (s *simulation) chaos(steps int) {
	for s.steps < steps && !s.t.Failed() {
		s.pass()
		c := s.clients[s.rng.IntN(len(s.clients))]
		switch n := s.rng.IntN(1000); {
		case n < 600:
			s.proper(c)
		case n < 660:
			s.send(c, Commit{Client: s.self(c), Generation: c.generation, Offsets: s.someOffsets()})
		case n < 700:
			c.deaf = true
		case n < 750 && c.lastInput != nil:
			s.send(c, c.lastInput)
		case n < 790:
			s.corrupt(c)
		case n < 820:
			s.restart(c)
		case n < 850:
			s.send(c, Leave{Members: []Client{s.self(c), s.self(s.clients[s.rng.IntN(len(s.clients))])}})
			s.forget(c)
		case n < 900:
			s.step(s.randomPlan(s.g.Generation() + int32(s.rng.IntN(4)) - 1))
		case n < 903:
			s.step(Plan{})
		case n < 906:
			tool := Commit{Generation: -1, Offsets: s.someOffsets()}
			s.send(c, tool)
		case n < 910:
			s.send(c, DeleteOffsets{Partitions: []TopicPartitions{{Topic: "orders", Partitions: []int32{0, 1}}}})
		case n < 940:
			s.step(Disconnect{MemberID: s.self(c).MemberID})
		default:
			s.step(Tick{})
		}
	}
}

// pass lets time pass: mostly little, at times a lot, at times backwards. A deadline on the way is kept or, as on a busy machine, missed.
func (s *simulation) pass() {
	d := time.Duration(s.rng.IntN(800)) * time.Millisecond
	switch s.rng.IntN(100) {
	case 0:
		d = time.Duration(s.rng.IntN(100)) * time.Second
	case 1:
		d = -time.Duration(s.rng.IntN(5)) * time.Second
	}
	until := s.now.Add(d)
	for !s.next.IsZero() && s.next.Before(until) && s.rng.IntN(5) > 0 && !s.t.Failed() {
		s.now = s.next
		s.step(Tick{})
	}
	s.now = until
}

// proper is what a client does that behaves.
func (s *simulation) proper(c *simClient) {
	switch c.phase {
	case "idle":
		in := c.template
		in.Client.MemberID = c.id
		c.restarts++
		in.NewMemberID = fmt.Sprintf("%s#%d.%d", in.Client.ClientID, c.index, c.restarts)
		sub := *in.Subscription
		if c.cooperative {
			sub.Owned = c.reading
		} else {
			c.reading = nil
		}
		in.Subscription = &sub
		s.send(c, in)
	case "joined":
		in := Sync{Client: s.self(c), Generation: c.generation}
		if c.leads {
			in.Assignments = map[string][]byte{}
			for _, m := range c.assigned {
				in.Assignments[m.MemberID] = []byte("part of " + m.MemberID)
			}
		}
		s.send(c, in)
	case "synced":
		s.send(c, Heartbeat{Client: s.self(c), Generation: c.generation})
	}
}

func (s *simulation) self(c *simClient) Client {
	self := c.template.Client
	self.MemberID = c.id
	return self
}

// corrupt sends what no good client would.
func (s *simulation) corrupt(c *simClient) {
	last := c.lastInput
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
	switch s.rng.IntN(4) {
	case 0:
		s.send(c, Heartbeat{Client: self, Generation: generation})
	case 1:
		// Not of a right generation: who fetches the share of another in its name cannot be told from the other.
		s.send(c, Sync{Client: self, Generation: generation + 1000, Protocol: "range"})
	case 2:
		s.send(c, Commit{Client: self, Generation: generation, Offsets: s.someOffsets()})
	default:
		in := c.template
		in.Client, in.NewMemberID = self, self.MemberID
		s.send(c, in)
	}
}

func (s *simulation) someOffsets() []OffsetCommit {
	var out []OffsetCommit
	for range s.rng.IntN(4) {
		out = append(out, OffsetCommit{Topic: []string{"orders", "payments"}[s.rng.IntN(2)], Partition: int32(s.rng.IntN(6)), Offset: s.rng.Int64N(1000)})
	}
	return out
}

func (s *simulation) forget(c *simClient) {
	c.id, c.generation, c.phase, c.reading, c.leads = "", -1, "idle", nil, false
}

func (s *simulation) restart(c *simClient) {
	s.forget(c)
	c.deaf = false
	if s.rng.IntN(4) == 0 {
		open := c.open
		*c = *s.newClient(c.index)
		c.restarts, c.open = s.steps, open // its ids are new ones
	}
}

// send gives an input a token and sends it.
func (s *simulation) send(c *simClient, in Input) {
	c.lastInput = in
	s.token++
	switch v := in.(type) {
	case Join:
		v.Token = s.token
		in = v
	case Sync:
		v.Token = s.token
		in = v
	case Heartbeat:
		v.Token = s.token
		in = v
	case Leave:
		v.Token = s.token
		in = v
	case Commit:
		v.Token = s.token
		in = v
	case DeleteOffsets:
		v.Token = s.token
		in = v
	}
	s.open[s.token] = openRequest{client: c, in: in, asked: s.now, deaf: c.deaf}
	c.deaf = false
	c.open++
	s.step(in)
}

// step hands an input to the group and to its twin, checks everything, and lets the clients have the answers.
func (s *simulation) step(in Input) {
	if _, ok := in.(Plan); ok && !s.next.IsZero() && !s.now.Before(s.next) {
		s.step(Tick{}) // so that the checker sees what was due under the old plan
	}
	s.steps++
	s.chk.before(in)
	out := s.g.Step(s.now, in)
	s.lines = append(s.lines, fmt.Sprintf("%s %T%+v\n    -> %+v", s.now.Format("15:04:05.000"), in, in, out))
	if twin := s.twin.Step(s.now, in); !reflect.DeepEqual(out, twin) {
		s.t.Errorf("step %d: two groups with the same input differ:\n%+v\n%+v", s.steps, out, twin)
	}
	s.next = out.Deadline
	if p, ok := in.(Plan); ok {
		s.plan = p
	}
	for _, r := range out.Replies {
		q, ok := s.open[r.Token]
		if !ok {
			s.t.Errorf("step %d: token %d was answered before", s.steps, r.Token)
			return
		}
		delete(s.open, r.Token)
		s.chk.reply(q, r)
		q.client.open--
		if !q.deaf {
			s.hear(q.client, q.in, r)
		}
	}
	s.chk.after(in, out)
}

// hear lets a client react to an answer as real ones do.
func (s *simulation) hear(c *simClient, in Input, r Reply) {
	switch r.Err {
	case ErrUnknownMemberID, ErrFencedInstanceID:
		s.forget(c)
		return
	case ErrMemberIDRequired:
		body, _ := r.Body.(JoinReply)
		c.id = body.MemberID
		return
	case ErrNone:
	default:
		if _, ok := in.(Commit); !ok {
			c.phase = "idle"
			c.toldToRejoin = true
		}
		return
	}
	switch body := r.Body.(type) {
	case JoinReply:
		c.id, c.generation, c.phase = body.MemberID, body.Generation, "joined"
		c.leads, c.assigned = body.Leader == body.MemberID && !body.SkipAssignment, body.Members
	case SyncReply:
		c.phase, c.reading = "synced", nil
		if body.Managed {
			c.reading = body.Share
		}
	}
}

// calm lets the clients behave until the group has had time to settle, and checks that it has.
func (s *simulation) calm() {
	for _, c := range s.clients {
		c.deaf = false
	}
	end := s.now.Add(3 * (longestSession + longestRebalance))
	for s.now.Before(end) && !s.t.Failed() {
		s.round()
	}
	for range 2 { // from here on nobody is told anything new
		for _, c := range s.clients {
			c.toldToRejoin = false
		}
		s.round()
		for _, c := range s.clients {
			if c.phase != "synced" || c.toldToRejoin {
				s.t.Errorf("client %d (%s) has not settled: %s", c.index, c.id, c.phase)
			}
		}
	}
	s.chk.settled()
}

// round is a second in which each client says one thing, if it does not wait for an answer.
func (s *simulation) round() {
	for !s.next.IsZero() && s.next.Before(s.now.Add(time.Second)) && !s.t.Failed() {
		if s.next.After(s.now) {
			s.now = s.next
		}
		s.step(Tick{})
	}
	s.now = s.now.Add(time.Second)
	for _, c := range s.clients {
		if c.open == 0 && !s.t.Failed() {
			s.proper(c)
		}
	}
}

func (s *simulation) history() string {
	out := ""
	for _, l := range s.lines[max(0, len(s.lines)-*history):] {
		out += l + "\n"
	}
	return out
}
