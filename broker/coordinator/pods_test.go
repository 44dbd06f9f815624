// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

var podsNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// livePod returns a pod that is alive, its uid and address made from its name.
func livePod(name string) Pod {
	return Pod{Name: name, UID: "uid-" + name, IP: "10.0.0." + name[len(name)-1:], Node: "node-1", Alive: true}
}

// deadPod returns a pod that is not alive.
func deadPod(name string, mayReturn bool) Pod {
	pod := livePod(name)
	pod.Alive, pod.MayReturn = false, mayReturn
	return pod
}

// seatOf returns the seat of a live pod with partitions of the topic orders.
func seatOf(name string, partitions ...int32) Seat {
	seat := takeSeat(livePod(name))
	if len(partitions) > 0 {
		seat.Share = []TopicPartitions{{Topic: "orders", Partitions: partitions}}
	}
	return seat
}

func inZone(pod Pod, zone string) Pod {
	pod.Zone = zone
	return pod
}

func seatInZone(name, zone string, partitions ...int32) Seat {
	seat := seatOf(name, partitions...)
	seat.Zone = zone
	return seat
}

// inGrace returns the seat in its grace period.
func inGrace(seat Seat, deadline time.Time) Seat {
	seat.Phase, seat.Deadline = SeatGrace, deadline
	return seat
}

