// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// memoryLog is a log of batches in memory; each read gives one batch, so that loading has to go on.
type memoryLog struct {
	storage.Log // what is not written here is not called
	start, end  int64
	batches     [][]byte
	err         error
}

func (l *memoryLog) StartOffset() int64   { return l.start }
func (l *memoryLog) HighWatermark() int64 { return l.end }

func (l *memoryLog) Read(_ context.Context, offset int64, _ int) (storage.Batches, error) {
	if l.err != nil {
		return storage.Batches{}, l.err
	}
	for _, b := range l.batches {
		if last := int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:])); last >= offset {
			return storage.InMemory(b, last+1), nil
		}
	}
	return storage.Batches{}, nil
}

func (l *memoryLog) Append(_ context.Context, data []byte, _ storage.Durability) (int64, error) {
	base := l.end
	for len(data) > 0 {
		batch, rest, err := splitBatch(data)
		if err != nil {
			return 0, err
		}
		data = data[:len(data)-len(rest)]
		binary.BigEndian.PutUint64(data, uint64(l.end))
		l.batches = append(l.batches, data)
		l.end += int64(batch.LastOffsetDelta) + 1
		data = rest
	}
	return base, nil
}

func readAll(t *testing.T, log storage.Log) (records []groupRecord, skipped []string) {
	t.Helper()
	end, err := readRecords(t.Context(), log, func(r groupRecord) { records = append(records, r) }, func(offset int64, why error) {
		skipped = append(skipped, fmt.Sprintf("%d: %v", offset, why))
	})
	if err != nil {
		t.Fatalf("read the offsets: %v", err)
	}
	if end != log.HighWatermark() {
		t.Errorf("reading ended at %d, the high watermark is %d", end, log.HighWatermark())
	}
	return records, skipped
}

func offsetRecord(group, topic string, partition int32, offset int64, metadata string) groupRecord {
	return groupRecord{group: group, Record: coordinator.Record{Topic: topic, Partition: partition, Offset: coordinator.Offset{
		Offset: offset, LeaderEpoch: 3, Metadata: metadata, CommitTime: time.UnixMilli(1700000000123),
	}}}
}

// encoded makes record batches of steps.
func encoded(t testing.TB, steps ...[]groupRecord) []byte {
	t.Helper()
	data, err := encodeSteps(time.UnixMilli(7), steps)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return data
}

