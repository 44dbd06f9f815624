// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// groupTypeClassic is the type (KIP-848) of a group whose clients use JoinGroup and SyncGroup.
const groupTypeClassic = "classic"

// listGroups answers ListGroups: the groups that this broker coordinates, by id. While some are still being loaded it says so, and lists the others.
func (s *Server) listGroups(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.ListGroupsRequest)
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = r.version
	if s.snapshot() == nil {
		resp.ErrorCode = codeCoordinatorMissing
		return resp
	}
	if !matches(req.TypesFilter, groupTypeClassic) {
		return resp
	}
	for _, p := range s.groups.led() {
		if !p.isReady() {
			resp.ErrorCode = codeCoordinatorLoading
			continue
		}
		for _, h := range p.all() {
			if group, ok := listed(ctx, h); ok && matches(req.StatesFilter, group.GroupState) {
				resp.Groups = append(resp.Groups, group)
			}
		}
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	return resp
}

// listed describes a group; ok is false where it has gone.
func listed(ctx context.Context, h *hosted) (group kmsg.ListGroupsResponseGroup, ok bool) {
	group = kmsg.NewListGroupsResponseGroup()
	known, _ := h.view(ctx, func(g *coordinator.Group) {
		d := g.Describe()
		group.Group, group.ProtocolType, group.GroupState, group.GroupType = h.id, d.ProtocolType, d.State, groupTypeClassic
	})
	return group, known
}

// matches says whether a filter lets a value through; an empty one lets all through.
func matches(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
