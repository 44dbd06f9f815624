// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
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

	nextID   int64 // of records; also their timestamps
	attempts map[int64]bool
	acked    map[int64]int64 // by offset, the record's id
	// mayStart is the highest start offset that trims and retention may have set; mustStart the highest that was promised.
	mayStart, mustStart int64

	sequence  int32  // the idempotent producer's next
	inFlight  []byte // its batch that is not yet acknowledged
	lastAcked []byte
	lastBase  int64

	gone bool // the second partition was deleted
}

const (
	worldProducer = 77
	worldSegment  = 900
)

func newWorld(t testing.TB, m *memFS, seed uint64) *world {
	return &world{
		t: t, fs: m, rng: rand.New(rand.NewPCG(seed, 1)), nextID: 1000,
		attempts: map[int64]bool{}, acked: map[int64]int64{},
	}
}

func (w *world) open() error {
	e, err := Open(workDir, Options{
		FS: w.fs, Logger: quiet(), SegmentBytes: worldSegment, IndexIntervalBytes: 150, RetentionCheckInterval: -1, MaxOpenFiles: 2,
	})
	if err != nil {
		return err
	}
	w.e = e
	return w.openLog()
}

func (w *world) openLog() error {
	l, err := w.e.Open(context.Background(), p0, int32(w.step), storage.Config{RetentionBytes: 4 * worldSegment})
	if err == nil {
		w.l = l
	}
	return err
}

// batch makes a batch of records whose values and timestamps are new ids.
func (w *world) batch(producer bool) []byte {
	tb := testBatch{First: w.nextID}
	for i := range 1 + w.rng.IntN(3) {
		value := make([]byte, 8+w.rng.IntN(120))
		binary.BigEndian.PutUint64(value, uint64(w.nextID))
		w.attempts[w.nextID] = true
		w.nextID++
		tb.Records = append(tb.Records, testRecord{Value: value, Delta: int64(i)})
	}
	if producer {
		tb.Producer, tb.Sequence = worldProducer, w.sequence
		w.sequence += int32(len(tb.Records))
	}
	return tb.Encode()
}

// forEachRecord calls fn with the offset and id of every record of whole batches.
func forEachRecord(t testing.TB, b []byte, fn func(offset, id int64)) {
	for len(b) > 0 {
		h, err := parseHeader(b)
		if err != nil || h.size > len(b) || !crcMatches(b[:h.size], &h) {
			t.Fatalf("an unsound batch was served: %v", err)
		}
		at := headerSize
		for i := range int64(h.count) {
			length, n := binary.Varint(b[at:])
			rec := b[at+n : at+n+int(length)]
			at += n + int(length)
			rec = rec[1:]
			for range 3 { // timestamp delta, offset delta, key length
				_, n = binary.Varint(rec)
				rec = rec[n:]
			}
			_, n = binary.Varint(rec)
			fn(h.base+i, int64(binary.BigEndian.Uint64(rec[n:])))
		}
		b = b[h.size:]
	}
}

func (w *world) append(b []byte, d storage.Durability) error {
	c := append([]byte(nil), b...)
	base, err := w.l.Append(context.Background(), c, d)
	if err != nil || d != storage.Synced {
		return err
	}
	i := int64(0)
	forEachRecord(w.t, b, func(_, id int64) {
		w.acked[base+i] = id
		i++
	})
	return nil
}

