// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// SeatPhase says whether the pod of a seat is alive. The values are those of a ConsumerGroup's status.
type SeatPhase string

const (
	// SeatActive is a seat whose pod is alive.
	SeatActive SeatPhase = "Active"
	// SeatGrace is a seat whose pod is not alive but may come back before the seat's deadline.
	SeatGrace SeatPhase = "Grace"
)

// Seat is a member of a managed group: a pod and what it reads. A seat is known by its pod's name; a pod of the same name with another uid,
// such as a StatefulSet makes, takes it over.
type Seat struct {
	Pod  string
	UID  string
	IP   string
	Node string
	// Zone is where the pod runs, empty if that is not known.
	Zone string
	// Phase is SeatGrace if and only if Deadline is set.
	Phase SeatPhase
	// Deadline is when the seat is lost if its pod has not come back, in whole microseconds, as the API keeps it.
	Deadline time.Time
	Share    []TopicPartitions
}

// Pod is a pod that the group's selector matches, or one that no longer exists but will be made again under the same name.
type Pod struct {
	Name string
	UID  string
	// IP is empty where the pod's address is not its own.
	IP   string
	Node string
	// Zone is where the pod runs, empty if that is not known.
	Zone string
	// Alive says that the pod is running, ready and not terminating, and has an address.
	Alive bool
	// MayReturn says, of a pod that is not alive, that it may become so again, or be made again under the same name: a container restarts, a
	// readiness probe fails, a StatefulSet replaces its pod. A pod that finished, failed, or was deleted for good may not.
	MayReturn bool
}

// PodsInput is what the members and the assignment of a managed group are decided from.
type PodsInput struct {
	// Seats and Generation are the last decision, empty and 0 before the first one.
	Seats      []Seat
	Generation int32
	// Assigner is the group's assigner; nil is ConsistentHash.
	Assigner assigner.Assigner
	// Pods are the pods that the group's selector matches, in any order. A seat whose pod is not among them is lost at once.
	Pods []Pod
	// Topics holds the number of partitions of each topic that the group reads; one without partitions counts as missing.
	Topics map[string]int32
	// Zones holds the zones of the partitions' leaders, by topic and partition; an empty one, or one beyond the end, is not known.
	Zones map[string][]string
	// GracePeriod is how long a seat waits for its pod to come back.
	GracePeriod time.Duration
}

// PodsOutput is a decision about a managed group.
type PodsOutput struct {
	// Seats are the members, by pod name. Invariant: every partition of Topics is in exactly one share if there is a seat.
	Seats []Seat
	// Generation grows by one if and only if Changed.
	Generation int32
	// Changed says that a partition has another owner than before or none any more, or that the last member left. A member that joins or leaves
	// without partitions, or a pod that takes over a seat, changes nothing.
	Changed bool
	// Reason names what caused the change, separated by commas, such as MemberJoined,PartitionsAdded; empty unless Changed.
	Reason string
	// Message names the members and topics that caused the change, for people; empty unless Changed.
	Message string
	// Partitions is the number of partitions of the group's topics.
	Partitions int
	// Moved is the number of partitions with another owner than before, counting those that had none; Minimum is the smallest Moved that a
	// balanced assignment can have.
	Moved, Minimum int
	// Deadline is the earliest deadline of a seat in grace, zero for none: Decide is to be called again then.
	Deadline time.Time
}

// Decide decides the members of a managed group and what they read. It is pure: the same input gives the same output, whatever the order
// of seats and pods.
func Decide(now time.Time, in PodsInput) PodsOutput {
	seats, cause := seatPods(now, in)
	before := make(assigner.Assignment, len(in.Seats))
	for i := range in.Seats {
		before[in.Seats[i].Pod] = flatten(in.Seats[i].Share)
	}
	plan := assigner.Input{Members: planMembers(seats, in.Topics), Partitions: in.Topics, Zones: in.Zones, Previous: before}
	after := chosen(in.Assigner).Assign(plan)

	out := PodsOutput{Seats: seats, Generation: in.Generation}
	for i := range seats {
		seats[i].Share = group(after[seats[i].Pod])
		out.Deadline = earliest(out.Deadline, seats[i].Deadline)
	}
	for _, count := range in.Topics {
		out.Partitions += int(max(0, count))
	}
	if !differ(before, after) {
		return out
	}
	out.Changed = true
	out.Generation++
	out.Moved = assigner.Moves(before, after)
	out.Minimum = assigner.Minimum(plan)
	cause.topics(in)
	out.Reason, out.Message = cause.reason(), cause.message()
	return out
}

