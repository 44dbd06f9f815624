// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// podSeeds is how many seeds a random test of pods runs.
func podSeeds() uint64 {
	if raceEnabled {
		return 4
	}
	return 40
}

// deploymentWorld is a Deployment's controller and kubelets, played in steps, and the operator that looks on.
type deploymentWorld struct {
	rng  *rand.Rand
	now  time.Time
	pods map[string]*deploymentPod
	made int
	// revision is that of the pods to be; complete says that all were of it and ready at one time.
	revision, replicas, surge, unavailable int
	complete                               bool
	since                                  map[string]time.Time
	in                                     PodsInput
	out                                    PodsOutput
	// moves counts how often each partition got another owner; generations how often the generation grew.
	moves       map[assigner.Partition]int
	generations int
}

type deploymentPod struct {
	revision           int
	ready, terminating bool
	restarts           int32
}

func newDeploymentWorld(seed uint64) *deploymentWorld {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &deploymentWorld{
		rng: rng, now: podsNow, pods: map[string]*deploymentPod{}, since: map[string]time.Time{}, moves: map[assigner.Partition]int{},
		revision: 1, replicas: 1 + rng.IntN(10), surge: rng.IntN(4),
	}
	w.unavailable = rng.IntN(3)
	if w.surge == 0 {
		w.unavailable = 1 + rng.IntN(w.replicas)
	}
	w.in = PodsInput{
		Topics: map[string]int32{"orders": int32(1 + rng.IntN(40)), "clicks": int32(rng.IntN(10))}, GracePeriod: 10 * time.Second,
		RebalanceDelay: []time.Duration{0, 500 * time.Millisecond}[rng.IntN(2)], Assigner: []assigner.Assigner{nil, assigner.Sticky{}}[rng.IntN(2)],
	}
	return w
}

// of returns the names of the pods that a test holds for, sorted.
func (w *deploymentWorld) of(test func(*deploymentPod) bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if test(w.pods[name]) {
			names = append(names, name)
		}
	}
	return names
}

// control does what the Deployment's controller would do now: at most surge pods more than replicas, at most unavailable ones fewer that are ready.
func (w *deploymentWorld) control() {
	here := w.of(func(p *deploymentPod) bool { return !p.terminating })
	updated := w.of(func(p *deploymentPod) bool { return !p.terminating && p.revision == w.revision })
	old := w.of(func(p *deploymentPod) bool { return !p.terminating && p.revision != w.revision })
	ready := len(w.of(func(p *deploymentPod) bool { return !p.terminating && p.ready }))
	for range min(w.replicas-len(updated), w.replicas+w.surge-len(here)) {
		w.made++
		w.pods[fmt.Sprintf("web-%05d", w.rng.IntN(1000)+1000*w.made)] = &deploymentPod{revision: w.revision}
	}
	for _, name := range slices.Concat(old, updated[min(w.replicas, len(updated)):]) {
		if p := w.pods[name]; !p.ready || ready > w.replicas-w.unavailable {
			if p.ready {
				ready--
			}
			p.terminating, p.ready = true, false
		}
	}
	if len(old) == 0 && len(updated) == w.replicas && ready == w.replicas {
		w.complete = true
	}
}

// kubelet starts a pod, or ends one that terminates.
func (w *deploymentWorld) kubelet() {
	if names := w.of(func(p *deploymentPod) bool { return !p.ready }); len(names) > 0 {
		name := names[w.rng.IntN(len(names))]
		if w.pods[name].terminating {
			delete(w.pods, name)
		} else {
			w.pods[name].ready = true
		}
	}
}

// disturb does one of the things that are no part of a rollout.
func (w *deploymentWorld) disturb() {
	name := ""
	if names := slices.Sorted(maps.Keys(w.pods)); len(names) > 0 {
		name = names[w.rng.IntN(len(names))]
	}
	switch w.rng.IntN(12) {
	case 0:
		delete(w.pods, name)
	case 1, 2:
		if p := w.pods[name]; p != nil && p.ready {
			p.ready = false
			p.restarts++
		}
	case 3, 4:
		w.replicas = w.rng.IntN(12)
	case 5, 6:
		w.revision++
		w.complete = false
	case 7:
		w.in.Topics["orders"]++
	case 8:
		w.in.Paused = !w.in.Paused
	case 9:
		w.now = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
	case 10:
		w.since = map[string]time.Time{} // the operator restarts
	case 11:
		w.now = w.now.Add(time.Duration(w.rng.IntN(900)) * time.Millisecond)
	}
}

