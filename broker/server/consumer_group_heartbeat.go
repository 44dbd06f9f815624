// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// ConsumerGroupHeartbeat, v0 and v1 (KIP-848): by it alone a member joins, says what it reads and holds, is told what to read, and leaves.
//
//   - v1 has regular expressions, and the client makes its member id itself. In v0 it may leave that to the broker.

const (
	// maxRegexBytes is the longest regular expression that a member may subscribe with, in bytes, for every member's is matched with every topic.
	maxRegexBytes = 1024
	// maxMemberID is the longest member id, in bytes: those that the broker makes are a client id, a dash and a UUID.
	maxMemberID = maxNameBytes + 1 + 36
)

// consumerGroupHeartbeat answers ConsumerGroupHeartbeat. What the group keeps of it is no longer than the request, which is a small one.
func (s *Server) consumerGroupHeartbeat(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.ConsumerGroupHeartbeatRequest](r)
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.Version = r.version
	if code, message := checkConsumerHeartbeat(req); code != codeNone {
		resp.ErrorCode, resp.ErrorMessage = code, &message
		return resp
	}
	s.groups.connections.heard(r.from, req.Group, req.MemberID)
	joins := req.MemberEpoch == coordinator.EpochJoin
	reply := s.groups.call(ctx, req.Group, joins, func(token coordinator.Token) coordinator.Input {
		return s.consumerHeartbeatInput(token, r, req)
	})
	resp.ErrorCode = reply.Err
	body, ok := reply.Body.(coordinator.ConsumerHeartbeatReply)
	if !ok {
		return resp
	}
	if reply.Err != codeNone {
		resp.ErrorMessage = optional(body.Message)
		return resp
	}
	resp.MemberID, resp.MemberEpoch = optional(body.MemberID), body.Epoch
	resp.HeartbeatIntervalMillis = int32(body.Interval.Milliseconds())
	if body.Assigned {
		resp.Assignment = s.heartbeatAssignment(body.Share)
	}
	return resp
}

// checkConsumerHeartbeat refuses, with a message, what Kafka refuses, and what no client sends: what a member says of itself is kept, and told to others.
func checkConsumerHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) (code int16, message string) {
	for _, what := range []string{identityFault(req), sizeFault(req), joinFault(req)} {
		if what != "" {
			return codeInvalidRequest, what
		}
	}
	return codeNone, ""
}

// identityFault says what is wrong with who the member says that it is, empty for nothing.
func identityFault(req *kmsg.ConsumerGroupHeartbeatRequest) string {
	epoch := req.MemberEpoch
	switch {
	case req.MemberID == "" && (req.Version >= 1 || epoch > coordinator.EpochJoin || epoch == coordinator.EpochLeave):
		return "MemberId can't be empty."
	case req.Group == "":
		return "GroupId can't be empty."
	case req.InstanceID != nil && *req.InstanceID == "":
		return "InstanceId can't be empty."
	case req.RackID != nil && *req.RackID == "":
		return "RackId can't be empty."
	case epoch == coordinator.EpochLeaveStatic && req.InstanceID == nil:
		return "InstanceId can't be null."
	case epoch < coordinator.EpochLeaveStatic:
		return "MemberEpoch is invalid."
	}
	return ""
}

// joinFault says what a join lacks, empty for nothing.
func joinFault(req *kmsg.ConsumerGroupHeartbeatRequest) string {
	switch {
	case req.MemberEpoch != coordinator.EpochJoin:
		return ""
	case req.RebalanceTimeoutMillis <= 0:
		return "RebalanceTimeoutMs must be provided in first request."
	case req.Topics == nil || len(req.Topics) > 0:
		return "TopicPartitions must be empty when (re-)joining."
	case req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
	}
	return ""
}

// sizeFault says what is too long, or is no text, empty for nothing.
func sizeFault(req *kmsg.ConsumerGroupHeartbeatRequest) string {
	text := func(what string, s *string, limit int) string {
		switch {
		case s == nil || len(*s) <= limit && utf8.ValidString(*s):
			return ""
		case len(*s) > limit:
			return fmt.Sprintf("%s can't be longer than %d bytes.", what, limit)
		}
		return what + " must be UTF-8."
	}
	faults := []string{
		text("GroupId", &req.Group, maxGroupID), text("MemberId", &req.MemberID, maxMemberID), text("InstanceId", req.InstanceID, maxNameBytes),
		text("RackId", req.RackID, maxNameBytes), text("ServerAssignor", req.ServerAssignor, maxNameBytes),
		text("SubscribedTopicRegex", req.SubscribedTopicRegex, maxRegexBytes),
	}
	for i := range req.SubscribedTopicNames {
		faults = append(faults, text("A topic's name", &req.SubscribedTopicNames[i], maxNameBytes))
	}
	i := slices.IndexFunc(faults, func(f string) bool { return f != "" })
	if i < 0 {
		return ""
	}
	return faults[i]
}

// consumerHeartbeatInput translates a request.
func (s *Server) consumerHeartbeatInput(
	token coordinator.Token, r *request, req *kmsg.ConsumerGroupHeartbeatRequest,
) coordinator.ConsumerHeartbeat {
	in := coordinator.ConsumerHeartbeat{
		Token:       token,
		Client:      clientOf(r, req.MemberID, req.InstanceID),
		NewMemberID: newMemberID(r.clientID),
		Epoch:       req.MemberEpoch,
		Rack:        req.RackID,
		Topics:      req.SubscribedTopicNames,
		Regex:       req.SubscribedTopicRegex,
		Assignor:    req.ServerAssignor,
		Owned:       s.ownedPartitions(req.Topics),
		// Kafka's rule: the fields that every client sets after it has joined, or has missed an answer.
		Full: req.RebalanceTimeoutMillis != -1 && req.Topics != nil && (req.SubscribedTopicNames != nil || req.SubscribedTopicRegex != nil),
	}
	if req.RebalanceTimeoutMillis > 0 {
		in.RebalanceTimeout = millis(req.RebalanceTimeoutMillis)
	}
	return in
}

// ownedPartitions names the topics that a member holds partitions of, nil where it says nothing. Topics that have gone are passed over, and so are partitions
// that have never been.
func (s *Server) ownedPartitions(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) []coordinator.TopicPartitions {
	if topics == nil {
		return nil
	}
	byName := make(map[string][]int32, len(topics))
	for _, t := range topics {
		topic := s.topicByID(t.TopicID)
		if topic == nil {
			continue
		}
		for _, p := range t.Partitions {
			if p >= 0 && int(p) < len(topic.Leaders) {
				byName[topic.Name] = append(byName[topic.Name], p)
			}
		}
	}
	owned := make([]coordinator.TopicPartitions, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.Sort(byName[name])
		owned = append(owned, coordinator.TopicPartitions{Topic: name, Partitions: slices.Compact(byName[name])})
	}
	return owned
}

// heartbeatAssignment lays a share out. A topic that has gone has no id, and nobody can read it.
func (s *Server) heartbeatAssignment(share []coordinator.TopicPartitions) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	for _, tp := range share {
		topic := s.topic(tp.Topic)
		if topic == nil {
			continue
		}
		t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		t.TopicID, t.Partitions = topic.ID, tp.Partitions
		a.Topics = append(a.Topics, t)
	}
	return &a
}