func TestDecide(t *testing.T) {
	orders := func(n int32) map[string]int32 { return map[string]int32{"orders": n} }
	two := []Seat{seatOf("web-0", 0, 1), seatOf("web-1", 2, 3)}
	tenLater := podsNow.Add(10 * time.Second)
	cases := map[string]struct {
		in   PodsInput
		want PodsOutput
	}{
		"No pods, no seats: nothing happens": {
			in:   PodsInput{Topics: orders(4)},
			want: PodsOutput{Partitions: 4},
		},
		"The first member gets everything": {
			in: PodsInput{Topics: orders(2), Pods: []Pod{livePod("web-0")}},
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0, 1)}, Generation: 1, Changed: true,
				Reason: "MemberJoined", Message: "member web-0 joined", Partitions: 2, Moved: 2, Minimum: 2,
			},
		},
		"A pod gets the partitions whose leaders run in its zone, if that makes no other difference": {
			in: PodsInput{
				Topics: orders(4), Zones: map[string][]string{"orders": {"south", "north", "south", "north"}},
				Pods: []Pod{inZone(livePod("web-0"), "north"), inZone(livePod("web-1"), "south")},
			},
			want: PodsOutput{
				Seats: []Seat{seatInZone("web-0", "north", 1, 3), seatInZone("web-1", "south", 0, 2)}, Generation: 1, Changed: true,
				Reason: "MemberJoined", Message: "members web-0, web-1 joined", Partitions: 4, Moved: 4, Minimum: 4,
			},
		},
		"A pod that is not ready yet is no member": {
			in:   PodsInput{Topics: orders(2), Pods: []Pod{deadPod("web-0", true)}, GracePeriod: 10 * time.Second},
			want: PodsOutput{Partitions: 2},
		},
		"Nothing changed: the generation stays": {
			in:   PodsInput{Seats: two, Generation: 7, Topics: orders(4), Pods: []Pod{livePod("web-1"), livePod("web-0")}},
			want: PodsOutput{Seats: two, Generation: 7, Partitions: 4},
		},
		"A member that is not ready keeps its seat for the grace period": {
			in: PodsInput{
				Seats: two, Generation: 7, Topics: orders(4), GracePeriod: 10 * time.Second,
				Pods: []Pod{livePod("web-0"), deadPod("web-1", true)},
			},
			want: PodsOutput{Seats: []Seat{two[0], inGrace(two[1], tenLater)}, Generation: 7, Partitions: 4, Deadline: tenLater},
		},
		"A deadline that is set stands": {
			in: PodsInput{
				Seats: []Seat{two[0], inGrace(two[1], podsNow.Add(time.Second))}, Generation: 7, Topics: orders(4), GracePeriod: 10 * time.Second,
				Pods: []Pod{livePod("web-0"), deadPod("web-1", true)},
			},
			want: PodsOutput{
				Seats: []Seat{two[0], inGrace(two[1], podsNow.Add(time.Second))}, Generation: 7, Partitions: 4, Deadline: podsNow.Add(time.Second),
			},
		},
		"A shorter grace period brings the deadline nearer": {
			in: PodsInput{
				Seats: []Seat{two[0], inGrace(two[1], podsNow.Add(time.Hour))}, Generation: 7, Topics: orders(4), GracePeriod: 10 * time.Second,
				Pods: []Pod{livePod("web-0"), deadPod("web-1", true)},
			},
			want: PodsOutput{Seats: []Seat{two[0], inGrace(two[1], tenLater)}, Generation: 7, Partitions: 4, Deadline: tenLater},
		},
		"The seat is lost at its deadline": {
			in: PodsInput{
				Seats: []Seat{two[0], inGrace(two[1], podsNow)}, Generation: 7, Topics: orders(4), GracePeriod: 10 * time.Second,
				Pods: []Pod{livePod("web-0"), deadPod("web-1", true)},
			},
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0, 1, 2, 3)}, Generation: 8, Changed: true,
				Reason: "MemberExpired", Message: "member web-1 did not come back within the grace period", Partitions: 4, Moved: 2, Minimum: 2,
			},
		},
		"Without a grace period the seat is lost at once": {
			in: PodsInput{Seats: two, Generation: 7, Topics: orders(4), Pods: []Pod{livePod("web-0"), deadPod("web-1", true)}},
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0, 1, 2, 3)}, Generation: 8, Changed: true,
				Reason: "MemberLeft", Message: "member web-1 left", Partitions: 4, Moved: 2, Minimum: 2,
			},
		},
		"A pod that is gone for good loses its seat at once": {
			in: PodsInput{
				Seats: two, Generation: 7, Topics: orders(4), GracePeriod: 10 * time.Second, Pods: []Pod{livePod("web-0"), deadPod("web-1", false)},
			},
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0, 1, 2, 3)}, Generation: 8, Changed: true,
				Reason: "MemberLeft", Message: "member web-1 left", Partitions: 4, Moved: 2, Minimum: 2,
			},
		},
		"A pod of the same name and another uid takes the seat over, and nothing moves": {
			in: PodsInput{
				Seats: []Seat{two[0], inGrace(two[1], tenLater)}, Generation: 7, Topics: orders(4), GracePeriod: 10 * time.Second,
				Pods: []Pod{livePod("web-0"), {Name: "web-1", UID: "new", IP: "10.0.0.99", Node: "node-2", Alive: true}},
			},
			want: PodsOutput{
				Seats: []Seat{two[0], {
					Pod: "web-1", UID: "new", IP: "10.0.0.99", Node: "node-2", Phase: SeatActive,
					Share: []TopicPartitions{{Topic: "orders", Partitions: []int32{2, 3}}},
				}},
				Generation: 7, Partitions: 4,
			},
		},
		"When the last member leaves, the generation grows once": {
			in: PodsInput{Seats: []Seat{seatOf("web-0", 0, 1)}, Generation: 7, Topics: orders(2)},
			want: PodsOutput{
				Generation: 8, Changed: true, Reason: "MemberLeft", Message: "member web-0 left", Partitions: 2,
			},
		},
		"A member beyond the partitions joins without disturbing the others": {
			in: PodsInput{
				Seats: []Seat{seatOf("web-0", 0)}, Generation: 7, Topics: orders(1), Pods: []Pod{livePod("web-0"), livePod("web-1")},
			},
			want: PodsOutput{Seats: []Seat{seatOf("web-0", 0), seatOf("web-1")}, Generation: 7, Partitions: 1},
		},
		"One member joins while another leaves": {
			in: PodsInput{Seats: two, Generation: 7, Topics: orders(4), Pods: []Pod{livePod("web-0"), livePod("web-2")}},
			want: PodsOutput{
				Seats: []Seat{two[0], seatOf("web-2", 2, 3)}, Generation: 8, Changed: true,
				Reason: "MemberJoined,MemberLeft", Message: "member web-2 joined; member web-1 left", Partitions: 4, Moved: 2, Minimum: 2,
			},
		},
		"A topic grows": {
			in: PodsInput{Seats: []Seat{seatOf("web-0", 0, 1)}, Generation: 1, Topics: orders(3), Pods: []Pod{livePod("web-0")}},
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0, 1, 2)}, Generation: 2, Changed: true,
				Reason: "PartitionsAdded", Message: "topic orders grew from 2 to 3 partitions", Partitions: 3, Moved: 1, Minimum: 1,
			},
		},
		"A topic is made anew with fewer partitions": {
			in: PodsInput{Seats: []Seat{seatOf("web-0", 0, 1)}, Generation: 1, Topics: orders(1), Pods: []Pod{livePod("web-0")}},
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0)}, Generation: 2, Changed: true,
				Reason: "PartitionsRemoved", Message: "topic orders shrank from 2 to 1 partitions", Partitions: 1,
			},
		},
		"One topic takes another's place": {
			in: PodsInput{Seats: []Seat{seatOf("web-0", 0)}, Generation: 1, Topics: map[string]int32{"orders": 0, "clicks": 1}, Pods: []Pod{livePod("web-0")}},
			want: PodsOutput{
				Seats: []Seat{{
					Pod: "web-0", UID: "uid-web-0", IP: "10.0.0.0", Node: "node-1", Phase: SeatActive,
					Share: []TopicPartitions{{Topic: "clicks", Partitions: []int32{0}}},
				}},
				Generation: 2, Changed: true, Reason: "TopicAdded,TopicRemoved", Message: "topic clicks added; topic orders removed",
				Partitions: 1, Moved: 1, Minimum: 1,
			},
		},
		"Another assigner makes another plan": {
			in: PodsInput{Seats: two, Generation: 1, Topics: orders(4), Assigner: assigner.RoundRobin{}, Pods: []Pod{livePod("web-0"), livePod("web-1")}},
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0, 2), seatOf("web-1", 1, 3)}, Generation: 2, Changed: true,
				Reason: "AssignerChanged", Message: "the assigner changed", Partitions: 4, Moved: 2,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Decide(podsNow, tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessageNamesTheFirstFew(t *testing.T) {
	var pods []Pod
	for i := range 8 {
		pods = append(pods, livePod(fmt.Sprint("web-", i)))
	}
	got := Decide(podsNow, PodsInput{Topics: map[string]int32{"orders": 8}, Pods: pods}).Message
	if want := "members web-0, web-1, web-2, web-3, web-4 and 3 more joined"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// TestPodsAtRandom lets pods come, fail, come back and go for a long time, and checks every decision.
func TestPodsAtRandom(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := &podsWorld{
				rng:  rand.New(rand.NewPCG(seed, 0)),
				now:  podsNow,
				pods: make(map[string]Pod),
				in: PodsInput{
					Topics: map[string]int32{"orders": 12, "clicks": 5}, GracePeriod: time.Duration(seed%3) * 5 * time.Second,
					Assigner: []assigner.Assigner{nil, assigner.Sticky{}}[seed%2],
				},
			}
			for step := range 200 {
				w.change()
				w.decide(t, step)
			}
		})
	}
}

