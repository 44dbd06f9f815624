// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one")

func testSeed(t testing.TB) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -seed=%d", seed)
	return seed
}

const workDir = "/data"

// world runs a broker's life against a file system and knows what it was promised.
type world struct {
	t    testing.TB
	fs   *memFS
	rng  *rand.Rand
	e    *Engine
	l    storage.Log
	step int

	kind  worldKind
	flush storage.Flush

	nextID   int64 // of records; also their timestamps
	attempts map[int64]bool
	acked    map[int64]int64 // by offset, the record's id
	keys     map[int64]int64 // by record id, its key
	weak     map[int64]bool  // the offsets that a crash of the machine may lose although they were acknowledged
	// mayStart is the highest start offset that trims and retention may have set; mustStart the highest that was promised.
	mayStart, mustStart int64

	producer  int64
	sequence  int32  // the idempotent producer's next
	inFlight  []byte // its batch that is not yet acknowledged
	lastAcked []byte
	lastBase  int64

	gone bool // the second partition was deleted
}

// worldKind is how a world's topic is configured.
type worldKind struct {
	compact bool
	// flush makes every Open choose one of the two.
	flush bool
}

var worldKinds = map[string]worldKind{
	"a plain log":                         {},
	"a compacted log":                     {compact: true},
	"a log that may flush as the OS does": {flush: true},
	"a compacted log that may flush so":   {compact: true, flush: true},
}

const (
	worldSegment = 900
	worldKeys    = 9
)

func newWorld(t testing.TB, m *memFS, seed uint64, kind worldKind) *world {
	return &world{
		t: t, fs: m, rng: rand.New(rand.NewPCG(seed, 1)), kind: kind, nextID: 1000, producer: 77,
		attempts: map[int64]bool{}, acked: map[int64]int64{}, keys: map[int64]int64{}, weak: map[int64]bool{},
	}
}

func (w *world) open() error {
	e, err := Open(workDir, Options{
		FS: w.fs, Logger: quiet(), SegmentBytes: worldSegment, IndexIntervalBytes: 150, RetentionCheckInterval: -1, MaxOpenFiles: 2, ReserveBytes: 100,
		CompactionMemoryBytes: 8 * compaction.KeySlotSize,
	})
	if err != nil {
		return err
	}
	w.e = e
	return w.openLog()
}

func (w *world) openLog() error {
	c := storage.Config{RetentionBytes: 4 * worldSegment, Compact: w.kind.compact}
	if w.kind.flush {
		c.Flush = storage.Flush(w.rng.IntN(2))
	}
	l, err := w.e.Open(context.Background(), p0, int32(w.step), c)
	if err == nil {
		w.l, w.flush = l, c.Flush
	}
	return err
}

// batch makes a batch of records whose values and timestamps are new ids.
func (w *world) batch(producer bool) []byte {
	tb := testBatch{First: w.nextID, Gzip: w.rng.IntN(3) == 0}
	for i := range 1 + w.rng.IntN(3) {
		value := make([]byte, 8+w.rng.IntN(120))
		binary.BigEndian.PutUint64(value, uint64(w.nextID))
		w.attempts[w.nextID] = true
		w.keys[w.nextID] = w.rng.Int64N(worldKeys)
		tb.Records = append(tb.Records, testRecord{Key: fmt.Append(nil, w.keys[w.nextID]), Value: value, Delta: int64(i)})
		w.nextID++
	}
	if producer {
		tb.Producer, tb.Sequence = w.producer, w.sequence
		w.sequence += int32(len(tb.Records))
	}
	return tb.Encode()
}

// forEachRecord calls fn with the offset and id of every record of whole batches.
func forEachRecord(t testing.TB, b []byte, fn func(offset, id int64)) {
	t.Helper()
	for rest := b; len(rest) > 0; {
		h, err := recordbatch.ParseHeader(rest)
		if err != nil || h.Size > len(rest) || !recordbatch.CRCMatches(rest[:h.Size], &h) {
			t.Fatalf("an unsound batch was served: %v", err)
		}
		rest = rest[h.Size:]
	}
	records, err := enginetest.Records(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		fn(r.Offset, int64(binary.BigEndian.Uint64(r.Value)))
	}
}

func (w *world) append(b []byte, d storage.Durability) error {
	base, err := w.l.Append(context.Background(), bytes.Clone(b), d)
	if err == nil && d == storage.Synced {
		w.acknowledge(b, base)
	}
	return err
}

