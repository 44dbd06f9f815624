// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// pairs is a batch of records that are "key=value", or "key" for a tombstone.
func pairs(list ...string) testBatch {
	b := testBatch{First: 1000}
	for i, p := range list {
		key, value, ok := strings.Cut(p, "=")
		b.Records = append(b.Records, testRecord{Key: []byte(key), Value: []byte(value), Tombstone: !ok, Delta: int64(i)})
	}
	return b
}

// squeezed is the batch with its records compressed.
func squeezed(t testing.TB, b testBatch, codec int16) []byte {
	t.Helper()
	b.Attributes |= codec
	plain := b.Encode()
	out, err := recordbatch.Deflate(bytes.Clone(plain[:recordbatch.HeaderSize]), plain[recordbatch.HeaderSize:], codec)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(out[recordbatch.PosLength:], uint32(len(out)-recordbatch.LengthCounts))
	return fixCRC(out)
}

// stored reads the whole log as pairs after their offsets, whatever their compression.
func stored(t testing.TB, l storage.Log) []string {
	t.Helper()
	var list []string
	for o := l.StartOffset(); o < l.HighWatermark(); {
		b, err := enginetest.Read(context.Background(), l, o, 1<<20)
		if err != nil || len(b) == 0 {
			t.Fatalf("read offset %d: %d bytes, %v", o, len(b), err)
		}
		forEachBatch(t, b, func(h *recordbatch.Header) {
			for _, r := range decoded(t, b[:h.Size], h) {
				list = append(list, r.String())
			}
			b, o = b[h.Size:], h.Next()
		})
	}
	return list
}

func decoded(t testing.TB, batch []byte, h *recordbatch.Header) []enginetest.Stored {
	t.Helper()
	records, err := recordbatch.Inflate(bytes.Clone(batch[:recordbatch.HeaderSize]), batch[recordbatch.HeaderSize:h.Size], h.Attributes&recordbatch.AttrCompression)
	if err != nil {
		t.Fatal(err)
	}
	records[recordbatch.PosAttributes+1] &^= recordbatch.AttrCompression
	binary.BigEndian.PutUint32(records[recordbatch.PosLength:], uint32(len(records)-recordbatch.LengthCounts))
	list, err := enginetest.Records(records)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func wantStored(t *testing.T, l storage.Log, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, stored(t, l)); diff != "" {
		t.Fatal(diff)
	}
}

// compactedLog opens a log with Config.Compact.
func compactedLog(t testing.TB, o Options) *commitLog {
	t.Helper()
	e, err := Open(workDir, o)
	if err != nil {
		t.Fatal(err)
	}
	return openCompacted(t, e)
}

