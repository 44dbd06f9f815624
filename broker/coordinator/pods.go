// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// SeatPhase says whether the pod of a seat is alive. The values are those of a ConsumerGroup's status.
type SeatPhase string

const (
	// SeatActive is a seat whose pod is alive.
	SeatActive SeatPhase = "Active"
	// SeatGrace is a seat whose pod is not alive but may come back, or get a successor, before the seat's deadline.
	SeatGrace SeatPhase = "Grace"
	// SeatStandby is a live pod beyond the replicas of its workload. It has no share, and takes over that of the next one of them that ends.
	SeatStandby SeatPhase = "Standby"
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
	// Workload is what made the pod, empty for nothing.
	Workload string
	// Restarts is how often the pod's containers were started again.
	Restarts int32
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
	// Workload is what made the pod, such as Deployment/web; empty for nothing.
	Workload string
	// Restarts is how often the pod's containers were started again.
	Restarts int32
	// Since is when a live pod without a seat was first seen; zero for long ago.
	Since time.Time
}

// Workload is what makes pods of a group, such as a Deployment.
type Workload struct {
	// Replicas is how many pods it is to have.
	Replicas int
	// Rolling says that it is replacing its pods by others.
	Rolling bool
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
	// Workloads are those of the pods and seats, by name. A pod of one that is not among them never stands by.
	Workloads map[string]Workload
	// RebalanceDelay is how long a pod that is to get a seat waits for others, after the last one that came; four times that after the first one at most, ten times where nobody
	// reads anything yet.
	RebalanceDelay time.Duration
	// Paused says that nobody is to have a share; WasPaused, that it was so when the last decision was made.
	Paused, WasPaused bool
}

// maxDelays is how many times RebalanceDelay a pod waits at most, and maxFirstDelays where nobody reads anything yet: then there is nothing that a late share is missed by, and a
// client that was told too early hears of what it gets or loses besides a whole heartbeat interval later.
const maxDelays, maxFirstDelays = 4, 10

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
	before := make(assigner.Assignment, len(in.Seats))
	for i := range in.Seats {
		if in.Seats[i].Phase != SeatStandby {
			before[in.Seats[i].Pod] = flatten(in.Seats[i].Share)
		}
	}
	s := seatPods(now, in)
	plan, after := s.assign(before)
	out := PodsOutput{Generation: in.Generation}
	if len(s.joining) > 0 {
		if at := s.joinAt(); now.Before(at) && !differ(before, after) {
			out.Deadline = at
		} else {
			s.takeIn()
			plan, after = s.assign(before)
		}
	}
	out.Seats = s.sorted()
	for i := range out.Seats {
		out.Seats[i].Share = group(after[out.Seats[i].Pod])
		out.Deadline = earliest(out.Deadline, out.Seats[i].Deadline)
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
	if !in.Paused {
		out.Minimum = assigner.Minimum(plan)
	}
	s.cause.shares(in)
	out.Reason, out.Message = s.cause.reason(), s.cause.message()
	return out
}

// chosen returns the assigner, ConsistentHash by default.
func chosen(a assigner.Assigner) assigner.Assigner {
	if a == nil {
		return assigner.ConsistentHash{}
	}
	return a
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