func TestRecordsOfGroupsAreReadBackAsTheyWereStored(t *testing.T) {
	tombstone := groupRecord{group: "g", Record: coordinator.Record{Topic: "orders", Partition: 1, Deleted: true}}
	group := groupRecord{group: "g", Record: coordinator.Record{Kind: coordinator.GroupRecord, Group: &coordinator.GroupState{
		Type: coordinator.TypeConsumer, Generation: 7, Topics: map[string]coordinator.TopicID{"orders": {1, 2}},
	}}}
	member := groupRecord{group: "g", Record: coordinator.Record{Kind: coordinator.MemberRecord, MemberID: "m-1", Member: &coordinator.MemberState{
		InstanceID: "one", Generation: 7, Subscription: &coordinator.Subscription{Topics: []string{"orders"}},
		Classic: &coordinator.ClassicState{Protocols: []coordinator.Protocol{{Name: "range", Metadata: []byte{0, 0xff}}}},
		Reader:  &coordinator.ReaderState{Target: []coordinator.TopicPartitions{{Topic: "orders", Partitions: []int32{0, 1}}}},
	}}}
	gone := func(r groupRecord) groupRecord {
		r.Deleted, r.Group, r.Member = true, nil, nil
		return r
	}
	var steps, large [][]groupRecord
	for i := range 20000 {
		r := offsetRecord("g", "orders", int32(i), int64(i), strings.Repeat("m", 40))
		steps = append(steps, []groupRecord{r})
		if i%10000 == 0 {
			large = append(large, nil)
		}
		large[len(large)-1] = append(large[len(large)-1], r)
	}
	huge := offsetRecord("g", "orders", 0, 1, strings.Repeat("x", 32000))
	one := func(records ...groupRecord) [][]groupRecord { return [][]groupRecord{records} }
	cases := map[string]struct {
		steps       [][]groupRecord
		wantBatches int
	}{
		"one offset":                                {steps: one(offsetRecord("g", "orders", 0, 42, "")), wantBatches: 1},
		"metadata and another group":                {steps: one(offsetRecord("g", "orders", 0, 42, "é"), offsetRecord("h", "x", 9, 0, "")), wantBatches: 1},
		"a tombstone follows an offset":             {steps: one(offsetRecord("g", "orders", 1, 1, ""), tombstone), wantBatches: 1},
		"a group and a member":                      {steps: one(group, member), wantBatches: 1},
		"a group and a member that are gone":        {steps: one(gone(member), gone(group)), wantBatches: 1},
		"small steps share a batch":                 {steps: [][]groupRecord{{group}, {member}, {tombstone}}, wantBatches: 1},
		"more steps than fit in a batch":            {steps: steps, wantBatches: 7},
		"a step is in one batch, however large":     {steps: large, wantBatches: 2},
		"a step that is larger than a batch may be": {steps: one(slices.Repeat([]groupRecord{huge}, 3000)...), wantBatches: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			log := &memoryLog{}
			if _, err := log.Append(t.Context(), encoded(t, tc.steps...), storage.Synced); err != nil {
				t.Fatalf("append: %v", err)
			}
			if len(log.batches) != tc.wantBatches {
				t.Errorf("%d batches, want %d", len(log.batches), tc.wantBatches)
			}
			for _, b := range log.batches {
				if got, want := crc32.Checksum(b[batchCRCFrom:], crc32c), binary.BigEndian.Uint32(b[batchCRCFrom-4:]); got != want {
					t.Errorf("the batch's CRC-32C is %x, its header says %x", got, want)
				}
			}
			got, skipped := readAll(t, log)
			if len(skipped) > 0 {
				t.Errorf("passed over: %q", skipped)
			}
			if diff := cmp.Diff(slices.Concat(tc.steps...), got, cmp.AllowUnexported(groupRecord{})); diff != "" {
				t.Errorf("records (-stored +read):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoOffsetIsPassedOver(t *testing.T) {
	good := encoded(t, []groupRecord{offsetRecord("g", "orders", 0, 42, "")})
	compressed := append([]byte(nil), good...)
	compressed[22] |= 1
	groupMetadata := kmsg.RecordBatch{Magic: 2, NumRecords: 1, Length: 49}
	record := kmsg.Record{Key: (&kmsg.GroupMetadataKey{Version: 2, Group: "g"}).AppendTo(nil), Value: []byte{0, 3}}
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	groupMetadata.Records = record.AppendTo(nil)
	groupMetadata.Length += int32(len(groupMetadata.Records))
	raw := func(key, value []byte) []byte {
		b := batches{now: time.UnixMilli(7)}
		b.add(&kmsg.Record{Key: key, Value: value})
		b.end()
		return b.done
	}
	garbage := kmsg.RecordBatch{Magic: 2, NumRecords: 3, Records: []byte{1, 2, 3}, Length: 52}

	cases := map[string]struct {
		batch       []byte
		wantSkipped int
	}{
		"a compressed batch":                {batch: compressed, wantSkipped: 1},
		"Kafka's own record of a group":     {batch: groupMetadata.AppendTo(nil)},
		"a batch whose records are garbage": {batch: garbage.AppendTo(nil), wantSkipped: 1},
		"a group that is not JSON":          {batch: raw(appendKey(groupKeyVersion, "g"), []byte("no")), wantSkipped: 1},
		"a member that is not JSON":         {batch: raw(appendKey(memberKeyVersion, "g", "m"), []byte("{")), wantSkipped: 1},
		"a member whose key is cut":         {batch: raw(appendKey(memberKeyVersion, "g"), nil), wantSkipped: 1},
		"a group whose key goes on":         {batch: raw(append(appendKey(groupKeyVersion, "g"), 0), nil), wantSkipped: 1},
		"a key with an absurd length":       {batch: raw([]byte{0x3, 0xe8, 0xff, 0xff}, nil), wantSkipped: 1},
		"a key of a later release":          {batch: raw(appendKey(memberKeyVersion+1, "g"), []byte("x"))},
		"a key that is too short":           {batch: raw([]byte{1}, []byte("x"))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			log := &memoryLog{}
			for _, b := range [][]byte{tc.batch, append([]byte(nil), good...)} {
				if _, err := log.Append(t.Context(), b, storage.Synced); err != nil {
					t.Fatalf("append: %v", err)
				}
			}
			got, skipped := readAll(t, log)
			if len(skipped) != tc.wantSkipped {
				t.Errorf("passed over %q, want %d batches", skipped, tc.wantSkipped)
			}
			if len(got) != 1 || got[0].Offset.Offset != 42 {
				t.Errorf("read %v, want the one offset that follows", got)
			}
		})
	}
}

func TestADamagedOffsetsLogIsAnError(t *testing.T) {
	good := encoded(t, []groupRecord{offsetRecord("g", "orders", 0, 42, "")})
	cases := map[string]*memoryLog{
		"the log cannot be read":  {end: 1, err: storage.ErrDamaged},
		"a batch that is cut":     {end: 1, batches: [][]byte{good[:len(good)-1]}},
		"a header that is cut":    {end: 1, batches: [][]byte{good[:30]}},
		"a length that is absurd": {end: 1, batches: [][]byte{append(append([]byte(nil), good[:8]...), append([]byte{0xff, 0xff, 0xff, 0xff}, good[12:]...)...)}},
	}
	for name, log := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := readRecords(t.Context(), log, func(groupRecord) {}, func(int64, error) {}); err == nil {
				t.Error("no error")
			}
		})
	}
}

