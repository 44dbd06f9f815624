// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"errors"
	"slices"
	"testing" //nolint:depguard // a library for tests

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

func openAgain(t *testing.T, open Opener) {
	ctx := context.Background()
	e := start(t, open)
	l := openLog(t, e, 1)
	b := Simple("a")
	add(t, l, 0, b)
	again, err := e.Open(ctx, orders, 4, storage.Config{MaxBatchBytes: 10})
	if err != nil || again != l {
		t.Fatal("not the same log", err)
	}
	if _, err := l.Append(ctx, Simple("b"), storage.Synced); !errors.Is(err, storage.ErrBatchTooLarge) {
		t.Fatal("the new config does not hold", err)
	}
	openLog(t, e, 4)
	add(t, l, 1, b)
	wantRead(t, l, 0, 1<<20, placed(b, 0, 1), placed(b, 1, 4))
}

func fence(t *testing.T, open Opener) {
	e := open(t)
	openLog(t, e, 3)
	fenced := func(epoch int32) {
		t.Helper()
		if _, err := e.Open(context.Background(), orders, epoch, storage.Config{}); !errors.Is(err, storage.ErrFenced) {
			t.Fatalf("epoch %d: %v", epoch, err)
		}
	}
	fenced(2)
	openLog(t, e, 5)
	fenced(4)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = start(t, open)
	fenced(4)
	openLog(t, e, 5)
}

func list(t *testing.T, open Opener) {
	ctx := context.Background()
	e := start(t, open)
	want := []storage.Partition{
		{Topic: "a", Partition: 0}, {Topic: "a", Partition: 2}, {Topic: "a", Partition: 10}, {Topic: "a-1", Partition: 1},
		{Topic: "a.b_C", Partition: 0}, {Topic: "b", Partition: 0},
	}
	for _, i := range []int{3, 1, 5, 0, 4, 2} {
		if _, err := e.Open(ctx, want[i], 0, storage.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := e.List(ctx); err != nil || !slices.Equal(got, want) {
		t.Fatal(got, err)
	}
	for _, p := range []storage.Partition{{Topic: ""}, {Topic: "a/b"}, {Topic: ".."}, {Topic: "a", Partition: -1}} {
		if _, err := e.Open(ctx, p, 0, storage.Config{}); err == nil {
			t.Errorf("%v was opened", p)
		}
	}
}

func deleteLog(t *testing.T, open Opener) {
	ctx := context.Background()
	e := start(t, open)
	other := storage.Partition{Topic: "orders", Partition: 4}
	if _, err := e.Open(ctx, other, 0, storage.Config{}); err != nil {
		t.Fatal(err)
	}
	l := openLog(t, e, 0)
	add(t, l, 0, Simple("a"))
	for range 2 {
		if err := e.Delete(ctx, orders); err != nil {
			t.Fatal(err)
		}
	}
	wantClosed(t, l)
	if got, err := e.List(ctx); err != nil || !slices.Equal(got, []storage.Partition{other}) {
		t.Fatal(got, err)
	}
	l = openLog(t, e, 0)
	wantBounds(t, l, 0, 0)
	add(t, l, 0, Simple("b"))
}

func wantClosed(t *testing.T, l storage.Log) {
	t.Helper()
	ctx := context.Background()
	if _, err := l.Append(ctx, Simple("a"), storage.Written); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if _, err := Read(ctx, l, 0, 1); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if _, _, _, err := l.OffsetForTime(ctx, 0); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("offset for time: %v", err)
	}
	if err := l.Trim(ctx, 0); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("trim: %v", err)
	}
}

func closed(t *testing.T, open Opener) {
	ctx := context.Background()
	e := open(t)
	l := openLog(t, e, 0)
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantClosed(t, l)
	if _, err := e.Open(ctx, orders, 0, storage.Config{}); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("open: %v", err)
	}
	if _, err := e.List(ctx); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("list: %v", err)
	}
	if err := e.Delete(ctx, orders); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("delete: %v", err)
	}
}

func restart(t *testing.T, open Opener) {
	e := open(t)
	l := openLog(t, e, 2)
	b := Batch{Producer: 9, Records: Values("a", "b")}.Encode()
	c := Simple("c")
	add(t, l, 0, b)
	if _, err := l.Append(context.Background(), append([]byte(nil), c...), storage.Written); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = open(t)
		l = openLog(t, e, 2)
		wantBounds(t, l, 0, 3)
		wantRead(t, l, 0, 1<<20, placed(b, 0, 2), placed(c, 2, 2))
		send{9, 0, 0, 2, 0, nil}.check(t, l)
		send{9, 0, 3, 1, 0, storage.ErrOutOfOrderSequence}.check(t, l)
	}
	add(t, l, 3, c)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}
