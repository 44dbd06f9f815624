// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const (
	firstSegment  = workDir + "/orders-0/00000000000000000000.log"
	smallSegments = 1000
)

func memOptions(m FS) Options {
	return Options{FS: m, Logger: quiet(), RetentionCheckInterval: -1, ReserveBytes: -1, SegmentBytes: smallSegments, IndexIntervalBytes: 150}
}

// filled is a file system with a log of n batches of two records each, after a kill or a clean stop, and the batches by base offset.
func filled(t testing.TB, n int, cleanStop bool, o Options) (*memFS, map[int64][]byte) {
	t.Helper()
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	o.FS = m
	e, err := Open(workDir, o)
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, e, p0)
	batches := map[int64][]byte{}
	for i := range n {
		b := simple(fmt.Sprintf("first record of batch %d", i), "second")
		base := mustAppend(t, l, b)
		batches[base] = b
	}
	if cleanStop {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return m.clone(), batches
}

func reopen(t testing.TB, m FS) *commitLog {
	t.Helper()
	e, err := Open(workDir, memOptions(m))
	if err != nil {
		t.Fatal(err)
	}
	return openLog(t, e, p0)
}

// served checks that all batches but those in damaged are served byte for byte, and these are ErrDamaged.
func served(t testing.TB, l *commitLog, batches map[int64][]byte, damaged map[int64]bool) {
	t.Helper()
	for base, want := range batches {
		for _, offset := range []int64{base, base + 1} {
			got, err := enginetest.Read(context.Background(), l, offset, 1)
			if damaged[base] {
				if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), "log at byte") {
					t.Fatalf("offset %d is damaged; got %d bytes, %v", offset, len(got), err)
				}
				continue
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("offset %d: %d bytes, %v", offset, len(got), err)
			}
		}
	}
}

func TestATailTornAtAnyByteIsCutOff(t *testing.T) {
	m, batches := filled(t, 4, false, Options{Logger: quiet(), ReserveBytes: -1, RetentionCheckInterval: -1})
	size := len(batches[6])
	whole := 0
	for _, b := range batches {
		whole += len(b)
	}
	tears := map[string]func(b []byte, at int) []byte{
		"the file ends":       func(b []byte, at int) []byte { return b[:at] },
		"zeros to the end":    func(b []byte, at int) []byte { clear(b[at:]); return b },
		"other bytes":         func(b []byte, at int) []byte { clear(b[at:]); b[at] = 0xa5; return b },
		"more after the tear": func(b []byte, at int) []byte { clear(b[at:]); return append(b, make([]byte, 100)...) },
	}
	for name, tear := range tears {
		for at := whole - size; at < whole; at++ {
			c := m.clone()
			before := 0
			c.edit(firstSegment, func(b []byte) []byte {
				before = len(b)
				old := bytes.Clone(b)
				b = tear(b, at)
				if bytes.Equal(b[:min(len(b), whole)], old) {
					b[whole-1] ^= 0xff // the tail was zero anyhow
				}
				return b
			})
			if before != whole {
				t.Fatal(before, whole)
			}
			l := reopen(t, c)
			kept := map[int64][]byte{0: batches[0], 2: batches[2], 4: batches[4]}
			served(t, l, kept, nil)
			if l.EndOffset() != 6 || l.HighWatermark() != 6 || l.Size() != int64(whole-size) {
				t.Fatalf("%s at byte %d: the log ends at %d with %d bytes", name, at, l.EndOffset(), l.Size())
			}
			kept[6] = simple("new", "batch")
			if base := mustAppend(t, l, kept[6]); base != 6 {
				t.Fatal(base)
			}
			served(t, reopen(t, c.killed()), kept, nil)
		}
	}
}

func TestAFlippedBitIsNeverServed(t *testing.T) {
	tests := map[string]struct {
		clean bool
		n     int // batches
	}{
		"in the active segment after a kill":       {n: 5},
		"in the active segment after a clean stop": {n: 5, clean: true},
		"in a sealed segment after a kill":         {n: 15},
		"in a sealed segment after a clean stop":   {n: 15, clean: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, batches := filled(t, tc.n, tc.clean, memOptions(nil))
			at := 0
			for base := int64(0); at < smallSegments && base < int64(2*tc.n); base += 2 {
				size := len(batches[base])
				for i := range size {
					c := m.clone()
					held := true
					c.edit(firstSegment, func(b []byte) []byte {
						if held = at+i < len(b); held {
							b[at+i] ^= 1 << (i % 8)
						}
						return b
					})
					if !held {
						return
					}
					l := reopen(t, c)
					checkFlip(t, l, batches, base, i)
				}
				at += size
			}
		})
	}
}