func FuzzOffsetsBatch(f *testing.F) {
	f.Add(encoded(f, []groupRecord{offsetRecord("g", "orders", 0, 42, "m")}))
	f.Add(encoded(f, []groupRecord{{group: "g", Record: coordinator.Record{Topic: "t", Deleted: true}}}))
	f.Add(encoded(f, []groupRecord{
		{group: "g", Record: coordinator.Record{Kind: coordinator.GroupRecord, Group: &coordinator.GroupState{Type: coordinator.TypeClassic, Generation: 3}}},
		{group: "g", Record: coordinator.Record{Kind: coordinator.MemberRecord, MemberID: "m", Member: &coordinator.MemberState{
			Classic: &coordinator.ClassicState{Assignment: []byte{1}}, Reader: &coordinator.ReaderState{},
		}}},
		{group: "g", Record: coordinator.Record{Kind: coordinator.MemberRecord, MemberID: "n", Deleted: true}},
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		batch, _, err := splitBatch(data)
		if err != nil {
			return
		}
		var records []groupRecord
		decodeBatch(&batch, func(r groupRecord) { records = append(records, r) }, func(error) {})
		if len(records) == 0 {
			return
		}
		stored := &memoryLog{}
		if _, err := stored.Append(t.Context(), encoded(t, records), storage.Synced); err != nil {
			t.Fatalf("append what was read: %v", err)
		}
		got, skipped := readAll(t, stored)
		// JSON has an empty list and none for the same where a field is left out when it is empty.
		if diff := cmp.Diff(records, got, cmp.AllowUnexported(groupRecord{}), cmpopts.EquateEmpty()); diff != "" || len(skipped) > 0 {
			t.Errorf("what was read is stored otherwise (-read +again):\n%s\npassed over: %q", diff, skipped)
		}
	})
}

func FuzzDecodeSubscription(f *testing.F) {
	for version := range int16(4) {
		m := kmsg.NewConsumerMemberMetadata()
		m.Version, m.Topics = version, []string{"orders"}
		m.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "orders", Partitions: []int32{1, 2}}}
		f.Add(m.AppendTo(nil))
	}
	f.Add([]byte{0, 1, 0x7f, 0xff, 0xff, 0xff})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if sub := decodeSubscription(data); sub != nil && len(sub.Topics)*2 > len(data) {
			t.Errorf("%d topics from %d bytes", len(sub.Topics), len(data))
		}
	})
}

