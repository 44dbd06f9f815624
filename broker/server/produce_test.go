// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// changed is a batch with bytes changed at a place, and a checksum that fits.
func changed(at int, bytes ...byte) []byte {
	b := batchOf(0, "a", "b")
	copy(b[at:], bytes)
	length := slices.Clone(b[8:12])
	seal(b)
	if at >= 8 && at < 12 {
		copy(b[8:12], length)
	}
	return b
}

func TestABadBatchIsRefusedWithTheRightError(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	flipped := batchOf(0, "a")
	flipped[len(flipped)-2] ^= 0x40
	cases := map[string]struct {
		batch   []byte
		version int16
		want    int16
	}{
		"a sound batch":                          {batchOf(0, "a"), 9, 0},
		"nothing":                                {nil, 9, kerr.InvalidRecord.Code},
		"an empty piece":                         {[]byte{}, 9, kerr.InvalidRecord.Code},
		"a few bytes":                            {make([]byte, 16), 9, kerr.InvalidRecord.Code},
		"half a header":                          {batchOf(0, "a")[:40], 9, kerr.CorruptMessage.Code},
		"a batch that is cut short":              {batchOf(0, "a", "b")[:70], 9, kerr.CorruptMessage.Code},
		"two batches":                            {append(batchOf(0, "a"), batchOf(0, "b")...), 9, kerr.InvalidRecord.Code},
		"a batch with a byte too many":           {append(batchOf(0, "a"), 0), 9, kerr.InvalidRecord.Code},
		"a byte that flipped on the way":         {flipped, 9, kerr.CorruptMessage.Code},
		"an old message set, v1":                 {changed(16, 1), 9, kerr.UnsupportedForMessageFormat.Code},
		"an old message set, v0, in an old way":  {changed(16, 0), 2, kerr.UnsupportedForMessageFormat.Code},
		"a format of the future":                 {changed(16, 3), 9, kerr.CorruptMessage.Code},
		"a negative length":                      {changed(8, 0xff, 0xff, 0xff, 0xf0), 9, kerr.CorruptMessage.Code},
		"a length below the header's":            {changed(8, 0, 0, 0, 4), 9, kerr.CorruptMessage.Code},
		"a record count of zero":                 {changed(57, 0, 0, 0, 0), 9, kerr.InvalidRecord.Code},
		"a record count that is negative":        {changed(57, 0xff, 0xff, 0xff, 0xff), 9, kerr.InvalidRecord.Code},
		"a last offset delta that does not fit":  {changed(23, 0, 0, 0, 9), 9, kerr.InvalidRecord.Code},
		"an unknown compression":                 {changed(21, 0, 7), 9, kerr.UnsupportedCompressionType.Code},
		"zstd before its time":                   {changed(21, 0, 4), 6, kerr.UnsupportedCompressionType.Code},
		"a control batch":                        {changed(21, 0, 0x20), 9, kerr.InvalidRecord.Code},
		"a batch of a transaction":               {changed(21, 0, 0x10), 9, kerr.InvalidRecord.Code},
		"timestamps that the broker is to write": {changed(21, 0, 0x08), 9, kerr.InvalidRecord.Code},
	}
	want := int64(1)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			p := produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, c.batch), c.version))
			if p.ErrorCode != c.want || (p.BaseOffset == -1) != (c.want != 0) {
				t.Errorf("error %d (%v), offset %d; want error %d", p.ErrorCode, p.ErrorMessage, p.BaseOffset, c.want)
			}
		})
	}
	if err := endsAt(b, "topic", want); err != nil {
		t.Error(err)
	}
}

func TestAProduceIsRefusedWithTheRightError(t *testing.T) {
	b := start(t)
	id := b.create("topic", 1)
	cases := map[string]struct {
		change  func(*kmsg.ProduceRequest)
		version int16
		want    int16
	}{
		"everything is well":           {func(*kmsg.ProduceRequest) {}, 9, 0},
		"acks of the leader":           {func(r *kmsg.ProduceRequest) { r.Acks = 1 }, 9, 0},
		"acks of two":                  {func(r *kmsg.ProduceRequest) { r.Acks = 2 }, 9, kerr.InvalidRequiredAcks.Code},
		"acks of minus two":            {func(r *kmsg.ProduceRequest) { r.Acks = -2 }, 9, kerr.InvalidRequiredAcks.Code},
		"a transaction":                {func(r *kmsg.ProduceRequest) { r.TransactionID = kmsg.StringPtr("t") }, 9, kerr.TransactionalIDAuthorizationFailed.Code},
		"an unknown topic":             {func(r *kmsg.ProduceRequest) { r.Topics[0].Topic = "other" }, 9, kerr.UnknownTopicOrPartition.Code},
		"an unknown partition":         {func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = 7 }, 9, kerr.UnknownTopicOrPartition.Code},
		"a negative partition":         {func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = -7 }, 9, kerr.UnknownTopicOrPartition.Code},
		"the topic that holds offsets": {func(r *kmsg.ProduceRequest) { r.Topics[0].Topic = "__consumer_offsets" }, 9, kerr.InvalidTopicException.Code},
		"a topic id":                   {func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID = id }, 13, 0},
		"an unknown topic id":          {func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID = [16]byte{9} }, 13, kerr.UnknownTopicID.Code},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			req := produceRequest("topic", -1, batchOf(0, "a"))
			c.change(req)
			if p := produced(call[*kmsg.ProduceResponse](w, req, c.version)); p.ErrorCode != c.want {
				t.Errorf("error %d (%v), want %d", p.ErrorCode, p.ErrorMessage, c.want)
			}
		})
	}
}

