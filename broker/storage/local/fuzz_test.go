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
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

func FuzzRecovery(f *testing.F) {
	_, batches := filled(f, 3, false, memOptions(nil))
	var all []byte
	for o := int64(0); o < 6; o += 2 {
		b := bytes.Clone(batches[o])
		setPlace(b, o, 0)
		all = append(all, b...)
	}
	f.Add(all, int64(0))
	f.Add(all[:len(all)-3], int64(4))
	f.Add(append(bytes.Clone(all[:70]), all...), int64(6))
	f.Add([]byte{}, int64(-1))
	f.Fuzz(func(t *testing.T, segment []byte, mark int64) {
		m := newMemFS(rand.New(rand.NewPCG(1, 1)))
		_ = m.MkdirAll(workDir + "/orders-0")
		for name, b := range map[string][]byte{firstSegment: segment, workDir + "/orders-0/" + markFile: encodeMark(mark)} {
			if err := writeFile(m, name, b); err != nil && len(b) > 0 {
				t.Fatal(err)
			}
		}
		l := reopen(t, m)
		start, hw := l.StartOffset(), l.HighWatermark()
		if start != 0 || hw != l.EndOffset() || hw < 0 || l.Size() > int64(len(segment)) {
			t.Fatal(start, hw, l.EndOffset(), l.Size())
		}
		// Everything up to the high watermark is served whole or reported as damaged.
		for o, n := int64(0), 0; o < hw && n < 100; n++ {
			b, err := enginetest.Read(context.Background(), l, o, 1)
			var d *damage
			if errors.As(err, &d) {
				if d.to <= o {
					t.Fatalf("damage up to %d at offset %d", d.to, o)
				}
				o = d.to
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			h, err := parseHeader(b)
			if err != nil || h.base > o || h.next() <= o || !crcMatches(b, &h) {
				t.Fatal(h, err)
			}
			o = h.next()
		}
		end := l.EndOffset()
		base, err := l.Append(context.Background(), simple("after"), storage.Synced)
		if err != nil || base != end {
			t.Fatal(base, err)
		}
		if b, err := enginetest.Read(context.Background(), l, base, 1); err != nil || len(b) == 0 {
			t.Fatal(err)
		}
	})
}

func FuzzScanner(f *testing.F) {
	var all []byte
	for i, b := range [][]byte{simple("one", "two"), pairs("k=1").Encode(), simple("three")} {
		setPlace(b, int64(2*i), 0)
		all = append(all, b...)
	}
	f.Add(all, false)
	f.Add(all, true)
	f.Add(append([]byte("before"), all...), true)
	f.Fuzz(func(t *testing.T, segment []byte, compacted bool) {
		sc := newScanner(bytes.NewReader(segment), "segment", int64(len(segment)), 0, 0)
		sc.compacted, sc.limit = compacted, 1<<40
		pos, offset := int64(0), int64(0)
		for {
			ev, err := sc.next()
			if err != nil {
				t.Fatal(err)
			}
			switch ev {
			case atEnd:
				if pos != int64(len(segment)) {
					t.Fatalf("the end at byte %d of %d", pos, len(segment))
				}
				return
			case atBatch:
				h := &sc.head
				if sc.at != pos || !h.follows(offset, compacted) || h.next() > sc.limit || len(sc.batch) != h.size || !crcMatches(sc.batch, h) {
					t.Fatalf("batch %+v at byte %d, where offset %d is due at byte %d", h, sc.at, offset, pos)
				}
				pos, offset = pos+int64(h.size), h.next()
			case atDamage, atTail:
				if sc.damage.pos != pos || sc.damage.end <= pos || sc.damage.from != offset || sc.damage.to < offset {
					t.Fatalf("damage %+v at byte %d, offset %d", sc.damage, pos, offset)
				}
				pos, offset = sc.damage.end, sc.damage.to
			}
		}
	})
}

// sealed is b with a CRC that matches, so that more than the CRC is tested.
func sealed(b []byte) []byte { return seal(bytes.Clone(b[:max(len(b)-crcSize, 0)])) }

func FuzzStateFiles(f *testing.F) {
	ps := producers{}
	for i := range int64(3) {
		ps.apply(&header{producerID: i, count: 2, lastDelta: 1, attributes: int16(i) * attrLogAppendTime, maxTimestamp: 70 + i}, 2*i, time.Now())
	}
	index := []indexEntry{{0, 0, noTime}, {5, 900, 70}}
	s := summary{size: 1000, next: 9, maxTime: 80}
	f.Add(encodeIndexFile(0, &s, index))
	f.Add((&clean{base: 0, size: 1000, next: 9, maxTime: 80, index: index, producers: ps}).encode())
	f.Add(encodeProducers(9, ps))
	f.Add((&passes{done: []pass{{5, 1000}, {9, 2000}}, gone: 5, left: 1}).encode())
	f.Add(meta{epoch: 3, start: 7}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, sealed(b)} {
			checkStateFiles(t, b)
		}
	})
}

