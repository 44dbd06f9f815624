// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRecordsComeBackAsTheyWereProduced(t *testing.T) {
	b := start(t)
	idempotent := kgo.RequiredAcks(kgo.AllISRAcks())
	cases := map[string][]kgo.Opt{
		"none with all acks":         {idempotent, kgo.ProducerBatchCompression(kgo.NoCompression())},
		"gzip with all acks":         {idempotent, kgo.ProducerBatchCompression(kgo.GzipCompression())},
		"snappy with all acks":       {idempotent, kgo.ProducerBatchCompression(kgo.SnappyCompression())},
		"lz4 with all acks":          {idempotent, kgo.ProducerBatchCompression(kgo.Lz4Compression())},
		"zstd with all acks":         {idempotent, kgo.ProducerBatchCompression(kgo.ZstdCompression())},
		"not idempotent, leader ack": {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"not idempotent, no ack":     {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
	}
	i := 0
	for name, opts := range cases {
		i++
		topic := fmt.Sprintf("roundtrip-%d", i)
		t.Run(name, func(t *testing.T) {
			b.create(topic, 3)
			want := make(map[string]string)
			producer := b.client(opts...)
			for n := range 300 {
				key, value := fmt.Sprintf("key-%d", n), fmt.Sprintf("the value of record %d, which is long enough to be worth its compression", n)
				want[key] = value
				r := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(key)}}}
				producer.Produce(b.ctx(), r, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
			}
			if err := producer.Flush(b.ctx()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, consumeAll(t, b, topic, len(want))); diff != "" {
				t.Errorf("what was consumed differs (-want +got):\n%s", diff)
			}
		})
	}
}

// consumeAll reads n records of a topic from its start.
func consumeAll(t *testing.T, b *broker, topic string, n int) map[string]string {
	t.Helper()
	got := make(map[string]string)
	consumer := b.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	for len(got) < n {
		fetches := consumer.PollFetches(b.ctx())
		if err := fetches.Err(); err != nil {
			t.Fatalf("consumed %d of %d: %v", len(got), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got[string(r.Key)] = string(r.Value) })
	}
	return got
}

func TestRecordsSurviveARestart(t *testing.T) {
	b := start(t)
	if err := b.client().ProduceSync(b.ctx(), &kgo.Record{Topic: "kept", Key: []byte("k"), Value: []byte("v")}).FirstErr(); err == nil {
		t.Fatal("a producer that does not ask for it created a topic")
	}
	producer := b.client(kgo.AllowAutoTopicCreation())
	if err := producer.ProduceSync(b.ctx(), &kgo.Record{Topic: "kept", Key: []byte("k"), Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.stop()
	again := startIn(t, b.dir)
	if diff := cmp.Diff(map[string]string{"k": "v"}, consumeAll(t, again, "kept", 1)); diff != "" {
		t.Error(diff)
	}
}

func TestADeletedTopicTakesItsRecordsWithIt(t *testing.T) {
	b := start(t)
	first := b.create("again", 2)
	producer := b.client()
	if err := producer.ProduceSync(b.ctx(), &kgo.Record{Topic: "again", Value: []byte("old")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	admin := b.admin()
	if resp, err := admin.DeleteTopic(b.ctx(), "again"); err != nil {
		t.Fatalf("%v %v", resp, err)
	}
	if second := b.create("again", 2); second == first {
		t.Error("the new topic has the old one's id")
	}
	ends, err := admin.ListEndOffsets(b.ctx(), "again")
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil || o.Offset != 0 {
			t.Errorf("partition %d ends at %d (%v), not at 0", o.Partition, o.Offset, o.Err)
		}
	})
}

func TestANewTopicWaitsUntilTheOldOnesRecordsAreGone(t *testing.T) {
	b := start(t)
	b.create("slow", 1)
	if err := b.client().ProduceSync(b.ctx(), &kgo.Record{Topic: "slow", Value: []byte("old")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.engine.set(func(e *faults) { e.deleteErr = errors.New("the disk is on fire") })
	admin := b.admin()
	if _, err := admin.DeleteTopic(b.ctx(), "slow"); err != nil {
		t.Fatal(err)
	}
	admin.SetTimeoutMillis(200)
	if resp, err := admin.CreateTopic(b.ctx(), 1, 1, nil, "slow"); !errors.Is(err, kerr.RequestTimedOut) {
		t.Fatalf("creating the topic while the old one's records are there: %v %v", resp, err)
	}
	w := b.dial()
	p := produced(call[*kmsg.ProduceResponse](w, produceRequest("slow", -1, batchOf(0, "new")), 9))
	if p.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("a produce meanwhile is answered with %d", p.ErrorCode)
	}
	b.engine.set(func(e *faults) { e.deleteErr = nil })
	eventually(t, func() error {
		p := produced(call[*kmsg.ProduceResponse](w, produceRequest("slow", -1, batchOf(0, "new")), 9))
		if p.ErrorCode != 0 || p.BaseOffset != 0 {
			return fmt.Errorf("error %d, offset %d", p.ErrorCode, p.BaseOffset)
		}
		return nil
	})
}

func TestTheConfigurationOfATopicHolds(t *testing.T) {
	b := start(t)
	admin := b.admin()
	small := "2000"
	if _, err := admin.CreateTopic(b.ctx(), 1, -1, map[string]*string{"max.message.bytes": &small}, "small"); err != nil {
		t.Fatal(err)
	}
	err := b.client(kgo.ProducerBatchCompression(kgo.NoCompression())).
		ProduceSync(b.ctx(), &kgo.Record{Topic: "small", Value: make([]byte, 3000)}).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("a batch over the limit is answered with %v", err)
	}
}

func TestEveryOfferedVersionIsAnsweredInItsFormat(t *testing.T) {
	b := start(t)
	b.create("versions", 1)
	offered := call[*kmsg.ApiVersionsResponse](b.dial(), newAPIVersions(), 3)
	for _, k := range offered.ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			t.Run(fmt.Sprintf("%s v%d", kmsg.NameForKey(k.ApiKey), v), func(t *testing.T) {
				w := b.dial()
				w.t = t
				req := exampleRequest(k.ApiKey)
				id := w.send(req, v)
				if _, err := w.receive(req, id); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func newAPIVersions() *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1.0"
	return req
}

// exampleRequest is a request that waits for nothing.
func exampleRequest(key int16) kmsg.Request {
	switch kmsg.Key(key) {
	case kmsg.Produce:
		return produceRequest("versions", 1, batchOf(0, "x"))
	case kmsg.ApiVersions:
		return newAPIVersions()
	case kmsg.Metadata:
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr("versions")
		req.Topics = append(req.Topics, topic)
		return req
	case kmsg.OffsetFetch:
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "g"
		return req
	case kmsg.Fetch:
		req := kmsg.NewPtrFetchRequest()
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic = "versions"
		partition := kmsg.NewFetchRequestTopicPartition()
		topic.Partitions = append(topic.Partitions, partition)
		req.Topics = append(req.Topics, topic)
		return req
	}
	return kmsg.RequestForKey(key)
}
