// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/runs"
)

// Bounds of the compact form of an assignment, which is for people, in a column.
const (
	// maxCompactBytes is the length from which on it names no more members.
	maxCompactBytes = 1000
	// maxCompactTopics is how many topics of a member it names.
	maxCompactTopics = 8
)

// seatsOf returns the members of a status as the coordinator's seats.
func seatsOf(members []v1alpha1.GroupMember) []coordinator.Seat {
	seats := make([]coordinator.Seat, 0, len(members))
	for i := range members {
		m := &members[i]
		seat := coordinator.Seat{
			Pod: m.Name, UID: string(m.UID), IP: m.IP, Node: m.Node, Zone: m.Zone, Workload: m.Workload, Restarts: m.Restarts, Phase: coordinator.SeatActive,
		}
		switch {
		case m.Phase == v1alpha1.MemberGrace && m.GraceDeadline != nil:
			seat.Phase, seat.Deadline = coordinator.SeatGrace, m.GraceDeadline.UTC()
		case m.Phase == v1alpha1.MemberStandby:
			seat.Phase = coordinator.SeatStandby
		}
		for _, a := range m.Assignments {
			seat.Share = append(seat.Share, coordinator.TopicPartitions{Topic: a.Topic, Partitions: a.Partitions})
		}
		seats = append(seats, seat)
	}
	return seats
}

// counting is how many members count: those that are no standbys.
func counting(members []v1alpha1.GroupMember) int {
	n := 0
	for i := range members {
		if members[i].Phase != v1alpha1.MemberStandby {
			n++
		}
	}
	return n
}

// keepStalled marks the members that are alive, and were stalled before.
func keepStalled(before, members []v1alpha1.GroupMember) []v1alpha1.GroupMember {
	stalled := map[types.UID]bool{}
	for i := range before {
		if before[i].Phase == v1alpha1.MemberStalled {
			stalled[before[i].UID] = true
		}
	}
	for i := range members {
		if m := &members[i]; m.Phase == v1alpha1.MemberActive && stalled[m.UID] {
			m.Phase = v1alpha1.MemberStalled
		}
	}
	return members
}

// membersOf is the inverse of seatsOf, but that it knows of nobody who is stalled.
func membersOf(seats []coordinator.Seat) []v1alpha1.GroupMember {
	if len(seats) == 0 {
		return nil
	}
	members := make([]v1alpha1.GroupMember, 0, len(seats))
	taken := map[string]bool{}
	for i := range seats {
		if seats[i].Phase != coordinator.SeatGrace {
			taken[seats[i].IP] = true
		}
	}
	for i := range seats {
		s := &seats[i]
		m := v1alpha1.GroupMember{
			Name: s.Pod, UID: types.UID(s.UID), IP: s.IP, Node: s.Node, Zone: s.Zone, Workload: s.Workload, Restarts: s.Restarts, Phase: v1alpha1.MemberPhase(s.Phase),
		}
		if s.Phase == coordinator.SeatGrace {
			deadline := metav1.NewMicroTime(s.Deadline)
			m.GraceDeadline = &deadline
			if taken[s.IP] {
				m.IP = "" // the address of a pod that is gone was given to another one; the brokers know no client by an address that two have
			}
		}
		for _, share := range s.Share {
			m.Assignments = append(m.Assignments, v1alpha1.TopicAssignment{Topic: share.Topic, Partitions: share.Partitions})
		}
		members = append(members, m)
	}
	return members
}

// compact returns the assignment for people: web-0:clicks[0],orders[0-3,7] web-1:orders[4-6] web-2:-. Once it is long enough it counts the other
// members.
func compact(members []v1alpha1.GroupMember) string {
	var b strings.Builder
	for i := range members {
		if b.Len() > maxCompactBytes {
			fmt.Fprintf(&b, " and %d more: see .status.members", len(members)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(members[i].Name)
		b.WriteByte(':')
		if len(members[i].Assignments) == 0 {
			b.WriteByte('-')
		}
		writeShare(&b, members[i].Assignments)
	}
	return b.String()
}

// writeShare writes what one member reads; of many topics it counts those that come after the first few.
func writeShare(b *strings.Builder, share []v1alpha1.TopicAssignment) {
	for i, a := range share {
		if i > 0 {
			b.WriteByte(',')
		}
		if i == maxCompactTopics {
			fmt.Fprintf(b, "+%d topics", len(share)-i)
			return
		}
		b.WriteString(a.Topic)
		b.WriteByte('[')
		runs.Write(b, a.Partitions)
		b.WriteByte(']')
	}
}
