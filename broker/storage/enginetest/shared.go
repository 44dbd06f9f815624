// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing" //nolint:depguard // a library for tests

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// RunShared runs the tests of engines that can have the same data open at a time, each of another broker: a second call of an Opener then opens them again while the
// first engine is open.
func RunShared(t *testing.T, fresh func(t *testing.T) Opener) {
	tests := map[string]func(t *testing.T, open Opener){
		"of two owners in the same epoch one appends": func(t *testing.T, open Opener) { fight(t, open, func(int, int) int32 { return 7 }) },
		"of two owners in epochs that grow one appends": func(t *testing.T, open Opener) {
			fight(t, open, func(e, round int) int32 { return int32(2*round + e) })
		},
		"a deposed owner changes nothing":              deposed,
		"a log that another has deleted stays deleted": deletedByAnother,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

// fight has two engines that both believe to lead append at the same time, each of which opens the log again when it has lost it. What was acknowledged must be there, once,
// at its offset, and nothing else but what was refused without a reason.
func fight(t *testing.T, open Opener, epoch func(engine, round int) int32) {
	const rounds, perRound = 60, 100
	var mu sync.Mutex
	acked, fenced := map[int64]string{}, 0
	var all sync.WaitGroup
	for i := range 2 {
		e := start(t, open)
		all.Go(func() {
			for round := range rounds {
				l, err := e.Open(context.Background(), orders, epoch(i, round), storage.Config{})
				for n := 0; n < perRound && err == nil; n++ {
					value := fmt.Sprintf("%d/%d/%d", i, round, n)
					var base int64
					if base, err = l.Append(context.Background(), Simple(value), storage.Synced); err == nil {
						mu.Lock()
						if old, ok := acked[base]; ok {
							t.Errorf("offset %d is both %s and %s", base, old, value)
						}
						acked[base] = value
						mu.Unlock()
					}
				}
				if err != nil && !errors.Is(err, storage.ErrFenced) {
					t.Error(err)
					return
				}
				if err != nil {
					mu.Lock()
					fenced++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if fenced == 0 {
		t.Error("the two have not met")
	}
	l := openLog(t, start(t, open), 1000)
	wantBounds(t, l, 0, int64(len(acked)))
	for _, r := range readAll(t, l, 0, 1<<20) {
		if acked[r.Offset] != string(r.Value) {
			t.Fatalf("offset %d has %s; %q was acknowledged", r.Offset, r.Value, acked[r.Offset])
		}
	}
}

func deposed(t *testing.T, open Opener) {
	ctx := context.Background()
	first, second := start(t, open), start(t, open)
	l := openLog(t, first, 1)
	add(t, l, 0, Simple("a"))
	l2 := openLog(t, second, 1)
	wantBounds(t, l2, 0, 1)
	if err := l.Trim(ctx, 1); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("trim: %v", err)
	}
	for range 2 {
		if _, err := l.Append(ctx, Simple("b"), storage.Synced); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("append: %v", err)
		}
	}
	add(t, l2, 1, Simple("c"))
	wantBounds(t, l2, 0, 2)
	// It can have the log again, and knows then what has happened.
	l = openLog(t, first, 1)
	wantBounds(t, l, 0, 2)
	add(t, l, 2, Simple("d"))
	if _, err := l2.Append(ctx, Simple("e"), storage.Synced); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("append: %v", err)
	}
	// An older epoch is refused wherever it comes from.
	openLog(t, second, 5)
	if _, err := first.Open(ctx, orders, 4, storage.Config{}); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("open: %v", err)
	}
}

func deletedByAnother(t *testing.T, open Opener) {
	ctx := context.Background()
	first, second := start(t, open), start(t, open)
	l := openLog(t, first, 1)
	add(t, l, 0, Simple("a"))
	if err := second.Delete(ctx, orders); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, Simple("b"), storage.Synced); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if got, err := first.List(ctx); err != nil || len(got) != 0 {
		t.Errorf("list: %v, %v", got, err)
	}
	l = openLog(t, first, 0)
	wantBounds(t, l, 0, 0)
	add(t, l, 0, Simple("c"))
	if got, err := second.List(ctx); err != nil || len(got) != 1 {
		t.Errorf("list: %v, %v", got, err)
	}
}
