// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

func FuzzRecovery(f *testing.F) {
	_, batches := filled(f, 3, false, memOptions(nil))
	var all []byte
	for o := int64(0); o < 6; o += 2 {
		b := bytes.Clone(batches[o])
		recordbatch.SetPlace(b, o, 0)
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
			h, err := recordbatch.ParseHeader(b)
			if err != nil || h.Base > o || h.Next() <= o || !recordbatch.CRCMatches(b, &h) {
				t.Fatal(h, err)
			}
			o = h.Next()
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
		recordbatch.SetPlace(b, int64(2*i), 0)
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
				if sc.at != pos || !h.Follows(offset, compacted) || h.Next() > sc.limit || len(sc.batch) != h.Size || !recordbatch.CRCMatches(sc.batch, h) {
					t.Fatalf("batch %+v at byte %d, where offset %d is due at byte %d", h, sc.at, offset, pos)
				}
				pos, offset = pos+int64(h.Size), h.Next()
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
	ps := idempotence.Producers{}
	for i := range int64(3) {
		ps.Apply(&recordbatch.Header{ProducerID: i, Count: 2, LastDelta: 1, Attributes: int16(i) * recordbatch.AttrLogAppendTime, MaxTimestamp: 70 + i}, 2*i, time.Now())
	}
	index := []indexEntry{{0, 0, recordbatch.NoTime}, {5, 900, 70}}
	s := summary{size: 1000, next: 9, maxTime: 80}
	f.Add(encodeIndexFile(0, &s, index))
	f.Add((&clean{base: 0, size: 1000, next: 9, maxTime: 80, index: index, producers: ps}).encode())
	f.Add(encodeProducers(9, ps))
	f.Add(encodePasses(&compaction.Passes{Done: []compaction.Pass{{UpTo: 5, At: 1000}, {UpTo: 9, At: 2000}}, Gone: 5, Left: 1}))
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
		again(encodePasses(p))
	}
}
