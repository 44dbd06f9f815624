// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEverySpecialTimestampOfEveryVersion(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	for _, ts := range []int64{1000, 9000, 5000} {
		call[*kmsg.ProduceResponse](b.dial(), produceRequest("topic", -1, batchOf(ts, "x")), 9)
	}
	b.create("empty", 1)
	call[*kmsg.DeleteRecordsResponse](b.dial(), deletion("topic", 0, 1), 2)
	cases := map[string]struct {
		timestamp int64
		since     int16 // the version that has it first
		offset    int64
		at        int64
		empty     int64 // the offset in an empty partition
	}{
		"the latest":             {-1, 1, 3, -1, 0},
		"the earliest":           {-2, 1, 1, -1, 0},
		"the largest timestamp":  {-3, 7, 1, 9000, -1},
		"the earliest local":     {-4, 8, 1, -1, 0},
		"the latest tiered":      {-5, 9, -1, -1, -1},
		"the earliest pending":   {-6, 11, -1, -1, -1},
		"one that is not there":  {-7, 99, -1, -1, -1},
		"the beginning of time":  {0, 1, 1, 9000, -1},
		"a time between records": {5001, 1, 1, 9000, -1},
		"a time after them all":  {9001, 1, -1, -1, -1},
	}
	w := b.dial()
	for name, c := range cases {
		for v := int16(1); v <= 11; v++ {
			for topic, want := range map[string]int64{"topic": c.offset, "empty": c.empty} {
				req := kmsg.NewPtrListOffsetsRequest()
				req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: c.timestamp, CurrentLeaderEpoch: -1}}}}
				got := call[*kmsg.ListOffsetsResponse](w, req, v).Topics[0].Partitions[0]
				code, at := int16(0), c.at
				if v < c.since {
					code, want = kerr.UnsupportedVersion.Code, -1
				}
				if want == -1 || topic == "empty" {
					at = -1
				}
				if got.ErrorCode != code || got.Offset != want || got.Timestamp != at {
					t.Errorf("%s of %s, v%d: %+v, want offset %d at %d with error %d", name, topic, v, got, want, at, code)
				}
			}
		}
	}
}

func TestAnAdminClientListsOffsets(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	for _, ts := range []int64{1000, 9000, 5000} {
		call[*kmsg.ProduceResponse](b.dial(), produceRequest("topic", -1, batchOf(ts, "x")), 9)
	}
	admin := b.admin()
	list := func(listed kadm.ListedOffsets, err error) string {
		o, ok := listed.Lookup("topic", 0)
		if err != nil || !ok || o.Err != nil {
			return fmt.Sprint(err, ok, o.Err)
		}
		return fmt.Sprintf("%d at %d", o.Offset, o.Timestamp)
	}
	for name, c := range map[string]struct{ got, want string }{
		"start":         {list(admin.ListStartOffsets(b.ctx(), "topic")), "0 at -1"},
		"end":           {list(admin.ListEndOffsets(b.ctx(), "topic")), "3 at -1"},
		"committed":     {list(admin.ListCommittedOffsets(b.ctx(), "topic")), "3 at -1"},
		"max timestamp": {list(admin.ListMaxTimestampOffsets(b.ctx(), "topic")), "1 at 9000"},
		"local start":   {list(admin.ListLocalLogStartOffsets(b.ctx(), "topic")), "0 at -1"},
		"latest remote": {list(admin.ListLatestRemoteOffsets(b.ctx(), "topic")), "-1 at -1"},
		"after a time":  {list(admin.ListOffsetsAfterMilli(b.ctx(), 2000, "topic")), "1 at 9000"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}