func FuzzDecodeShares(f *testing.F) {
	f.Add(encodeShare(ordersShare(1, 2)))
	f.Add(encodeShare(nil))
	f.Add([]byte{0, 1, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, share := range decodeShares(map[string][]byte{"m": data}) {
			size := 0
			for _, tp := range share {
				size += 6 + 4*len(tp.Partitions)
			}
			if size > len(data) {
				t.Errorf("%d topics from %d bytes", len(share), len(data))
			}
			again := decodeShares(map[string][]byte{"m": encodeShare(share)})
			if diff := cmp.Diff(share, again["m"], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("what was read is encoded otherwise (-read +again):\n%s", diff)
			}
		}
	})
}

func TestSubscriptionsOfEveryVersionAreDecoded(t *testing.T) {
	owned := []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "orders", Partitions: []int32{1, 2}}}
	for version := range int16(4) {
		m := kmsg.NewConsumerMemberMetadata()
		m.Version, m.Topics, m.OwnedPartitions = version, []string{"orders", "bills"}, owned
		want := &coordinator.Subscription{Topics: []string{"orders", "bills"}}
		if version >= 1 {
			want.Owned = []coordinator.TopicPartitions{{Topic: "orders", Partitions: []int32{1, 2}}}
		}
		if diff := cmp.Diff(want, decodeSubscription(m.AppendTo(nil))); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", version, diff)
		}
	}
	// kafka-go's: version 1, without the list of what it owns.
	kafkaGo := []byte("\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x00")
	if diff := cmp.Diff(&coordinator.Subscription{Topics: []string{"orders"}}, decodeSubscription(kafkaGo)); diff != "" {
		t.Errorf("version 1 in the form of version 0 (-want +got):\n%s", diff)
	}
	for _, garbage := range [][]byte{nil, {0}, {0, 1, 0x7f, 0xff, 0xff, 0xff}, []byte("a string of something else"), {0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}} {
		if sub := decodeSubscription(garbage); sub != nil {
			t.Errorf("decoded %v from %q", sub, garbage)
		}
	}
}

func TestGroupsHashToTheirPartitionAsInJava(t *testing.T) {
	// What Java's "…".hashCode() gives.
	for s, want := range map[string]int32{"": 0, "a": 97, "hello": 99162322, "polygenelubricants": -2147483648, "é": 233, "日本": 835047, "😀": 1772899} {
		if got := int32(javaHash(s)); got != want {
			t.Errorf("the hash of %q is %d, want %d", s, got, want)
		}
	}
	if got := offsetsPartition("polygenelubricants", 16); got != 0 {
		t.Errorf("the partition of a group with the smallest hash is %d, want 0", got)
	}
	if got := offsetsPartition("hello", 16); got != 99162322%16 {
		t.Errorf("partition %d, want %d", got, 99162322%16)
	}
}

func TestDeadlinesComeInOrder(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	timers := groupTimers{wake: make(chan struct{}, 1)}
	group := func(id string) *hosted {
		h := &hosted{id: id}
		h.timer.group = h
		return h
	}
	a, b, c := group("a"), group("b"), group("c")
	if got := timers.wait(start); got != time.Hour {
		t.Errorf("with no deadline the wait is %v", got)
	}
	timers.set(&a.timer, at(3))
	<-timers.wake
	timers.set(&b.timer, at(1))
	<-timers.wake
	timers.set(&c.timer, at(2))
	if len(timers.wake) != 0 {
		t.Error("a later deadline wakes the one who waits")
	}
	timers.set(&a.timer, at(2)) // moved forward
	timers.set(&c.timer, time.Time{})
	timers.set(&c.timer, time.Time{})
	if got := timers.wait(start); got != time.Second {
		t.Errorf("the wait is %v, want 1s", got)
	}
	if got := timers.wait(at(100)); got != time.Millisecond {
		t.Errorf("past a deadline the wait is %v, want 1ms", got)
	}
	if due := timers.due(at(0)); len(due) != 0 {
		t.Errorf("%d groups are due too early", len(due))
	}
	if due := timers.due(at(2)); len(due) != 2 || due[0] != b || due[1] != a {
		t.Errorf("due: %v, want b, then a", due)
	}
	if due := timers.due(at(100)); len(due) != 0 {
		t.Errorf("%d groups are due twice", len(due))
	}
}
