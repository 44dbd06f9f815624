// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// in is the broker for a test within a test.
func (b *broker) in(t testing.TB) *broker {
	inner := *b
	inner.t = t
	return &inner
}

// keyedBatch is a batch of one record with a key.
func keyedBatch(key, value string) []byte {
	r := kmsg.Record{Key: []byte(key), Value: []byte(value)}
	r.Length = int32(len(r.AppendTo(nil)) - 1) // one byte for a length of zero
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: r.AppendTo(nil),
	}
	return seal(batch.AppendTo(nil))
}

// fill produces n records, each with a key of its own, to partition 0 of a topic.
func (b *broker) fill(topic string, n int) {
	b.t.Helper()
	w := b.dial()
	for i := range n {
		if p := produced(call[*kmsg.ProduceResponse](w, produceRequest(topic, -1, keyedBatch(fmt.Sprint(i), fmt.Sprint(i))), 9)); p.ErrorCode != 0 {
			b.t.Fatalf("record %d is answered with %d", i, p.ErrorCode)
		}
	}
}

// deletion asks for the records of one partition below an offset to go.
func deletion(topic string, partition int32, offset int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func TestRecordsAreDeletedBelowAnOffset(t *testing.T) {
	dir := t.TempDir()
	b := startIn(t, dir)
	b.create("topic", 2)
	b.create("empty", 1)
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(
		newTopic("compacted", 1, 1, "cleanup.policy=compact"), newTopic("both", 1, 1, "cleanup.policy=compact,delete")), 7)
	b.fill("topic", 10)
	b.fill("both", 10)
	steps := []struct {
		name      string
		topic     string
		partition int32
		offset    int64
		low       int64
		code      int16
	}{
		{"nothing", "topic", 0, 0, 0, 0},
		{"some", "topic", 0, 4, 4, 0},
		{"the same again", "topic", 0, 4, 4, 0},
		{"fewer than are gone", "topic", 0, 2, 4, 0},
		{"more than there are", "topic", 0, 11, -1, kerr.OffsetOutOfRange.Code},
		{"a negative offset", "topic", 0, -2, -1, kerr.OffsetOutOfRange.Code},
		{"up to the last", "topic", 0, 9, 9, 0},
		{"all there are", "topic", 0, -1, 10, 0},
		{"all of what has none", "empty", 0, -1, 0, 0},
		{"one of what has none", "empty", 0, 1, -1, kerr.OffsetOutOfRange.Code},
		{"of another partition", "topic", 1, -1, 0, 0},
		{"of a partition that is not there", "topic", 2, -1, -1, kerr.UnknownTopicOrPartition.Code},
		{"of a negative partition", "topic", -1, -1, -1, kerr.UnknownTopicOrPartition.Code},
		{"of an unknown topic", "other", 0, -1, -1, kerr.UnknownTopicOrPartition.Code},
		{"of a topic without a name", "", 0, -1, -1, kerr.UnknownTopicOrPartition.Code},
		{"of what is compacted", "compacted", 0, -1, -1, kerr.PolicyViolation.Code},
		{"of what is compacted and deleted", "both", 0, 5, 5, 0},
		{"of the brokers' own", "__consumer_offsets", 0, -1, -1, kerr.InvalidTopicException.Code},
	}
	w := b.dial()
	for _, s := range steps {
		for _, v := range []int16{0, 1, 2} {
			got := call[*kmsg.DeleteRecordsResponse](w, deletion(s.topic, s.partition, s.offset), v).Topics[0].Partitions[0]
			if got.Partition != s.partition || got.ErrorCode != s.code || got.LowWatermark != s.low {
				t.Errorf("%s, v%d: %+v, want error %d and low watermark %d", s.name, v, got, s.code, s.low)
			}
		}
	}
	b.stop()
	b = startIn(t, dir)
	starts, err := b.admin().ListStartOffsets(b.ctx(), "topic", "both")
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]int64{"topic": 10, "both": 5} {
		if o, _ := starts.Lookup(topic, 0); o.Offset != want {
			t.Errorf("after a restart %s starts at %d, not %d", topic, o.Offset, want)
		}
	}
}

func TestWhatIsLeftAfterADeletionIsRead(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	b.fill("topic", 10)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "topic", At: 7})
	rs, err := b.admin().DeleteRecords(b.ctx(), offsets)
	if err != nil || rs["topic"][0].Err != nil || rs["topic"][0].LowWatermark != 7 {
		t.Fatalf("delete: %v, %+v", err, rs)
	}
	consumer := b.client(kgo.ConsumeTopics("topic"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []string
	for len(got) < 3 {
		fetches := consumer.PollFetches(b.ctx())
		if err := fetches.Err(); err != nil {
			t.Fatalf("consumed %d of 3: %v", len(got), err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if diff := cmp.Diff([]string{"7", "8", "9"}, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	resp := call[*kmsg.FetchResponse](b.dial(), fetchRequest("topic", 6), 11)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != kerr.OffsetOutOfRange.Code {
		t.Errorf("a fetch of what is deleted is answered with %d", code)
	}
}

func TestAPartitionThatIsNamedTwiceIsTrimmedOnce(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	b.fill("topic", 5)
	req := deletion("topic", 0, 3)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
	req.Topics[0].Partitions[1].Offset = 5
	got := call[*kmsg.DeleteRecordsResponse](b.dial(), req, 2).Topics[0].Partitions
	if len(got) != 1 || got[0].LowWatermark != 3 {
		t.Errorf("got %+v", got)
	}
	if got := call[*kmsg.DeleteRecordsResponse](b.dial(), kmsg.NewPtrDeleteRecordsRequest(), 2); len(got.Topics) != 0 {
		t.Errorf("nothing is answered with %+v", got)
	}
}
