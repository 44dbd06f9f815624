// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// DeleteTopics, v1 to v6.
//
//   - v4 is flexible, v5 has messages, v6 names topics by name or id.
//   - The response waits, for the request's timeout, until the topics are gone from the broker's metadata.

// deleteTopics deletes topics.
func (s *Server) deleteTopics(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.DeleteTopicsRequest](r)
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version = r.version
	deadline := time.Now().Add(timeoutOf(req.TimeoutMillis))
	topics := req.Topics
	for i := range req.TopicNames { // before v6
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &req.TopicNames[i]
		topics = append(topics, t)
	}
	resp.Topics = make([]kmsg.DeleteTopicsResponseTopic, len(topics))
	for i := range topics {
		out := &resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = topics[i].Topic, topics[i].TopicID
		if code, err := s.deleteTopic(ctx, deadline, out); err != nil {
			out.ErrorCode, out.ErrorMessage = code, optional(err.Error())
		}
	}
	for i := range resp.Topics {
		if out := &resp.Topics[i]; out.ErrorCode == codeNone {
			s.awaitDeleted(ctx, deadline, out)
		}
		r.code(resp.Topics[i].ErrorCode)
	}
	return resp
}

// deleteTopic deletes the topic that is named in the response, and completes the name and id there.
func (s *Server) deleteTopic(ctx context.Context, deadline time.Time, out *kmsg.DeleteTopicsResponseTopic) (int16, error) {
	var topic *metadata.Topic
	var zero metadata.TopicID
	switch {
	case out.Topic != nil && out.TopicID != zero:
		return codeInvalidRequest, errors.New("name a topic by its name or its id, not by both")
	case out.Topic != nil:
		if topic = s.topic(*out.Topic); topic == nil {
			return codeUnknownTopicOrPartition, fmt.Errorf("%w %q", metadata.ErrUnknownTopic, clip(*out.Topic))
		}
	default:
		if topic = s.topicByID(out.TopicID); topic == nil {
			return codeUnknownTopicID, metadata.ErrUnknownTopic
		}
	}
	out.Topic, out.TopicID = &topic.Name, topic.ID
	if topic.Internal || topic.Name == topicConsumerOffsets {
		return codeTopicAuthorizationFailed, fmt.Errorf("topic %s holds the brokers' own records and cannot be deleted", topic.Name)
	}
	ctx, cancel := changeContext(ctx, deadline)
	defer cancel()
	if err := s.cfg.Metadata.DeleteTopic(ctx, topic.Name); err != nil {
		return s.metadataFailed(topic.Name, err), err
	}
	s.log.Info("deleted a topic", "topic", topic.Name)
	return codeNone, nil
}

// awaitDeleted waits until a deleted topic is gone.
func (s *Server) awaitDeleted(ctx context.Context, deadline time.Time, out *kmsg.DeleteTopicsResponseTopic) {
	gone := s.awaitSnapshot(ctx, time.Until(deadline), func(snap *metadata.Snapshot) bool {
		topic := snap.Topics[*out.Topic]
		return topic == nil || topic.ID != out.TopicID
	})
	if !gone {
		out.ErrorCode, out.ErrorMessage = codeRequestTimedOut, optional("the topic is being deleted, but is not gone yet")
	}
}
