// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing" //nolint:depguard // a library for tests

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// model is what a log must be: its batches in memory.
type model struct {
	start   int64
	batches [][]byte // placed
	times   []int64  // of the records, by offset
	epoch   int32
}

func (m *model) end() int64 { return int64(len(m.times)) }

// holder is the index of the batch that holds the offset.
func (m *model) holder(offset int64) int {
	for i, b := range m.batches {
		if offset < baseOf(b)+countOf(b) {
			return i
		}
	}
	return len(m.batches)
}

// life is a random sequence of calls of a log, each held against the model.
type life struct {
	t   *testing.T
	rng *rand.Rand
	e   storage.Engine
	l   storage.Log
	m   model
}

const lifeSteps = 400

func randomLife(t *testing.T, open Opener) {
	seed := rand.Uint64() //nolint:gosec // a test's dice are to be thrown again
	t.Logf("seed %d", seed)
	f := &life{t: t, rng: rand.New(rand.NewPCG(seed, 1)), e: open(t)} //nolint:gosec // a test's dice are to be thrown again
	f.l = openLog(t, f.e, 0)
	for range lifeSteps {
		switch n := f.rng.IntN(100); {
		case n < 45:
			f.append()
		case n < 80:
			f.read()
		case n < 92:
			f.findTime()
		case n < 96:
			f.trim()
		case n < 98:
			f.m.epoch += f.rng.Int32N(2)
			f.l = openLog(t, f.e, f.m.epoch)
		default:
			f.restart(open)
		}
		wantBounds(t, f.l, f.m.start, f.m.end())
	}
	if err := f.e.Close(); err != nil {
		t.Fatal(err)
	}
}

func (f *life) append() {
	f.t.Helper()
	end := f.m.end()
	base := end
	var all [][]byte
	for range 1 + f.rng.IntN(3) {
		b := Batch{First: f.rng.Int64N(1000)}
		for range 1 + f.rng.IntN(4) {
			r := Record{Delta: f.rng.Int64N(50), Value: []byte(strings.Repeat("v", f.rng.IntN(200)))}
			b.Records = append(b.Records, r)
			f.m.times = append(f.m.times, b.First+r.Delta)
		}
		all = append(all, b.Encode())
		f.m.batches = append(f.m.batches, placed(all[len(all)-1], end, f.m.epoch))
		end += int64(len(b.Records))
	}
	add(f.t, f.l, base, all...)
}

// read checks that a read gives the batches from the right one on, no more bytes than asked for, and all of them one after the other.
func (f *life) read() {
	f.t.Helper()
	offset := f.m.start + f.rng.Int64N(f.m.end()-f.m.start+1)
	maxBytes := f.rng.IntN(2000)
	got, err := Read(context.Background(), f.l, offset, maxBytes)
	if err != nil {
		f.t.Fatal(err)
	}
	i := f.m.holder(offset)
	if len(got) == 0 && i < len(f.m.batches) {
		f.t.Fatalf("nothing at offset %d", offset)
	}
	if len(got) > maxBytes && len(got) != sizeOf(got) {
		f.t.Fatalf("%d bytes, where %d were asked for", len(got), maxBytes)
	}
	for ; len(got) > 0; i++ {
		if i == len(f.m.batches) || !bytes.HasPrefix(got, f.m.batches[i]) {
			f.t.Fatalf("batch %d of a read of offset %d is not as it was appended", i, offset)
		}
		got = got[len(f.m.batches[i]):]
	}
}

func (f *life) findTime() {
	f.t.Helper()
	ts := f.rng.Int64N(1100)
	want := found{ts: ts}
	for o := f.m.start; o < f.m.end(); o++ {
		if f.m.times[o] >= ts {
			want = found{ts, o, f.m.times[o], true}
			break
		}
	}
	want.check(f.t, f.l)
}

func (f *life) trim() {
	f.t.Helper()
	to := f.m.start + f.rng.Int64N((f.m.end()-f.m.start)/4+1)
	if f.rng.IntN(10) == 0 {
		to = f.m.end()
	}
	if err := f.l.Trim(context.Background(), to); err != nil {
		f.t.Fatal(err)
	}
	f.m.start = to
}

func (f *life) restart(open Opener) {
	f.t.Helper()
	if err := f.e.Close(); err != nil {
		f.t.Fatal(err)
	}
	f.e = open(f.t)
	f.l = openLog(f.t, f.e, f.m.epoch)
}
