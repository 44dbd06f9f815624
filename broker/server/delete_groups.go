// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// deleteGroups answers DeleteGroups: groups without members go, with their offsets. A managed group goes with its ConsumerGroup resource.
func (s *Server) deleteGroups(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.DeleteGroupsRequest)
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Version = r.version
	for _, id := range req.Groups {
		group := kmsg.NewDeleteGroupsResponseGroup()
		group.Group = id
		group.ErrorCode, group.ErrorMessage = s.deleteGroup(ctx, id)
		resp.Groups = append(resp.Groups, group)
	}
	return resp
}

func (s *Server) deleteGroup(ctx context.Context, id string) (code int16, message *string) {
	var managed bool
	known, code := s.groups.view(ctx, id, func(g *coordinator.Group) { managed = g.Managed() })
	switch {
	case code != codeNone:
		return code, nil
	case !known:
		return codeGroupIDNotFound, nil
	case managed:
		return codePolicyViolation, optional("the group is managed: delete its ConsumerGroup resource instead")
	}
	reply := s.groups.call(ctx, id, false, func(token coordinator.Token) coordinator.Input { return coordinator.Delete{Token: token} })
	return reply.Err, nil
}
