// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// ConsumerGroupDescribe, v0 and v1 (KIP-848).
//
//   - v1 tells of each member which protocol it speaks.
//   - It answers for groups that ListGroups lists as of the type consumer, and DescribeGroups for the others; each says GROUP_ID_NOT_FOUND where the other
//     is to be asked, as in Kafka, and every admin client then asks it.

// The types of members in ConsumerGroupDescribe.
const (
	memberClassic  int8 = 0
	memberConsumer int8 = 1
)

// consumerGroupDescribe answers ConsumerGroupDescribe.
func (s *Server) consumerGroupDescribe(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.ConsumerGroupDescribeRequest](r)
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.Version = r.version
	named := make(map[string]bool, len(req.Groups))
	for _, id := range req.Groups {
		if firstNamed(named, id) {
			group := s.describeConsumerGroup(ctx, id)
			r.code(group.ErrorCode)
			resp.Groups = append(resp.Groups, group)
		}
	}
	return resp
}

func (s *Server) describeConsumerGroup(ctx context.Context, id string) kmsg.ConsumerGroupDescribeResponseGroup {
	refuse := func(code int16, format string, args ...any) kmsg.ConsumerGroupDescribeResponseGroup {
		group := kmsg.NewConsumerGroupDescribeResponseGroup()
		group.Group, group.ErrorCode = id, code
		group.ErrorMessage = optional(fmt.Sprintf(format, args...))
		return group
	}
	if checkGroupID(id) != codeNone {
		return refuse(codeInvalidGroupID, "a group id has 1 to %d bytes", maxGroupID)
	}
	d, known, code := s.groups.describe(ctx, id)
	switch {
	case code != codeNone:
		return refuse(code, "")
	case !known:
		return refuse(codeGroupIDNotFound, "there is no group %q", clip(id))
	case typeOf(d) != groupTypeConsumer:
		return refuse(codeGroupIDNotFound, "group %q is a classic group; DescribeGroups describes it", clip(id))
	}
	group := kmsg.NewConsumerGroupDescribeResponseGroup()
	group.Group, group.State, group.Epoch, group.AssignmentEpoch = id, stateOf(d), d.Generation, d.Generation
	group.AssignorName = d.Assignor
	if snap := s.snapshot(); d.Type == coordinator.TypeManaged && snap.Groups[id] != nil {
		group.AssignorName = snap.Groups[id].Assigner
	}
	for i := range d.Members {
		group.Members = append(group.Members, s.describeConsumerMember(&d.Members[i]))
	}
	return group
}

func (s *Server) describeConsumerMember(m *coordinator.MemberDescription) kmsg.ConsumerGroupDescribeResponseGroupMember {
	member := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	member.MemberID, member.InstanceID, member.RackID, member.MemberEpoch = m.MemberID, optional(m.InstanceID), optional(m.Rack), m.Epoch
	member.ClientID, member.ClientHost = m.ClientID, "/"+m.Host // Java's InetAddress, as Kafka prints it
	member.SubscribedTopics, member.SubscribedTopicRegex = m.Topics, optional(m.Regex)
	if member.MemberType = memberClassic; m.Consumer {
		member.MemberType = memberConsumer
	}
	member.Assignment, member.TargetAssignment = s.describedShare(m.Share), s.describedShare(m.Target)
	return member
}

// describedShare lays a share out. A topic that has gone keeps its name, and has no id.
func (s *Server) describedShare(share []coordinator.TopicPartitions) kmsg.Assignment {
	a := kmsg.NewAssignment()
	for _, tp := range share {
		t := kmsg.NewAssignmentTopicPartition()
		t.Topic, t.Partitions = tp.Topic, tp.Partitions
		if topic := s.topic(tp.Topic); topic != nil {
			t.TopicID = topic.ID
		}
		a.TopicPartitions = append(a.TopicPartitions, t)
	}
	return a
}