// appendProducer sends the idempotent producer's batch, the same again until it is acknowledged.
func (w *world) appendProducer() error {
	if w.inFlight == nil {
		w.inFlight = w.batch(true)
	}
	b := append([]byte(nil), w.inFlight...)
	base, err := w.l.Append(context.Background(), b, storage.Synced)
	if err != nil {
		return err
	}
	i := int64(0)
	forEachRecord(w.t, w.inFlight, func(_, id int64) {
		w.acked[base+i] = id
		i++
	})
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
	case n < 85:
		l := w.l.(*commitLog)
		if err := l.waitSynced(l.EndOffset()); err != nil {
			return err
		}
		w.mayStart = max(w.mayStart, l.retained(time.Now()))
		return w.e.EnforceRetention(time.Now())
	case n < 90:
		return w.other()
	case n < 95:
		return w.openLog()
	default:
		if err := w.e.Close(); err != nil {
			return err
		}
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
		forEachRecord(w.t, b, func(o, id int64) {
			if o > offset {
				w.t.Fatalf("offset %d where %d was to follow", o, offset)
			}
			if o < offset {
				return // below the offset asked for, in the same batch
			}
			if !w.attempts[id] || seen[id] {
				w.t.Fatalf("offset %d holds record %d, which was appended before or never", o, id)
			}
			got[o], seen[id] = id, true
			offset = o + 1
		})
	}
	for o, id := range w.acked {
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
		if h, _ := parseHeader(b); h.base > o || h.next() <= o || h.size != len(b) {
			w.t.Fatalf("a read of offset %d gives %d to %d", o, h.base, h.next())
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

const worldSteps = 40

// countOps is how many ops a life without faults has.
func countOps(t testing.TB, seed uint64) int {
	m := newMemFS(rand.New(rand.NewPCG(seed, 2)))
	w := newWorld(t, m, seed)
	if w.live(worldSteps) {
		t.Fatal("crashed without a fault")
	}
	w.check()
	m.mu.Lock() // a sync that nobody waited for may still be going on
	defer m.mu.Unlock()
	return m.ops
}

func TestEveryAcknowledgedRecordSurvivesACrashAtEveryOp(t *testing.T) {
	seed := testSeed(t)
	rounds := uint64(6)
	if testing.Short() {
		rounds = 1
	}
	for s := seed; s < seed+rounds; s++ {
		ops := countOps(t, s)
		for n := 1; n <= ops; n++ {
			for name, keep := range map[string]float64{"nothing": 0, "everything": 1, "some": 0.5} {
				crashAt(t, s, n, name, keep)
			}
		}
		t.Logf("seed %d: %d ops", s, ops)
	}
}

func crashAt(t *testing.T, seed uint64, n int, name string, keep float64) {
	t.Helper()
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("seed %d, crash at op %d, keeping %s of what was not synced", seed, n, name)
		}
	}()
	m := newMemFS(rand.New(rand.NewPCG(seed, uint64(n))))
	m.fault = func(_ string, op int) error {
		if op >= n {
			return errCrash
		}
		return nil
	}
	w := newWorld(t, m, seed)
	w.live(worldSteps)
	w.after(m.crashed(keep))
}

// A process that dies leaves the page cache, in which there may be what never reached the disk. The machine dies after the restart.
func TestEveryAcknowledgedRecordSurvivesAKillAndThenACrash(t *testing.T) {
	seed := testSeed(t)
	ops := countOps(t, seed)
	for n := 1; n <= ops; n++ {
		m := newMemFS(rand.New(rand.NewPCG(seed, uint64(n))))
		m.fault = func(_ string, op int) error {
			if op >= n {
				return errCrash
			}
			return nil
		}
		w := newWorld(t, m, seed)
		w.live(worldSteps)
		k := m.killed()
		w.restart(k)
		w.check()
		served := w.l.HighWatermark()
		w.checkProducer()
		w.after(k.crashed(0))
		if w.l.HighWatermark() < served {
			t.Fatalf("seed %d, op %d: records were served up to %d, and are gone", seed, n, served)
		}
	}
}

func TestEveryAcknowledgedRecordSurvivesAFaultAtEveryOp(t *testing.T) {
	seed := testSeed(t)
	faults := map[string]error{"no room": syscall.ENOSPC, "input/output error": syscall.EIO}
	for s := seed; s < seed+2; s++ {
		ops := countOps(t, s)
		for n := 1; n <= ops; n++ {
			for name, fault := range faults {
				faultAt(t, s, n, name, fault)
			}
		}
	}
}

func faultAt(t *testing.T, seed uint64, n int, name string, fault error) {
	t.Helper()
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("seed %d, %s at op %d", seed, name, n)
		}
	}()
	m := newMemFS(rand.New(rand.NewPCG(seed, uint64(n))))
	m.fault = func(op string, i int) error {
		if i == n {
			return fmt.Errorf("%s: %w", op, fault)
		}
		return nil
	}
	w := newWorld(t, m, seed)
	if w.live(worldSteps) {
		t.Fatal("crashed without a crash")
	}
	w.check()
	w.after(m.crashed(0.5))
}
