// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// DescribeGroups, v0 to v6. From v5 on, which is flexible (KIP-482), each group carries tagged fields of our own, which other clients skip:
//
//	tag 10000: a classic group's generation; int32, big endian. Kafka tells it to nobody but the members.
//	tag 10001: since when this broker coordinates the group, whether or not there is one; int64, big endian, milliseconds since 1970.

const (
	tagGeneration       = 10000
	tagCoordinatorSince = 10001
)

// describeGroups answers DescribeGroups. A group that nobody knows is Dead, and from v6 on an error (KIP-1043); so is one of the type consumer (see
// consumerGroupDescribe).
func (s *Server) describeGroups(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.DescribeGroupsRequest)
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Version = r.version
	named := make(map[string]bool, len(req.Groups))
	for _, id := range req.Groups {
		if !firstNamed(named, id) {
			continue
		}
		resp.Groups = append(resp.Groups, s.describeGroup(ctx, r.version, id))
	}
	return resp
}

func (s *Server) describeGroup(ctx context.Context, version int16, id string) kmsg.DescribeGroupsResponseGroup {
	group := kmsg.NewDescribeGroupsResponseGroup()
	group.Group = id
	d, known, code := s.groups.describe(ctx, id)
	if since := s.groups.since(id); code == codeNone && version >= 5 && !since.IsZero() {
		group.UnknownTags.Set(tagCoordinatorSince, binary.BigEndian.AppendUint64(nil, uint64(since.UnixMilli())))
	}
	message := fmt.Sprintf("there is no group %q", clip(id))
	switch {
	case code != codeNone:
		group.ErrorCode = code
		return group
	case known && typeOf(d) == groupTypeClassic:
		fillDescription(&group, d)
		if version >= 5 {
			group.UnknownTags.Set(tagGeneration, binary.BigEndian.AppendUint32(nil, uint32(d.Generation)))
		}
		return group
	case known:
		message = fmt.Sprintf("group %q is not a classic group; ConsumerGroupDescribe describes it", clip(id))
	}
	group.State = coordinator.StateDead
	if version >= 6 {
		group.ErrorCode, group.ErrorMessage = codeGroupIDNotFound, &message
	}
	return group
}

func fillDescription(group *kmsg.DescribeGroupsResponseGroup, d coordinator.Description) {
	group.State, group.ProtocolType, group.Protocol = d.State, d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID = m.MemberID, optional(m.InstanceID)
		member.ClientID, member.ClientHost = m.ClientID, "/"+m.Host // Java's InetAddress, as Kafka prints it
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		if m.Shared {
			member.MemberAssignment = encodeShare(m.Share)
		}
		group.Members = append(group.Members, member)
	}
}
