// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

var (
	seedFlag = flag.Uint64("seed", 1, "the seed of the random runs, 0 for a new one, as make soak has")
	runs     = flag.Int("runs", 10, "how many random runs")
	episodes = flag.Int("episodes", 0, "how many groups a random run is of, each of 1000 steps and of those in which it settles; 0 is 60, or 6 with -race and -short")
	history  = flag.Int("history", 25, "how many of the last steps to print when an invariant does not hold")
)

const (
	longestSession   = 30 * time.Second
	longestRebalance = 60 * time.Second
)

// firstSeed is the seed of a random run.
func firstSeed() uint64 {
	if *seedFlag == 0 {
		return rand.Uint64()
	}
	return *seedFlag
}

// TestRandomRuns lets clients of all kinds talk to a group that join, read, commit, fall silent, crash, lose answers and repeat requests, while plans and topics come and
// go, the clock jumps, and the coordinator crashes and is loaded from its log. The invariants of checks_test.go hold after every step. Then the clients behave, and the group
// has to settle.
func TestRandomRuns(t *testing.T) {
	runEpisodes(t, 60, func(t *testing.T, seed uint64) (int, *simulation) {
		s := newSimulation(t, seed)
		s.chaos(1000)
		s.calm()
		return s.steps, s
	})
}

// runEpisodes makes the random runs of a test, each of so many episodes, of which each returns how many steps it took and what tells of them.
func runEpisodes(t *testing.T, normal int, episode func(t *testing.T, seed uint64) (int, *simulation)) {
	t.Helper()
	seed, count := firstSeed(), *episodes
	switch {
	case count > 0:
	case raceEnabled || testing.Short():
		count = 6
	default:
		count = normal
	}
	for run := range *runs {
		first := seed + uint64(run*count)
		t.Run(fmt.Sprintf("seed %d", first), func(t *testing.T) {
			t.Parallel()
			steps := 0
			for i := range uint64(count) {
				n, s := episode(t, first+i)
				steps += n
				if t.Failed() {
					t.Fatalf("in the episode of -seed=%d -runs=1 -episodes=1; the last steps:\n%s", first+i, s.history())
				}
			}
			t.Logf("%d steps", steps)
		})
	}
}

type openRequest struct {
	client *simClient
	in     Input
	asked  time.Time
	deaf   bool
}

// happened is a step.
type happened struct {
	now time.Time
	in  Input
	out Output
}

// mix says of what kind an episode's clients are, so that their group can settle.
type mix struct {
	// consumers are how many of four clients speak KIP-848's protocol.
	consumers int
	// cooperative says that the classic ones are (KIP-429).
	cooperative bool
	// managed says that there are plans.
	managed bool
}

type simulation struct {
	t   *testing.T
	rng *rand.Rand
	mix mix
	// g is the group, twin another one that is told the same, nil in most episodes.
	g, twin *Group
	opts    Options
	now     time.Time
	clients []*simClient
	open    map[Token]openRequest
	token   Token
	next    time.Time
	steps   int
	plan    Plan
	topics  map[string]Topic
	ids     byte // the last topic id
	log     []Record
	// world is what is around the group, nil where plans come by themselves.
	world *world
	// calming says that the clients behave.
	calming bool
	chk     *checker
	ring    []happened // the last steps, of which oldest is the first
	oldest  int
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := newSimulationOf(t, rand.New(rand.NewPCG(seed, 1)))
	rng := s.rng
	s.mix = mix{consumers: []int{0, 0, 2, 3, 4}[rng.IntN(5)], cooperative: rng.IntN(2) == 0, managed: rng.IntN(2) == 0}
	for i := range 3 + rng.IntN(6) {
		s.clients = append(s.clients, s.newClient(i))
	}
	s.create("orders", 6)
	s.create("payments", 6)
	s.step(Topics{Topics: s.topics})
	if s.mix.managed && rng.IntN(4) > 0 {
		s.step(s.randomPlan(1))
	}
	return s
}

// newSimulationOf makes one that has neither clients nor topics yet.
func newSimulationOf(t *testing.T, rng *rand.Rand) *simulation {
	opts := Options{MaxMembers: 25, ConsumerSessionTimeout: 20 * time.Second}
	if rng.IntN(4) == 0 {
		opts.InitialRebalanceDelay = 3 * time.Second
	}
	if rng.IntN(2) == 0 {
		opts.AssignmentInterval = 200 * time.Millisecond
	}
	if rng.IntN(4) == 0 {
		opts.OffsetsRetention = 2 * time.Minute
	}
	s := &simulation{t: t, rng: rng, opts: opts, now: time.Unix(1_700_000_000, 0), open: map[Token]openRequest{}, topics: map[string]Topic{}}
	s.g = New("g", opts)
	if rng.IntN(4) == 0 {
		s.twin = New("g", opts)
	}
	s.chk = newChecker(s)
	return s
}