type podsWorld struct {
	rng  *rand.Rand
	now  time.Time
	pods map[string]Pod
	in   PodsInput
	uid  int
}

// change does one thing to the world.
func (w *podsWorld) change() {
	name := fmt.Sprint("web-", w.rng.IntN(9))
	pod, exists := w.pods[name]
	switch w.rng.IntN(8) {
	case 0, 1, 2: // a pod starts, or becomes ready again
		if !exists || !pod.MayReturn {
			w.uid++
			pod = Pod{Name: name, UID: strconv.Itoa(w.uid), IP: fmt.Sprint("10.0.0.", w.uid)}
		}
		pod.Alive, pod.MayReturn = true, true
		w.pods[name] = pod
	case 3: // it fails its probe
		if exists {
			pod.Alive = false
			w.pods[name] = pod
		}
	case 4: // it is deleted for good
		delete(w.pods, name)
	case 5: // it fails for good
		if exists {
			pod.Alive, pod.MayReturn = false, false
			w.pods[name] = pod
		}
	case 6:
		w.now = w.now.Add(time.Duration(w.rng.IntN(4000)) * time.Millisecond)
	case 7:
		if w.rng.IntN(5) == 0 {
			w.in.Topics["orders"]++
		}
	}
}

func (w *podsWorld) decide(t *testing.T, step int) {
	t.Helper()
	w.in.Pods = nil
	for _, pod := range w.pods { // in the map's order, which changes
		w.in.Pods = append(w.in.Pods, pod)
	}
	out := Decide(w.now, w.in)
	if problem := w.check(out); problem != "" {
		t.Fatalf("step %d: %s\ninput: %+v\noutput: %+v", step, problem, w.in, out)
	}
	w.in.Seats, w.in.Generation = out.Seats, out.Generation
	again := Decide(w.now, w.in)
	if diff := cmp.Diff(out.Seats, again.Seats); diff != "" || again.Changed || again.Generation != out.Generation {
		t.Fatalf("step %d: deciding again changed something:\n%s", step, diff)
	}
}

