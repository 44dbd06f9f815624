// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offered returns the server's APIs, without a server.
func offered() map[int16]api {
	apis := make(map[int16]api)
	for _, a := range apiTable() {
		apis[a.key] = a
	}
	return apis
}

// seeds adds a frame of every version of every API.
func seeds(f *testing.F) {
	for _, a := range apiTable() {
		for v := a.min; v <= a.max; v++ {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("fuzz")).AppendRequest(nil, req, 1))
		}
	}
}

func FuzzFrames(f *testing.F) {
	seeds(f)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 10, 0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff})
	const limit = 1 << 20
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		for {
			b, err := r.Peek(4)
			if err != nil {
				return
			}
			_, _ = r.Discard(4)
			size := int32(binary.BigEndian.Uint32(b))
			if checkFrameSize(size, limit) != nil {
				return
			}
			frame, err := readFrame(r, int(size), nil)
			if err != nil {
				return
			}
			if len(frame) != int(size) {
				t.Fatalf("a frame of %d bytes has %d", size, len(frame))
			}
		}
	})
}

func FuzzRequests(f *testing.F) {
	seeds(f)
	apis := offered()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4 {
			return
		}
		h, rest, err := parseHeader(data[4:])
		if err != nil {
			return
		}
		a, ok := apis[h.key]
		if !ok || h.version < a.min || h.version > a.max {
			return
		}
		elements, countErr := 0, error(nil)
		if h.key == keyProduce {
			elements, countErr = produceElements(h.version, rest)
		}
		body, err := decode(h, rest)
		if err != nil {
			return
		}
		if produce, ok := body.(*kmsg.ProduceRequest); ok {
			want := len(produce.Topics)
			for i := range produce.Topics {
				want += len(produce.Topics[i].Partitions)
			}
			if countErr != nil || elements != want && elements <= maxElements {
				t.Fatalf("a produce of %d elements counts %d: %v", want, elements, countErr)
			}
		}
		if body.Key() != h.key || body.GetVersion() != h.version {
			t.Fatalf("decoded %T v%d of %+v", body, body.GetVersion(), h)
		}
	})
}

func FuzzBatchHeaders(f *testing.F) {
	batch := kmsg.RecordBatch{Magic: 2, NumRecords: 1, Records: []byte{0}}
	sound := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(sound[batchLengthAt:], uint32(len(sound)-batchOverhead))
	f.Add(sound, int16(9))
	f.Add(append(bytes.Clone(sound), sound...), int16(3))
	f.Add([]byte{}, int16(3))
	f.Fuzz(func(t *testing.T, data []byte, version int16) {
		if checkBatch(data, version) != nil {
			return
		}
		batch, rest, err := splitBatch(data)
		if err != nil || len(rest) > 0 {
			t.Fatalf("a batch that is taken cannot be read: %v, %d bytes left", err, len(rest))
		}
		if batch.NumRecords < 1 || batch.LastOffsetDelta != batch.NumRecords-1 {
			t.Fatalf("a batch of %d records with last offset delta %d is taken", batch.NumRecords, batch.LastOffsetDelta)
		}
	})
}
