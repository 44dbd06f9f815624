// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

func TestAnIdempotentProducersBatches(t *testing.T) {
	type send struct {
		epoch    int16
		sequence int32
		records  int
		want     int64 // offset
		err      error
	}
	tests := map[string][]send{
		"follow each other": {{0, 0, 2, 0, nil}, {0, 2, 1, 2, nil}, {0, 3, 1, 3, nil}},
		"are answered with their offset when they come again": {
			{0, 0, 2, 0, nil}, {0, 0, 2, 0, nil}, {0, 2, 1, 2, nil}, {0, 0, 2, 0, nil}, {0, 2, 1, 2, nil}, {0, 3, 1, 3, nil},
		},
		"leave no gap":                      {{0, 0, 1, 0, nil}, {0, 2, 1, -1, storage.ErrOutOfOrderSequence}, {0, 1, 1, 1, nil}},
		"are known by both sequence ends":   {{0, 0, 3, 0, nil}, {0, 0, 2, -1, storage.ErrOutOfOrderSequence}},
		"may begin anywhere when not known": {{0, 40, 1, 0, nil}, {0, 41, 1, 1, nil}},
		"of a new epoch begin at 0":         {{0, 0, 1, 0, nil}, {1, 1, 1, -1, storage.ErrOutOfOrderSequence}, {1, 0, 1, 1, nil}},
		"of an old epoch are refused":       {{3, 0, 1, 0, nil}, {2, 0, 1, -1, storage.ErrStaleProducerEpoch}},
		"go round after 2^31-1": {
			{0, math.MaxInt32 - 1, 3, 0, nil}, {0, 1, 1, 3, nil}, {0, math.MaxInt32 - 1, 3, 0, nil},
		},
		"go round exactly at 2^31-1": {{0, math.MaxInt32, 1, 0, nil}, {0, 0, 1, 1, nil}, {0, math.MaxInt32, 1, 0, nil}},
		"are known five back, not six": {
			{0, 0, 1, 0, nil}, {0, 1, 1, 1, nil}, {0, 2, 1, 2, nil}, {0, 3, 1, 3, nil}, {0, 4, 1, 4, nil}, {0, 5, 1, 5, nil},
			{0, 1, 1, 1, nil}, {0, 0, 1, -1, storage.ErrOutOfOrderSequence},
		},
	}
	for name, sends := range tests {
		for _, restart := range []string{"", "clean", "killed"} {
			t.Run(name+" "+restart, func(t *testing.T) {
				m := newMemFS(nil)
				l := reopen(t, m)
				for i, s := range sends {
					records := values(make([]string, s.records)...)
					b := testBatch{Producer: 9, Epoch: s.epoch, Sequence: s.sequence, Records: records}.Encode()
					base, err := l.Append(context.Background(), b, storage.Synced)
					if base != s.want || !errors.Is(err, s.err) {
						t.Fatalf("batch %d: offset %d, %v; want %d, %v", i, base, err, s.want, s.err)
					}
					switch restart {
					case "clean":
						if err := l.engine.Close(); err != nil {
							t.Fatal(err)
						}
						l = reopen(t, m)
					case "killed":
						m = m.killed()
						l = reopen(t, m)
					}
				}
			})
		}
	}
}

func TestOneAppendMayHoldDuplicatesAndNewBatches(t *testing.T) {
	l := reopen(t, newMemFS(nil))
	batch := func(producer int64, sequence int32) []byte {
		return testBatch{Producer: producer, Sequence: sequence, Records: values("a", "b")}.Encode()
	}
	mustAppend(t, l, batch(1, 0))
	both := append(batch(1, 0), batch(1, 2)...)
	both = append(both, batch(2, 0)...)
	if base := mustAppend(t, l, both); base != 0 || l.EndOffset() != 6 {
		t.Fatal(base, l.EndOffset())
	}
	if base := mustAppend(t, l, batch(1, 2)); base != 2 {
		t.Fatal(base)
	}
	if base := mustAppend(t, l, batch(2, 0)); base != 4 {
		t.Fatal(base)
	}
	// Nothing of an append is written when one of its batches is refused.
	_, err := l.Append(context.Background(), append(batch(1, 4), batch(1, 9)...), storage.Synced)
	if !errors.Is(err, storage.ErrOutOfOrderSequence) || l.EndOffset() != 6 {
		t.Fatal(err, l.EndOffset())
	}
	if base := mustAppend(t, l, append(batch(1, 4), batch(1, 6)...)); base != 6 || l.EndOffset() != 10 {
		t.Fatal(base, l.EndOffset())
	}
}

func TestAnIdleProducerIsForgottenAfterADay(t *testing.T) {
	l := reopen(t, newMemFS(nil))
	now := time.Now()
	l.engine.now = func() time.Time { return now }
	mustAppend(t, l, testBatch{Producer: 1, Records: values("a")}.Encode())
	now = now.Add(20 * time.Hour)
	mustAppend(t, l, testBatch{Producer: 2, Records: values("a")}.Encode())
	if err := l.engine.EnforceRetention(now.Add(5 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	if l.known[1] != nil || l.known[2] == nil {
		t.Fatal(l.known)
	}
}
