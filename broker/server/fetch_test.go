// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// fetchRequest fetches partition 0 and on, each from its offset.
func fetchRequest(topic string, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch, req.ReplicaID = 1<<20, -1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for i, o := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(i), o, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// fetched returns the only partition of a fetch's response.
func fetched(resp *kmsg.FetchResponse) kmsg.FetchResponseTopicPartition {
	return resp.Topics[0].Partitions[0]
}

// produce produces a batch of each value to partition 0.
func (b *broker) produce(topic string, values ...string) {
	b.t.Helper()
	w := b.dial()
	for i, v := range values {
		if p := produced(call[*kmsg.ProduceResponse](w, produceRequest(topic, -1, batchOf(int64(i)*1000, v)), 9)); p.ErrorCode != 0 {
			b.t.Fatalf("produce to %s: error %d", topic, p.ErrorCode)
		}
	}
}

func TestAFetchIsRefusedWithTheRightError(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	b.produce("topic", "a", "b")
	cases := map[string]struct {
		change  func(*kmsg.FetchRequest)
		version int16
		want    int16 // of the partition
		top     int16
	}{
		"everything is well":                   {func(*kmsg.FetchRequest) {}, 12, 0, 0},
		"the end of the log is no error":       {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 2 }, 12, 0, 0},
		"an offset beyond the end":             {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 3 }, 12, kerr.OffsetOutOfRange.Code, 0},
		"a negative offset":                    {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = -1 }, 12, kerr.OffsetOutOfRange.Code, 0},
		"an unknown topic":                     {func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "other" }, 12, kerr.UnknownTopicOrPartition.Code, 0},
		"an unknown partition":                 {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 1 }, 12, kerr.UnknownTopicOrPartition.Code, 0},
		"a negative partition":                 {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = -1 }, 12, kerr.UnknownTopicOrPartition.Code, 0},
		"an unknown topic id":                  {func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{1} }, 13, kerr.UnknownTopicID.Code, 0},
		"a leader epoch that we do not know":   {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 9 }, 12, kerr.UnknownLeaderEpoch.Code, 0},
		"a session that was never given":       {func(r *kmsg.FetchRequest) { r.SessionID, r.SessionEpoch = 5, 1 }, 12, 0, kerr.FetchSessionIDNotFound.Code},
		"a session that is closed":             {func(r *kmsg.FetchRequest) { r.SessionID, r.SessionEpoch = 5, -1 }, 12, 0, 0},
		"a fetch of nothing":                   {func(r *kmsg.FetchRequest) { r.Topics = nil; r.MaxWaitMillis = 60000; r.MinBytes = 1 }, 12, 0, 0},
		"an error is told at once":             {func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "other"; r.MaxWaitMillis = 60000; r.MinBytes = 1 }, 12, kerr.UnknownTopicOrPartition.Code, 0},
		"negative limits are limits of nought": {func(r *kmsg.FetchRequest) { r.MaxBytes, r.MinBytes, r.MaxWaitMillis = -1, -1, -1 }, 12, 0, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			req := fetchRequest("topic", 0)
			c.change(req)
			resp := call[*kmsg.FetchResponse](w, req, c.version)
			if resp.ErrorCode != c.top || resp.SessionID != 0 {
				t.Errorf("error %d, session %d", resp.ErrorCode, resp.SessionID)
			}
			if c.top == 0 && len(req.Topics) > 0 && fetched(resp).ErrorCode != c.want {
				t.Errorf("the partition's error is %d, want %d", fetched(resp).ErrorCode, c.want)
			}
		})
	}
}

func TestAFetchByTopicID(t *testing.T) {
	b := start(t)
	id := b.create("topic", 1)
	b.produce("topic", "a")
	req := fetchRequest("", 0)
	req.Topics[0].TopicID = id
	resp := call[*kmsg.FetchResponse](b.dial(), req, 13)
	if p := fetched(resp); p.ErrorCode != 0 || len(p.RecordBatches) == 0 || resp.Topics[0].TopicID != id {
		t.Errorf("got %+v", resp)
	}
}

func TestAFetchTellsTheEndsOfTheLog(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	b.produce("topic", "a", "b")
	for _, offset := range []int64{0, 2, 7} {
		p := fetched(call[*kmsg.FetchResponse](b.dial(), fetchRequest("topic", offset), 12))
		if p.HighWatermark != 2 || p.LastStableOffset != 2 || p.LogStartOffset != 0 || p.RecordBatches == nil {
			t.Errorf("from %d: %+v", offset, p)
		}
	}
}

