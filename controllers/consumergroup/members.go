// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// maxCompactBytes is the largest compact form of an assignment that is shown.
const maxCompactBytes = 4096

// seatsOf returns the members of a status as the coordinator's seats.
func seatsOf(members []v1alpha1.GroupMember) []coordinator.Seat {
	seats := make([]coordinator.Seat, 0, len(members))
	for i := range members {
		m := &members[i]
		seat := coordinator.Seat{Pod: m.Name, UID: string(m.UID), IP: m.IP, Node: m.Node, Phase: coordinator.SeatActive}
		if m.Phase == v1alpha1.MemberGrace && m.GraceDeadline != nil {
			seat.Phase, seat.Deadline = coordinator.SeatGrace, m.GraceDeadline.UTC()
		}
		for _, a := range m.Assignments {
			seat.Share = append(seat.Share, coordinator.TopicPartitions{Topic: a.Topic, Partitions: a.Partitions})
		}
		seats = append(seats, seat)
	}
	return seats
}

// membersOf is the inverse of seatsOf.
func membersOf(seats []coordinator.Seat) []v1alpha1.GroupMember {
	if len(seats) == 0 {
		return nil
	}
	members := make([]v1alpha1.GroupMember, 0, len(seats))
	for i := range seats {
		s := &seats[i]
		m := v1alpha1.GroupMember{Name: s.Pod, UID: types.UID(s.UID), IP: s.IP, Node: s.Node, Phase: v1alpha1.MemberPhase(s.Phase)}
		if s.Phase == coordinator.SeatGrace {
			deadline := metav1.NewMicroTime(s.Deadline)
			m.GraceDeadline = &deadline
		}
		for _, share := range s.Share {
			m.Assignments = append(m.Assignments, v1alpha1.TopicAssignment{Topic: share.Topic, Partitions: share.Partitions})
		}
		members = append(members, m)
	}
	return members
}

// compact returns the assignment for people: web-0:clicks[0],orders[0-3,7] web-1:orders[4-6] web-2:-. A form that is too long is replaced by
// the number of members.
func compact(members []v1alpha1.GroupMember) string {
	var b strings.Builder
	for i := range members {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(members[i].Name)
		b.WriteByte(':')
		if len(members[i].Assignments) == 0 {
			b.WriteByte('-')
		}
		for j, a := range members[i].Assignments {
			if j > 0 {
				b.WriteByte(',')
			}
			b.WriteString(a.Topic)
			b.WriteByte('[')
			writeRuns(&b, a.Partitions)
			b.WriteByte(']')
		}
		if b.Len() > maxCompactBytes {
			return fmt.Sprintf("%d members; see .status.members", len(members))
		}
	}
	return b.String()
}

// writeRuns writes ascending numbers, runs of consecutive ones as first-last.
func writeRuns(b *strings.Builder, numbers []int32) {
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(numbers[i])))
		if end > i+1 {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(int(numbers[end-1])))
		}
		i = end
	}
}
