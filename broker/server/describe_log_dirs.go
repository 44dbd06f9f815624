// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// DescribeLogDirs, v1 to v4 (KIP-113, KIP-827).
//
//   - v2 is flexible, v3 has an error of its own, v4 the volume's total and usable bytes. (v5, cordoned directories, is of Kafka 4.3, which the other
//     ranges are not: see apiTable.)
//   - There is one directory, Config.LogDir. It holds the partitions that this broker leads.

// unknownBytes is what a volume's size is that cannot be told.
const unknownBytes = -1

// describeLogDirs tells how large the logs of partitions are.
func (s *Server) describeLogDirs(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.DescribeLogDirsRequest](r)
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Version = r.version
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = s.cfg.LogDir, unknownBytes, unknownBytes
	if s.cfg.Volume != nil {
		total, usable, err := s.cfg.Volume()
		if err == nil {
			dir.TotalBytes, dir.UsableBytes = total, usable
		} else {
			s.log.WarnContext(ctx, "cannot tell the size of the volume that holds the logs", "dir", s.cfg.LogDir, "error", err)
		}
	}
	stored, err := s.storedPartitions(ctx)
	if err != nil {
		s.log.ErrorContext(ctx, "cannot list the partitions that have a log", "error", err)
		dir.ErrorCode = r.code(codeKafkaStorageError)
		resp.Dirs = append(resp.Dirs, dir)
		return resp
	}
	for _, t := range s.describedPartitions(req) {
		if out := s.describeLogs(ctx, t, stored); len(out.Partitions) > 0 {
			dir.Topics = append(dir.Topics, out)
		}
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// storedPartitions returns the partitions that have a log. One that nobody has used yet has none, and none is made only to be measured.
func (s *Server) storedPartitions(ctx context.Context) (map[storage.Partition]bool, error) {
	list, err := s.engine.List(ctx)
	if err != nil {
		return nil, err
	}
	stored := make(map[storage.Partition]bool, len(list))
	for _, p := range list {
		stored[p] = true
	}
	return stored, nil
}

// topicPartitions are a topic and some of its partitions, each once.
type topicPartitions struct {
	topic      *metadata.Topic
	partitions []int32
}

// describedPartitions returns what a request asks for; all where it names no list. Topics that do not exist are left out, as in Kafka.
func (s *Server) describedPartitions(req *kmsg.DescribeLogDirsRequest) []topicPartitions {
	snap := s.snapshot()
	if snap == nil {
		return nil
	}
	var out []topicPartitions
	if req.Topics == nil {
		for _, name := range slices.Sorted(maps.Keys(snap.Topics)) {
			t := topicPartitions{topic: snap.Topics[name]}
			for p := range t.topic.Leaders {
				t.partitions = append(t.partitions, int32(p))
			}
			out = append(out, t)
		}
		return out
	}
	named := make(map[storage.Partition]bool)
	for _, in := range req.Topics {
		t := topicPartitions{topic: snap.Topics[in.Topic]}
		for _, p := range in.Partitions {
			if firstNamed(named, storage.Partition{Topic: in.Topic, Partition: p}) {
				t.partitions = append(t.partitions, p)
			}
		}
		if t.topic != nil {
			out = append(out, t)
		}
	}
	return out
}

// describeLogs measures the logs of a topic's partitions that this broker leads. A log that cannot be opened is left out; that is logged.
func (s *Server) describeLogs(ctx context.Context, t topicPartitions, stored map[storage.Partition]bool) kmsg.DescribeLogDirsResponseDirTopic {
	out := kmsg.NewDescribeLogDirsResponseDirTopic()
	out.Topic = t.topic.Name
	for _, n := range t.partitions {
		p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		p.Partition = n
		if stored[storage.Partition{Topic: t.topic.Name, Partition: n}] {
			log, code := s.openLog(ctx, t.topic, n)
			if code != codeNone {
				continue
			}
			p.Size = log.Size()
		} else if s.leads(t.topic, n) != codeNone {
			continue
		}
		out.Partitions = append(out.Partitions, p)
	}
	return out
}
