// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// TestRandomWorlds lets pods, what makes them, the operator and brokers follow each other late and out of order, each of which crashes and begins anew, while the consumers in the pods do what those of
// TestRandomRuns do. The invariants of checks_test.go hold after every step, and those of world_checks_test.go after every decision of the operator. Then all is well, and everything has to settle: each partition
// has an owner, and nothing more is decided.
func TestRandomWorlds(t *testing.T) {
	runEpisodes(t, 25, func(t *testing.T, seed uint64) (int, *simulation) {
		w := newWorld(t, seed)
		w.chaos(1000)
		w.calm()
		return w.steps + w.s.steps, w.s
	})
}

// versions are those of something that the API server keeps, as its watchers see them: in this order, each when it gets to it.
type versions[T any] struct{ all []T }

func (v *versions[T]) add(t T)       { v.all = append(v.all, t) }
func (v *versions[T]) last() T       { return v.all[len(v.all)-1] }
func (v *versions[T]) at(seen int) T { return v.all[seen] }

// watch is how far somebody has seen some versions.
type watch struct{ seen int }

// follow goes on by one version, mostly, or looks at everything anew and is at a later one.
func (w *watch) follow(rng *rand.Rand, latest int) {
	switch {
	case w.seen >= latest:
	case rng.IntN(8) == 0:
		w.seen += 1 + rng.IntN(latest-w.seen)
	default:
		w.seen++
	}
}

// list is what one sees that begins: the state as it is, or, of an API server that answers from its cache, as it was.
func (w *watch) list(rng *rand.Rand, latest int) {
	w.seen = max(0, latest-max(0, rng.IntN(10)-6))
}

// world is what is around a managed group.
type world struct {
	s   *simulation
	rng *rand.Rand
	// steps counts what happens outside of the group.
	steps int

	// groups, pods, workloads and topics are what the API server keeps.
	groups    versions[apiGroup]
	pods      versions[map[string]apiPod]
	workloads versions[map[string]Workload]
	topics    versions[map[string]int32]

	// makers make pods, running are the pods that there are, by name.
	makers  []*maker
	running map[string]*worldPod
	// ghosts are pods that were removed by force while their nodes were cut off, and run on.
	ghosts []*worldPod
	places map[*simClient]*worldPod
	// closing are the members whose connections have closed, of which the coordinator has yet to hear.
	closing []string
	// made is how many pods, clients and groups were ever made. nodes says of each node whether it is cut off.
	made  int
	nodes []bool

	operators []*operator
	brokers   []*watch
	// host is the broker that coordinates the group; zombie the group of the one before, as long as that does not know that it is no longer it.
	host   int
	zombie *Group
	// told is the plan that the group was told last.
	told Plan

	// orphaned is since when a partition has had no reader, now that all is well.
	orphaned map[assigner.Partition]time.Time
}

func newWorld(t *testing.T, seed uint64) *world {
	s := newSimulationOf(t, rand.New(rand.NewPCG(seed, 2)))
	s.opts.MaxMembers = 200
	s.g = New("g", s.opts)
	if s.twin != nil {
		s.twin = New("g", s.opts)
	}
	s.mix = mix{consumers: []int{0, 1, 2, 4}[s.rng.IntN(4)], cooperative: s.rng.IntN(2) == 0, managed: true}
	w := &world{s: s, rng: s.rng, running: map[string]*worldPod{}, nodes: make([]bool, 3), orphaned: map[assigner.Partition]time.Time{}, places: map[*simClient]*worldPod{}}
	s.create("orders", 4)
	s.create("payments", 4)
	w.pods.add(nil)
	w.topics.add(w.partitions())
	w.newGroup(apiGroup{
		grace:   []time.Duration{0, 5 * time.Second, 10 * time.Second}[s.rng.IntN(3)],
		delay:   []time.Duration{0, 500 * time.Millisecond, 2 * time.Second}[s.rng.IntN(3)],
		handoff: []time.Duration{time.Second, 5 * time.Second, longestHandoff}[s.rng.IntN(3)],
	})
	w.newMakers()
	for range 2 {
		w.operators = append(w.operators, &operator{down: true})
	}
	w.operators[0].begin(w)
	for range 3 {
		w.brokers = append(w.brokers, &watch{})
	}
	s.world = w
	s.step(Topics{Topics: s.topics})
	return w
}

