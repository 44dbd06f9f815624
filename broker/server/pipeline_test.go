// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/testengine"
)

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	b := start(t)
	b.create("topic", 2)
	w := b.dial()
	const n = 200
	type sent struct {
		req kmsg.Request
		id  int32
	}
	var all []sent
	send := func(req kmsg.Request, version int16) { all = append(all, sent{req, w.send(req, version)}) }
	for i := range n {
		switch i % 4 {
		case 0, 1:
			send(produceRequest("topic", -1, batchOf(1, "a"), batchOf(1, "b")), 9)
		case 2:
			send(produceRequest("topic", 1, batchOf(1, "c")), 9)
		case 3:
			req := fetchRequest("topic", 0)
			req.MaxWaitMillis, req.MinBytes = 60000, 1
			send(req, 12)
		}
	}
	next := int64(0)
	for i, s := range all {
		resp, err := w.receive(s.req, s.id)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		switch resp := resp.(type) {
		case *kmsg.ProduceResponse:
			for _, p := range resp.Topics[0].Partitions {
				if p.ErrorCode != 0 || p.Partition == 0 && p.BaseOffset != next {
					t.Fatalf("request %d: %+v, want offset %d", i, p, next)
				}
			}
			next++
		case *kmsg.FetchResponse:
			if p := fetched(resp); p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
				t.Fatalf("request %d: %+v", i, p)
			}
		}
	}
}

func TestProducesThatCannotBeStoredFailInOrder(t *testing.T) {
	testengine.NeedsDisk(t)
	b := start(t)
	b.create("topic", 1)
	b.produce("topic", "a")
	w := b.dial()
	b.disk.broken.Store(true)
	const n = 10
	req := produceRequest("topic", -1, batchOf(1, "lost"))
	var ids []int32
	for range n {
		ids = append(ids, w.send(req, 9))
	}
	for i, id := range ids {
		resp, err := w.receive(req, id)
		if err != nil {
			t.Fatal(err)
		}
		produce, ok := resp.(*kmsg.ProduceResponse)
		// The first ones meet the disk, later ones a log that is being opened anew: both are to be tried again.
		if !ok || !kerr.IsRetriable(kerr.ErrorForCode(produced(produce).ErrorCode)) || produced(produce).BaseOffset != -1 {
			t.Fatalf("produce %d: %+v", i, resp)
		}
	}
	b.disk.broken.Store(false)
	eventually(t, func() error {
		return kerr.ErrorForCode(produced(call[*kmsg.ProduceResponse](w, produceRequest("topic", -1, batchOf(1, "b")), 9)).ErrorCode)
	})
}

func TestAProduceIsAnsweredBeforeBadBytesEndItsConnection(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	w := b.dial()
	req := produceRequest("topic", -1, batchOf(1, "a"))
	id := w.send(req, 9)
	w.write([]byte{0, 0, 0, 12, 0, 3, 0, 9, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff}) // a Metadata request that is cut short
	resp, err := w.receive(req, id)
	if err != nil {
		t.Fatal(err)
	}
	if produce, ok := resp.(*kmsg.ProduceResponse); !ok || produced(produce).ErrorCode != 0 {
		t.Errorf("got %+v", resp)
	}
	w.closed()
}