// acknowledge notes what an append has promised.
func (w *world) acknowledge(b []byte, base int64) {
	if w.flush == storage.FlushSync {
		clear(w.weak)
	}
	forEachRecord(w.t, b, func(delta, id int64) {
		w.acked[base+delta] = id
		if w.flush == storage.FlushOS {
			w.weak[base+delta] = true
		}
	})
}

// crash takes back what the machine's crash may have lost.
func (w *world) crash() {
	for o := range w.weak {
		if w.lastAcked != nil && o == w.lastBase {
			// The producer that lost its batch is refused, and begins anew as another.
			w.lastAcked, w.inFlight, w.sequence = nil, nil, 0
			w.producer++
		}
		delete(w.acked, o)
	}
	clear(w.weak)
}

// appendProducer sends the idempotent producer's batch, the same again until it is acknowledged.
func (w *world) appendProducer() error {
	if w.inFlight == nil {
		w.inFlight = w.batch(true)
	}
	base, err := w.l.Append(context.Background(), bytes.Clone(w.inFlight), storage.Synced)
	if err != nil {
		return err
	}
	w.acknowledge(w.inFlight, base)
	w.lastAcked, w.lastBase, w.inFlight = w.inFlight, base, nil
	return nil
}

// act does one random thing.
func (w *world) act() error {
	w.step++
	ctx := context.Background()
	switch n := w.rng.IntN(100); {
	case n < 40:
		return w.append(w.batch(false), storage.Synced)
	case n < 55:
		return w.append(w.batch(false), storage.Written)
	case n < 75:
		return w.appendProducer()
	case n < 80:
		start, hw := w.l.StartOffset(), w.l.HighWatermark()
		to := start + w.rng.Int64N(hw-start+1)
		w.mayStart = max(w.mayStart, to)
		err := w.l.Trim(ctx, to)
		if err == nil {
			w.mustStart = max(w.mustStart, to)
		}
		return err
	case n < 85 && !w.kind.compact || n < 81:
		l := w.l.(*commitLog)
		if err := l.wait(ctx, l.EndOffset()); err != nil {
			return err
		}
		w.mayStart = max(w.mayStart, l.retained(time.Now()))
		return w.e.EnforceRetention(time.Now())
	case n < 88:
		return w.e.Compact(time.Now())
	case n < 92:
		return w.other()
	case n < 95:
		return w.openLog()
	default:
		if err := w.e.Close(); err != nil {
			return err
		}
		clear(w.weak)
		return w.open()
	}
}

// other makes or deletes a second partition.
func (w *world) other() error {
	ctx, p := context.Background(), storage.Partition{Topic: "other-topic", Partition: 7}
	w.gone = false
	l, err := w.e.Open(ctx, p, 0, storage.Config{})
	if err != nil {
		return err
	}
	if _, err = l.Append(ctx, simple("x"), storage.Synced); err != nil {
		return err
	}
	if w.rng.IntN(2) == 0 {
		return nil
	}
	if err = w.e.Delete(ctx, p); err == nil {
		w.gone = true
	}
	return err
}

// live acts for a number of steps. After an error that is no crash it opens the log again, as a broker would.
func (w *world) live(steps int) (crashed bool) {
	err := w.open()
	for i := 0; ; i++ {
		if errors.Is(err, errCrash) {
			return true
		}
		if err != nil {
			err = w.reopen()
			continue
		}
		if i >= steps {
			return false
		}
		err = w.act()
	}
}

// reopen opens what can be opened; it is tried until it goes, since faults do not last.
func (w *world) reopen() error {
	if w.e != nil {
		if err := w.openLog(); err == nil || !errors.Is(err, storage.ErrClosed) {
			return err
		}
		_ = w.e.Close()
		w.e = nil
	}
	return w.open()
}

// restart opens the engine after a crash, on what is left of the file system.
func (w *world) restart(m *memFS) {
	w.t.Helper()
	w.fs, w.e, w.l = m, nil, nil
	w.step++
	if err := w.open(); err != nil {
		w.t.Fatalf("open after the crash: %v", err)
	}
}

