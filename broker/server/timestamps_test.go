// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/testengine"
)

// set sets entries of a topic's configuration.
func (b *broker) set(topic string, entries ...string) {
	b.t.Helper()
	var changes []kadm.AlterConfig
	for _, e := range entries {
		changes = append(changes, op(kadm.SetConfig, e))
	}
	if rs, err := b.admin().AlterTopicConfigs(b.ctx(), changes, topic); err != nil || rs[0].Err != nil {
		b.t.Fatalf("set %v: %v, %+v", entries, err, rs)
	}
}

func TestTheBrokersTimestampsReachProducersAndConsumers(t *testing.T) {
	b := start(t)
	before := time.Now().UnixMilli()
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("topic", 1, 1, "message.timestamp.type=LogAppendTime")), 7)
	var appended int64
	for _, acks := range []int16{-1, 1} {
		p := produced(call[*kmsg.ProduceResponse](b.dial(), produceRequest("topic", acks, batchOf(1000, "a", "b")), 9))
		if after := time.Now().UnixMilli(); p.ErrorCode != 0 || p.LogAppendTime < max(before, appended) || p.LogAppendTime > after {
			t.Fatalf("acks %d: error %d, appended at %d, which is not from %d to %d", acks, p.ErrorCode, p.LogAppendTime, before, after)
		}
		appended = p.LogAppendTime
	}
	p := b.client(kgo.DefaultProduceTopic("topic"), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	if err := p.ProduceSync(b.ctx(), &kgo.Record{Value: []byte(strings.Repeat("c", 1000)), Timestamp: time.UnixMilli(5)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	consumer, records := b.client(kgo.ConsumeTopics("topic")), []*kgo.Record(nil)
	for len(records) < 5 {
		fetches := consumer.PollFetches(b.ctx())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		records = append(records, fetches.Records()...)
	}
	for i, r := range records {
		if ms := r.Timestamp.UnixMilli(); ms < before || ms > time.Now().UnixMilli() || r.Attrs.TimestampType() != 1 {
			t.Errorf("record %d: time %d of type %d", i, ms, r.Attrs.TimestampType())
		}
	}
	if ms := records[3].Timestamp.UnixMilli(); ms != appended {
		t.Errorf("a record that was appended at %d has time %d", appended, ms)
	}

	listed, err := b.admin().ListOffsetsAfterMilli(b.ctx(), appended, "topic")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := listed.Lookup("topic", 0); o.Err != nil || o.Offset > 2 || o.Timestamp > appended || o.Timestamp < before {
		t.Errorf("the first offset of time %d is %+v", appended, o)
	}
	if listed, err = b.admin().ListOffsetsAfterMilli(b.ctx(), time.Now().Add(time.Hour).UnixMilli(), "topic"); err != nil {
		t.Fatal(err)
	}
	if o, _ := listed.Lookup("topic", 0); o.Offset != 5 {
		t.Errorf("the first offset in an hour is %+v", o)
	}
}

func TestABatchThatIsSentAgainIsAnsweredWithTheTimeOfItsAppend(t *testing.T) {
	b := start(t)
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("topic", 1, 1, "message.timestamp.type=LogAppendTime")), 7)
	w := b.dial()
	id := call[*kmsg.InitProducerIDResponse](w, kmsg.NewPtrInitProducerIDRequest(), 4).ProducerID
	produce := func(sequence int32) kmsg.ProduceResponseTopicPartition {
		t.Helper()
		p := produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, sequenced(id, sequence, "v")), 9))
		if p.ErrorCode != 0 || p.BaseOffset != int64(sequence) {
			t.Fatalf("sequence number %d: error %d, offset %d", sequence, p.ErrorCode, p.BaseOffset)
		}
		return p
	}
	first := produce(0).LogAppendTime
	if again := produce(0).LogAppendTime; first < 0 || again != first {
		t.Errorf("appended at %d, and then at %d", first, again)
	}
	b.set("topic", "message.timestamp.type=CreateTime")
	eventually(t, func() error { // the open log gets it right after the answer
		if p := produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, batchOf(0, "other")), 9)); p.LogAppendTime != -1 {
			return fmt.Errorf("the log still sets the time: %d", p.LogAppendTime)
		}
		return nil
	})
	if again := produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, sequenced(id, 0, "v")), 9)).LogAppendTime; again != first {
		t.Errorf("appended at %d, and, once producers set the time, at %d", first, again)
	}
}

func TestARecordWithoutAKeyIsNotTakenByACompactedTopic(t *testing.T) {
	b := start(t)
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("topic", 1, 1, "cleanup.policy=compact")), 7)
	for _, version := range []int16{3, 7, 8, 9, 12} {
		p := produced(call[*kmsg.ProduceResponse](b.dial(), produceRequest("topic", -1, batchOf(0, "a", "b")), version))
		if p.ErrorCode != kerr.InvalidRecord.Code || p.BaseOffset != -1 {
			t.Errorf("v%d: error %d, offset %d", version, p.ErrorCode, p.BaseOffset)
		}
		var named []int32
		for _, r := range p.ErrorRecords {
			named = append(named, r.RelativeOffset)
			if r.ErrorMessage == nil || !strings.Contains(*r.ErrorMessage, "set a key") {
				t.Errorf("v%d: record %d: %v", version, r.RelativeOffset, r.ErrorMessage)
			}
		}
		want := []int32{0, 1}
		if version < 8 {
			want = nil
		}
		if !slices.Equal(named, want) || version >= 8 && (p.ErrorMessage == nil || !strings.Contains(*p.ErrorMessage, "record 0 has no key")) {
			t.Errorf("v%d: records %v, %v", version, named, p.ErrorMessage)
		}
	}
	c := b.client(kgo.DefaultProduceTopic("topic"))
	if err := c.ProduceSync(b.ctx(), kgo.StringRecord("without a key")).FirstErr(); err == nil || !strings.Contains(err.Error(), "INVALID_RECORD") {
		t.Errorf("a client is told %v", err)
	}
	if err := c.ProduceSync(b.ctx(), kgo.KeyStringRecord("k", "with a key")).FirstErr(); err != nil {
		t.Error(err)
	}
	if err := endsAt(b, "topic", 1); err != nil {
		t.Error(err)
	}
}

func TestATopicsSegmentsAreAsSmallAsItAsksFor(t *testing.T) {
	testengine.NeedsDisk(t)
	b := start(t)
	call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("topic", 1, 1, "segment.bytes=200")), 7)
	c := b.client(kgo.DefaultProduceTopic("topic"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	produce := func(n int) {
		t.Helper()
		for range n {
			if err := c.ProduceSync(b.ctx(), kgo.StringRecord(strings.Repeat("x", 100))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	segments := func() int {
		files, err := filepath.Glob(filepath.Join(b.dir, "data", "topic-0", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	produce(10)
	if n := segments(); n != 10 {
		t.Errorf("there are %d segments of 10 batches", n)
	}
	b.set("topic", "segment.bytes=1000000", "segment.ms=1")
	eventually(t, func() error { // the open log gets it right after the answer
		before := segments()
		produce(2)
		if after := segments(); after > before {
			return nil
		}
		return fmt.Errorf("there are %d segments, as before", before)
	})
	if diff := cmp.Diff([]string{"segment.bytes=1000000", "segment.ms=1"}, b.configOf("topic")); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}
