// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// CreateTopics, v2 to v7.
//
//   - v4 has -1 for the default number of partitions and replicas, v5 is flexible and answers with the topic's configuration, v7 with its id.
//   - A partition has one replica: other replication factors than 1 and -1, and replica assignments, are refused.
//   - The response waits, for the request's timeout, until every partition has a leader, so that the client's next produce works.

const (
	// maxTopicPartitions is the largest number of partitions of a topic.
	maxTopicPartitions = 10000
	// minChangeTime is how long a change to topics may take at least.
	minChangeTime = 5 * time.Second
)

// createTopics creates topics.
func (s *Server) createTopics(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.CreateTopicsRequest](r)
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.Version = r.version
	deadline := time.Now().Add(timeoutOf(req.TimeoutMillis))
	named := make(map[string]int)
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic, out.NumPartitions, out.ReplicationFactor = in.Topic, -1, -1
		if named[in.Topic] > 1 {
			out.ErrorCode, out.ErrorMessage = codeInvalidRequest, optional("the request names the topic more than once")
			continue
		}
		s.createTopic(ctx, deadline, in, out, req.ValidateOnly)
	}
	for i := range resp.Topics {
		if out := &resp.Topics[i]; out.ErrorCode == codeNone && !req.ValidateOnly {
			s.awaitCreated(ctx, deadline, out)
		}
		r.code(resp.Topics[i].ErrorCode)
	}
	return resp
}

// timeoutOf is a request's timeout, within reason.
func timeoutOf(ms int32) time.Duration { return min(max(millis(ms), 0), 5*time.Minute) }

// changeContext is the context of a change to topics. A client that has no patience (Kafka's tools may send a timeout of zero) is told that
// time is over, but the change is made.
func changeContext(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if soonest := time.Now().Add(minChangeTime); deadline.Before(soonest) {
		deadline = soonest
	}
	return context.WithDeadline(ctx, deadline)
}

// createTopic checks and creates one topic.
func (s *Server) createTopic(
	ctx context.Context, deadline time.Time, in *kmsg.CreateTopicsRequestTopic, out *kmsg.CreateTopicsResponseTopic, validateOnly bool,
) {
	fail := func(code int16, err error) { out.ErrorCode, out.ErrorMessage = code, optional(err.Error()) }
	topic, err := newTopic(in)
	if err != nil {
		code := metadataCode(err)
		if len(in.ReplicaAssignment) > 0 && code == codeInvalidReplicationFactor {
			code = codeInvalidReplicaAssignment
		}
		fail(code, err)
		return
	}
	snap := s.snapshot()
	switch {
	case snap == nil:
		fail(codeRequestTimedOut, metadata.ErrUnavailable)
		return
	case snap.Topics[topic.Name] != nil:
		fail(codeTopicAlreadyExists, fmt.Errorf("topic %s: %w", topic.Name, metadata.ErrTopicExists))
		return
	}
	fillCreated(out, topic.Config, defaultPartitions(topic.Partitions, snap))
	if validateOnly {
		return
	}
	ctx, cancel := changeContext(ctx, deadline)
	defer cancel()
	if err := s.cfg.Metadata.CreateTopic(ctx, topic); err != nil {
		fail(s.metadataFailed(topic.Name, err), err)
		return
	}
	s.log.Info("created a topic", "topic", topic.Name)
}

func defaultPartitions(n int32, snap *metadata.Snapshot) int32 {
	if n == -1 {
		return max(snap.DefaultPartitions, 1)
	}
	return n
}

// newTopic checks what a client asks for.
func newTopic(in *kmsg.CreateTopicsRequestTopic) (metadata.NewTopic, error) {
	t := metadata.NewTopic{Name: in.Topic, Partitions: in.NumPartitions}
	switch {
	case !validTopicName(in.Topic):
		return t, fmt.Errorf("%w %q: use 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'", metadata.ErrInvalidTopic, clip(in.Topic))
	case strings.HasPrefix(in.Topic, "__"):
		return t, fmt.Errorf("%w %q: names that begin with __ are the brokers' own", metadata.ErrInvalidTopic, clip(in.Topic))
	case len(in.ReplicaAssignment) > 0:
		return t, fmt.Errorf("%w: replicas cannot be placed by hand; give a number of partitions instead", metadata.ErrInvalidReplication)
	case in.ReplicationFactor != -1 && in.ReplicationFactor != 1:
		return t, fmt.Errorf("%w: %d; records are not replicated between brokers yet, so ask for 1 or -1 (the default)",
			metadata.ErrInvalidReplication, in.ReplicationFactor)
	case in.NumPartitions != -1 && (in.NumPartitions < 1 || in.NumPartitions > maxTopicPartitions):
		return t, fmt.Errorf("%w: %d; ask for 1 to %d, or -1 for the default", metadata.ErrInvalidPartitions, in.NumPartitions, maxTopicPartitions)
	}
	var err error
	t.Config, err = parseTopicConfigs(in.Configs)
	return t, err
}

// fillCreated fills in what v5 and later say of the topic.
func fillCreated(out *kmsg.CreateTopicsResponseTopic, config metadata.TopicConfig, partitions int32) {
	out.NumPartitions, out.ReplicationFactor = partitions, 1
	for _, c := range topicConfigs(config) {
		rc := kmsg.NewCreateTopicsResponseTopicConfig()
		rc.Name, rc.Value, rc.Source, rc.ReadOnly = c.name, &c.value, int8(c.source()), c.readOnly
		out.Configs = append(out.Configs, rc)
	}
}

// awaitCreated waits until a topic that was created is served.
func (s *Server) awaitCreated(ctx context.Context, deadline time.Time, out *kmsg.CreateTopicsResponseTopic) {
	served := s.awaitSnapshot(ctx, time.Until(deadline), func(snap *metadata.Snapshot) bool {
		if topic := snap.Topics[out.Topic]; topic != nil {
			out.TopicID, out.NumPartitions = topic.ID, int32(len(topic.Leaders))
		}
		return allServed(snap, []string{out.Topic})
	})
	if !served {
		out.ErrorCode = codeRequestTimedOut
		out.ErrorMessage = optional("the topic is created, but not all of its partitions have a leader yet; it will be usable soon")
	}
}
