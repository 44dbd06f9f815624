// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/test/testengine"
)

// times repeats a value.
func times[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// TestWhatIsNamedAgainIsAnsweredOnce is about all requests whose answers can be far larger than they are.
func TestWhatIsNamedAgainIsAnsweredOnce(t *testing.T) {
	b := start(t)
	id := b.create("wide", 500)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "wide", Partition: 0, At: 1, Metadata: strings.Repeat("m", 1000)})
	eventually(t, func() error { return b.admin().CommitAllOffsets(b.ctx(), "g", offsets) })
	const n = 1000
	name := "wide"
	cases := map[string]struct {
		version int16
		req     func() kmsg.Request
	}{
		"topics by name": {9, func() kmsg.Request {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = times(n, kmsg.MetadataRequestTopic{Topic: &name})
			return req
		}},
		"topics by id": {12, func() kmsg.Request {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = times(n, kmsg.MetadataRequestTopic{TopicID: id})
			return req
		}},
		"groups to describe": {5, func() kmsg.Request {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = times(n, "g")
			return req
		}},
		"groups of the consumer protocol to describe": {1, func() kmsg.Request {
			req := kmsg.NewPtrConsumerGroupDescribeRequest()
			req.Groups = times(n, "g")
			return req
		}},
		"configurations": {4, func() kmsg.Request {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.IncludeDocumentation, req.IncludeSynonyms = true, true
			req.Resources = times(n, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeBroker})
			return req
		}},
		"groups whose offsets are asked for": {8, func() kmsg.Request {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Groups = times(n, kmsg.OffsetFetchRequestGroup{Group: "g"})
			return req
		}},
		"partitions whose offsets are asked for": {5, func() kmsg.Request {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Group = "g"
			req.Topics = times(n, kmsg.OffsetFetchRequestTopic{Topic: name, Partitions: []int32{0, 0}})
			return req
		}},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			w := b.dial()
			w.t = t
			resp := call[kmsg.Response](w, c.req(), c.version)
			if size := len(resp.AppendTo(nil)); size > 40*n {
				t.Errorf("the answer has %d bytes", size)
			}
		})
	}
}

func TestARequestIsNoLargerThanItsKindNeeds(t *testing.T) {
	b := start(t)
	large := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Partitions = times(150000, kmsg.ListOffsetsRequestTopicPartition{})
	large.Topics = append(large.Topics, topic)
	produce := produceRequest("t", 1)
	produce.Topics[0].Partitions = times(200000, kmsg.ProduceRequestTopicPartition{})
	t.Run("bytes", func(t *testing.T) {
		for key, limit := range map[int16]int{15: 1 << 20, 42: 1 << 20, 68: 1 << 20, 69: 1 << 20, 10: 1 << 20, 999: 1 << 20, 3: 4 << 20, 1: 4 << 20, 14: 16 << 20} {
			w := b.dial()
			w.t = t
			// The length and the header are enough to be refused: nothing more is read.
			w.write(append(binary.BigEndian.AppendUint32(nil, uint32(limit+1)), frame(key, 5)[4:]...))
			w.closed()
		}
	})
	for title, c := range map[string]struct {
		req     kmsg.Request
		version int16
		reason  string
	}{
		"elements":                     {large, 7, "over the limit of 100000"},
		"partitions to be produced to": {produce, 9, "over the limit of 100000"},
	} {
		t.Run(title, func(t *testing.T) {
			before := b.logs.count(c.reason)
			w := b.dial()
			w.t = t
			w.send(c.req, c.version)
			w.closed()
			eventually(t, func() error {
				if b.logs.count(c.reason) == before {
					return errors.New("the log does not say why")
				}
				return nil
			})
		})
	}
}

// TestConsumersThatDoNotReadLeaveRoomForOthers has more bytes on their way to consumers than the server keeps in memory.
func TestConsumersThatDoNotReadLeaveRoomForOthers(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	value := strings.Repeat("v", 900_000)
	const records = 40
	w := b.dial()
	for range records {
		if p := produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, batchOf(0, value)), 9)); p.ErrorCode != 0 {
			t.Fatalf("error %d", p.ErrorCode)
		}
	}
	greedy := fetchRequest("topic", 0)
	greedy.MaxBytes, greedy.Topics[0].Partitions[0].PartitionMaxBytes = 1<<30, 1<<30
	for range 40 { // together far more than 128 MiB
		b.dial().send(greedy, 11)
	}
	got := 0
	cl := b.client(kgo.ConsumeTopics("topic"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for ctx := b.ctx(); got < records; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		got += fetches.NumRecords()
	}
}

