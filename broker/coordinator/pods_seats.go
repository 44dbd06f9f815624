// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// seating is the way from one decision's seats to the next one's.
type seating struct {
	now  time.Time
	in   PodsInput
	pods map[string]Pod
	// seats are those of the next decision, without shares.
	seats []Seat
	// counting is how many of seats are not standbys, by workload.
	counting map[string]int
	// ended are the seats whose pods are gone for good or did not come back, by workload.
	ended map[string][]endedSeat
	// spare are the live pods that have no share: the standbys, then the others by the time that they came, by workload.
	spare map[string][]Pod
	// stoodBy are the pods that were standbys.
	stoodBy map[string]bool
	// joining are the pods that are to get a seat of their own; those that were standbys have that seat until then.
	joining []Pod
	// beyond are the pods that are to stand by once those of joining have joined.
	beyond []Pod
	// heirs are the pods that take over the share of another, whose name it holds.
	heirs map[string]string
	cause podsCause
}

// endedSeat is a seat that its pod does not keep.
type endedSeat struct {
	seat    Seat
	expired bool
}

// seatPods finds the seats, and who is to join them.
func seatPods(now time.Time, in PodsInput) *seating {
	s := &seating{
		now: now, in: in, pods: make(map[string]Pod, len(in.Pods)), counting: map[string]int{},
		ended: map[string][]endedSeat{}, spare: map[string][]Pod{}, heirs: map[string]string{}, stoodBy: map[string]bool{},
	}
	for _, pod := range in.Pods {
		if other, twice := s.pods[pod.Name]; !twice || preferred(pod, other) {
			s.pods[pod.Name] = pod
		}
	}
	held := make(map[string]bool, len(in.Seats))
	for i := range in.Seats {
		if in.Seats[i].Phase != SeatStandby {
			held[in.Seats[i].Pod] = true
			s.keep(in.Seats[i])
		}
	}
	for i := range in.Seats {
		s.stoodBy[in.Seats[i].Pod] = in.Seats[i].Phase == SeatStandby
	}
	for name, pod := range s.pods {
		if !pod.Alive || held[name] {
			continue
		}
		if s.stoodBy[name] {
			pod.Since = time.Time{}
		}
		s.spare[pod.Workload] = append(s.spare[pod.Workload], pod)
	}
	for _, workload := range s.workloads() {
		s.fill(workload)
	}
	return s
}

// preferred chooses between two pods of one name, which a caller may hold for a moment while one replaces the other: the one that is alive,
// then the one with the larger uid, so that the order does not matter.
func preferred(a, b Pod) bool {
	if a.Alive != b.Alive {
		return a.Alive
	}
	return a.UID > b.UID
}

// keep keeps a seat for its pod, or notes that it has ended; the zero Pod is one that is gone for good.
func (s *seating) keep(seat Seat) {
	pod := s.pods[seat.Pod]
	switch {
	case pod.Alive:
		s.add(takeSeat(pod))
	case !pod.MayReturn || s.in.GracePeriod <= 0:
		s.ended[seat.Workload] = append(s.ended[seat.Workload], endedSeat{seat: seat})
	default:
		kept := s.inGrace(seat)
		if !s.now.Before(kept.Deadline) {
			s.ended[seat.Workload] = append(s.ended[seat.Workload], endedSeat{seat: seat, expired: true})
			return
		}
		s.add(kept)
	}
}

// inGrace returns the seat with the deadline that it has, or gets now. One that is set stands, unless the grace period has become shorter since.
func (s *seating) inGrace(seat Seat) Seat {
	deadline := s.now.Add(s.in.GracePeriod).UTC().Truncate(time.Microsecond)
	if seat.Phase == SeatGrace && seat.Deadline.Before(deadline) {
		deadline = seat.Deadline
	}
	seat.Phase, seat.Deadline, seat.Share = SeatGrace, deadline, nil
	return seat
}

func (s *seating) add(seat Seat) {
	s.seats = append(s.seats, seat)
	if seat.Phase != SeatStandby {
		s.counting[seat.Workload]++
	}
}

// takeSeat returns the seat of a live pod, without a share.
func takeSeat(pod Pod) Seat {
	return Seat{
		Pod: pod.Name, UID: pod.UID, IP: pod.IP, Node: pod.Node, Zone: pod.Zone, Workload: pod.Workload, Restarts: pod.Restarts, Phase: SeatActive,
	}
}

// workloads are those that something is to be decided for, sorted.
func (s *seating) workloads() []string {
	names := slices.Collect(maps.Keys(s.ended))
	names = slices.AppendSeq(names, maps.Keys(s.spare))
	slices.Sort(names)
	return slices.Compact(names)
}

