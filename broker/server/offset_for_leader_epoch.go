// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// OffsetForLeaderEpoch, v2 to v4 (KIP-101, KIP-320).
//
//   - v3 tells who asks, which changes nothing: only the leader answers. v4 is flexible.
//   - A consumer asks where the epoch of its last record ended, to find out whether records that it has read were lost with a leader.

// noEpoch is an epoch, and an end offset, that is not known.
const noEpoch = -1

// offsetForLeaderEpoch tells where leader epochs end.
func (s *Server) offsetForLeaderEpoch(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.OffsetForLeaderEpochRequest](r)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = r.version
	named := make(map[storage.Partition]bool)
	for i := range req.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = req.Topics[i].Topic
		topic := s.topic(t.Topic)
		for _, in := range req.Topics[i].Partitions {
			if !firstNamed(named, storage.Partition{Topic: t.Topic, Partition: in.Partition}) {
				continue
			}
			out := s.endOfEpoch(ctx, topic, &in)
			r.code(out.ErrorCode)
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// endOfEpoch answers for one partition.
func (s *Server) endOfEpoch(
	ctx context.Context, topic *metadata.Topic, in *kmsg.OffsetForLeaderEpochRequestTopicPartition,
) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	out.Partition, out.LeaderEpoch, out.EndOffset = in.Partition, noEpoch, noEpoch
	log, code := s.openLog(ctx, topic, in.Partition)
	if code == codeNone {
		code = checkLeaderEpoch(in.CurrentLeaderEpoch, topic.LeaderEpoch(in.Partition))
	}
	if out.ErrorCode = code; code == codeNone {
		out.LeaderEpoch, out.EndOffset = epochEnd(epochsOf(topic, in.Partition, log), in.LeaderEpoch)
	}
	return out
}

// epochs are the leader epochs in which a log was written: where each began, ascending, and where the last one ends.
type epochs struct {
	starts []storage.EpochStart
	end    int64
}

// epochsOf returns the leader epochs of a partition's log. Where leaders do not change there is one.
func epochsOf(topic *metadata.Topic, partition int32, log storage.Log) epochs {
	e := epochs{end: log.HighWatermark()}
	if l, ok := log.(storage.EpochLog); ok {
		e.starts = l.Epochs()
	}
	if len(e.starts) == 0 {
		e.starts = []storage.EpochStart{{Epoch: topic.LeaderEpoch(partition), Offset: log.StartOffset()}}
	}
	return e
}

// epochAt returns the epoch in which the record at an offset was, or will be, appended.
func epochAt(e epochs, offset int64) int32 {
	i := len(e.starts) - 1
	for i > 0 && e.starts[i].Offset > offset {
		i--
	}
	return e.starts[i].Epoch
}

// epochEnd returns the last epoch that is not after the one that is asked for, and the offset after its last record, as Kafka does: none for an epoch
// that has not begun, and where the log begins for one that is older than all that is known.
func epochEnd(e epochs, asked int32) (epoch int32, end int64) {
	if asked < 0 {
		return noEpoch, noEpoch
	}
	end = e.end
	for i := len(e.starts) - 1; i >= 0; i-- {
		switch start := e.starts[i]; {
		case asked > start.Epoch && i == len(e.starts)-1:
			return noEpoch, noEpoch
		case asked >= start.Epoch:
			return start.Epoch, end
		default:
			end = start.Offset
		}
	}
	return asked, end
}