func checkFlip(t *testing.T, l *commitLog, batches map[int64][]byte, base int64, i int) {
	t.Helper()
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("byte %d of the batch at %d", i, base)
		}
	}()
	if i >= recordbatch.PosLeaderEpoch && i < recordbatch.PosMagic {
		return // no checksum covers it, and no reader needs it
	}
	if l.EndOffset() <= base {
		// It was the last batch: a torn tail.
		kept := map[int64][]byte{}
		for b := range batches {
			if b < base {
				kept[b] = batches[b]
			}
		}
		served(t, l, kept, nil)
		if int(base) != 2*len(batches)-2 {
			t.Fatalf("a batch in the middle was cut off")
		}
		return
	}
	served(t, l, batches, map[int64]bool{base: true})
}

func TestSeveralDamagedBatchesLeaveTheOthersReadable(t *testing.T) {
	m, batches := filled(t, 10, false, Options{Logger: quiet(), ReserveBytes: -1, RetentionCheckInterval: -1, IndexIntervalBytes: 1 << 20})
	size := len(batches[0])
	m.edit(firstSegment, func(b []byte) []byte {
		clear(b[2*size : 4*size])               // two whole batches, headers and all
		b[6*size+recordbatch.PosCRC] ^= 1       // one by its checksum
		b[8*size+recordbatch.PosLength+3] ^= 64 // one by its length
		return b
	})
	damaged := map[int64]bool{4: true, 6: true, 12: true, 16: true}
	served(t, reopen(t, m), batches, damaged)
	l := reopen(t, m.killed())
	served(t, l, batches, damaged)
	if _, _, _, err := l.OffsetForTime(context.Background(), 1001); err != nil {
		t.Fatalf("the first batch has the answer, and is sound: %v", err)
	}
	base := mustAppend(t, l, simple("after"))
	if base != 20 {
		t.Fatal(base)
	}
}

func TestABatchInsideADamagedBatchIsNotTakenForOne(t *testing.T) {
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	l := reopen(t, m)
	inner := simple("never appended")
	recordbatch.SetPlace(inner, 1, 0)
	outer, next := simple("before "+string(inner)+" after", "second"), simple("next")
	mustAppend(t, l, outer)
	mustAppend(t, l, next)
	m.edit(firstSegment, func(b []byte) []byte {
		b[recordbatch.HeaderSize+8] ^= 1
		return b
	})
	for _, l := range []*commitLog{l, reopen(t, m.killed())} {
		served(t, l, map[int64][]byte{0: outer}, map[int64]bool{0: true})
		if got, err := enginetest.Read(context.Background(), l, 2, 1); err != nil || !bytes.Equal(got, next) {
			t.Fatal(err)
		}
	}
}

func TestALogThatLostAllAboveItsStartGoesOnFromThere(t *testing.T) {
	m, _ := filled(t, 20, false, memOptions(nil))
	l := reopen(t, m)
	if err := l.Trim(context.Background(), 39); err != nil {
		t.Fatal(err)
	}
	c := m.clone()
	c.edit(l.active().file.path, func([]byte) []byte { return nil })
	l = reopen(t, c)
	wantStart(t, l, 39, 39)
	mustAppend(t, l, simple("next"))
	wantStart(t, reopen(t, c.killed()), 39, 40)
}

func TestALogThatLostItsEndForgetsWhatItsProducersSentThere(t *testing.T) {
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	l := reopen(t, m)
	for i := range int32(20) {
		mustAppend(t, l, testBatch{Producer: 5, Sequence: i, Records: values(strings.Repeat("x", 80))}.Encode())
	}
	last := l.active()
	if last.base == 0 {
		t.Fatal("no second segment")
	}
	c := m.clone()
	_ = c.Remove(last.file.path)
	c.edit(l.segments[len(l.segments)-2].file.path, func(b []byte) []byte { return b[:len(b)-1] })
	l = reopen(t, c)
	end := l.EndOffset()
	if end >= last.base {
		t.Fatal(end)
	}
	b := testBatch{Producer: 5, Sequence: int32(end), Records: values("other", "records")}.Encode()
	if base := mustAppend(t, l, b); base != end {
		t.Fatalf("the producer's next batch gets %d, not %d", base, end)
	}
	if mark, ok, err := readMark(c, l.dir); mark != end+2 || !ok || err != nil {
		t.Fatal(mark, ok, err)
	}
	wantKnown(t, reopen(t, c.crashed(0)), b, end)
}