// checkStateFiles decodes b as every kind of file. What is taken must come out the same again.
func checkStateFiles(t *testing.T, b []byte) {
	again := func(got []byte) {
		t.Helper()
		if !bytes.Equal(got, b) {
			t.Fatalf("%x was taken for %x", b, got)
		}
	}
	now := time.Now()
	m := newMem()
	_ = m.MkdirAll(workDir)
	if err := writeFile(m, workDir+"/file", b); err != nil {
		t.Fatal(err)
	}
	if index, err := readIndexFile(m, workDir+"/file", 0); err == nil {
		s, err := readIndexHeader(m, workDir+"/file", 0)
		if err != nil {
			t.Fatal(err)
		}
		again(encodeIndexFile(0, &s, index))
	}
	if c, err := decodeClean(b, now); err == nil {
		again(c.encode())
	}
	if offset, ps, err := decodeProducersFile(b, now); err == nil {
		again(encodeProducers(offset, ps))
	}
	if p, err := decodePasses(b); err == nil {
		again(p.encode())
	}
}

// wholeBatch makes b a batch by its length and checksum, if it has a header.
func wholeBatch(b []byte) ([]byte, header, bool) {
	if len(b) < headerSize {
		return nil, header{}, false
	}
	b = bytes.Clone(b)
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-lengthCounts))
	binary.BigEndian.PutUint64(b[posBaseOffset:], binary.BigEndian.Uint64(b[posBaseOffset:])>>2)
	b[posMagic] = magicV2
	h, err := parseHeader(fixCRC(b))
	return b, h, err == nil
}

func FuzzFilter(f *testing.F) {
	for codec := range int16(codecZstd + 1) {
		f.Add(squeezed(f, pairs("a=1", "b", "a=2", "c="), codec), uint64(5))
	}
	f.Fuzz(func(t *testing.T, b []byte, wanted uint64) {
		b, h, ok := wholeBatch(b)
		if !ok {
			return
		}
		want, keep := func(offset int64) bool { return wanted>>(offset&63)&1 == 1 }, 0
		var fl filter
		got, err := fl.apply(b, &h, func(offset int64, _ []byte, _ bool) bool {
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
		after, err := parseHeader(got)
		if err != nil || after.size != len(got) || !crcMatches(got, &after) || after.base != h.base || after.next() != h.next() ||
			int(after.count) != keep {
			t.Fatalf("%+v became %+v, %v", h, after, err)
		}
		rest := kept(t, got, &after, func(int64) bool { return true })
		if diff := cmp.Diff(kept(t, b, &h, want), rest); diff != "" {
			t.Fatal(diff)
		}
	})
}

// kept are the records of a batch under wanted offsets, as bytes.
func kept(t *testing.T, batch []byte, h *header, want func(offset int64) bool) (list []string) {
	err := inflated(batch, h, func(records []byte) error {
		return eachKey(records, h, func(r *record, _ []byte, _ bool) {
			if want(h.base + r.offsetDelta) {
				list = append(list, string(r.raw))
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func FuzzInflate(f *testing.F) {
	for codec := range int16(codecZstd + 1) {
		b := squeezed(f, pairs("a=1", "b="+strings.Repeat("x", 70_000)), codec)
		f.Add(b[headerSize:], codec)
	}
	f.Fuzz(func(t *testing.T, b []byte, codec int16) {
		plain, err := inflate(nil, b, codec)
		if err != nil {
			return
		}
		if len(plain) > maxInflated && codec != codecNone {
			t.Fatalf("%d bytes", len(plain))
		}
		squeezed, err := deflate(nil, plain, codec)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := inflate(nil, squeezed, codec); err != nil || !bytes.Equal(again, plain) {
			t.Fatal(err)
		}
	})
}
