// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// DeleteRecords, v0 to v2 (KIP-107).
//
//   - v2 is flexible; the others differ in nothing that matters here.
//   - An offset of -1 stands for the high watermark. One at or below the log's start changes nothing.
//   - Of a topic that is only compacted nothing can be deleted so (POLICY_VIOLATION), nor of the brokers' own (INVALID_TOPIC_EXCEPTION), as in Kafka.

const (
	// offsetHighWatermark is what a client gives for the high watermark.
	offsetHighWatermark = -1
	// noLowWatermark is what a partition that was refused has for its low watermark.
	noLowWatermark = -1
)

// deleteRecords removes the records below offsets.
func (s *Server) deleteRecords(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.DeleteRecordsRequest](r)
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version = r.version
	named := make(map[storage.Partition]bool)
	for i := range req.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = req.Topics[i].Topic
		topic := s.topic(t.Topic)
		for _, in := range req.Topics[i].Partitions {
			if !firstNamed(named, storage.Partition{Topic: t.Topic, Partition: in.Partition}) {
				continue
			}
			out := kmsg.NewDeleteRecordsResponseTopicPartition()
			out.Partition = in.Partition
			out.LowWatermark, out.ErrorCode = s.trim(ctx, topic, in.Partition, in.Offset)
			r.code(out.ErrorCode)
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// trim removes a partition's records below an offset, and returns where its log starts then.
func (s *Server) trim(ctx context.Context, topic *metadata.Topic, partition int32, offset int64) (low int64, code int16) {
	log, code := s.openLog(ctx, topic, partition)
	switch {
	case code != codeNone:
		return noLowWatermark, code
	case topic.Internal || topic.Name == topicConsumerOffsets:
		return noLowWatermark, codeInvalidTopic
	case !strings.Contains(topic.Config.CleanupPolicy, "delete"):
		return noLowWatermark, codePolicyViolation
	}
	end := log.HighWatermark()
	if offset == offsetHighWatermark {
		offset = end
	}
	if offset < 0 || offset > end {
		return noLowWatermark, codeOffsetOutOfRange
	}
	if offset > log.StartOffset() {
		if err := log.Trim(ctx, offset); err != nil {
			s.logs.report(storage.Partition{Topic: topic.Name, Partition: partition}, "cannot delete a partition's records", err)
			return noLowWatermark, s.logCode(topic, partition, err)
		}
		// Stream processors do this all the time.
		s.log.DebugContext(ctx, "deleted a partition's records", "topic", topic.Name, "partition", partition, "below", offset)
	}
	return log.StartOffset(), codeNone
}