func openCompacted(t testing.TB, e *Engine) *commitLog {
	t.Helper()
	l, err := e.Open(context.Background(), p0, 0, storage.Config{Compact: true, TombstoneRetention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l.(*commitLog)
}

func mustCompact(t testing.TB, e *Engine, now time.Time) {
	t.Helper()
	if err := e.Compact(now); err != nil {
		t.Fatal(err)
	}
}

func newMem() *memFS { return newMemFS(rand.New(rand.NewPCG(1, 1))) }

// segmentFiles are the names of a log's segments in its directory.
func segmentFiles(t testing.TB, l *commitLog) []string {
	t.Helper()
	entries, err := l.engine.fs.ReadDir(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name, logExt) || strings.HasSuffix(e.Name, cleanedExt) {
			names = append(names, e.Name)
		}
	}
	return names
}

func TestABatchThatLosesRecordsKeepsAllElse(t *testing.T) {
	for name, codec := range map[string]int16{"plain": recordbatch.CodecNone, "gzip": recordbatch.CodecGzip, "snappy": recordbatch.CodecSnappy, "lz4": recordbatch.CodecLZ4, "zstd": recordbatch.CodecZstd} {
		t.Run(name, func(t *testing.T) {
			source := pairs("a=1", "b="+strings.Repeat("x", 90_000), "c", "a=2", "d="+strings.Repeat("y", 300))
			source.Producer, source.Epoch, source.Sequence, source.First = 9, 3, 70, 5000
			batch := squeezed(t, source, codec)
			recordbatch.SetPlace(batch, 100, 7)
			before, err := recordbatch.ParseHeader(batch)
			if err != nil {
				t.Fatal(err)
			}
			var f recordbatch.Filter
			got, err := f.Apply(batch, &before, func(offset int64, _ []byte, _ bool) bool { return offset == 101 || offset == 102 })
			if err != nil {
				t.Fatal(err)
			}
			after, err := recordbatch.ParseHeader(got)
			if err != nil || after.Size != len(got) || !recordbatch.CRCMatches(got, &after) {
				t.Fatal(after, err)
			}
			want := before
			want.Size, want.Crc, want.Count, want.MaxTimestamp = after.Size, after.Crc, 2, 5002
			if after != want || binary.BigEndian.Uint32(got[recordbatch.PosLeaderEpoch:]) != 7 {
				t.Fatalf("%+v, want %+v", after, want)
			}
			records, all := decoded(t, got, &after), decoded(t, batch, &before)
			if diff := cmp.Diff(all[1:3], records); diff != "" {
				t.Fatal(diff)
			}
			if got, err := f.Apply(batch, &before, func(int64, []byte, bool) bool { return true }); err != nil || &got[0] != &batch[0] {
				t.Fatal("a batch that loses nothing is made anew", err)
			}
			if got, err := f.Apply(batch, &before, func(int64, []byte, bool) bool { return false }); err != nil || got != nil {
				t.Fatal("a batch that loses everything is left", err)
			}
		})
	}
}

func TestCompactionMergesSmallSegments(t *testing.T) {
	m := newMem()
	l := compactedLog(t, memOptions(m))
	var want []string
	for i := range 60 {
		mustAppend(t, l, squeezed(t, pairs(fmt.Sprintf("k%d=%d", i%20, i), fmt.Sprintf("k%d=%d", i%20, 1000+i)), int16(i%5)))
		if i >= 40 {
			want = append(want, fmt.Sprintf("%d:k%d=%d", 2*i+1, i%20, 1000+i))
		}
	}
	before := len(segmentFiles(t, l))
	mustCompact(t, l.engine, time.Now())
	wantStored(t, l, want...)
	mustAppend(t, l, pairs("new=1").Encode())
	mustCompact(t, l.engine, time.Now()) // what has become small is merged
	want = append(want, "120:new=1")
	wantStored(t, l, want...)
	names := segmentFiles(t, l)
	if len(names) > before/2+1 || len(names) != len(l.segments) {
		t.Fatalf("%d segments became %v", before, names)
	}
	for round := range 3 {
		for _, name := range names {
			if round == 1 { // the indexes are lost
				_ = m.Remove(l.path(strings.TrimSuffix(name, logExt) + indexExt))
			}
		}
		l = compactedLog(t, memOptions(m.killed()))
		wantStored(t, l, want...)
		wantStart(t, l, 0, 121)
		if diff := cmp.Diff(names, segmentFiles(t, l)); diff != "" {
			t.Fatal(diff)
		}
	}
	// Nothing is to be gained: nothing is written.
	m.fault = func(op string, _ int) error { return fmt.Errorf("%s: %w", op, syscall.EROFS) }
	mustCompact(t, l.engine, time.Now())
	if len(names) != len(segmentFiles(t, l)) {
		t.Fatal(segmentFiles(t, l))
	}
}

func TestMoreKeysThanTheMemoryHoldsTakeSeveralPasses(t *testing.T) {
	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	o := memOptions(newMem())
	o.CompactionMemoryBytes = 7 * compaction.KeySlotSize
	l := compactedLog(t, o)
	newest := map[int]int{}
	for i := range 200 {
		key := rng.IntN(40)
		newest[key] = i
		mustAppend(t, l, pairs(fmt.Sprintf("k%d=%d", key, i)).Encode())
	}
	mustCompact(t, l.engine, time.Now())
	var want []string
	for i := range 200 {
		for key, o := range newest {
			if o == i {
				want = append(want, fmt.Sprintf("%d:k%d=%d", i, key, i))
			}
		}
	}
	wantStored(t, l, want...)
	if p, err := l.readPasses(); err != nil || len(p.Done) < 20 || p.UpTo() != 200 {
		t.Fatal(p, err)
	}
}

func TestTheEngineCompactsByItselfWhatHasEnoughToGain(t *testing.T) {
	m := newMem()
	l := compactedLog(t, memOptions(m))
	now := time.Now()
	l.engine.now = func() time.Time { return now }
	appendSome := func(n int) {
		for range n {
			mustAppend(t, l, pairs("k="+strings.Repeat("x", 200)).Encode())
		}
	}
	appendSome(2) // one segment, and young
	l.engine.compactNeedy(now)
	if len(stored(t, l)) != 2 {
		t.Fatal("the active segment was sealed at once")
	}
	now = now.Add(sealAfter)
	l.engine.compactNeedy(now)
	if len(stored(t, l)) != 1 {
		t.Fatal("the active segment was not sealed after its time")
	}
	appendSome(20)
	l.engine.compactNeedy(now)
	if n := len(stored(t, l)); n < 2 || n > 8 {
		t.Fatalf("%d records are left of the sealed segments and the active one", n)
	}
	p, _ := l.readPasses()
	l.engine.compactNeedy(now.Add(sealAfter - 1))
	if again, _ := l.readPasses(); again.UpTo() != p.UpTo() {
		t.Fatal("compacted with nothing to gain")
	}
	mustAppend(t, l, pairs("k").Encode())
	l.engine.compactNeedy(now.Add(sealAfter))
	l.engine.compactNeedy(now.Add(3 * sealAfter))
	mustAppend(t, l, pairs("z=1").Encode())
	l.engine.compactNeedy(now.Add(4 * sealAfter)) // the tombstone is due, though little is dirty
	for _, r := range stored(t, l) {
		if strings.HasSuffix(r, ":k") {
			t.Fatal("the tombstone is still there:", r)
		}
	}
}

func TestReadersGoOnWhileALogIsCompacted(t *testing.T) {
	seed := testSeed(t)
	e := openEngine(t, t.TempDir(), Options{SegmentBytes: 4000, IndexIntervalBytes: 300, MaxOpenFiles: 2})
	opened, err := e.Open(context.Background(), p0, 0, storage.Config{Compact: true, Flush: storage.FlushOS})
	if err != nil {
		t.Fatal(err)
	}
	l := opened.(*commitLog)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for r := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(r)))
		wg.Go(func() {
			for last := false; !last; {
				select {
				case <-done:
					last = true
				default:
				}
				hw := l.HighWatermark()
				at := rng.Int64N(hw + 1)
				before := int64(-1)
				for o := at; o < hw; {
					b, err := enginetest.Read(context.Background(), l, o, 1+rng.IntN(3000))
					if err != nil || len(b) == 0 {
						t.Errorf("read offset %d of %d: %d bytes, %v", o, hw, len(b), err)
						return
					}
					forEachBatch(t, b, func(h *recordbatch.Header) {
						if h.Base <= before || h.Next() <= o {
							t.Errorf("batch %d to %d after %d, for offset %d", h.Base, h.Next(), before, o)
						}
						before, o = h.Base, h.Next()
					})
				}
				if _, _, _, err := l.OffsetForTime(context.Background(), at); err != nil {
					t.Error(err)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	newest := map[string]string{}
	for i := range 200 {
		key, value := fmt.Sprintf("k%d", rng.IntN(50)), fmt.Sprintf("%d-%s", i, strings.Repeat("x", rng.IntN(200)))
		b := pairs(key+"="+value, "other="+value)
		b.First = int64(i)
		mustAppend(t, l, squeezed(t, b, int16(i%5)))
		newest[key], newest["other"] = value, value
		if i%20 == 19 {
			mustCompact(t, e, time.Now())
		}
	}
	close(done)
	wg.Wait()
	got := map[string]string{}
	for _, r := range stored(t, l) {
		_, pair, _ := strings.Cut(r, ":")
		key, value, _ := strings.Cut(pair, "=")
		got[key] = value
	}
	if diff := cmp.Diff(newest, got); diff != "" {
		t.Fatal(diff)
	}
}
