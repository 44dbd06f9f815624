// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/metadata/file"
	"github.com/ringmaster-dev/ringmaster/broker/server"
)

// inVolume gives the server a directory on a volume of 1000 bytes, 400 of which are free.
func inVolume(c *server.Config, _ *file.Options) {
	c.LogDir, c.Volume = "/data/logs", func() (int64, int64, error) { return 1000, 400, nil }
}

func TestLogDirsAreDescribed(t *testing.T) {
	b := start(t, inVolume)
	b.create("a", 2)
	b.create("b", 1)
	b.fill("a", 3)
	cases := map[string]struct {
		topics kadm.TopicsSet
		want   []string
	}{
		"all":                {nil, []string{"__consumer_offsets-0", "__consumer_offsets-1", "a-0 full", "a-1", "b-0"}},
		"one partition":      {kadm.TopicsSet{"a": {0: {}}}, []string{"a-0 full"}},
		"several partitions": {kadm.TopicsSet{"a": {0: {}, 1: {}}, "b": {0: {}}}, []string{"a-0 full", "a-1", "b-0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			all, err := b.admin().DescribeAllLogDirs(b.ctx(), c.topics)
			if err != nil || len(all) != 1 || len(all[1]) != 1 {
				t.Fatalf("%v: %+v", err, all)
			}
			dir := all[1]["/data/logs"]
			if dir.Err != nil || dir.TotalBytes != 1000 || dir.UsableBytes != 400 {
				t.Errorf("the directory is %+v", dir)
			}
			got := []string{}
			for _, p := range dir.Topics.Sorted() {
				line := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
				if p.Size > 0 {
					line += " full"
				}
				if p.OffsetLag != 0 || p.IsFuture {
					line += " lags"
				}
				got = append(got, line)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("partitions (-want +got):\n%s", diff)
			}
		})
	}
}

// logDirs asks for log dirs; partitions of topic, or all where there are none.
func logDirs(b *broker, version int16, topic string, partitions ...int32) *kmsg.DescribeLogDirsResponse {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	if topic != "" {
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: topic, Partitions: partitions}}
	}
	return call[*kmsg.DescribeLogDirsResponse](b.dial(), req, version)
}

func TestAPartitionIsMeasuredOnceAndInEveryVersion(t *testing.T) {
	b := start(t, inVolume)
	b.create("topic", 1)
	b.fill("topic", 2)
	for v := int16(1); v <= 4; v++ {
		resp := logDirs(b, v, "topic", 0, 0, -1)
		if resp.ErrorCode != 0 || len(resp.Dirs) != 1 || resp.Dirs[0].Dir != "/data/logs" {
			t.Fatalf("v%d: %+v", v, resp)
		}
		if ps := resp.Dirs[0].Topics[0].Partitions; len(ps) != 1 || ps[0].Size <= 0 {
			t.Errorf("v%d: partitions %+v", v, ps)
		}
	}
	if topics := logDirs(b, 4, "other", 0).Dirs[0].Topics; len(topics) != 0 {
		t.Errorf("an unknown topic is answered with %+v", topics)
	}
	if topics := logDirs(b, 4, "topic", 7, -1).Dirs[0].Topics; len(topics) != 0 {
		t.Errorf("unknown partitions are answered with %+v", topics)
	}
	none := kmsg.NewPtrDescribeLogDirsRequest()
	none.Topics = []kmsg.DescribeLogDirsRequestTopic{}
	if resp := call[*kmsg.DescribeLogDirsResponse](b.dial(), none, 4); len(resp.Dirs) != 1 || len(resp.Dirs[0].Topics) != 0 || resp.Dirs[0].TotalBytes != 1000 {
		t.Errorf("an empty list is answered with %+v", resp)
	}
}

func TestAVolumeThatCannotBeMeasuredIsUnknown(t *testing.T) {
	for name, o := range map[string]option{
		"nobody knows": func(*server.Config, *file.Options) {},
		"it fails": func(c *server.Config, _ *file.Options) {
			c.Volume = func() (int64, int64, error) { return 0, 0, errors.New("no such directory") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := logDirs(start(t, o), 4, "").Dirs[0]
			if dir.ErrorCode != 0 || dir.TotalBytes != -1 || dir.UsableBytes != -1 {
				t.Errorf("got %+v", dir)
			}
		})
	}
}

func TestOnlyWhatTheBrokerLeadsIsMeasured(t *testing.T) {
	s := newScript()
	b := start(t, s.in)
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1, 2, -1)
	b.becomes("topic", 0, 0)
	topics := logDirs(b, 4, "").Dirs[0].Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 || topics[0].Partitions[0].Partition != 0 {
		t.Errorf("got %+v", topics)
	}
}
