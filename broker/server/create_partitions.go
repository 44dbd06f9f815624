// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// CreatePartitions, v0 to v3.
//
//   - v2 is flexible; the others differ in nothing that matters here.
//   - Replica assignments are refused. The response waits, for the request's timeout, until the new partitions have leaders.

// createPartitions raises numbers of partitions.
func (s *Server) createPartitions(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.CreatePartitionsRequest](r)
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.Version = r.version
	deadline := time.Now().Add(timeoutOf(req.TimeoutMillis))
	named := make(map[string]int)
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreatePartitionsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = in.Topic
		code, err := codeInvalidRequest, fmt.Errorf("the request names the topic more than once")
		if named[in.Topic] == 1 {
			code, err = s.addPartitions(ctx, deadline, in, req.ValidateOnly)
		}
		if err != nil {
			out.ErrorCode, out.ErrorMessage = code, optional(err.Error())
		}
	}
	for i := range resp.Topics {
		if out := &resp.Topics[i]; out.ErrorCode == codeNone && !req.ValidateOnly {
			s.awaitPartitions(ctx, deadline, out, req.Topics[i].Count)
		}
		r.code(resp.Topics[i].ErrorCode)
	}
	return resp
}

// addPartitions raises the number of partitions of one topic.
func (s *Server) addPartitions(ctx context.Context, deadline time.Time, in *kmsg.CreatePartitionsRequestTopic, validateOnly bool) (int16, error) {
	topic := s.topic(in.Topic)
	switch {
	case topic == nil:
		return codeUnknownTopicOrPartition, fmt.Errorf("%w %q", metadata.ErrUnknownTopic, clip(in.Topic))
	case topic.Internal || topic.Name == topicConsumerOffsets:
		return codeInvalidPartitions, fmt.Errorf("%w: a group's committed offsets are found by the number of partitions of %s, which stays as it is",
			metadata.ErrInvalidPartitions, topic.Name)
	case len(in.Assignment) > 0:
		return codeInvalidReplicaAssignment, fmt.Errorf("%w: replicas cannot be placed by hand", metadata.ErrInvalidReplication)
	case int(in.Count) <= len(topic.Leaders) || in.Count > maxTopicPartitions:
		return codeInvalidPartitions, fmt.Errorf("%w: topic %s has %d; ask for more than that and at most %d, not %d",
			metadata.ErrInvalidPartitions, topic.Name, len(topic.Leaders), maxTopicPartitions, in.Count)
	case validateOnly:
		return codeNone, nil
	}
	ctx, cancel := changeContext(ctx, deadline)
	defer cancel()
	if err := s.cfg.Metadata.CreatePartitions(ctx, topic.Name, in.Count); err != nil {
		return s.metadataFailed(topic.Name, err), err
	}
	s.log.Info("added partitions to a topic", "topic", topic.Name, "from", len(topic.Leaders), "to", in.Count)
	return codeNone, nil
}

// awaitPartitions waits until a topic has so many partitions, all served.
func (s *Server) awaitPartitions(ctx context.Context, deadline time.Time, out *kmsg.CreatePartitionsResponseTopic, count int32) {
	served := s.awaitSnapshot(ctx, time.Until(deadline), func(snap *metadata.Snapshot) bool {
		topic := snap.Topics[out.Topic]
		return topic != nil && len(topic.Leaders) >= int(count) && allServed(snap, []string{out.Topic})
	})
	if !served {
		out.ErrorCode = codeRequestTimedOut
		out.ErrorMessage = optional("the partitions are asked for, but not all have a leader yet; they will be usable soon")
	}
}
