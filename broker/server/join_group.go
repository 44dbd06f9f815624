// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// consumerProtocol is the protocol type of groups whose members read topics, as against Kafka Connect's and others' own uses of groups.
const consumerProtocol = "consumer"

const (
	// maxNameBytes is the longest name of a protocol, a protocol's type or a group instance, in bytes; a client's id counts as far in its member id.
	maxNameBytes = 255
	// maxProtocols is how many protocols a member may offer.
	maxProtocols = 100
	// maxMemberMetadata is how much a member may say of itself, over all protocols, in bytes, since it is kept for as long as the member is there: a
	// consumer of 100,000 partitions needs less than half of it for each of two protocols.
	maxMemberMetadata = 2 << 20
)

// joinGroup answers JoinGroup. The answer comes when the group's rebalance has all its members.
func (s *Server) joinGroup(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.JoinGroupRequest)
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = r.version
	resp.MemberID = req.MemberID
	if r.version < 7 { // a null protocol is v7's
		resp.Protocol = new(string)
	}
	if resp.ErrorCode = checkJoin(req); resp.ErrorCode != codeNone {
		return resp
	}
	s.groups.connections.heard(r.from, req.Group, req.MemberID)
	reply := s.groups.call(ctx, req.Group, true, func(token coordinator.Token) coordinator.Input { return joinInput(token, r, req) })
	resp.ErrorCode = reply.Err
	if body, ok := reply.Body.(coordinator.JoinReply); ok {
		fillJoin(resp, body)
	}
	return resp
}

// checkJoin refuses what no client sends: what a member says of itself is kept, and told to others, whose versions of the protocol may have
// no room for long names.
func checkJoin(req *kmsg.JoinGroupRequest) int16 {
	if code := checkGroupID(req.Group); code != codeNone {
		return code
	}
	if !isName(req.ProtocolType) || len(req.Protocols) > maxProtocols || req.InstanceID != nil && !isName(*req.InstanceID) {
		return codeInvalidRequest
	}
	size := 0
	for _, p := range req.Protocols {
		if !isName(p.Name) {
			return codeInvalidRequest
		}
		size += len(p.Metadata)
	}
	if size > maxMemberMetadata {
		return codeInvalidRequest
	}
	return codeNone
}

// isName says whether a string can be kept as a name: what a group remembers is stored as JSON, which has UTF-8 alone.
func isName(s string) bool { return len(s) <= maxNameBytes && utf8.ValidString(s) }

// joinInput translates a request. What the group keeps is copied.
func joinInput(token coordinator.Token, r *request, req *kmsg.JoinGroupRequest) coordinator.Join {
	join := coordinator.Join{
		Token:            token,
		Client:           clientOf(r, req.MemberID, req.InstanceID),
		NewMemberID:      newMemberID(r.clientID),
		RequireMemberID:  r.version >= 4,
		SkipsAssignment:  r.version >= 9,
		SessionTimeout:   millis(req.SessionTimeoutMillis),
		RebalanceTimeout: millis(req.RebalanceTimeoutMillis),
		ProtocolType:     req.ProtocolType,
	}
	if r.version == 0 { // v0 has no rebalance timeout
		join.RebalanceTimeout = join.SessionTimeout
	}
	for _, p := range req.Protocols {
		join.Protocols = append(join.Protocols, coordinator.Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)})
	}
	if req.ProtocolType == consumerProtocol && len(req.Protocols) > 0 {
		join.Subscription = decodeSubscription(req.Protocols[0].Metadata)
	}
	return join
}

// fillJoin translates an answer.
func fillJoin(resp *kmsg.JoinGroupResponse, body coordinator.JoinReply) {
	resp.MemberID = body.MemberID
	if resp.ErrorCode != codeNone {
		return
	}
	resp.Generation, resp.LeaderID, resp.SkipAssignment = body.Generation, body.Leader, body.SkipAssignment
	resp.ProtocolType, resp.Protocol = &body.ProtocolType, &body.Protocol
	for _, m := range body.Members {
		member := kmsg.NewJoinGroupResponseMember()
		member.MemberID, member.InstanceID, member.ProtocolMetadata = m.MemberID, optional(m.InstanceID), m.Metadata
		resp.Members = append(resp.Members, member)
	}
}

// decodeSubscription decodes what a consumer says of itself in a protocol's metadata; nil where that is not in the consumer protocol's encoding. Some clients, such
// as kafka-go 0.4, write the number of a version and what an older one has: what cannot be of its own version is read as of version 0, which has topics alone.
func decodeSubscription(data []byte) *coordinator.Subscription {
	var m kmsg.ConsumerMemberMetadata
	// ReadFrom checks every length against the bytes that are left before it allocates.
	if err := m.ReadFrom(data); err != nil {
		m = kmsg.ConsumerMemberMetadata{}
		if len(data) < 2 || m.ReadFrom(append([]byte{0, 0}, data[2:]...)) != nil {
			return nil
		}
	}
	if int16(binary.BigEndian.Uint16(data)) < 0 {
		return nil
	}
	sub := &coordinator.Subscription{Topics: m.Topics}
	for _, o := range m.OwnedPartitions {
		sub.Owned = append(sub.Owned, coordinator.TopicPartitions{Topic: o.Topic, Partitions: o.Partitions})
	}
	return sub
}

// clientOf says what is known of the client of a request.
func clientOf(r *request, memberID string, instanceID *string) coordinator.Client {
	c := coordinator.Client{MemberID: memberID, ClientID: r.clientID, Host: r.host}
	if instanceID != nil {
		c.InstanceID = *instanceID
	}
	return c
}

// newMemberID makes a member id as Kafka does: the client id, a dash and a random UUID (version 4).
func newMemberID(clientID string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	clientID = strings.ToValidUTF8(clientID[:min(len(clientID), maxNameBytes)], "")
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", clientID, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// millis is a duration that the wire gives in milliseconds.
func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// optional is a nullable string of the wire: null where s is empty.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
