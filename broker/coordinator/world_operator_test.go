// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

const longestHandoff = 20 * time.Second

// apiGroup is a version of the ConsumerGroup: its spec and its status.
type apiGroup struct {
	uid string
	// version is the resourceVersion.
	version               int
	gone                  bool
	grace, delay, handoff time.Duration
	assigner              assigner.Assigner
	paused                bool

	generation int32
	seats      []Seat
	wasPaused  bool
}

// write stores a new version.
func (w *world) write(g apiGroup) {
	g.version++
	w.groups.add(g)
}

// newGroup creates the group, with a spec like that of another one.
func (w *world) newGroup(like apiGroup) {
	w.made++
	like.uid, like.gone, like.paused, like.wasPaused, like.generation, like.seats = fmt.Sprintf("group-%d", w.made), false, false, false, 0, nil
	w.write(like)
}

// anew deletes the group, or creates it, at times so fast that nobody sees that it was gone.
func (w *world) anew() {
	last := w.groups.last()
	if w.rng.IntN(3) > 0 && !last.gone {
		return
	}
	if !last.gone {
		last.gone = true
		w.write(last)
		if w.rng.IntN(2) == 0 {
			return
		}
	}
	w.newGroup(last)
}

// changeSpec changes what a user wants of the group.
func (w *world) changeSpec() {
	g := w.groups.last()
	switch w.rng.IntN(4) {
	case 0:
		g.paused = !g.paused
	case 1:
		g.handoff = []time.Duration{time.Second, 5 * time.Second, longestHandoff}[w.rng.IntN(3)]
	case 2:
		g.assigner = []assigner.Assigner{nil, assigner.Sticky{}, assigner.RoundRobin{}, assigner.Range{}}[w.rng.IntN(4)]
	default:
		g.grace = []time.Duration{0, 5 * time.Second, 10 * time.Second}[w.rng.IntN(3)]
	}
	w.write(g)
}

// operator is one of two that take turns. Where both believe that it is theirs, what one writes refuses what the other decided from the version before.
type operator struct {
	down                            bool
	groups, pods, workloads, topics watch
	// since is when it first saw that a pod without a seat is alive, by uid.
	since map[string]time.Time
	// due is when it is to decide although nothing happens.
	due time.Time
}

// begin lets an operator begin: all that it knows it reads from the API server.
func (o *operator) begin(w *world) {
	*o = operator{since: map[string]time.Time{}}
	o.groups.list(w.rng, len(w.groups.all)-1)
	o.pods.list(w.rng, len(w.pods.all)-1)
	o.workloads.list(w.rng, len(w.workloads.all)-1)
	o.topics.list(w.rng, len(w.topics.all)-1)
}

// restart ends an operator, and lets it or the other one begin.
func (o *operator) restart(w *world) {
	o.down = true
	if next := w.operators[w.rng.IntN(2)]; w.rng.IntN(3) > 0 {
		next.begin(w)
	}
}

// act lets an operator see something, or decide.
func (o *operator) act(w *world) {
	if o.down {
		return
	}
	switch w.rng.IntN(6) {
	case 0:
		o.groups.follow(w.rng, len(w.groups.all)-1)
	case 1, 2:
		o.pods.follow(w.rng, len(w.pods.all)-1)
	case 3:
		o.workloads.follow(w.rng, len(w.workloads.all)-1)
		o.topics.follow(w.rng, len(w.topics.all)-1)
	default:
		o.decide(w)
	}
}

// wakeOperators lets those decide whose time has come, if they are not late.
func (w *world) wakeOperators() {
	for _, o := range w.operators {
		if !o.down && !o.due.IsZero() && !w.s.now.Before(o.due) && w.rng.IntN(3) > 0 {
			o.decide(w)
		}
	}
}

// catchUp lets an operator see everything, and decide.
func (o *operator) catchUp(w *world) {
	o.pods.seen, o.workloads.seen, o.topics.seen = len(w.pods.all)-1, len(w.workloads.all)-1, len(w.topics.all)-1
	o.groups.seen = len(w.groups.all) - 1
	o.decide(w)
}

// decide decides by what the operator has seen, and writes what is new. The write is refused where the operator has not seen the last version.
func (o *operator) decide(w *world) {
	seen := w.groups.at(o.groups.seen)
	o.due = time.Time{}
	if seen.gone {
		return
	}
	in := o.input(w, seen)
	out := Decide(w.s.now, in)
	o.due = out.Deadline
	w.checkDecision(in, out)
	next := seen
	next.generation, next.seats, next.wasPaused = out.Generation, out.Seats, seen.paused
	if next.generation == seen.generation && next.wasPaused == seen.wasPaused && difference(next.seats, seen.seats) == "" {
		return
	}
	if seen.version != w.groups.last().version {
		return
	}
	w.checkWrite(w.groups.last(), next)
	w.write(next)
}

// input is what the operator has seen, as its controller gives it to Decide.
func (o *operator) input(w *world, seen apiGroup) PodsInput {
	in := PodsInput{
		Seats: seen.seats, Generation: seen.generation, Topics: w.topics.at(o.topics.seen), Workloads: w.workloads.at(o.workloads.seen), Assigner: seen.assigner,
		GracePeriod: seen.grace, RebalanceDelay: seen.delay, Paused: seen.paused, WasPaused: seen.wasPaused,
	}
	pods := w.pods.at(o.pods.seen)
	alive := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		p := pods[name]
		pod := Pod{
			Name: name, UID: p.uid, IP: p.ip, Node: fmt.Sprintf("node-%d", p.node), Workload: p.workload, Restarts: p.restarts,
			Alive: p.ready && !p.terminating && !p.failed,
		}
		if pod.Alive {
			if _, known := o.since[p.uid]; !known {
				o.since[p.uid] = w.s.now
			}
			pod.Since, alive[p.uid] = o.since[p.uid], true
		}
		pod.MayReturn = !pod.Alive && (!p.terminating && !p.failed || o.makesAgain(w, name))
		in.Pods = append(in.Pods, pod)
	}
	maps.DeleteFunc(o.since, func(uid string, _ time.Time) bool { return !alive[uid] })
	for _, seat := range seen.seats {
		if _, there := pods[seat.Pod]; !there && o.makesAgain(w, seat.Pod) {
			in.Pods = append(in.Pods, Pod{Name: seat.Pod, Workload: seat.Workload, MayReturn: true})
		}
	}
	w.rng.Shuffle(len(in.Pods), func(i, j int) { in.Pods[i], in.Pods[j] = in.Pods[j], in.Pods[i] })
	return in
}

// makesAgain says whether a StatefulSet will make a pod of that name again.
func (o *operator) makesAgain(w *world, pod string) bool {
	number, ok := strings.CutPrefix(pod, "db-")
	var n int
	if _, err := fmt.Sscan(number, &n); !ok || err != nil {
		return false
	}
	return n < w.workloads.at(o.workloads.seen)["StatefulSet/db"].Replicas
}