// look is the operator's look at the pods.
func (w *deploymentWorld) look(t *testing.T) {
	t.Helper()
	w.in.Pods, w.in.Workloads = nil, web(w.replicas, !w.complete)
	seated := map[string]bool{}
	for i := range w.in.Seats {
		seated[w.in.Seats[i].Pod] = true
	}
	for name, p := range w.pods { // in the map's order, which changes
		pod := Pod{Name: name, UID: name, IP: name, Workload: webDeployment, Alive: p.ready, MayReturn: !p.ready && !p.terminating, Restarts: p.restarts}
		if !pod.Alive || seated[name] {
			delete(w.since, name)
		} else if _, known := w.since[name]; !known {
			w.since[name] = w.now
		}
		pod.Since = w.since[name]
		w.in.Pods = append(w.in.Pods, pod)
	}
	w.out = Decide(w.now, w.in)
	problems := slices.Concat(w.checkSeats(), w.checkOrder())
	if len(problems) > 0 {
		t.Fatalf("%s\ninput: %+v\noutput: %+v", strings.Join(problems, "\n"), w.in, w.out)
	}
	before, after := seatOwners(w.in.Seats), seatOwners(w.out.Seats)
	for p, owner := range after {
		if before[p] != owner {
			w.moves[p]++
		}
	}
	w.generations += int(w.out.Generation - w.in.Generation)
	w.in.Seats, w.in.Generation, w.in.WasPaused = w.out.Seats, w.out.Generation, w.in.Paused
	w.checkAgain(t)
}

func seatOwners(seats []Seat) map[assigner.Partition]string {
	owners := map[assigner.Partition]string{}
	for i := range seats {
		for _, p := range flatten(seats[i].Share) {
			owners[p] = seats[i].Pod
		}
	}
	return owners
}

// checkSeats returns what is wrong with a decision.
func (w *deploymentWorld) checkSeats() (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	counted := map[string]bool{}
	for i := range w.in.Seats {
		counted[w.in.Seats[i].Pod] = w.in.Seats[i].Phase != SeatStandby
	}
	counting, seats, partitions := 0, map[string]Seat{}, 0
	for _, seat := range w.out.Seats {
		seats[seat.Pod] = seat
		pod := w.pods[seat.Pod]
		alive := pod != nil && pod.ready
		if alive == (seat.Phase == SeatGrace) || seat.Deadline.IsZero() == (seat.Phase == SeatGrace) {
			wrong("seat %+v of a pod whose being alive is %t", seat, alive)
		}
		if seat.Phase == SeatStandby {
			if len(seat.Share) > 0 || counted[seat.Pod] {
				wrong("standby %+v has a share, or counted before (%t)", seat, counted[seat.Pod])
			}
			continue
		}
		counting++
		partitions += len(flatten(seat.Share))
	}
	was := 0
	for _, counts := range counted {
		if counts {
			was++
		}
	}
	if counting > max(was, w.replicas) {
		wrong("%d members of %d replicas, after %d", counting, w.replicas, was)
	}
	switch {
	case w.in.Paused && partitions > 0:
		wrong("%d partitions are read while the group is paused", partitions)
	case !w.in.Paused && counting > 0 && (partitions != w.out.Partitions || len(seatOwners(w.out.Seats)) != w.out.Partitions):
		wrong("%d of %d partitions are read", partitions, w.out.Partitions)
	case !w.in.Paused && w.out.Moved != w.out.Minimum:
		wrong("moved %d, minimum %d", w.out.Moved, w.out.Minimum)
	}
	return append(problems, w.checkWaiting(seats)...)
}

// checkWaiting checks that a live pod without a seat waits for others, and no longer than it may.
func (w *deploymentWorld) checkWaiting(seats map[string]Seat) (problems []string) {
	for name, p := range w.pods {
		if _, seated := seats[name]; !p.ready || seated {
			continue
		}
		if w.out.Deadline.IsZero() || w.out.Changed || w.out.Deadline.After(w.since[name].Add(maxDelays*w.in.RebalanceDelay)) && w.out.Deadline.After(w.now.Add(w.in.RebalanceDelay)) {
			problems = append(problems, fmt.Sprintf("live pod %s, first seen %v, has no seat at %v; deadline %v", name, w.since[name], w.now, w.out.Deadline))
		}
	}
	return problems
}

