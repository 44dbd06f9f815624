// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessionFetch is the next fetch of a session, which names what has changed: partitions of the topic with their offsets.
func sessionFetch(id, epoch int32, topic string, offsets map[int32]int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionID, req.SessionEpoch, req.ReplicaID = 1<<20, id, epoch, -1
	if len(offsets) == 0 {
		return req
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for i := range int32(16) {
		if offset, ok := offsets[i]; ok {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = i, offset, 1<<20
			t.Partitions = append(t.Partitions, p)
		}
	}
	req.Topics = append(req.Topics, t)
	return req
}

// told lists the partitions of a response with their sizes or errors.
func told(resp *kmsg.FetchResponse) string {
	var list []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			list = append(list, fmt.Sprintf("%d: %d bytes, error %d", p.Partition, len(p.RecordBatches), p.ErrorCode))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

func TestAFetchSessionTellsOnlyWhatIsNew(t *testing.T) {
	b := start(t)
	b.create("topic", 3)
	w := b.dial()
	opened := call[*kmsg.FetchResponse](w, sessionFetch(0, 0, "topic", map[int32]int64{0: 0, 1: 0, 2: 0}), 12)
	if opened.SessionID <= 0 || told(opened) != "0: 0 bytes, error 0; 1: 0 bytes, error 0; 2: 0 bytes, error 0" {
		t.Fatalf("the first answer: session %d, %s", opened.SessionID, told(opened))
	}
	id := opened.SessionID
	steps := []struct {
		does string
		act  func()
		req  *kmsg.FetchRequest
		want string
	}{
		{"nothing", func() {}, sessionFetch(id, 1, "topic", nil), ""},
		{"a record is produced", func() { b.produce("topic", "a") }, sessionFetch(id, 2, "topic", nil), "0: 69 bytes, error 0"},
		{"the client has not moved on", func() {}, sessionFetch(id, 3, "topic", nil), "0: 69 bytes, error 0"},
		{"the client moves on", func() {}, sessionFetch(id, 4, "topic", map[int32]int64{0: 1}), "0: 0 bytes, error 0"},
		{"nothing more", func() {}, sessionFetch(id, 5, "topic", nil), ""},
		{"a partition that is not there is added", func() {}, sessionFetch(id, 6, "topic", map[int32]int64{9: 0}), "9: 0 bytes, error 3"},
		{"an error is told again", func() {}, sessionFetch(id, 7, "topic", nil), "9: 0 bytes, error 3"},
		{"the partition is forgotten", func() {}, forget(sessionFetch(id, 8, "topic", nil), "topic", 9), ""},
		{"a forgotten partition is not read", func() { b.produce("topic", "b") }, forget(sessionFetch(id, 9, "topic", nil), "topic", 0), ""},
	}
	for _, s := range steps {
		s.act()
		resp := call[*kmsg.FetchResponse](w, s.req, 12)
		if resp.ErrorCode != 0 || resp.SessionID != id || told(resp) != s.want {
			t.Fatalf("%s: error %d, session %d, %q; want %q", s.does, resp.ErrorCode, resp.SessionID, told(resp), s.want)
		}
	}
}

func forget(req *kmsg.FetchRequest, topic string, partitions ...int32) *kmsg.FetchRequest {
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.Partitions = topic, partitions
	req.ForgottenTopics = append(req.ForgottenTopics, f)
	return req
}

func TestAFetchSessionThatIsNotInStepBeginsAnew(t *testing.T) {
	b := start(t)
	b.create("topic", 2)
	cases := map[string]struct {
		change  func(*kmsg.FetchRequest)
		version int16
		want    int16
	}{
		"the next epoch":                 {func(*kmsg.FetchRequest) {}, 12, 0},
		"an epoch that was used":         {func(r *kmsg.FetchRequest) { r.SessionEpoch = 2 }, 12, kerr.InvalidFetchSessionEpoch.Code},
		"another session's id":           {func(r *kmsg.FetchRequest) { r.SessionID++ }, 12, kerr.FetchSessionIDNotFound.Code},
		"ids of topics instead of names": {func(*kmsg.FetchRequest) {}, 13, kerr.FetchSessionTopicIDError.Code},
		"everything is forgotten":        {func(r *kmsg.FetchRequest) { forget(r, "topic", 0, 1) }, 12, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			id := call[*kmsg.FetchResponse](w, sessionFetch(0, 0, "topic", map[int32]int64{0: 0, 1: 0}), 12).SessionID
			req := sessionFetch(id, 1, "topic", nil)
			c.change(req)
			if resp := call[*kmsg.FetchResponse](w, req, c.version); resp.ErrorCode != c.want {
				t.Errorf("error %d, want %d", resp.ErrorCode, c.want)
			}
			again := call[*kmsg.FetchResponse](w, sessionFetch(id, 0, "topic", map[int32]int64{0: 0}), 12)
			if again.ErrorCode != 0 || again.SessionID == 0 || again.SessionID == id {
				t.Errorf("a new session after session %d: error %d, session %d", id, again.ErrorCode, again.SessionID)
			}
			if old := call[*kmsg.FetchResponse](w, sessionFetch(id, 2, "topic", nil), 12); old.ErrorCode != kerr.FetchSessionIDNotFound.Code {
				t.Errorf("the old session: error %d", old.ErrorCode)
			}
		})
	}
}

func TestAFetchSessionServesAllPartitionsInTurn(t *testing.T) {
	b := start(t)
	b.create("topic", 3)
	w := b.dial()
	for i := range 3 {
		batches := make([][]byte, 3)
		for p := range batches {
			batches[p] = batchOf(int64(i), strings.Repeat("x", 1000))
		}
		call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, batches...), 9)
	}
	req := sessionFetch(0, 0, "topic", map[int32]int64{0: 0, 1: 0, 2: 0})
	req.MaxBytes = 1
	resp := call[*kmsg.FetchResponse](w, req, 12)
	got := map[int32]bool{}
	for epoch := int32(1); epoch <= 3; epoch++ {
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got[p.Partition] = got[p.Partition] || len(p.RecordBatches) > 0
			}
		}
		next := sessionFetch(resp.SessionID, epoch, "topic", nil)
		next.MaxBytes = 1
		resp = call[*kmsg.FetchResponse](w, next, 12)
	}
	if len(got) != 3 || !got[0] || !got[1] || !got[2] {
		t.Errorf("after three fetches of one batch each, partitions were read: %v", got)
	}
}

