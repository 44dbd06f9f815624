// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const webDeployment = "Deployment/web"

// ofWeb makes a pod one of the Deployment web.
func ofWeb(pod Pod) Pod {
	pod.Workload = webDeployment
	return pod
}

// came says how long ago a pod without a seat was first seen.
func came(ago time.Duration, pod Pod) Pod {
	pod.Since = podsNow.Add(-ago)
	return pod
}

// webSeat is the seat of a live pod of the Deployment web.
func webSeat(name string, partitions ...int32) Seat {
	seat := seatOf(name, partitions...)
	seat.Workload = webDeployment
	return seat
}

func standby(seat Seat) Seat {
	seat.Phase = SeatStandby
	return seat
}

func web(replicas int, rolling bool) map[string]Workload {
	return map[string]Workload{webDeployment: {Replicas: replicas, Rolling: rolling}}
}

// podsCase is an input and what it makes.
type podsCase struct {
	in   PodsInput
	want PodsOutput
}

func checkPods(t *testing.T, cases map[string]podsCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.in.Topics = map[string]int32{"orders": 4}
			tc.in.Generation = 7
			tc.want.Partitions = 4
			tc.want.Generation = 7
			if tc.want.Changed {
				tc.want.Generation = 8
			}
			if diff := cmp.Diff(tc.want, Decide(podsNow, tc.in)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideRollouts(t *testing.T) {
	two := []Seat{webSeat("web-0", 0, 1), webSeat("web-1", 2, 3)}
	live := []Pod{ofWeb(livePod("web-0")), ofWeb(livePod("web-1"))}
	surged := slices.Concat(two, []Seat{standby(webSeat("web-2"))})
	tenLater := podsNow.Add(10 * time.Second)
	takenOver := PodsOutput{
		Seats: []Seat{two[0], webSeat("web-2", 2, 3)}, Changed: true, Reason: "MemberReplaced", Message: "member web-2 took over from web-1", Moved: 2, Minimum: 2,
	}
	lost := PodsOutput{
		Seats: []Seat{webSeat("web-0", 0, 1, 2, 3)}, Changed: true, Reason: "MemberLeft", Message: "member web-1 left", Moved: 2, Minimum: 2,
	}
	checkPods(t, map[string]podsCase{
		"A live pod beyond the replicas of its workload stands by": {
			in:   PodsInput{Seats: two, Workloads: web(2, true), Pods: append(live[:2:2], ofWeb(livePod("web-2")))},
			want: PodsOutput{Seats: surged},
		},
		"A standby stands by as long as it is alive": {
			in:   PodsInput{Seats: surged, Workloads: web(2, false), Pods: append(live[:2:2], ofWeb(livePod("web-2")))},
			want: PodsOutput{Seats: surged},
		},
		"A standby that is not ready any more has no seat, and no grace period": {
			in: PodsInput{
				Seats: surged, Workloads: web(2, true), GracePeriod: 10 * time.Second, Pods: append(live[:2:2], ofWeb(deadPod("web-2", true))),
			},
			want: PodsOutput{Seats: two},
		},
		"A standby takes over the share of an old pod that terminates, whole and at once": {
			in: PodsInput{
				Seats: surged, Workloads: web(2, true), GracePeriod: 10 * time.Second, RebalanceDelay: time.Second,
				Pods: []Pod{live[0], ofWeb(deadPod("web-1", false)), ofWeb(livePod("web-2"))},
			},
			want: takenOver,
		},
		"A standby takes over although the rollout is over": {
			in:   PodsInput{Seats: surged, Workloads: web(2, false), Pods: []Pod{live[0], ofWeb(livePod("web-2"))}},
			want: takenOver,
		},
		"A pod that is seen first when the old one is gone takes over as well": {
			in:   PodsInput{Seats: two, Workloads: web(2, true), RebalanceDelay: time.Second, Pods: []Pod{live[0], came(0, ofWeb(livePod("web-2")))}},
			want: takenOver,
		},
		"A standby takes over the seat of a pod that did not come back": {
			in: PodsInput{
				Seats: []Seat{two[0], inGrace(two[1], podsNow), standby(webSeat("web-2"))}, Workloads: web(2, true), GracePeriod: 10 * time.Second,
				Pods: []Pod{live[0], ofWeb(deadPod("web-1", true)), ofWeb(livePod("web-2"))},
			},
			want: takenOver,
		},
		"A pod of another workload takes nothing over": {
			in: PodsInput{Seats: two, Workloads: web(2, false), Pods: []Pod{live[0], livePod("bare-2")}},
			want: PodsOutput{
				Seats: []Seat{seatOf("bare-2", 2, 3), two[0]}, Changed: true, Reason: "MemberJoined,MemberLeft",
				Message: "member bare-2 joined; member web-1 left", Moved: 2, Minimum: 2,
			},
		},
		"Nobody takes over when the workload has become smaller": {
			in:   PodsInput{Seats: surged, Workloads: web(1, true), Pods: []Pod{live[0], ofWeb(livePod("web-2"))}},
			want: PodsOutput{Seats: append(lost.Seats[:1:1], standby(webSeat("web-2"))), Changed: true, Reason: lost.Reason, Message: lost.Message, Moved: 2, Minimum: 2},
		},
		"A seat that counts is never taken away by fewer replicas": {
			in:   PodsInput{Seats: two, Workloads: web(1, false), Pods: live},
			want: PodsOutput{Seats: two},
		},
		"A standby becomes a member when the workload grows, without delay": {
			in: PodsInput{Seats: surged, Workloads: web(3, false), RebalanceDelay: time.Second, Pods: append(live[:2:2], came(0, ofWeb(livePod("web-2"))))},
			want: PodsOutput{
				Seats: []Seat{webSeat("web-0", 0, 1), webSeat("web-1", 2), webSeat("web-2", 3)}, Changed: true,
				Reason: "MemberJoined", Message: "member web-2 joined", Moved: 1, Minimum: 1,
			},
		},
		"A standby becomes a member when its workload is not known any more": {
			in: PodsInput{Seats: surged, Pods: append(live[:2:2], ofWeb(livePod("web-2")))},
			want: PodsOutput{
				Seats: []Seat{webSeat("web-0", 0, 1), webSeat("web-1", 2), webSeat("web-2", 3)}, Changed: true,
				Reason: "MemberJoined", Message: "member web-2 joined", Moved: 1, Minimum: 1,
			},
		},
		"Of the pods that are too many those that came last stand by": {
			in: PodsInput{
				Workloads: web(1, false),
				Pods:      []Pod{came(time.Second, ofWeb(livePod("web-0"))), came(2*time.Second, ofWeb(livePod("web-1")))},
			},
			want: PodsOutput{
				Seats: []Seat{standby(webSeat("web-0")), webSeat("web-1", 0, 1, 2, 3)}, Changed: true,
				Reason: "MemberJoined", Message: "member web-1 joined", Moved: 4, Minimum: 4,
			},
		},
		"A rollout that ends an old pod first keeps its seat for a successor": {
			in:   PodsInput{Seats: two, Workloads: web(2, true), GracePeriod: 10 * time.Second, Pods: []Pod{live[0]}},
			want: PodsOutput{Seats: []Seat{two[0], inGrace(two[1], tenLater)}, Deadline: tenLater},
		},
		"The successor takes over the seat that waits": {
			in: PodsInput{
				Seats: []Seat{two[0], inGrace(two[1], tenLater)}, Workloads: web(2, true), GracePeriod: 10 * time.Second, RebalanceDelay: time.Second,
				Pods: []Pod{live[0], came(0, ofWeb(livePod("web-2")))},
			},
			want: takenOver,
		},
		"A seat waits for its successor no longer than the grace period": {
			in: PodsInput{Seats: []Seat{two[0], inGrace(two[1], podsNow)}, Workloads: web(2, true), GracePeriod: 10 * time.Second, Pods: []Pod{live[0]}},
			want: PodsOutput{
				Seats: lost.Seats, Changed: true, Reason: "MemberExpired", Message: "member web-1 did not come back within the grace period", Moved: 2, Minimum: 2,
			},
		},
		"Without a grace period it does not wait": {
			in:   PodsInput{Seats: two, Workloads: web(2, true), Pods: []Pod{live[0]}},
			want: lost,
		},
		"Nor does one that is too many": {
			in:   PodsInput{Seats: two, Workloads: web(1, true), GracePeriod: 10 * time.Second, Pods: []Pod{live[0]}},
			want: lost,
		},
		"Nor one whose workload is not rolling out, such as a pod that somebody deletes": {
			in:   PodsInput{Seats: two, Workloads: web(2, false), GracePeriod: 10 * time.Second, Pods: []Pod{live[0]}},
			want: lost,
		},
		"A seat that waits is lost when the rollout is over": {
			in: PodsInput{
				Seats: []Seat{two[0], inGrace(two[1], tenLater)}, Workloads: web(2, false), GracePeriod: 10 * time.Second, Pods: []Pod{live[0]},
			},
			want: lost,
		},
		"One joins while another takes over: no more moves than must": {
			in: PodsInput{
				Seats: []Seat{two[0], two[1], standby(webSeat("web-2"))}, Workloads: web(2, true), Pods: []Pod{live[0], ofWeb(livePod("web-2")), livePod("bare-3")},
			},
			want: PodsOutput{
				Seats: []Seat{seatOf("bare-3", 3), two[0], webSeat("web-2", 2)}, Changed: true, Reason: "MemberJoined,MemberReplaced",
				Message: "member bare-3 joined; member web-2 took over from web-1", Moved: 2, Minimum: 2,
			},
		},
		"A standby that gets a seat of its own while others come waits with them, and stands by until then": {
			in: PodsInput{
				Seats: surged, Workloads: web(3, false), RebalanceDelay: time.Second, Pods: append(live[:2:2], ofWeb(livePod("web-2")), came(0, livePod("bare-3"))),
			},
			want: PodsOutput{Seats: surged, Deadline: podsNow.Add(time.Second)},
		},
		"A pod that is too many stands by once those that came before it have joined": {
			in: PodsInput{
				Workloads: web(1, false), RebalanceDelay: time.Second,
				Pods: []Pod{came(200*time.Millisecond, ofWeb(livePod("web-0"))), came(100*time.Millisecond, ofWeb(livePod("web-1")))},
			},
			want: PodsOutput{Deadline: podsNow.Add(800 * time.Millisecond)},
		},
		"A container that was started again changes the seat, and nothing else": {
			in: PodsInput{Seats: two, Workloads: web(2, false), Pods: []Pod{live[0], restarted(live[1])}},
			want: PodsOutput{Seats: []Seat{two[0], func() Seat {
				seat := takeSeat(restarted(live[1]))
				seat.Share = two[1].Share
				return seat
			}()}},
		},
	})
}

func restarted(pod Pod) Pod {
	pod.Restarts++
	return pod
}

func TestDecideWaitsForOthersThatJoin(t *testing.T) {
	one, two := []Seat{seatOf("web-0", 0, 1, 2, 3)}, []Seat{seatOf("web-0", 0, 1), seatOf("web-1", 2, 3)}
	joined := PodsOutput{
		Seats: []Seat{seatOf("web-0", 0, 1), seatOf("web-1", 2, 3)}, Changed: true, Reason: "MemberJoined", Message: "member web-1 joined", Moved: 2, Minimum: 2,
	}
	in := func(seats []Seat, pods ...Pod) PodsInput {
		return PodsInput{Seats: seats, Pods: pods, RebalanceDelay: time.Second}
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	checkPods(t, map[string]podsCase{
		"A pod that has just come waits": {
			in:   in(one, livePod("web-0"), came(ms(300), livePod("web-1"))),
			want: PodsOutput{Seats: one, Deadline: podsNow.Add(ms(700))},
		},
		"So does the first one": {
			in:   in(nil, came(0, livePod("web-1"))),
			want: PodsOutput{Deadline: podsNow.Add(ms(1000))},
		},
		"It joins when it has waited": {
			in:   in(one, livePod("web-0"), came(ms(1000), livePod("web-1"))),
			want: joined,
		},
		"Another one makes it wait anew": {
			in:   in(one, livePod("web-0"), came(ms(1000), livePod("web-1")), came(ms(100), livePod("web-2"))),
			want: PodsOutput{Seats: one, Deadline: podsNow.Add(ms(900))},
		},
		"But four times the delay at most": {
			in:   in(one, livePod("web-0"), came(ms(3900), livePod("web-1")), came(0, livePod("web-2"))),
			want: PodsOutput{Seats: one, Deadline: podsNow.Add(ms(100))},
		},
		"Ten times where nobody reads anything": {
			in:   in(nil, came(ms(9900), livePod("web-1")), came(0, livePod("web-2"))),
			want: PodsOutput{Deadline: podsNow.Add(ms(100))},
		},
		"A death waits for nobody, and takes those that wait in": {
			in: in(two, livePod("web-0"), came(0, livePod("web-2"))),
			want: PodsOutput{
				Seats: []Seat{two[0], seatOf("web-2", 2, 3)}, Changed: true, Reason: "MemberJoined,MemberLeft", Message: "member web-2 joined; member web-1 left", Moved: 2, Minimum: 2,
			},
		},
		"A member without partitions that leaves takes nobody in": {
			in:   in(append(one[:1:1], seatOf("web-9")), livePod("web-0"), came(0, livePod("web-1"))),
			want: PodsOutput{Seats: one, Deadline: podsNow.Add(ms(1000))},
		},
		"A topic that grows takes those that wait in": {
			in: in([]Seat{seatOf("web-0", 0, 1)}, livePod("web-0"), came(0, livePod("web-1"))),
			want: PodsOutput{
				Seats: []Seat{seatOf("web-0", 0, 1), seatOf("web-1", 2, 3)}, Changed: true, Reason: "MemberJoined,PartitionsAdded",
				Message: "member web-1 joined; topic orders grew from 2 to 4 partitions", Moved: 2, Minimum: 2,
			},
		},
		"The earlier one of two deadlines counts": {
			in: func() PodsInput {
				in := in(two, livePod("web-0"), deadPod("web-1", true), came(0, livePod("web-2")))
				in.GracePeriod = ms(600)
				return in
			}(),
			want: PodsOutput{Seats: []Seat{two[0], inGrace(two[1], podsNow.Add(ms(600)))}, Deadline: podsNow.Add(ms(600))},
		},
	})
}

func TestDecidePaused(t *testing.T) {
	two, idle := []Seat{seatOf("web-0", 0, 1), seatOf("web-1", 2, 3)}, []Seat{seatOf("web-0"), seatOf("web-1")}
	live := []Pod{livePod("web-0"), livePod("web-1")}
	checkPods(t, map[string]podsCase{
		"Pausing takes every partition and keeps the seats": {
			in:   PodsInput{Seats: two, Pods: live, Paused: true},
			want: PodsOutput{Seats: idle, Changed: true, Reason: "Paused", Message: "paused: nobody reads"},
		},
		"It does so once": {
			in:   PodsInput{Seats: idle, Pods: live, Paused: true, WasPaused: true},
			want: PodsOutput{Seats: idle},
		},
		"A member that is lost meanwhile changes nothing for the others": {
			in:   PodsInput{Seats: idle, Pods: live[:1], Paused: true, WasPaused: true},
			want: PodsOutput{Seats: idle[:1]},
		},
		"A pod that comes meanwhile gets a seat": {
			in:   PodsInput{Seats: idle[:1], Pods: live, Paused: true, WasPaused: true},
			want: PodsOutput{Seats: idle},
		},
		"The last member that leaves is told": {
			in:   PodsInput{Seats: idle[:1], Paused: true, WasPaused: true},
			want: PodsOutput{Changed: true, Reason: "MemberLeft", Message: "member web-0 left"},
		},
		"A group that is paused before it has members": {
			in:   PodsInput{Pods: live, Paused: true},
			want: PodsOutput{Seats: idle},
		},
		"Resuming assigns all partitions": {
			in:   PodsInput{Seats: idle, Pods: live, WasPaused: true},
			want: PodsOutput{Seats: two, Changed: true, Reason: "Resumed", Message: "resumed", Moved: 4, Minimum: 4},
		},
		"Pausing and a death at once": {
			in:   PodsInput{Seats: two, Pods: live[:1], Paused: true},
			want: PodsOutput{Seats: idle[:1], Changed: true, Reason: "Paused,MemberLeft", Message: "paused: nobody reads; member web-1 left"},
		},
	})
}
