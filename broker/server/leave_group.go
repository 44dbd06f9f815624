// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// leaveGroup answers LeaveGroup; from v3 on several members leave at once, as admin tools have them do.
func (s *Server) leaveGroup(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.LeaveGroupRequest)
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.Version = r.version
	if resp.ErrorCode = checkGroupID(req.Group); resp.ErrorCode != codeNone {
		return resp
	}
	members := leavingMembers(r, req)
	reply := s.groups.call(ctx, req.Group, false, func(token coordinator.Token) coordinator.Input {
		return coordinator.Leave{Token: token, Members: members}
	})
	resp.ErrorCode = reply.Err
	body, _ := reply.Body.(coordinator.LeaveReply)
	if reply.Err != codeNone {
		return resp
	}
	if r.version < 3 {
		resp.ErrorCode = codeAt(body.Errs, 0)
		return resp
	}
	for i, m := range req.Members {
		member := kmsg.NewLeaveGroupResponseMember()
		member.MemberID, member.InstanceID, member.ErrorCode = m.MemberID, m.InstanceID, codeAt(body.Errs, i)
		resp.Members = append(resp.Members, member)
	}
	return resp
}

// leavingMembers returns who leaves, in the request's order.
func leavingMembers(r *request, req *kmsg.LeaveGroupRequest) []coordinator.Client {
	if r.version < 3 {
		return []coordinator.Client{clientOf(r, req.MemberID, nil)}
	}
	members := make([]coordinator.Client, len(req.Members))
	for i, m := range req.Members {
		members[i] = clientOf(r, m.MemberID, m.InstanceID)
	}
	return members
}

// codeAt is the error code at index i of a reply's codes.
func codeAt(codes []int16, i int) int16 {
	if i >= len(codes) {
		return codeUnknownServerError
	}
	return codes[i]
}
