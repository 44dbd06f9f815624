// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"errors"
	"testing" //nolint:depguard // a library for tests

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

func readBatches(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	b := Simple("aaaa", "bbbb")
	size := len(b)
	for i := range int64(4) {
		add(t, l, 2*i, b)
	}
	at := func(base int64) []byte { return placed(b, base, 0) }
	wantRead(t, l, 0, 1, at(0))
	wantRead(t, l, 0, 0, at(0))
	wantRead(t, l, 0, -1, at(0))
	wantRead(t, l, 1, 2*size-1, at(0))
	wantRead(t, l, 2, 2*size, at(2), at(4))
	wantRead(t, l, 3, 2*size+1, at(2), at(4))
	wantRead(t, l, 5, 1<<40, at(4), at(6))
	wantRead(t, l, 7, 1, at(6))
	wantRead(t, l, 8, 100)
	for _, offset := range []int64{-1, 9} {
		if _, err := Read(context.Background(), l, offset, 1); !errors.Is(err, storage.ErrOffsetOutOfRange) {
			t.Errorf("read offset %d: %v", offset, err)
		}
	}
}

func readOwned(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	b := Simple("aaaa")
	add(t, l, 0, b)
	got, err := Read(context.Background(), l, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	clear(got)
	wantRead(t, l, 0, 1, placed(b, 0, 0))
}

// found is what OffsetForTime must give.
type found struct {
	ts, offset, timestamp int64
	ok                    bool
}

func (f found) check(t *testing.T, l storage.Log) {
	t.Helper()
	offset, timestamp, ok, err := l.OffsetForTime(context.Background(), f.ts)
	if err != nil || ok != f.ok || ok && (offset != f.offset || timestamp != f.timestamp) {
		t.Errorf("time %d: offset %d, time %d, %v, %v; want %d, %d, %v", f.ts, offset, timestamp, ok, err, f.offset, f.timestamp, f.ok)
	}
}

func offsetsByTime(t *testing.T, open Opener) {
	l := openLog(t, start(t, open), 0)
	at := func(first int64, deltas ...int64) []byte {
		b := Batch{First: first}
		for _, d := range deltas {
			b.Records = append(b.Records, Record{Delta: d})
		}
		return b.Encode()
	}
	add(t, l, 0, at(100, 0, 10, 5))
	add(t, l, 3, at(50, 0, 1)) // late
	add(t, l, 5, at(200, 0, 50))
	for _, f := range []found{
		{0, 0, 100, true}, {100, 0, 100, true}, {101, 1, 110, true}, {111, 5, 200, true}, {201, 6, 250, true}, {250, 6, 250, true},
		{251, 0, 0, false},
	} {
		f.check(t, l)
	}
	if err := l.Trim(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	found{0, 1, 110, true}.check(t, l)
}

func trim(t *testing.T, open Opener) {
	ctx := context.Background()
	e := open(t)
	l := openLog(t, e, 0)
	b := Simple("a", "b")
	for i := range int64(3) {
		add(t, l, 2*i, b)
	}
	for _, to := range []int64{3, 1, 3} {
		if err := l.Trim(ctx, to); err != nil {
			t.Fatal(err)
		}
		wantBounds(t, l, 3, 6)
	}
	for _, to := range []int64{-1, 7} {
		if err := l.Trim(ctx, to); !errors.Is(err, storage.ErrOffsetOutOfRange) {
			t.Fatalf("trim to %d: %v", to, err)
		}
	}
	if _, err := Read(ctx, l, 2, 1); !errors.Is(err, storage.ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
	wantRead(t, l, 3, 1, placed(b, 2, 0))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = start(t, open)
	l = openLog(t, e, 0)
	wantBounds(t, l, 3, 6)
	if err := l.Trim(ctx, 6); err != nil {
		t.Fatal(err)
	}
	wantBounds(t, l, 6, 6)
	wantRead(t, l, 6, 1)
	add(t, l, 6, b)
	wantRead(t, l, 6, 1, placed(b, 6, 0))
}

func subscribe(t *testing.T, open Opener) {
	e := start(t, open)
	l := openLog(t, e, 0)
	a, b := make(chan struct{}, 1), make(chan struct{}, 1)
	cancelA, cancelB := l.Subscribe(a), l.Subscribe(b)
	defer cancelB()
	full := make(chan struct{}) // nobody receives from it: it must hold up nothing
	defer l.Subscribe(full)()
	add(t, l, 0, Simple("a"))
	<-a
	<-b
	cancelA()
	cancelA()
	add(t, l, 1, Simple("a"))
	<-b
	if err := e.Delete(context.Background(), orders); err != nil {
		t.Fatal(err)
	}
	<-b
	select {
	case <-a:
		t.Fatal("woken after cancel")
	default:
	}
	c := make(chan struct{}, 1)
	defer l.Subscribe(c)()
	<-c // the log is closed already
}
