// SPDX-License-Identifier: Apache-2.0

package idempotence

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// appendOf is an append of batches of a producer, each of so many records, from a sequence number on.
func appendOf(t *testing.T, producer int64, sequence int32, records ...int) *Append {
	t.Helper()
	a := &Append{}
	for _, n := range records {
		a.Batches = append(a.Batches, enginetest.Batch{Producer: producer, Sequence: sequence, Records: enginetest.Values(make([]string, n)...)}.Encode()...)
		sequence = addSequence(sequence, int32(n))
	}
	var err error
	if a.Headers, err = recordbatch.CheckBatches(a.Batches, &storage.Config{}); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAGroupIsPartOfTheLogOnceItIsCommitted(t *testing.T) {
	known := Producers{}
	var last *Plan
	for range 2 { // the first one is not written after all
		g := Group{Now: time.UnixMilli(1000), Plan: Plan{End: 10}}
		appends := []*Append{appendOf(t, 9, 0, 2), appendOf(t, 5, 7, 1), appendOf(t, 9, 0, 2), appendOf(t, 9, 2, 1), appendOf(t, 9, 9, 1)}
		var bases, ids []int64
		for _, a := range appends {
			g.Add(known, a)
			bases = append(bases, a.Base)
		}
		if !slices.Equal(bases[:4], []int64{10, 12, 10, 13}) || !errors.Is(appends[4].Err, storage.ErrOutOfOrderSequence) || len(g.Parts) != 3 || g.Plan.End != 14 {
			t.Fatal(bases, appends[4].Err, len(g.Parts), g.Plan.End)
		}
		for id := range g.Plan.Changed() {
			ids = append(ids, id)
		}
		if !slices.Equal(ids, []int64{5, 9}) || len(known) != 0 {
			t.Fatal(ids, known)
		}
		last = &g.Plan
	}
	known.Commit(last)
	if len(known) != 2 || known[9].Count != 2 {
		t.Error(known)
	}
}

func TestWhatFitsIntoAGroup(t *testing.T) {
	small, several := appendOf(t, 1, 0, 1), appendOf(t, 2, 0, 1, 1)
	g := Group{}
	if !g.Fits(several, 0) {
		t.Error("the first one does not fit")
	}
	g.Add(Producers{}, several)
	if g.Fits(small, math.MaxInt64) {
		t.Error("another one fits beside one of several batches")
	}
	g = Group{}
	g.Add(Producers{}, small)
	if g.Fits(several, math.MaxInt64) || g.Fits(appendOf(t, 3, 0, 1), int64(g.Bytes)) || !g.Fits(appendOf(t, 3, 0, 1), 1<<20) {
		t.Error("what fits does not, or the other way round")
	}
}

func TestAStoredBatchIsTheSameAgain(t *testing.T) {
	want := Sent{FirstSequence: math.MaxInt32 - 1, LastSequence: 1, Base: 5, Next: 9, Appended: 70}
	if got, ok := NewSent(math.MaxInt32-1, 5, 4, 70); !ok || got != want {
		t.Error(cmp.Diff(want, got))
	}
	for _, bad := range [][3]int64{{-1, 0, 1}, {math.MaxInt32 + 1, 0, 1}, {0, -1, 1}, {0, 0, 0}, {0, 0, math.MaxInt32 + 1}, {0, math.MaxInt64, 1}} {
		if got, ok := NewSent(bad[0], bad[1], bad[2], 0); ok {
			t.Errorf("%v is %+v", bad, got)
		}
	}
}

func TestIdleProducersAreForgotten(t *testing.T) {
	now := time.UnixMilli(0).Add(48 * time.Hour)
	ps := Producers{}
	for id := range int64(10) {
		ps[id] = &Producer{LastSeen: now.Add(-time.Duration(20+id) * time.Hour)}
	}
	if gone := ps.Expire(now); !slices.Equal(gone, []int64{5, 6, 7, 8, 9}) || len(ps) != 5 {
		t.Error(gone, len(ps))
	}
}
