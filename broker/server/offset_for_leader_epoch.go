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
		code = checkLeaderEpoch(in.CurrentLeaderEpoch)
	}
	if out.ErrorCode = code; code == codeNone {
		out.LeaderEpoch, out.EndOffset = epochEnd(epochsOf(log), in.LeaderEpoch)
	}
	return out
}

// epochs are the leader epochs in which a log was written: where each began, ascending, and where the last one ends.
type epochs struct {
	starts []epochStart
	end    int64
}

// epochStart is a leader epoch and the offset of the first record that was appended in it.
type epochStart struct {
	epoch  int32
	offset int64
}

// epochsOf returns a log's leader epochs. There is one, for a partition keeps its leader (see leaderEpoch); an engine whose epochs grow has its history
// asked for here.
func epochsOf(log storage.Log) epochs {
	return epochs{starts: []epochStart{{epoch: leaderEpoch, offset: log.StartOffset()}}, end: log.HighWatermark()}
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
		case asked > start.epoch && i == len(e.starts)-1:
			return noEpoch, noEpoch
		case asked >= start.epoch:
			return start.epoch, end
		default:
			end = start.offset
		}
	}
	return asked, end
}
