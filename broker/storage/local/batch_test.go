// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// The tests' batches are those of the contract's.
type (
	testBatch  = enginetest.Batch
	testRecord = enginetest.Record
)

var (
	simple = enginetest.Simple
	values = enginetest.Values
	fixCRC = enginetest.FixCRC
)

func TestABatchThatMayNotBeAppended(t *testing.T) {
	change := func(fn func(b []byte)) []byte {
		b := simple("one", "two")
		fn(b)
		return fixCRC(b)
	}
	short := func(b []byte, n int) []byte {
		b = b[:len(b)-n]
		binary.BigEndian.PutUint32(b[recordbatch.PosLength:], uint32(len(b)-recordbatch.LengthCounts))
		return fixCRC(b)
	}
	tests := map[string]struct {
		batch []byte
		want  error
		says  string
	}{
		"nothing":                      {nil, storage.ErrInvalidBatch, "there is none"},
		"less than a header":           {simple("one")[:60], storage.ErrInvalidBatch, "60 bytes are less"},
		"a cut batch":                  {simple("one")[:65], storage.ErrInvalidBatch, "65 are there"},
		"bytes behind the batch":       {append(simple("one"), 1), storage.ErrInvalidBatch, "batch 1: "},
		"a negative length":            {change(func(b []byte) { b[recordbatch.PosLength] = 0xff }), storage.ErrInvalidBatch, "length field"},
		"a length above 2^31-13":       {change(func(b []byte) { copy(b[recordbatch.PosLength:], "\x7f\xff\xff\xff") }), storage.ErrInvalidBatch, "too large"},
		"a length within the header":   {change(func(b []byte) { b[recordbatch.PosLength+3] = 10 }), storage.ErrInvalidBatch, "length field"},
		"format v1":                    {change(func(b []byte) { b[recordbatch.PosMagic] = 1 }), storage.ErrInvalidBatch, "format is v1"},
		"a wrong CRC":                  {func() []byte { b := simple("one"); b[70] ^= 1; return b }(), storage.ErrInvalidBatch, "CRC-32C"},
		"no records":                   {change(func(b []byte) { clear(b[recordbatch.PosRecordCount:recordbatch.HeaderSize]) }), storage.ErrInvalidBatch, "counts 0"},
		"a negative count":             {change(func(b []byte) { b[recordbatch.PosRecordCount] = 0x80 }), storage.ErrInvalidBatch, "counts -"},
		"a last offset delta too high": {change(func(b []byte) { b[recordbatch.PosLastOffsetDelta+3] = 5 }), storage.ErrInvalidBatch, "last offset delta of 5"},
		"more records than counted": {change(func(b []byte) {
			b[recordbatch.PosLastOffsetDelta+3], b[recordbatch.PosRecordCount+3] = 0, 1
		}), storage.ErrInvalidBatch, "records do not fit"},
		"fewer records than counted": {change(func(b []byte) {
			b[recordbatch.PosLastOffsetDelta+3], b[recordbatch.PosRecordCount+3] = 2, 3
		}), storage.ErrInvalidBatch, "records do not fit"},
		"a cut record":           {short(simple("one", "two"), 3), storage.ErrInvalidBatch, "records do not fit"},
		"a control batch":        {change(func(b []byte) { b[recordbatch.PosAttributes+1] = recordbatch.AttrControl }), storage.ErrInvalidBatch, "control"},
		"a transactional batch":  {change(func(b []byte) { b[recordbatch.PosAttributes+1] = recordbatch.AttrTransactional }), storage.ErrInvalidBatch, "transactions are not"},
		"an unknown compression": {change(func(b []byte) { b[recordbatch.PosAttributes+1] = 5 }), storage.ErrInvalidBatch, "compression 5"},
		"a producer without epoch": {testBatch{Producer: 5, Epoch: -1, Records: values("a")}.Encode(), storage.ErrInvalidBatch,
			"producer 5 has epoch -1"},
		"a producer without sequence": {testBatch{Producer: 5, Sequence: -1, Records: values("a")}.Encode(), storage.ErrInvalidBatch,
			"sequence number -1"},
		"a batch above the limit": {simple(strings.Repeat("x", 1000)), storage.ErrBatchTooLarge, "the topic's limit of 1000"},
		"a good batch, then a bad one": {append(simple("good"), change(func(b []byte) { b[recordbatch.PosMagic] = 0 })...),
			storage.ErrInvalidBatch, "batch 1: "},
	}
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	e := openEngine(t, workDir, Options{FS: m, ReserveBytes: -1})
	l, err := e.Open(context.Background(), p0, 0, storage.Config{MaxBatchBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base, err := l.Append(context.Background(), tc.batch, storage.Synced)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || base != -1 {
				t.Fatalf("%d, %v; want %q", base, err, tc.says)
			}
			if l.EndOffset() != 0 || l.Size() != 0 {
				t.Fatal("something was written")
			}
		})
	}
}

func TestABatchIsStoredAsItWasProduced(t *testing.T) {
	e := openEngine(t, workDir, Options{FS: newMemFS(nil), ReserveBytes: -1})
	l, err := e.Open(context.Background(), p0, 7, storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, simple("first"))
	compressed := testBatch{Attributes: 4, Records: values("not really zstd")}.Encode()
	copy(compressed[recordbatch.HeaderSize:], "anything goes")
	fixCRC(compressed)
	want := bytes.Clone(compressed)
	recordbatch.SetPlace(want, 1, 7)
	mustAppend(t, l, compressed)
	got, err := enginetest.Read(context.Background(), l, 1, 1)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
}

func FuzzCheckBatches(f *testing.F) {
	f.Add(simple("one", "two"))
	f.Add(append(simple("one"), testBatch{Producer: 5, Records: values("a")}.Encode()...))
	f.Add(testBatch{Attributes: 3, Records: values("a")}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		headers, err := recordbatch.CheckBatches(b, &storage.Config{})
		if err != nil {
			if !errors.Is(err, storage.ErrInvalidBatch) && !errors.Is(err, storage.ErrBatchTooLarge) {
				t.Fatal(err)
			}
			// With the right checksum more of the checks are reached.
			if h, err := recordbatch.ParseHeader(b); err == nil && h.Size <= len(b) {
				fixCRC(b[:h.Size])
			}
			if headers, err = recordbatch.CheckBatches(b, &storage.Config{}); err != nil {
				return
			}
		}
		total := 0
		for i := range headers {
			total += headers[i].Size
			recordbatch.ForTime(b[total-headers[i].Size:total], &headers[i], 0, 0)
		}
		if total != len(b) || len(headers) == 0 {
			t.Fatal("the batches do not make up the whole", total, len(b))
		}
		l := reopen(t, newMemFS(nil))
		if base, err := l.Append(context.Background(), b, storage.Synced); base != 0 || err != nil &&
			!errors.Is(err, storage.ErrOutOfOrderSequence) && !errors.Is(err, storage.ErrStaleProducerEpoch) {
			t.Fatal(base, err)
		}
	})
}
