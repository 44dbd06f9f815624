// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// heartbeat answers Heartbeat: whether the member still counts, and whether it is to join again. Where the group and the client let it, a success is held
// back until there is something to say (heartbeat_hold.go).
func (s *Server) heartbeat(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.HeartbeatRequest)
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = r.version
	if resp.ErrorCode = checkGroupID(req.Group); resp.ErrorCode != codeNone {
		return resp
	}
	s.groups.connections.heard(r.from, req.Group, req.MemberID)
	hold := s.holdFor(r, req)
	o, code := s.groups.pass(ctx, req.Group, false, func(token coordinator.Token) coordinator.Input {
		return coordinator.Heartbeat{Token: token, Client: clientOf(r, req.MemberID, req.InstanceID), Generation: req.Generation, Hold: hold}
	})
	if code != codeNone {
		resp.ErrorCode = code
		return resp
	}
	reply := s.awaitBeat(ctx, r, req.MemberID, o)
	resp.ErrorCode = reply.Err
	if r.from != nil {
		r.from.pace.answered(reply)
	}
	return resp
}