func TestErrorsOfTheStorageReachTheProducer(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	cases := map[string]struct {
		err  error
		want int16
	}{
		"a full disk":                 {storage.ErrFull, kerr.KafkaStorageError.Code},
		"a batch that is too large":   {storage.ErrBatchTooLarge, kerr.MessageTooLarge.Code},
		"a gap in the sequence":       {storage.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber.Code},
		"an old producer":             {storage.ErrStaleProducerEpoch, kerr.InvalidProducerEpoch.Code},
		"another leader":              {storage.ErrFenced, kerr.NotLeaderForPartition.Code},
		"a log that was just deleted": {storage.ErrClosed, kerr.NotLeaderForPartition.Code},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b.engine.set(func(e *faults) { e.appendErr = fmt.Errorf("append: %w", c.err) })
			defer b.engine.set(func(e *faults) { e.appendErr = nil })
			w := b.dial()
			w.t = t
			if p := produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, batchOf(0, "a")), 9)); p.ErrorCode != c.want {
				t.Errorf("error %d, want %d", p.ErrorCode, c.want)
			}
		})
	}
}

func TestPartitionsOfARequestHaveTheirOwnOutcomes(t *testing.T) {
	b := start(t)
	b.create("topic", 3)
	req := produceRequest("topic", -1, batchOf(0, "a"), batchOf(0, "b", "c")[:65], batchOf(0, "d"), batchOf(0, "e"))
	var got []int16
	for _, p := range call[*kmsg.ProduceResponse](b.dial(), req, 9).Topics[0].Partitions {
		got = append(got, p.ErrorCode)
	}
	if diff := cmp.Diff([]int16{0, kerr.CorruptMessage.Code, 0, kerr.UnknownTopicOrPartition.Code}, got); diff != "" {
		t.Errorf("errors by partition (-want +got):\n%s", diff)
	}
}

// sequenced is a batch of an idempotent producer.
func sequenced(producer int64, sequence int32, value string) []byte {
	b := batchOf(0, value)
	binary.BigEndian.PutUint64(b[43:], uint64(producer))
	binary.BigEndian.PutUint16(b[51:], 0)
	binary.BigEndian.PutUint32(b[53:], uint32(sequence))
	return seal(b)
}

func TestABatchThatIsSentAgainIsStoredOnce(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	w := b.dial()
	id := call[*kmsg.InitProducerIDResponse](w, kmsg.NewPtrInitProducerIDRequest(), 4).ProducerID
	steps := []struct {
		sequence int32
		code     int16
		offset   int64
	}{
		{0, 0, 0}, {1, 0, 1}, {1, 0, 1}, {0, 0, 0}, {3, kerr.OutOfOrderSequenceNumber.Code, -1}, {2, 0, 2},
	}
	for i, step := range steps {
		p := produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, sequenced(id, step.sequence, "v")), 9))
		if p.ErrorCode != step.code || p.BaseOffset != step.offset {
			t.Errorf("step %d: error %d, offset %d; want %d, %d", i, p.ErrorCode, p.BaseOffset, step.code, step.offset)
		}
	}
}

func TestProducerIDsAreUnique(t *testing.T) {
	b := start(t)
	w := b.dial()
	seen := make(map[int64]bool)
	for range 100 {
		resp := call[*kmsg.InitProducerIDResponse](w, kmsg.NewPtrInitProducerIDRequest(), 4)
		if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || resp.ProducerID < 0 || seen[resp.ProducerID] {
			t.Fatalf("got %+v", resp)
		}
		seen[resp.ProducerID] = true
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr("t")
	if resp := call[*kmsg.InitProducerIDResponse](w, req, 4); resp.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("a transactional id is answered with %d", resp.ErrorCode)
	}
	if b.logs.count("remove transactional.id") != 1 {
		t.Error("the log does not say what to do")
	}
}

func TestARefusalSaysWhatToDo(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	req := produceRequest("topic", -1, batchOf(0, "a"))
	req.TransactionID = kmsg.StringPtr("t")
	p := produced(call[*kmsg.ProduceResponse](b.dial(), req, 9))
	if p.ErrorMessage == nil || !strings.Contains(*p.ErrorMessage, "remove transactional.id") {
		t.Errorf("got %v", p.ErrorMessage)
	}
}