func TestOneFetchAtATimeUsesASession(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	w, other := b.dial(), b.dial()
	id := call[*kmsg.FetchResponse](w, sessionFetch(0, 0, "topic", map[int32]int64{0: 0}), 12).SessionID
	waits := sessionFetch(id, 1, "topic", nil)
	waits.MinBytes, waits.MaxWaitMillis = 1, 20000
	sent := w.send(waits, 12)
	for range 100 { // the fetch that waits has begun long before the last
		if got := call[*kmsg.FetchResponse](other, sessionFetch(id, 2, "topic", nil), 12).ErrorCode; got != kerr.InvalidFetchSessionEpoch.Code {
			t.Fatalf("a second fetch of the session: error %d", got)
		}
	}
	b.produce("topic", "a")
	resp, err := w.receive(waits, sent)
	if err != nil {
		t.Fatal(err)
	}
	if fetch, ok := resp.(*kmsg.FetchResponse); !ok || told(fetch) != "0: 69 bytes, error 0" {
		t.Errorf("the waiting fetch got %+v", resp)
	}
}

// TestAFetchSessionTellsWhatAFullFetchWould goes through random changes, and checks after each fetch that what the client knows of every
// partition that it reads is what is there.
func TestAFetchSessionTellsWhatAFullFetchWould(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := start(t)
	const partitions = 8
	b.create("topic", partitions)
	w, producer := b.dial(), b.dial()
	ends, reads, known := make([]int64, partitions), map[int32]int64{}, map[int32]int64{}
	id, epoch := int32(0), int32(0)
	for step := range 300 {
		changes, forgotten := map[int32]int64{}, []int32{}
		for p := range int32(partitions) {
			_, reading := reads[p]
			switch rng.IntN(8) {
			case 0:
				batches := make([][]byte, p+1)
				for i := range batches {
					batches[i] = batchOf(1, "x")
				}
				call[*kmsg.ProduceResponse](producer, produceRequest("topic", -1, batches...), 9)
				for i := range batches {
					ends[i]++
				}
			case 1:
				changes[p] = rng.Int64N(ends[p] + 1)
			case 2:
				changes[p] = ends[p]
			case 3:
				if reading && len(reads) > 2 {
					forgotten = append(forgotten, p)
					delete(reads, p)
					delete(known, p)
				}
			}
		}
		if epoch == 0 && len(changes) == 0 {
			continue
		}
		for p, offset := range changes {
			if !slices.Contains(forgotten, p) {
				reads[p] = offset
			} else {
				delete(changes, p)
			}
		}
		req := sessionFetch(id, epoch, "topic", changes)
		if len(forgotten) > 0 {
			forget(req, "topic", forgotten...)
		}
		resp := call[*kmsg.FetchResponse](w, req, 12)
		if resp.ErrorCode != 0 || resp.SessionID == 0 {
			t.Fatalf("step %d: error %d, session %d", step, resp.ErrorCode, resp.SessionID)
		}
		id, epoch = resp.SessionID, epoch+1
		got := map[int32]bool{}
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got[p.Partition] = len(p.RecordBatches) > 0
				known[p.Partition] = p.HighWatermark
				if _, reading := reads[p.Partition]; !reading || p.ErrorCode != 0 {
					t.Fatalf("step %d: partition %d, error %d, which the client reads: %t", step, p.Partition, p.ErrorCode, reading)
				}
			}
		}
		for p, offset := range reads {
			if known[p] != ends[p] || got[p] != (offset < ends[p]) {
				t.Fatalf("step %d: partition %d ends at %d, and the client knows of %d; it reads from %d, and got records: %t", step, p, ends[p], known[p], offset, got[p])
			}
		}
	}
}