// check holds the log against what was promised.
func (w *world) check() {
	w.t.Helper()
	ctx, l := context.Background(), w.l
	start, hw := l.StartOffset(), l.HighWatermark()
	if start < w.mustStart || start > max(w.mayStart, w.mustStart) {
		w.t.Fatalf("the log starts at %d, which must be between %d and %d", start, w.mustStart, w.mayStart)
	}
	got, seen := map[int64]int64{}, map[int64]bool{}
	for offset := start; offset < hw; {
		b, err := enginetest.Read(ctx, l, offset, 500)
		if err != nil || len(b) == 0 {
			w.t.Fatalf("read offset %d of [%d, %d): %d bytes, %v", offset, start, hw, len(b), err)
		}
		next := int64(0)
		forEachBatch(w.t, b, func(h *recordbatch.Header) { next = h.Next() })
		forEachRecord(w.t, b, func(o, id int64) {
			if o > offset && !w.kind.compact {
				w.t.Fatalf("offset %d where %d was to follow", o, offset)
			}
			if o < offset {
				return // below the offset asked for, in the same batch
			}
			if !w.attempts[id] || seen[id] {
				w.t.Fatalf("offset %d holds record %d, which was appended before or never", o, id)
			}
			got[o], seen[id] = id, true
			if !w.kind.compact {
				offset = o + 1
			}
		})
		if offset > next || !w.kind.compact && offset != next {
			w.t.Fatalf("the batches end before offset %d, after one of %d", next, offset)
		}
		offset = next
	}
	newest := map[int64]int64{}
	for o, id := range got {
		newest[w.keys[id]] = max(newest[w.keys[id]], o)
	}
	for o, id := range w.acked {
		if w.kind.compact && got[o] == 0 && newest[w.keys[id]] > o {
			continue // a newer one of its key is there
		}
		if o >= start && got[o] != id {
			w.t.Fatalf("offset %d holds record %d, not the acknowledged %d; the log has [%d, %d)", o, got[o], id, start, hw)
		}
	}
	w.checkIndexes(got)
	w.checkOther()
}

// checkFiles checks that nothing is left behind of segments that are gone.
func (w *world) checkFiles() {
	w.t.Helper()
	l := w.l.(*commitLog)
	entries, err := w.fs.ReadDir(l.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	segments, size := 0, int64(0)
	for _, e := range entries {
		if strings.HasSuffix(e.Name, cleanedExt) || strings.HasSuffix(e.Name, tempExt) {
			w.t.Fatalf("%s is left behind", e.Name)
		}
		if _, ok := parseSegmentName(e.Name, logExt); ok {
			segments++
			size += e.Size
		}
	}
	if segments != len(l.segments) || size != l.Size() {
		w.t.Fatalf("%d segment files of %d bytes, where the log has %d of %d", segments, size, len(l.segments), l.Size())
	}
}

func (w *world) checkIndexes(got map[int64]int64) {
	w.t.Helper()
	offsets := slices.Sorted(maps.Keys(got))
	for o, id := range got {
		b, err := enginetest.Read(context.Background(), w.l, o, 1)
		if err != nil {
			w.t.Fatal(err)
		}
		if h, _ := recordbatch.ParseHeader(b); h.Base > o || h.Next() <= o || h.Size != len(b) { // o is the offset of a record
			w.t.Fatalf("a read of offset %d gives %d to %d", o, h.Base, h.Next())
		}
		offset, ts, ok, err := w.l.OffsetForTime(context.Background(), id)
		want := offsets[slices.IndexFunc(offsets, func(o int64) bool { return got[o] >= id })] // a batch sent again is older
		if offset != want || ts != got[want] || !ok || err != nil {
			w.t.Fatalf("time %d: offset %d, time %d, %v, %v; want offset %d", id, offset, ts, ok, err, want)
		}
	}
}

func (w *world) checkOther() {
	w.t.Helper()
	list, err := w.e.List(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	if w.gone && len(list) != 1 {
		w.t.Fatalf("a deleted partition is back: %v", list)
	}
}

// checkProducer sends the last acknowledged batch again, then the one in flight.
func (w *world) checkProducer() {
	w.t.Helper()
	if w.lastAcked != nil && w.lastBase >= w.l.StartOffset() {
		end := w.l.EndOffset()
		base, err := w.l.Append(context.Background(), append([]byte(nil), w.lastAcked...), storage.Synced)
		if w.inFlight == nil && (err != nil || base != w.lastBase || w.l.EndOffset() != end) {
			w.t.Fatalf("the last batch sent again gets offset %d, %v, not %d", base, err, w.lastBase)
		}
	}
	if w.inFlight != nil {
		if err := w.appendProducer(); err != nil {
			w.t.Fatalf("the batch in flight sent again: %v", err)
		}
	}
}

// after opens the crashed file system and looks at everything, more than once.
func (w *world) after(m *memFS) {
	w.t.Helper()
	w.restart(m)
	w.checkFiles()
	w.check()
	w.checkProducer()
	w.check()
	for range 5 {
		if err := w.append(w.batch(false), storage.Synced); err != nil {
			w.t.Fatalf("append after the crash: %v", err)
		}
	}
	w.check()
	if err := w.e.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.restart(m)
	w.check()
	w.checkProducer()
}