// chaos lets anything happen.
func (s *simulation) chaos(steps int) {
	for s.steps < steps && !s.t.Failed() {
		s.pass()
		c := s.clients[s.rng.IntN(len(s.clients))]
		switch n := s.rng.IntN(1000); {
		case n < 650:
			s.proper(c)
		case n < 700:
			s.commit(c)
		case n < 740:
			c.deaf = true
		case n < 770:
			s.repeat(c)
		case n < 800:
			s.corrupt(c)
		case n < 830:
			s.restart(c)
		case n < 850:
			s.leave(c)
		case n < 880 && s.mix.managed:
			s.step(s.randomPlan(s.g.Generation() + int32(s.rng.IntN(4)) - 1))
		case n < 884 && s.mix.managed:
			s.step(Plan{})
		case n < 890:
			s.send(c, Commit{Generation: -1, Offsets: s.someOffsets()})
		case n < 895:
			s.send(c, DeleteOffsets{Partitions: []TopicPartitions{{Topic: "orders", Partitions: []int32{0, 1}}}})
		case n < 900 && len(s.g.members) == 0 && len(s.g.pending) == 0:
			s.send(c, Delete{})
		case n < 905:
			s.release(c)
		case n < 920:
			s.step(Disconnect{MemberID: c.id})
		case n < 935:
			s.changeTopics()
		case n < 945:
			s.crash()
		default:
			s.step(Tick{})
		}
		if s.g.dead {
			s.rebuild(nil) // the broker drops a group that is dead, and makes a new one for the next request
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
	if c.consumer {
		s.properConsumer(c)
	} else {
		s.properClassic(c)
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
	case ConsumerHeartbeat:
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
	case Delete:
		v.Token = s.token
		in = v
	}
	if s.world != nil && s.world.misdirect(c, in, s.token) {
		return
	}
	s.dueFirst(in)
	s.open[s.token] = openRequest{client: c, in: in, asked: s.now, deaf: c.deaf}
	c.deaf = false
	c.open++
	s.hand(in)
}

// due says whether the group has a deadline that has come.
func (s *simulation) due() bool {
	now := s.now
	if s.chk.now.After(now) {
		now = s.chk.now
	}
	return !s.next.IsZero() && !now.Before(s.next)
}

// dueFirst mostly deals with what is due before an input, so that the checker sees it by itself.
func (s *simulation) dueFirst(in Input) {
	_, topics := in.(Topics) // of which an answer in the same step would be, is not said
	if _, tick := in.(Tick); !tick && s.due() && (topics || s.rng.IntN(4) > 0) {
		s.hand(Tick{})
	}
}

// step lets the group take an input that is no client's.
func (s *simulation) step(in Input) {
	s.dueFirst(in)
	s.hand(in)
}

// hand hands an input to the group and to its twin, checks everything, and lets the clients have the answers.
func (s *simulation) hand(in Input) {
	s.steps++
	s.chk.before(in)
	out := s.g.Step(s.now, in)
	if len(s.ring) < *history {
		s.ring = append(s.ring, happened{s.now, in, out})
	} else {
		s.ring[s.oldest] = happened{s.now, in, out}
		s.oldest = (s.oldest + 1) % len(s.ring)
	}
	if s.twin != nil {
		if twin := s.twin.Step(s.now, in); !reflect.DeepEqual(out, twin) {
			s.t.Errorf("step %d: two groups with the same input differ:\n%+v\n%+v", s.steps, out, twin)
		}
	}
	s.next = out.Deadline
	if p, ok := in.(Plan); ok {
		s.plan = p
	}
	fate := s.rng.IntN(2000)
	if s.calming {
		fate = -1
	}
	switch fate { // the coordinator crashes in the middle of it
	case 0: // its records are not in the log yet
		s.reload()
		return
	case 1: // they are, but nobody hears of it
		s.log = append(s.log, out.Records...)
		s.reload()
		return
	}
	s.log = append(s.log, out.Records...)
	for _, r := range out.Replies {
		q, ok := s.open[r.Token]
		if !ok {
			s.t.Errorf("step %d: token %d was answered before", s.steps, r.Token)
			return
		}
		delete(s.open, r.Token)
		s.chk.reply(q, r)
		q.client.open--
		switch {
		case !q.deaf:
			s.hear(q.client, q.in, r)
			q.client.misled = q.client.misled && !s.holdsAll(q.client)
		case q.client.consumer:
			q.client.lose()
		}
	}
	s.chk.after(in, out)
}

// hear lets a client react to an answer as real ones do.
func (s *simulation) hear(c *simClient, in Input, r Reply) {
	if hb, ok := in.(ConsumerHeartbeat); ok {
		s.hearConsumer(c, hb, r)
		return
	}
	s.hearClassic(c, in, r)
}

// holdsAll says whether the group takes a client for the holder of all that it reads, and is about to read, as far as it knows.
func (s *simulation) holdsAll(c *simClient) bool {
	for _, reading := range []map[assigner.Partition]TopicID{c.reading, c.target} {
		for tp := range reading {
			if s.g.handoff != nil && s.g.handoff.holders[tp] != s.g.members[c.id] {
				return false
			}
		}
	}
	return true
}

// calm lets the clients behave until the group has had time to settle, and checks that it has.
func (s *simulation) calm() {
	s.calming = true
	for _, c := range s.clients {
		c.deaf = false
	}
	end := s.now.Add(3 * (longestSession + longestRebalance))
	for s.now.Before(end) && !s.t.Failed() {
		s.round()
	}
	if s.t.Failed() {
		return
	}
	for range 2 { // from here on nobody is told anything new
		for _, c := range s.clients {
			c.toldAnew = false
		}
		s.round()
		for _, c := range s.clients {
			if !c.settled() {
				s.t.Errorf("client %d (%s) has not settled: %s, told anew %t", c.index, c.id, c.phase, c.toldAnew)
			}
		}
	}
	s.chk.settled()
}

// round is two seconds in which each client says one thing, if it does not wait for an answer.
func (s *simulation) round() {
	end := s.now.Add(2 * time.Second)
	for !s.next.IsZero() && s.next.Before(end) && !s.t.Failed() {
		if s.next.After(s.now) {
			s.now = s.next
		}
		s.step(Tick{})
	}
	if s.g.dead { // its last offsets have expired
		s.rebuild(nil)
	}
	s.now = end
	if s.world != nil {
		s.world.converge()
	}
	for _, c := range s.clients {
		if c.open == 0 && !s.t.Failed() {
			s.proper(c)
		}
	}
}

// randomPlan deals the partitions of two topics to a few pods.
func (s *simulation) randomPlan(generation int32) Plan {
	p := Plan{Managed: true, Generation: max(1, generation), HandoffTimeout: []time.Duration{0, 5 * time.Second, 20 * time.Second}[s.rng.IntN(3)]}
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

// commit sends offsets of what the client reads.
func (s *simulation) commit(c *simClient) {
	in := Commit{Client: s.self(c), Generation: c.generation}
	for _, tp := range c.sortedReading() {
		in.Offsets = append(in.Offsets, OffsetCommit{Topic: tp.Topic, Partition: tp.Partition, Offset: s.rng.Int64N(1000)})
	}
	s.send(c, in)
}

func (s *simulation) someOffsets() []OffsetCommit {
	var out []OffsetCommit
	for range s.rng.IntN(4) {
		out = append(out, OffsetCommit{Topic: []string{"orders", "payments"}[s.rng.IntN(2)], Partition: int32(s.rng.IntN(6)), Offset: s.rng.Int64N(1000)})
	}
	return out
}

// history prints the last steps.
func (s *simulation) history() string {
	var out strings.Builder
	for i := range s.ring {
		h := s.ring[(s.oldest+i)%len(s.ring)]
		fmt.Fprintf(&out, "%s %T%+v\n", h.now.Format("15:04:05.000"), h.in, h.in)
		for _, r := range h.out.Replies {
			fmt.Fprintf(&out, "    -> %+v\n", r)
		}
		for _, r := range h.out.Records {
			if data, err := json.Marshal(r); err == nil {
				fmt.Fprintf(&out, "    record %s\n", data)
			}
		}
		for _, n := range h.out.Notes {
			fmt.Fprintf(&out, "    note %s\n", n)
		}
	}
	return out.String()
}

// sortedReading is what the client reads.
func (c *simClient) sortedReading() []assigner.Partition {
	out := make([]assigner.Partition, 0, len(c.reading))
	for tp := range c.reading {
		out = append(out, tp)
	}
	slices.SortFunc(out, comparePartitions)
	return out
}
