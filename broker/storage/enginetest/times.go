// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing" //nolint:depguard // a library for tests
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const attrLogAppendTime = 8

// openWith opens the log with a config.
func openWith(t *testing.T, e storage.Engine, c storage.Config) storage.Log {
	t.Helper()
	l, err := e.Open(context.Background(), orders, 0, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// stamped returns a copy of a batch as a log stores it that gives it a time.
func stamped(batch []byte, base, ms int64) []byte {
	b := placed(batch, base, 0)
	b[posAttributes+1] |= attrLogAppendTime
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	return FixCRC(b)
}

// timeOf is a batch's max timestamp.
func timeOf(b []byte) int64 { return int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])) }

// addStamped appends a batch to a log that stamps it, and returns the time that it got.
func addStamped(t *testing.T, l storage.Log, want int64, batch []byte) int64 {
	t.Helper()
	b := bytes.Clone(batch)
	before := time.Now().UnixMilli()
	base, err := l.Append(context.Background(), b, storage.Synced)
	if err != nil || base != want {
		t.Fatalf("append: offset %d, %v; want %d", base, err, want)
	}
	ms := timeOf(b)
	if after := time.Now().UnixMilli(); ms < before || ms > after || b[posAttributes+1]&attrLogAppendTime == 0 {
		t.Fatalf("appended from %d to %d, and the batch says %d, with attributes %x", before, after, ms, b[posAttributes+1])
	}
	return ms
}

func appendTimes(t *testing.T, open Opener) {
	ctx := context.Background()
	e := open(t)
	l := openLog(t, e, 0)
	first, zipped, plain := Simple("a"), Batch{First: 5, Gzip: true, Records: Values("b", "c")}.Encode(), Simple("d", "e")
	add(t, l, 0, first)
	l = openWith(t, e, storage.Config{LogAppendTime: true})
	zippedTime := addStamped(t, l, 1, zipped)
	plainTime := addStamped(t, l, 3, plain)
	l = openLog(t, e, 0)
	add(t, l, 5, first)
	check := func() {
		t.Helper()
		wantRead(t, l, 0, 1<<20, placed(first, 0, 0), stamped(zipped, 1, zippedTime), stamped(plain, 3, plainTime), placed(first, 5, 0))
		for _, f := range []found{
			{0, 0, 1000, true}, {1001, 1, zippedTime, true}, {zippedTime, 1, zippedTime, true}, {plainTime + 1, 0, 0, false},
		} {
			f.check(t, l)
		}
	}
	check()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = start(t, open)
	l = openLog(t, e, 0)
	check()
	if err := l.Trim(ctx, 4); err != nil {
		t.Fatal(err)
	}
	found{0, 4, plainTime, true}.check(t, l)
}

func appendTimeOfDuplicates(t *testing.T, open Opener) {
	e := open(t)
	config := storage.Config{LogAppendTime: true}
	l := openWith(t, e, config)
	batch := func(sequence int32) []byte {
		return Batch{First: 1000, Producer: 7, Sequence: sequence, Records: Values("a")}.Encode()
	}
	// again sends a batch again, and returns what the log wrote into it.
	again := func(sequence int32, base int64) []byte {
		t.Helper()
		b := batch(sequence)
		got, err := l.Append(context.Background(), b, storage.Synced)
		if err != nil || got != base {
			t.Fatalf("sequence number %d: offset %d, %v; want %d", sequence, got, err, base)
		}
		return b
	}
	ms := addStamped(t, l, 0, batch(0))
	l = openLog(t, e, 0)
	add(t, l, 1, batch(1))
	for range 2 {
		for _, c := range []storage.Config{config, {}} {
			l = openWith(t, e, c)
			if b := again(0, 0); timeOf(b) != ms || b[posAttributes+1] != attrLogAppendTime {
				t.Errorf("with %+v the batch was appended at %d, and is said to have been at %d, with attributes %x", c, ms, timeOf(b), b[posAttributes+1])
			}
			if b := again(1, 1); timeOf(b) != 1000 || b[posAttributes+1] != 0 {
				t.Errorf("with %+v the batch of time 1000 is said to be of time %d, with attributes %x", c, timeOf(b), b[posAttributes+1])
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = open(t)
		l = openWith(t, e, config)
	}
	wantBounds(t, l, 0, 2)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func smallSegments(t *testing.T, open Opener) {
	e := open(t)
	var want [][]byte
	end := int64(0)
	for _, c := range []storage.Config{{SegmentBytes: 14}, {SegmentBytes: 1 << 40}, {SegmentTime: 1}, {SegmentBytes: 200, SegmentTime: time.Hour}} {
		l := openWith(t, e, c)
		for i := range 10 {
			b := Simple(fmt.Sprintf("record %d with %+v", i, c), "second")
			add(t, l, end, b, b)
			want = append(want, placed(b, end, 0), placed(b, end+2, 0))
			end += 4
		}
	}
	check := func() {
		t.Helper()
		l := openLog(t, e, 0)
		wantBounds(t, l, 0, end)
		var got []byte
		for next := int64(0); next < end; {
			b, err := Read(context.Background(), l, next, 1<<20)
			if err != nil || len(b) == 0 {
				t.Fatalf("read offset %d: %d bytes, %v", next, len(b), err)
			}
			for got = append(got, b...); len(b) > 0; b = b[sizeOf(b):] {
				next = baseOf(b) + countOf(b)
			}
		}
		if !bytes.Equal(got, bytes.Join(want, nil)) {
			t.Fatalf("%d bytes are not the ones that were appended", len(got))
		}
	}
	check()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = start(t, open)
	check()
}
