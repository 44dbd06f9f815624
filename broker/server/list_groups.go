// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// ListGroups, v0 to v5.
//
//   - v3 is flexible, v4 tells states and filters by them (KIP-518), v5 types (KIP-848).

// The types of groups (KIP-848), as typeOf has them.
const (
	groupTypeClassic  = "classic"
	groupTypeConsumer = "consumer"
)

// typeOf is the type of a group, by which admin clients know whether to describe it with DescribeGroups or with ConsumerGroupDescribe. Kafka has no managed groups: one
// is of the type consumer as soon as one of its clients speaks that protocol, for DescribeGroups cannot describe that one, and ConsumerGroupDescribe describes
// both, and else classic, so that tools that are older than KIP-848 can describe it.
func typeOf(d coordinator.Description) string {
	consumer := func(m coordinator.MemberDescription) bool { return m.Consumer }
	if d.Type == coordinator.TypeConsumer || d.Type == coordinator.TypeManaged && slices.ContainsFunc(d.Members, consumer) {
		return groupTypeConsumer
	}
	return groupTypeClassic
}

// stateOf is the state of a group by a name that belongs to its type: there is no barrier in a managed group, and its clients reconcile as KIP-848's do.
func stateOf(d coordinator.Description) string {
	if typeOf(d) == groupTypeConsumer && (d.State == coordinator.StatePreparingRebalance || d.State == coordinator.StateCompletingRebalance) {
		return coordinator.StateReconciling
	}
	return d.State
}

// listGroups answers ListGroups: the groups that this broker coordinates, by id. While some are still being loaded, or cannot be told of, it says so, and lists the
// others.
func (s *Server) listGroups(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.ListGroupsRequest)
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = r.version
	if s.snapshot() == nil {
		resp.ErrorCode = codeCoordinatorMissing
		return resp
	}
	var groups []listedGroup
	for _, p := range s.groups.led() {
		if !p.isReady() {
			resp.ErrorCode = codeCoordinatorLoading
			continue
		}
		for _, h := range p.all() {
			groups = append(groups, listGroup(ctx, h))
		}
	}
	for _, g := range groups { // what some of them wait for is stored at the same time
		code := <-g.stored
		if code != codeNone { // nothing counts that was not stored: the group is there as it is on disk
			g = listGroup(ctx, g.hosted)
			code = <-g.stored
		}
		switch {
		case code != codeNone: // the list is not whole
			resp.ErrorCode = code
		case g.known && matches(req.StatesFilter, g.GroupState) && matches(req.TypesFilter, g.GroupType):
			resp.Groups = append(resp.Groups, *g.ListGroupsResponseGroup)
		}
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	return resp
}

// listedGroup is a group as it is listed, if it is known and that is stored.
type listedGroup struct {
	*kmsg.ListGroupsResponseGroup
	hosted *hosted
	known  bool
	stored <-chan int16
}

func listGroup(ctx context.Context, h *hosted) listedGroup {
	group := kmsg.NewListGroupsResponseGroup()
	group.Group = h.id
	known, stored := h.look(ctx, func(g *coordinator.Group) {
		d := g.Describe()
		group.ProtocolType, group.GroupState, group.GroupType = d.ProtocolType, stateOf(d), typeOf(d)
		if group.GroupType == groupTypeConsumer {
			group.ProtocolType = consumerProtocol
		}
	})
	return listedGroup{&group, h, known, stored}
}

// matches says whether a filter lets a value through; an empty one lets all through.
func matches(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
