// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// ListOffsets, v1 to v11.
//
//   - v1 answers with one offset, v2 has isolation levels (both see the high watermark here), v4 leader epochs, v6 is flexible, v7 adds the
//     largest timestamp (KIP-734), v8 the earliest local offset (KIP-405), v9 the last tiered one (KIP-1005), v10 a timeout, which nothing here needs, and
//     v11 the earliest one whose upload to a tier is pending (KIP-1023). Every offset is local and none is tiered, so these two are -1, as in Kafka
//     without tiering.

// The timestamps that have a meaning of their own.
const (
	timeLatest          int64 = -1
	timeEarliest        int64 = -2
	timeMax             int64 = -3
	timeEarliestLocal   int64 = -4
	timeLatestTiered    int64 = -5
	timeEarliestPending int64 = -6
)

// listOffsets finds offsets by time.
func (s *Server) listOffsets(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.ListOffsetsRequest](r)
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = r.version
	for i := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = req.Topics[i].Topic
		topic := s.topic(t.Topic)
		for j := range req.Topics[i].Partitions {
			p := s.listOffset(ctx, topic, &req.Topics[i].Partitions[j], r.version)
			r.code(p.ErrorCode)
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// listOffset answers for one partition.
func (s *Server) listOffset(
	ctx context.Context, topic *metadata.Topic, in *kmsg.ListOffsetsRequestTopicPartition, version int16,
) kmsg.ListOffsetsResponseTopicPartition {
	out := kmsg.NewListOffsetsResponseTopicPartition()
	out.Partition = in.Partition
	out.Offset, out.Timestamp, out.LeaderEpoch = -1, -1, -1
	log, code := s.openLog(ctx, topic, in.Partition)
	if code == codeNone {
		code = checkLeaderEpoch(in.CurrentLeaderEpoch, topic.LeaderEpoch(in.Partition))
	}
	if code == codeNone && !timestampOffered(in.Timestamp, version) {
		code = codeUnsupportedVersion
	}
	if out.ErrorCode = code; code != codeNone {
		return out
	}
	offset, ts, err := findOffset(ctx, log, in.Timestamp)
	if err != nil {
		out.ErrorCode = s.logCode(topic, in.Partition, err)
		if out.ErrorCode == codeKafkaStorageError {
			s.logs.report(storage.Partition{Topic: topic.Name, Partition: in.Partition}, "cannot find an offset", err)
		}
		return out
	}
	out.Offset, out.Timestamp = offset, ts
	if offset >= 0 {
		out.LeaderEpoch = epochAt(epochsOf(topic, in.Partition, log), offset)
	}
	return out
}

// timestampOffered says whether a version of ListOffsets knows a timestamp.
func timestampOffered(ts int64, version int16) bool {
	switch ts {
	case timeMax:
		return version >= 7
	case timeEarliestLocal:
		return version >= 8
	case timeLatestTiered:
		return version >= 9
	case timeEarliestPending:
		return version >= 11
	default:
		return ts >= timeEarliest
	}
}

// findOffset returns the offset that a timestamp stands for and the timestamp of its record, -1 and -1 for none. The ends of the log have no
// timestamp.
func findOffset(ctx context.Context, log storage.Log, ts int64) (offset, timestamp int64, err error) {
	switch ts {
	case timeLatest:
		return log.HighWatermark(), -1, nil
	case timeEarliest, timeEarliestLocal:
		return log.StartOffset(), -1, nil
	case timeLatestTiered, timeEarliestPending:
		return -1, -1, nil
	case timeMax:
		return findMaxTimestamp(ctx, log)
	}
	offset, timestamp, ok, err := log.OffsetForTime(ctx, ts)
	if err != nil {
		return -1, -1, err
	}
	if !ok || offset >= log.HighWatermark() {
		return -1, -1, nil
	}
	return offset, timestamp, nil
}

// findMaxTimestamp finds the largest timestamp, which is the largest time for which the log still has a record, and the first record that the
// log finds for it: in a compressed batch, which the log does not look into, the batch's first. The search halves the time that is left, and
// takes at most 64 look-ups.
func findMaxTimestamp(ctx context.Context, log storage.Log) (offset, timestamp int64, err error) {
	offset, ts, err := findOffset(ctx, log, 0)
	if err != nil || offset < 0 {
		return -1, -1, err
	}
	low, high := max(ts, 0), int64(math.MaxInt64) // there is a record of time low or later, and none of time high
	for low+1 < high {
		middle := low + (high-low)/2
		o, ts, err := findOffset(ctx, log, middle)
		switch {
		case err != nil:
			return -1, -1, err
		case o < 0:
			high = middle
		default:
			offset, low = o, max(ts, middle)
		}
	}
	return offset, low, nil
}
