// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// maxShareTopics is how many topics a leader's plan names, over all members, before it is not decoded: an empty topic takes, decoded, many times its bytes.
const maxShareTopics = 10 * maxElements

// syncGroup answers SyncGroup: what the member is to read. Where the group has a leader, the answer comes when the leader has sent its plan.
func (s *Server) syncGroup(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.SyncGroupRequest)
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version = r.version
	if resp.ErrorCode = checkGroupID(req.Group); resp.ErrorCode != codeNone {
		return resp
	}
	s.groups.connections.heard(r.from, req.Group, req.MemberID)
	hold := s.holdSyncFor(r)
	owed, code := s.groups.pass(ctx, req.Group, false, func(token coordinator.Token) coordinator.Input { return syncInput(token, r, req, hold) })
	if code != codeNone {
		resp.ErrorCode = code
		return resp
	}
	reply := s.awaitSync(ctx, r, req.MemberID, owed)
	resp.ErrorCode = reply.Err
	body, ok := reply.Body.(coordinator.SyncReply)
	if !ok || reply.Err != codeNone {
		return resp
	}
	if r.from != nil {
		r.from.pace.synced(memberKey{req.Group, req.MemberID}, req.Generation, s.groups.now())
	}
	resp.ProtocolType, resp.Protocol = &body.ProtocolType, &body.Protocol
	resp.MemberAssignment = body.Assignment
	if body.Shared {
		resp.MemberAssignment = encodeShare(body.Share)
	}
	return resp
}

// syncInput translates a request. What the group keeps is copied.
func syncInput(token coordinator.Token, r *request, req *kmsg.SyncGroupRequest, hold time.Duration) coordinator.Sync {
	in := coordinator.Sync{
		Token:       token,
		Hold:        hold,
		Client:      clientOf(r, req.MemberID, req.InstanceID),
		Generation:  req.Generation,
		Assignments: make(map[string][]byte, len(req.GroupAssignment)),
	}
	if req.ProtocolType != nil {
		in.ProtocolType = *req.ProtocolType
	}
	if req.Protocol != nil {
		in.Protocol = *req.Protocol
	}
	for _, a := range req.GroupAssignment {
		in.Assignments[a.MemberID] = bytes.Clone(a.MemberAssignment)
	}
	if in.ProtocolType == consumerProtocol || in.ProtocolType == "" {
		in.Shares = decodeShares(in.Assignments)
	}
	return in
}

// decodeShares decodes the parts of a plan that are in the consumer protocol's encoding.
func decodeShares(assignments map[string][]byte) map[string][]coordinator.TopicPartitions {
	shares := make(map[string][]coordinator.TopicPartitions, len(assignments))
	topics := 0
	for member, data := range assignments {
		var a kmsg.ConsumerMemberAssignment
		// ReadFrom checks every length against the bytes that are left before it allocates.
		if err := a.ReadFrom(data); err != nil || a.Version < 0 {
			continue
		}
		if topics += len(a.Topics); topics > maxShareTopics {
			return nil
		}
		share := make([]coordinator.TopicPartitions, 0, len(a.Topics))
		for _, t := range a.Topics {
			share = append(share, coordinator.TopicPartitions{Topic: t.Topic, Partitions: t.Partitions})
		}
		shares[member] = share
	}
	return shares
}

// encodeShare encodes a share in the consumer protocol, version 0: later versions have the same fields, and every client reads it.
func encodeShare(share []coordinator.TopicPartitions) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	for _, tp := range share {
		topic := kmsg.NewConsumerMemberAssignmentTopic()
		topic.Topic, topic.Partitions = tp.Topic, tp.Partitions
		a.Topics = append(a.Topics, topic)
	}
	return a.AppendTo(nil)
}