// TestADiskThatWorksAgainIsUsedAgain is about logs whose storage failed: of records, and of committed offsets.
func TestADiskThatWorksAgainIsUsedAgain(t *testing.T) {
	testengine.NeedsDisk(t)
	b := start(t)
	b.create("topic", 1)
	admin := b.admin()
	commit := func(ctx context.Context, at int64) error {
		var offsets kadm.Offsets
		offsets.AddOffset("topic", 0, at, -1)
		return admin.CommitAllOffsets(ctx, "g", offsets)
	}
	produce := func() int16 {
		return produced(call[*kmsg.ProduceResponse](b.dial(), produceRequest("topic", -1, batchOf(0, "a")), 9)).ErrorCode
	}
	if code := produce(); code != 0 {
		t.Fatalf("error %d", code)
	}
	eventually(t, func() error { return commit(b.ctx(), 1) })

	b.disk.broken.Store(true)
	if code := produce(); code != kerr.KafkaStorageError.Code {
		t.Errorf("a record that is not on disk is answered with %d", code)
	}
	short, cancel := context.WithTimeout(b.ctx(), 200*time.Millisecond)
	defer cancel()
	if err := commit(short, 2); err == nil {
		t.Error("a commit that is not on disk is acknowledged")
	}
	b.disk.broken.Store(false)

	eventually(t, func() error {
		if code := produce(); code != 0 {
			return fmt.Errorf("the disk works again, and a produce is answered with %d", code)
		}
		return nil
	})
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(b.ctx(), time.Second)
		defer cancel()
		return commit(ctx, 3)
	})
	fetched, err := admin.FetchOffsets(b.ctx(), "g")
	if o, _ := fetched.Lookup("topic", 0); err != nil || o.At != 3 {
		t.Errorf("committed is %d, %v", o.At, err)
	}
}

func TestAFullDiskCostsAGroupNoMember(t *testing.T) {
	b := start(t)
	b.create("topic", 4)
	cl := b.client(kgo.ConsumeTopics("topic"), kgo.ConsumerGroup("g"), kgo.HeartbeatInterval(50*time.Millisecond), kgo.DisableAutoCommit())
	admin := b.admin()
	generation := func() (memberID string, generation int32) { return cl.GroupMetadata() }
	go func() {
		for ctx := b.ctx(); ctx.Err() == nil; {
			cl.PollFetches(ctx)
		}
	}()
	commit := func(offset int64) error {
		member, gen := generation()
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation = "g", member, gen
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic = "topic"
		partition := kmsg.NewOffsetCommitRequestTopicPartition()
		partition.Offset = offset
		topic.Partitions = append(topic.Partitions, partition)
		req.Topics = append(req.Topics, topic)
		resp := call[*kmsg.OffsetCommitResponse](b.dial(), req, 7)
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	eventually(t, func() error {
		if _, gen := generation(); gen < 1 {
			return errors.New("the client has not joined")
		}
		return commit(1)
	})
	member, gen := generation()

	b.engine.set(func(f *faults) { f.appendErr = fmt.Errorf("append: %w", storage.ErrFull) })
	for range 3 {
		if err := commit(2); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Errorf("a commit that is not stored is answered with %v", err)
		}
	}
	fetched, err := admin.FetchOffsets(b.ctx(), "g")
	if o, _ := fetched.Lookup("topic", 0); err != nil || o.At != 1 {
		t.Errorf("committed is %d, %v, want 1", o.At, err)
	}
	b.engine.set(func(f *faults) { f.appendErr = nil })
	if err := commit(3); err != nil {
		t.Errorf("there is room again, and a commit is answered with %v", err)
	}
	if m, g := generation(); m != member || g != gen {
		t.Errorf("the member was %s in generation %d, and is %s in %d", member, gen, m, g)
	}
}