func TestAFetchWaitsForRecords(t *testing.T) {
	b := start(t)
	b.create("topic", 3)
	req := fetchRequest("topic", 0, 0, 0)
	req.MinBytes, req.MaxWaitMillis = 1, 60000
	w := b.dial()
	id := w.send(req, 12)
	produce := produceRequest("topic", -1, batchOf(0, "x"))
	produce.Topics[0].Partitions[0].Partition = 2
	call[*kmsg.ProduceResponse](b.dial(), produce, 9)
	resp, err := w.receive(req, id)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := resp.(*kmsg.FetchResponse)
	if !ok || len(r.Topics[0].Partitions[2].RecordBatches) == 0 {
		t.Errorf("got %+v", resp)
	}
}

func TestAFetchGathersAsMuchAsTheClientWants(t *testing.T) {
	b := start(t)
	b.create("topic", 2)
	one := len(batchOf(0, "x"))
	req := fetchRequest("topic", 0, 0)
	req.MinBytes, req.MaxWaitMillis = int32(3*one), 60000
	w := b.dial()
	id := w.send(req, 12)
	producer := b.dial()
	for _, partition := range []int32{0, 1, 0} {
		produce := produceRequest("topic", -1, batchOf(0, "x"))
		produce.Topics[0].Partitions[0].Partition = partition
		call[*kmsg.ProduceResponse](producer, produce, 9)
	}
	resp, err := w.receive(req, id)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		t.Fatalf("got a %T", resp)
	}
	got := []int{len(r.Topics[0].Partitions[0].RecordBatches), len(r.Topics[0].Partitions[1].RecordBatches)}
	if diff := cmp.Diff([]int{2 * one, one}, got); diff != "" {
		t.Errorf("bytes by partition (-want +got):\n%s", diff)
	}
}

func TestAFetchThatFindsTooLittleIsAnsweredWhenItsTimeIsOver(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	req := fetchRequest("topic", 0)
	req.MinBytes, req.MaxWaitMillis = 1, 50
	begin := time.Now()
	p := fetched(call[*kmsg.FetchResponse](b.dial(), req, 12))
	if took := time.Since(begin); p.ErrorCode != 0 || len(p.RecordBatches) != 0 || took < 50*time.Millisecond {
		t.Errorf("after %s: %+v", took, p)
	}
}