// fill decides about the seats of one workload that have ended, and its pods that have none. A pod takes over a seat that has ended, whole, so that every partition of a
// rollout moves once. Where a rollout has yet to start that pod, the seat waits for it. What is beyond the workload's replicas stands by.
func (s *seating) fill(name string) {
	ended, spare := s.ended[name], s.spare[name]
	slices.SortFunc(ended, func(a, b endedSeat) int { return cmp.Compare(a.seat.Pod, b.seat.Pod) })
	slices.SortFunc(spare, func(a, b Pod) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	workload, known := s.in.Workloads[name]
	room := func() bool { return s.counting[name] < workload.Replicas }
	for known && room() && len(ended) > 0 && len(spare) > 0 {
		s.heirs[spare[0].Name] = ended[0].seat.Pod
		s.add(takeSeat(spare[0]))
		s.cause.replaced = append(s.cause.replaced, replacement{old: ended[0].seat.Pod, successor: spare[0].Name})
		ended, spare = ended[1:], spare[1:]
	}
	for _, e := range ended {
		waiting := s.inGrace(e.seat)
		switch {
		case known && workload.Rolling && room() && !e.expired && s.now.Before(waiting.Deadline):
			s.add(waiting)
		case e.expired || e.seat.Phase == SeatGrace && s.in.GracePeriod > 0 && !s.now.Before(waiting.Deadline):
			s.cause.expired = append(s.cause.expired, e.seat.Pod)
		default:
			s.cause.left = append(s.cause.left, e.seat.Pod)
		}
	}
	joining := false
	for _, pod := range spare {
		beyond := known && !room()
		switch {
		case !beyond:
			s.joining = append(s.joining, pod)
			s.counting[name]++
			joining = true
		case joining:
			s.beyond = append(s.beyond, pod)
		}
		if s.stoodBy[pod.Name] || beyond && !joining {
			s.standBy(pod)
		}
	}
}

func (s *seating) standBy(pod Pod) {
	seat := takeSeat(pod)
	seat.Phase = SeatStandby
	s.add(seat)
}

// joinAt is when those that are to join need wait no longer for others. Those that came long ago wait for nobody, but nobody joins earlier for them.
func (s *seating) joinAt() time.Time {
	var first, last time.Time
	for _, pod := range s.joining {
		first = earliest(first, pod.Since)
		if pod.Since.After(last) {
			last = pod.Since
		}
	}
	delay := max(0, s.in.RebalanceDelay)
	at := last.Add(delay)
	delays := time.Duration(maxDelays)
	if !slices.ContainsFunc(s.in.Seats, func(seat Seat) bool { return len(seat.Share) > 0 }) {
		delays = maxFirstDelays
	}
	return earliest(at, first.Add(delays*delay))
}

// takeIn gives those that are to join their seats, and has those stand by that are beyond them.
func (s *seating) takeIn() {
	seated := map[string]bool{}
	for _, pod := range slices.Concat(s.joining, s.beyond) {
		seated[pod.Name] = true
	}
	s.seats = slices.DeleteFunc(s.seats, func(seat Seat) bool { return seated[seat.Pod] })
	for _, pod := range s.joining {
		s.seats = append(s.seats, takeSeat(pod))
		s.cause.joined = append(s.cause.joined, pod.Name)
	}
	for _, pod := range s.beyond {
		s.standBy(pod)
	}
	s.joining, s.beyond = nil, nil
}

// sorted returns the seats by pod name.
func (s *seating) sorted() []Seat {
	slices.SortFunc(s.seats, func(a, b Seat) int { return cmp.Compare(a.Pod, b.Pod) })
	return s.seats
}

// assign returns what the seats read, and what that was computed from: all read all topics, and standbys none. An heir counts as the one that had what it inherits, unless
// more would move than must, as it may when others join at the same time.
func (s *seating) assign(before assigner.Assignment) (assigner.Input, assigner.Assignment) {
	topics := slices.Sorted(maps.Keys(s.in.Topics))
	plan := assigner.Input{Partitions: s.in.Topics, Zones: s.in.Zones, Previous: before}
	none := assigner.Assignment{}
	for _, seat := range s.sorted() {
		if seat.Phase != SeatStandby {
			plan.Members = append(plan.Members, assigner.Member{ID: seat.Pod, Topics: topics, Zone: seat.Zone})
			none[seat.Pod] = nil
		}
	}
	if s.in.Paused {
		return plan, none
	}
	inherited := plan
	inherited.Previous = maps.Clone(before)
	for heir, old := range s.heirs {
		inherited.Previous[heir] = before[old]
		delete(inherited.Previous, old)
	}
	after := chosen(s.in.Assigner).Assign(inherited)
	if len(s.heirs) > 0 && assigner.Moves(before, after) > assigner.Minimum(plan) {
		after = chosen(s.in.Assigner).Assign(plan)
	}
	return plan, after
}