// partitions are how many each topic has.
func (w *world) partitions() map[string]int32 {
	out := map[string]int32{}
	for name, topic := range w.s.topics {
		out[name] = topic.Partitions
	}
	return out
}

// chaos lets anything happen.
func (w *world) chaos(steps int) {
	s := w.s
	for s.steps < steps && w.steps < 4*steps && !s.t.Failed() {
		s.pass()
		w.wakeOperators()
		switch n := s.rng.IntN(1000); {
		case n < 450:
			w.speak()
		case n < 600:
			w.steps++
			w.follow(s.rng.IntN(len(w.brokers)))
		case n < 750:
			w.steps++
			w.operators[s.rng.IntN(2)].act(w)
		case n < 860:
			w.steps++
			w.runPod()
		case n < 930:
			w.steps++
			w.makers[s.rng.IntN(len(w.makers))].act(w)
		case n < 990:
			w.steps++
			w.disturb()
		default:
			s.step(Tick{})
		}
		if s.g.dead {
			s.rebuild(nil)
		}
	}
}

// disturb lets something go wrong, or change.
func (w *world) disturb() {
	switch w.rng.IntN(12) {
	case 0, 1:
		w.operators[w.rng.IntN(2)].restart(w)
	case 2, 3:
		w.moveCoordinator()
	case 4:
		w.restartBroker()
	case 5:
		w.cutNode()
	case 6:
		w.changePartitions()
	case 7:
		w.changeSpec()
	case 8:
		w.anew()
	case 9, 10:
		w.makers[w.rng.IntN(len(w.makers))].change(w)
	default:
		w.s.crash()
	}
}

// speak lets a client in some pod say something.
func (w *world) speak() {
	s := w.s
	if len(s.clients) == 0 {
		return
	}
	c := s.clients[s.rng.IntN(len(s.clients))]
	if w.silent(c) {
		return
	}
	switch n := s.rng.IntN(100); {
	case n < 75:
		s.proper(c)
	case n < 83:
		s.commit(c)
	case n < 88:
		c.deaf = true
	case n < 92:
		s.repeat(c)
	case n < 95:
		s.release(c)
	case n < 97:
		s.step(Disconnect{MemberID: c.id})
	case n < 98:
		s.leave(c)
	default:
		s.restart(c)
	}
}

// changePartitions lets a topic grow, or be created anew.
func (w *world) changePartitions() {
	s := w.s
	name := []string{"orders", "payments"}[s.rng.IntN(2)]
	topics := map[string]Topic{}
	for n, t := range s.topics {
		topics[n] = t
	}
	t := topics[name]
	if s.rng.IntN(4) == 0 {
		s.ids++
		t = Topic{ID: TopicID{s.ids}, Partitions: 1 + s.rng.Int32N(6)}
	} else if t.Partitions < 8 {
		t.Partitions++
	}
	topics[name] = t
	s.topics = topics
	w.topics.add(w.partitions())
	s.step(Topics{Topics: s.topics})
}

// calm ends all that is wrong, lets everything follow, and checks that it settles.
func (w *world) calm() {
	if w.s.t.Failed() {
		return
	}
	w.heal()
	w.s.calm()
	if !w.s.t.Failed() {
		w.checkSettled()
	}
}

// converge is what happens around the group between what the clients say, when all is well.
func (w *world) converge() {
	w.steps++
	w.disconnect(len(w.closing))
	for _, m := range w.makers {
		m.reconcile(w)
	}
	for _, name := range w.podNames() {
		w.running[name].settle(w)
	}
	w.operators[0].catchUp(w)
	for i := range w.brokers {
		w.brokers[i].seen = len(w.groups.all) - 1
	}
	w.tell()
	w.checkOwners()
}

// heal ends all that is wrong.
func (w *world) heal() {
	w.zombie = nil
	clear(w.nodes)
	w.endGhosts()
	w.operators[1].down = true
	if w.operators[0].down {
		w.operators[0].begin(w)
	}
	if last := w.groups.last(); last.gone {
		w.newGroup(last)
	} else if last.paused {
		last.paused = false
		w.write(last)
	}
	for _, c := range w.s.clients {
		c.deaf = false
	}
}

// podNames are the names of the pods, sorted.
func (w *world) podNames() []string {
	names := make([]string, 0, len(w.running))
	for name := range w.running {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