func TestAFetchKeepsToItsLimits(t *testing.T) {
	b := start(t)
	b.create("topic", 2)
	value := strings.Repeat("x", 1000)
	size := len(batchOf(0, value))
	producer := b.dial()
	for range 4 {
		call[*kmsg.ProduceResponse](producer, produceRequest("topic", -1, batchOf(0, value), batchOf(0, value)), 9)
	}
	cases := map[string]struct {
		total, partition int
		want             []int // batches by partition
	}{
		"there is room for all":                         {20000, 20000, []int{4, 4}},
		"a partition's limit holds for each":            {20000, 2 * size, []int{2, 2}},
		"the total holds for all, in the order asked":   {5 * size, 20000, []int{4, 1}},
		"one batch comes through however small the sum": {1, 20000, []int{1, 0}},
		"and however small the partition's limit":       {20000, 1, []int{1, 0}},
		"nothing at all is a limit, too":                {0, 0, []int{1, 0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			req := fetchRequest("topic", 0, 0)
			req.MaxBytes, req.MinBytes, req.MaxWaitMillis = int32(c.total), 1<<20, 20
			for i := range req.Topics[0].Partitions {
				req.Topics[0].Partitions[i].PartitionMaxBytes = int32(c.partition)
			}
			var got []int
			for _, p := range call[*kmsg.FetchResponse](w, req, 12).Topics[0].Partitions {
				got = append(got, len(p.RecordBatches)/size)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("batches by partition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAWaitingFetchHearsThatItsTopicIsGone(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	req := fetchRequest("topic", 0)
	req.MinBytes, req.MaxWaitMillis = 1, 60000
	w := b.dial()
	id := w.send(req, 12)
	if _, err := b.admin().DeleteTopic(b.ctx(), "topic"); err != nil {
		t.Fatal(err)
	}
	resp, err := w.receive(req, id)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := resp.(*kmsg.FetchResponse); !ok || fetched(r).ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("got %+v", resp)
	}
}

func TestDamageIsNotServed(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	b.produce("topic", "a")
	cases := map[string]struct {
		err  error
		want int16
	}{
		"a checksum that fails":  {fmt.Errorf("read x.log at 7: %w", storage.ErrDamaged), kerr.CorruptMessage.Code},
		"a disk that fails":      {errors.New("input/output error"), kerr.KafkaStorageError.Code},
		"a log that just closed": {storage.ErrClosed, kerr.NotLeaderForPartition.Code},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b.engine.set(func(e *faults) { e.readErr = c.err })
			defer b.engine.set(func(e *faults) { e.readErr = nil })
			if p := fetched(call[*kmsg.FetchResponse](b.dial(), fetchRequest("topic", 0), 12)); p.ErrorCode != c.want || len(p.RecordBatches) > 0 {
				t.Errorf("error %d with %d bytes, want %d", p.ErrorCode, len(p.RecordBatches), c.want)
			}
		})
	}
	if got := b.logs.count("cannot read a partition"); got != 1 {
		t.Errorf("the trouble of one partition is told %d times", got)
	}
}

func TestOffsetsAreFoundByTime(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	b.create("empty", 1)
	b.produce("topic", "a", "b", "c") // at 0, 1000 and 2000 ms
	cases := map[string]struct {
		topic      string
		ts         int64
		version    int16
		code       int16
		offset, at int64
	}{
		"the latest":                            {"topic", -1, 10, 0, 3, -1},
		"the earliest":                          {"topic", -2, 10, 0, 0, -1},
		"the one with the largest time":         {"topic", -3, 10, 0, 2, 2000},
		"the earliest local one":                {"topic", -4, 10, 0, 0, -1},
		"the latest tiered one, of none":        {"topic", -5, 10, 0, -1, -1},
		"a time of a record":                    {"topic", 1000, 10, 0, 1, 1000},
		"a time between two records":            {"topic", 1001, 10, 0, 2, 2000},
		"a time before all":                     {"topic", 0, 1, 0, 0, 0},
		"a time after all":                      {"topic", 2001, 10, 0, -1, -1},
		"the latest of an empty log":            {"empty", -1, 10, 0, 0, -1},
		"the earliest of an empty log":          {"empty", -2, 10, 0, 0, -1},
		"the largest time of an empty log":      {"empty", -3, 10, 0, -1, -1},
		"a time in an empty log":                {"empty", 0, 10, 0, -1, -1},
		"a special time that is not known":      {"topic", -6, 10, kerr.UnsupportedVersion.Code, -1, -1},
		"a special time of a later version":     {"topic", -3, 6, kerr.UnsupportedVersion.Code, -1, -1},
		"a topic that is not there":             {"other", -1, 10, kerr.UnknownTopicOrPartition.Code, -1, -1},
		"the latest, as old clients ask for it": {"topic", -1, 1, 0, 3, -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			req := kmsg.NewPtrListOffsetsRequest()
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = c.topic
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp = c.ts
			topic.Partitions = append(topic.Partitions, p)
			req.Topics = append(req.Topics, topic)
			got := call[*kmsg.ListOffsetsResponse](w, req, c.version).Topics[0].Partitions[0]
			if got.ErrorCode != c.code || got.Offset != c.offset || got.Timestamp != c.at {
				t.Errorf("error %d, offset %d, time %d; want %d, %d, %d", got.ErrorCode, got.Offset, got.Timestamp, c.code, c.offset, c.at)
			}
		})
	}
}

func TestTheLargestTimestampIsFoundInCompressedBatches(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	producer := b.client(kgo.ProducerBatchCompression(kgo.GzipCompression()))
	for batch := range 3 {
		var records []*kgo.Record
		for i := range 10 {
			at := time.UnixMilli(int64(1_000_000 + 1000*batch + i))
			records = append(records, &kgo.Record{Topic: "topic", Value: []byte(strings.Repeat("x", 100)), Timestamp: at})
		}
		if err := producer.ProduceSync(b.ctx(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "topic", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -3, CurrentLeaderEpoch: -1}}}}
	got := call[*kmsg.ListOffsetsResponse](b.dial(), req, 7).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.Timestamp != 1_002_009 || got.Offset < 20 || got.Offset > 29 {
		t.Errorf("got %+v", got)
	}
}