// chosen returns the assigner, ConsistentHash by default.
func chosen(a assigner.Assigner) assigner.Assigner {
	if a == nil {
		return assigner.ConsistentHash{}
	}
	return a
}

// planMembers returns the seats as the assigner sees them: all read all topics.
func planMembers(seats []Seat, topics map[string]int32) []assigner.Member {
	names := slices.Sorted(maps.Keys(topics))
	members := make([]assigner.Member, len(seats))
	for i := range seats {
		members[i] = assigner.Member{ID: seats[i].Pod, Topics: names, Zone: seats[i].Zone}
	}
	return members
}

// seatPods returns the seats, by pod name and without shares, and what changed about them.
func seatPods(now time.Time, in PodsInput) ([]Seat, *podsCause) {
	cause := &podsCause{}
	pods := make(map[string]Pod, len(in.Pods))
	for _, pod := range in.Pods {
		if other, twice := pods[pod.Name]; !twice || preferred(pod, other) {
			pods[pod.Name] = pod
		}
	}
	held := make(map[string]bool, len(in.Seats))
	var seats []Seat
	for _, seat := range in.Seats {
		held[seat.Pod] = true
		kept, why := keepSeat(now, seat, pods[seat.Pod], in.GracePeriod)
		switch why {
		case seatKept:
			seats = append(seats, kept)
		case seatLeft:
			cause.left = append(cause.left, seat.Pod)
		case seatExpired:
			cause.expired = append(cause.expired, seat.Pod)
		}
	}
	for name, pod := range pods {
		if pod.Alive && !held[name] {
			seats = append(seats, takeSeat(pod))
			cause.joined = append(cause.joined, name)
		}
	}
	slices.SortFunc(seats, func(a, b Seat) int { return cmp.Compare(a.Pod, b.Pod) })
	return seats, cause
}

// preferred chooses between two pods of one name, which a caller may hold for a moment while one replaces the other: the one that is alive,
// then the one with the larger uid, so that the order does not matter.
func preferred(a, b Pod) bool {
	if a.Alive != b.Alive {
		return a.Alive
	}
	return a.UID > b.UID
}

// takeSeat returns the seat of a live pod, without a share.
func takeSeat(pod Pod) Seat {
	return Seat{Pod: pod.Name, UID: pod.UID, IP: pod.IP, Node: pod.Node, Zone: pod.Zone, Phase: SeatActive}
}

// seatFate is what becomes of a seat.
type seatFate int

const (
	seatKept seatFate = iota
	seatLeft
	seatExpired
)

// keepSeat decides what becomes of a seat, given its pod as it is now; the zero Pod is one that is gone for good.
func keepSeat(now time.Time, seat Seat, pod Pod, grace time.Duration) (Seat, seatFate) {
	if pod.Alive {
		return takeSeat(pod), seatKept
	}
	if !pod.MayReturn || grace <= 0 {
		return Seat{}, seatLeft
	}
	kept := Seat{Pod: seat.Pod, UID: seat.UID, IP: seat.IP, Node: seat.Node, Zone: seat.Zone, Phase: SeatGrace}
	// A deadline that is set stands, unless the grace period has become shorter since.
	kept.Deadline = now.Add(grace).UTC().Truncate(time.Microsecond)
	if seat.Phase == SeatGrace && seat.Deadline.Before(kept.Deadline) {
		kept.Deadline = seat.Deadline
	}
	if !now.Before(kept.Deadline) {
		return Seat{}, seatExpired
	}
	return kept, seatKept
}

// differ reports whether who reads what differs, or the last member left. Members without partitions do not count otherwise.
func differ(before, after assigner.Assignment) bool {
	if len(after) == 0 {
		return len(before) > 0
	}
	for id, share := range before {
		if !slices.Equal(share, after[id]) {
			return true
		}
	}
	for id, share := range after {
		if _, known := before[id]; !known && len(share) > 0 {
			return true
		}
	}
	return false
}
