// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// epochRequest asks for the end of a leader epoch.
func epochRequest(topic string, partition, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func TestTheEndOfALeaderEpochIsTold(t *testing.T) {
	b := start(t)
	b.create("topic", 2)
	b.fill("topic", 7)
	cases := map[string]struct {
		topic                     string
		partition, current, epoch int32
		wantEpoch                 int32
		wantEnd                   int64
		code                      int16
	}{
		"the epoch that is":                       {"topic", 0, 0, 0, 0, 7, 0},
		"without the current one":                 {"topic", 0, -1, 0, 0, 7, 0},
		"of an empty partition":                   {"topic", 1, 0, 0, 0, 0, 0},
		"one that has not begun":                  {"topic", 0, 0, 1, -1, -1, 0},
		"none":                                    {"topic", 0, 0, -1, -1, -1, 0},
		"a negative one":                          {"topic", 0, 0, -7, -1, -1, 0},
		"from a client that is ahead":             {"topic", 0, 1, 0, -1, -1, kerr.UnknownLeaderEpoch.Code},
		"of a partition that is not there":        {"topic", 2, 0, 0, -1, -1, kerr.UnknownTopicOrPartition.Code},
		"of a topic that is not there":            {"other", 0, 0, 0, -1, -1, kerr.UnknownTopicOrPartition.Code},
		"of a topic that is not there, and ahead": {"other", 0, 9, 9, -1, -1, kerr.UnknownTopicOrPartition.Code},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			for v := int16(2); v <= 4; v++ {
				got := call[*kmsg.OffsetForLeaderEpochResponse](b.dial(), epochRequest(c.topic, c.partition, c.current, c.epoch), v).Topics[0].Partitions[0]
				if got.Partition != c.partition || got.ErrorCode != c.code || got.LeaderEpoch != c.wantEpoch || got.EndOffset != c.wantEnd {
					t.Errorf("v%d: %+v, want epoch %d with end %d and error %d", v, got, c.wantEpoch, c.wantEnd, c.code)
				}
			}
		})
	}
	twice := epochRequest("topic", 0, 0, 0)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	if got := call[*kmsg.OffsetForLeaderEpochResponse](b.dial(), twice, 4); len(got.Topics[0].Partitions) != 1 || len(got.Topics[1].Partitions) != 0 {
		t.Errorf("a partition that is named twice is answered with %+v", got.Topics)
	}
	if got := call[*kmsg.OffsetForLeaderEpochResponse](b.dial(), kmsg.NewPtrOffsetForLeaderEpochRequest(), 4); len(got.Topics) != 0 {
		t.Errorf("nothing is answered with %+v", got.Topics)
	}

	var req kadm.OffsetForLeaderEpochRequest
	req.Add("topic", 0, 0)
	offsets, err := b.admin().OffsetForLeaderEpoch(b.ctx(), req)
	if err != nil || offsets["topic"][0].Err != nil || offsets["topic"][0].EndOffset != 7 {
		t.Errorf("an admin client gets %v, %+v", err, offsets)
	}
}