// check returns what is wrong with a decision, empty for nothing.
func (w *podsWorld) check(out PodsOutput) string {
	other := w.in
	other.Pods, other.Seats = slices.Clone(w.in.Pods), slices.Clone(w.in.Seats)
	slices.Reverse(other.Pods)
	slices.Reverse(other.Seats)
	if diff := cmp.Diff(out, Decide(w.now, other)); diff != "" {
		return "another order of the input gives another decision: " + diff
	}
	owners, loads := make(map[assigner.Partition]string), []int{}
	var wrong []string
	seated := make(map[string]bool)
	for _, seat := range out.Seats {
		seated[seat.Pod] = true
		load := 0
		for _, p := range flatten(seat.Share) {
			if owner, twice := owners[p]; twice {
				wrong = append(wrong, fmt.Sprintf("%v is owned by %s and %s", p, owner, seat.Pod))
			}
			owners[p] = seat.Pod
			load++
		}
		loads = append(loads, load)
		pod, exists := w.pods[seat.Pod]
		switch {
		case seat.Phase == SeatActive && (!pod.Alive || pod.UID != seat.UID || pod.IP != seat.IP || !seat.Deadline.IsZero()):
			wrong = append(wrong, "an active seat without its pod: "+seat.Pod)
		case seat.Phase == SeatGrace && (!exists || pod.Alive || !pod.MayReturn || !w.now.Before(seat.Deadline) || w.in.GracePeriod == 0):
			wrong = append(wrong, "a seat in grace that should not be: "+seat.Pod)
		case seat.Phase == SeatGrace && seat.Deadline.After(w.now.Add(w.in.GracePeriod)):
			wrong = append(wrong, "a deadline too far away: "+seat.Pod)
		}
	}
	for _, pod := range w.pods {
		if pod.Alive && !seated[pod.Name] {
			wrong = append(wrong, "a live pod without a seat: "+pod.Name)
		}
	}
	if len(loads) > 0 && (len(owners) != out.Partitions || slices.Max(loads)-slices.Min(loads) > 1) {
		wrong = append(wrong, fmt.Sprintf("%d of %d partitions have an owner, loads %v", len(owners), out.Partitions, loads))
	}
	if out.Moved != out.Minimum {
		wrong = append(wrong, fmt.Sprintf("moved %d, minimum %d", out.Moved, out.Minimum))
	}
	if grown := out.Generation - w.in.Generation; out.Changed != (grown == 1) || grown < 0 || grown > 1 {
		wrong = append(wrong, fmt.Sprintf("generation %d after %d, changed %t", out.Generation, w.in.Generation, out.Changed))
	}
	if out.Changed != (out.Reason != "") || out.Changed != (out.Message != "") || strings.Contains(out.Reason, AssignerChanged) {
		wrong = append(wrong, fmt.Sprintf("reason %q, message %q", out.Reason, out.Message))
	}
	return strings.Join(wrong, "; ")
}
