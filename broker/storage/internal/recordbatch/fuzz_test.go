// SPDX-License-Identifier: Apache-2.0

package recordbatch

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

// squeezed is a batch of records that are "key=value", or "key" alone for a tombstone, with its records compressed.
func squeezed(t testing.TB, codec int16, list ...string) []byte {
	t.Helper()
	b := enginetest.Batch{First: 1000, Attributes: codec}
	for i, p := range list {
		key, value, ok := strings.Cut(p, "=")
		b.Records = append(b.Records, enginetest.Record{Key: []byte(key), Value: []byte(value), Tombstone: !ok, Delta: int64(i)})
	}
	plain := b.Encode()
	out, err := Deflate(bytes.Clone(plain[:HeaderSize]), plain[HeaderSize:], codec)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(out[PosLength:], uint32(len(out)-LengthCounts))
	return enginetest.FixCRC(out)
}

// wholeBatch makes b a batch by its length and checksum, if it has a header.
func wholeBatch(b []byte) ([]byte, Header, bool) {
	if len(b) < HeaderSize {
		return nil, Header{}, false
	}
	b = bytes.Clone(b)
	binary.BigEndian.PutUint32(b[PosLength:], uint32(len(b)-LengthCounts))
	binary.BigEndian.PutUint64(b[PosBaseOffset:], binary.BigEndian.Uint64(b[PosBaseOffset:])>>2)
	b[PosMagic] = MagicV2
	h, err := ParseHeader(enginetest.FixCRC(b))
	return b, h, err == nil
}

func FuzzFilter(f *testing.F) {
	for codec := range int16(CodecZstd + 1) {
		f.Add(squeezed(f, codec, "a=1", "b", "a=2", "c="), uint64(5))
	}
	f.Fuzz(func(t *testing.T, b []byte, wanted uint64) {
		b, h, ok := wholeBatch(b)
		if !ok {
			return
		}
		want, keep := func(offset int64) bool { return wanted>>(offset&63)&1 == 1 }, 0
		var fl Filter
		got, err := fl.Apply(b, &h, func(offset int64, _ []byte, _ bool) bool {
			if want(offset) {
				keep++
			}
			return want(offset)
		})
		if err != nil {
			return
		}
		if keep == 0 {
			if got != nil {
				t.Fatal("something is left of nothing")
			}
			return
		}
		after, err := ParseHeader(got)
		if err != nil || after.Size != len(got) || !CRCMatches(got, &after) || after.Base != h.Base || after.Next() != h.Next() ||
			int(after.Count) != keep {
			t.Fatalf("%+v became %+v, %v", h, after, err)
		}
		rest := kept(t, got, &after, func(int64) bool { return true })
		if diff := cmp.Diff(kept(t, b, &h, want), rest); diff != "" {
			t.Fatal(diff)
		}
	})
}

// kept are the records of a batch under wanted offsets, as bytes.
func kept(t *testing.T, batch []byte, h *Header, want func(offset int64) bool) (list []string) {
	err := Inflated(batch, h, func(records []byte) error {
		return EachKey(records, h, func(r *Record, _ []byte, _ bool) {
			if want(h.Base + r.OffsetDelta) {
				list = append(list, string(r.Raw))
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func FuzzInflate(f *testing.F) {
	for codec := range int16(CodecZstd + 1) {
		b := squeezed(f, codec, "a=1", "b="+strings.Repeat("x", 70_000))
		f.Add(b[HeaderSize:], codec)
	}
	f.Fuzz(func(t *testing.T, b []byte, codec int16) {
		plain, err := Inflate(nil, b, codec)
		if err != nil {
			return
		}
		if len(plain) > MaxInflated && codec != CodecNone {
			t.Fatalf("%d bytes", len(plain))
		}
		squeezed, err := Deflate(nil, plain, codec)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Inflate(nil, squeezed, codec); err != nil || !bytes.Equal(again, plain) {
			t.Fatal(err)
		}
	})
}