// checkOrder checks that another order of the input gives the same decision.
func (w *deploymentWorld) checkOrder() []string {
	other := w.in
	other.Pods, other.Seats = slices.Clone(w.in.Pods), slices.Clone(w.in.Seats)
	slices.Reverse(other.Pods)
	slices.Reverse(other.Seats)
	if out := Decide(w.now, other); !reflect.DeepEqual(w.out, out) {
		return []string{"another order of the input gives another decision: " + cmp.Diff(w.out, out)}
	}
	return nil
}

// checkAgain checks that deciding again changes nothing.
func (w *deploymentWorld) checkAgain(t *testing.T) {
	t.Helper()
	again := Decide(w.now, w.in)
	if !reflect.DeepEqual(w.out.Seats, again.Seats) || again.Changed {
		t.Fatalf("deciding again changes something (%s):\n%s\ninput: %+v", again.Message, cmp.Diff(w.out.Seats, again.Seats), w.in)
	}
}

// settle lets the controller and the kubelets work until the rollout is complete and nobody waits.
func (w *deploymentWorld) settle(t *testing.T) {
	t.Helper()
	for range 10_000 {
		w.control()
		w.look(t)
		w.kubelet()
		w.look(t)
		w.now = w.now.Add(time.Duration(w.rng.IntN(100)) * time.Millisecond)
		if w.complete && len(w.of(func(p *deploymentPod) bool { return !p.ready })) == 0 && w.out.Deadline.IsZero() {
			return
		}
	}
	t.Fatal("the Deployment does not settle")
}

func TestARollingUpdateMovesEachPartitionOnce(t *testing.T) {
	for seed := range podSeeds() {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newDeploymentWorld(seed)
			w.in.GracePeriod = time.Hour
			w.settle(t)
			if len(w.out.Seats) != w.replicas {
				t.Fatalf("%d members of %d replicas", len(w.out.Seats), w.replicas)
			}
			for range 3 {
				before := seatOwners(w.out.Seats)
				clear(w.moves)
				w.revision++
				w.complete = false
				w.settle(t)
				for p, n := range w.moves {
					if n > 1 {
						t.Errorf("%v moved %d times (replicas %d, surge %d, unavailable %d)", p, n, w.replicas, w.surge, w.unavailable)
					}
				}
				sizes := func(owners map[assigner.Partition]string) []int {
					loads := map[string]int{}
					for _, owner := range owners {
						loads[owner]++
					}
					return slices.Sorted(maps.Values(loads))
				}
				if diff := cmp.Diff(sizes(before), sizes(seatOwners(w.out.Seats))); diff != "" {
					t.Errorf("shares were not handed over whole (-before +after):\n%s", diff)
				}
			}
		})
	}
}

// TestDeploymentsAtRandom rolls Deployments out while pods fail, are deleted and are scaled, and checks every decision.
func TestDeploymentsAtRandom(t *testing.T) {
	for seed := range podSeeds() {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newDeploymentWorld(seed)
			w.in.GracePeriod = time.Duration(seed%3) * 5 * time.Second
			for range 300 {
				switch w.rng.IntN(4) {
				case 0:
					w.disturb()
				case 1:
					w.control()
				default:
					w.kubelet()
				}
				w.look(t)
			}
			w.in.Paused = false
			w.settle(t)
			if len(w.out.Seats) != w.replicas {
				t.Errorf("%d members of %d replicas", len(w.out.Seats), w.replicas)
			}
		})
	}
}

// TestABurstMakesFewGenerations starts 50 pods within 2 s, at times of chance, and decides whenever one comes or a deadline passes.
func TestABurstMakesFewGenerations(t *testing.T) {
	for seed := range podSeeds() {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newDeploymentWorld(seed)
			w.replicas, w.surge, w.in.RebalanceDelay = 50, 0, 500*time.Millisecond
			w.in.Topics["orders"] = 100
			w.control()
			var times []time.Duration
			for range w.pods {
				times = append(times, time.Duration(w.rng.IntN(2000))*time.Millisecond)
			}
			slices.Sort(times)
			for _, at := range times {
				for w.look(t); !w.out.Deadline.IsZero() && w.out.Deadline.Before(podsNow.Add(at)); w.look(t) {
					w.now = w.out.Deadline
				}
				w.now = podsNow.Add(at)
				w.kubelet()
			}
			for w.look(t); !w.out.Deadline.IsZero(); w.look(t) {
				w.now = w.out.Deadline
			}
			if w.generations > 3 || len(w.out.Seats) != 50 {
				t.Errorf("%d generations, %d members", w.generations, len(w.out.Seats))
			}
		})
	}
}
