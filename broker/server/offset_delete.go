// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// offsetDelete answers OffsetDelete (KIP-496): offsets of topics that no member reads are removed.
func (s *Server) offsetDelete(ctx context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.OffsetDeleteRequest)
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.Version = r.version
	known, code := s.groups.view(ctx, req.Group, func(*coordinator.Group) {})
	if code == codeNone && !known {
		code = codeGroupIDNotFound
	}
	if resp.ErrorCode = code; code != codeNone {
		return resp
	}
	in := coordinator.DeleteOffsets{}
	for _, t := range req.Topics {
		topic := coordinator.TopicPartitions{Topic: t.Topic}
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, p.Partition)
		}
		in.Partitions = append(in.Partitions, topic)
	}
	reply := s.groups.call(ctx, req.Group, false, func(token coordinator.Token) coordinator.Input {
		in.Token = token
		return in
	})
	if resp.ErrorCode = reply.Err; reply.Err != codeNone {
		return resp
	}
	body, _ := reply.Body.(coordinator.DeleteOffsetsReply)
	for i, t := range req.Topics {
		topic := kmsg.NewOffsetDeleteResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			partition := kmsg.NewOffsetDeleteResponseTopicPartition()
			partition.Partition, partition.ErrorCode = p.Partition, codeAt(body.Errs, i)
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
