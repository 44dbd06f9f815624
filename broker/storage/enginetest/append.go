// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing" //nolint:depguard // a library for tests

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

func newLog(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	wantBounds(t, l, 0, 0)
	wantRead(t, l, 0, 100)
	if l.Size() != 0 {
		t.Fatal(l.Size())
	}
	if _, _, ok, err := l.OffsetForTime(context.Background(), 0); ok || err != nil {
		t.Fatal(ok, err)
	}
}

func appendBatches(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 6)
	one, two, three := Simple("a"), Simple("b", "c"), Simple("d", "e", "f")
	add(t, l, 0, one)
	add(t, l, 1, two, three)
	add(t, l, 6, one)
	wantBounds(t, l, 0, 7)
	if want := int64(2*len(one) + len(two) + len(three)); l.Size() != want {
		t.Fatalf("the log has %d bytes, want %d", l.Size(), want)
	}
	wantRead(t, l, 0, 1<<20, placed(one, 0, 6), placed(two, 1, 6), placed(three, 3, 6), placed(one, 6, 6))
}

func refuseUnsound(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	change := func(pos int, value byte) []byte {
		b := Simple("one", "two")
		b[pos] = value
		return FixCRC(b)
	}
	flipped := Simple("one")
	flipped[len(flipped)-2] ^= 1
	for name, b := range map[string][]byte{
		"nothing":                 nil,
		"half a header":           Simple("one")[:30],
		"half a batch":            Simple("one")[:headerSize+2],
		"a byte too many":         append(Simple("one"), 0),
		"a negative length":       change(posLength, 0xff),
		"an old format":           change(posMagic, 1),
		"a flipped bit":           flipped,
		"a negative record count": change(posRecordCount, 0xff),
		"a wrong offset delta":    change(posLastOffsetDelta+3, 7),
		"a control batch":         change(posAttributes+1, 0x20),
		"a transactional batch":   change(posAttributes+1, 0x10),
		"a bad second batch":      append(Simple("one"), change(posMagic, 0)...),
	} {
		if _, err := l.Append(context.Background(), b, storage.Synced); !errors.Is(err, storage.ErrInvalidBatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantBounds(t, l, 0, 0)
	add(t, l, 0, Simple("good"))
}

func refuseLarge(t *testing.T, open Opener) {
	ctx := context.Background()
	e := start(t, open)
	small, large := Simple(strings.Repeat("x", 100)), Simple(strings.Repeat("x", 101))
	l, err := e.Open(ctx, orders, 0, storage.Config{MaxBatchBytes: int32(len(small))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, large, storage.Synced); !errors.Is(err, storage.ErrBatchTooLarge) {
		t.Fatal(err)
	}
	add(t, l, 0, small, small) // the limit is each batch's
	l = openLog(t, e, 0)
	add(t, l, 2, large)
	b := Simple(strings.Repeat("x", 1048588)) // the default limit, and what a batch needs beside
	if _, err := l.Append(ctx, b, storage.Synced); !errors.Is(err, storage.ErrBatchTooLarge) {
		t.Fatal(err)
	}
}

func cancelled(t *testing.T, open Opener) {
	e := start(t, open)
	l := openLog(t, e, 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Append(ctx, Simple("a"), storage.Synced); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Read(ctx, l, 0, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := l.Trim(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := e.List(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := e.Delete(ctx, orders); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantBounds(t, l, 0, 0)
}

func parallelAppends(t *testing.T, open Opener) {
	const appenders, each = 8, 20
	l := openLog(t, start(t, open), 0)
	var mu sync.Mutex
	got := map[int64]string{}
	var wg sync.WaitGroup
	for a := range appenders {
		wg.Go(func() {
			for i := range each {
				value := fmt.Sprintf("%d/%d", a, i)
				base, err := l.Append(context.Background(), Simple(value, "second"), storage.Synced)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got[base] = value
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	wantBounds(t, l, 0, 2*appenders*each)
	for base := int64(0); base < 2*appenders*each; base += 2 {
		wantRead(t, l, base, 1, placed(Simple(got[base], "second"), base, 0))
	}
}

func written(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	woken := make(chan struct{}, 1)
	defer l.Subscribe(woken)()
	b := Simple("a")
	base, err := l.Append(context.Background(), bytes.Clone(b), storage.Written)
	if base != 0 || err != nil {
		t.Fatal(base, err)
	}
	for l.HighWatermark() == 0 {
		<-woken
	}
	wantRead(t, l, 0, 1, placed(b, 0, 0))
}

func openFlush(t *testing.T, e storage.Engine, f storage.Flush) storage.Log {
	t.Helper()
	l, err := e.Open(context.Background(), orders, 0, storage.Config{Flush: f})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func flushOS(t *testing.T, open Opener) {
	e := open(t)
	l := openFlush(t, e, storage.FlushOS)
	b := Simple("a", "b")
	for i := range int64(30) {
		add(t, l, 2*i, b)
		wantBounds(t, l, 0, 2*(i+1))
		wantRead(t, l, 2*i, 1, placed(b, 2*i, 0))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = start(t, open)
	l = openFlush(t, e, storage.FlushOS)
	wantBounds(t, l, 0, 60)
	add(t, l, 60, b)
	if err := l.Trim(context.Background(), 62); err != nil {
		t.Fatal(err)
	}
	wantBounds(t, l, 62, 62)
}

func changeFlush(t *testing.T, open Opener) {
	e := start(t, open)
	b := Batch{Producer: 3, Records: Values("a")}
	for i := range int64(20) {
		l := openFlush(t, e, storage.Flush(i%2))
		b.Sequence = int32(i)
		add(t, l, i, b.Encode())
		wantBounds(t, l, 0, i+1)
		l = openFlush(t, e, storage.Flush((i+1)%2))
		add(t, l, i, b.Encode()) // sent again
		wantBounds(t, l, 0, i+1)
	}
}

// send is a batch of an idempotent producer and what its append must give.
type send struct {
	producer int64
	epoch    int16
	sequence int32
	records  int
	want     int64
	err      error
}

func (s send) check(t *testing.T, l storage.Log) {
	t.Helper()
	b := Batch{Producer: s.producer, Epoch: s.epoch, Sequence: s.sequence, Records: Values(make([]string, s.records)...)}.Encode()
	base, err := l.Append(context.Background(), b, storage.Synced)
	if !errors.Is(err, s.err) || err == nil && base != s.want {
		t.Fatalf("producer %d, epoch %d, sequence number %d: offset %d, %v; want %d, %v", s.producer, s.epoch, s.sequence, base,
			err, s.want, s.err)
	}
}

func producers(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	gap, stale := storage.ErrOutOfOrderSequence, storage.ErrStaleProducerEpoch
	for _, s := range []send{
		{1, 0, 0, 2, 0, nil}, {1, 0, 0, 2, 0, nil}, {1, 0, 2, 1, 2, nil}, {1, 0, 4, 1, 0, gap}, {1, 0, 3, 1, 3, nil},
		{2, 0, 0, 1, 4, nil}, {1, 0, 0, 2, 0, nil}, {2, 0, 0, 1, 4, nil}, {2, 0, 0, 2, 0, gap},
		{1, 0, 4, 1, 5, nil}, {1, 0, 5, 1, 6, nil}, {1, 0, 2, 1, 2, nil}, {1, 0, 6, 1, 7, nil}, {1, 0, 0, 2, 0, gap},
		{1, 2, 3, 1, 0, gap}, {1, 2, 0, 1, 8, nil}, {1, 1, 7, 1, 0, stale}, {1, 2, 0, 1, 8, nil}, {1, 2, 1, 1, 9, nil},
		{3, 0, 70, 1, 10, nil}, {3, 0, 71, 1, 11, nil}, // a producer that the log does not know may begin anywhere
	} {
		s.check(t, l)
	}
	wantBounds(t, l, 0, 12)
}

func producerWraps(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	for _, s := range []send{
		{1, 0, math.MaxInt32 - 1, 4, 0, nil}, {1, 0, 2, 1, 4, nil}, {1, 0, math.MaxInt32 - 1, 4, 0, nil},
		{2, 0, math.MaxInt32, 1, 5, nil}, {2, 0, 0, 1, 6, nil}, {2, 0, 2, 1, 0, storage.ErrOutOfOrderSequence},
	} {
		s.check(t, l)
	}
}
