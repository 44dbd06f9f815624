// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

var p0 = storage.Partition{Topic: "orders", Partition: 0}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func openEngine(t testing.TB, dir string, o Options) *Engine {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	if o.RetentionCheckInterval == 0 {
		o.RetentionCheckInterval = -1
	}
	e, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func openLog(t testing.TB, e *Engine, p storage.Partition) *commitLog {
	t.Helper()
	l, err := e.Open(context.Background(), p, 0, storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return l.(*commitLog)
}

func mustAppend(t testing.TB, l storage.Log, b []byte) int64 {
	t.Helper()
	base, err := l.Append(context.Background(), b, storage.Synced)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func TestAppendedRecordsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir, Options{SegmentBytes: 1000, IndexIntervalBytes: 200})
	l := openLog(t, e, p0)
	for i := range 50 {
		if base := mustAppend(t, l, simple(fmt.Sprintf("a%d", i), "b")); base != int64(2*i) {
			t.Fatal(base)
		}
	}
	check := func() {
		for i := range int64(100) {
			b, err := enginetest.Read(context.Background(), l, i, 1)
			if err != nil {
				t.Fatal(err)
			}
			h, err := recordbatch.ParseHeader(b)
			if err != nil || h.Base != i/2*2 || len(b) != h.Size {
				t.Fatal(h, err)
			}
		}
	}
	check()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, dir, Options{SegmentBytes: 1000, IndexIntervalBytes: 200})
	l = openLog(t, e, p0)
	check()
	mustAppend(t, l, simple("x"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReadReturnsWholeBatches(t *testing.T) {
	l := reopen(t, newMemFS(nil))
	size := len(simple("aaaa", "bbbb"))
	for range 4 {
		mustAppend(t, l, simple("aaaa", "bbbb"))
	}
	tests := map[string]struct {
		offset  int64
		max     int
		want    int // batches
		first   int64
		wantErr error
	}{
		"as many as fit":                              {0, 3*size + 5, 3, 0, nil},
		"one where less is asked for":                 {0, 1, 1, 0, nil},
		"one where nothing is asked for":              {0, 0, 1, 0, nil},
		"one where less than nothing is asked for":    {0, -5, 1, 0, nil},
		"exactly what is asked for":                   {0, 2 * size, 2, 0, nil},
		"not one byte more":                           {0, 2*size - 1, 1, 0, nil},
		"from the batch that holds the offset":        {3, size, 1, 2, nil},
		"all that there is":                           {2, 1 << 40, 3, 2, nil},
		"nothing at the high watermark":               {8, 100, 0, 0, nil},
		"an error beyond the end":                     {9, 100, 0, 0, storage.ErrOffsetOutOfRange},
		"an error below the start":                    {-1, 100, 0, 0, storage.ErrOffsetOutOfRange},
		"the last batch for its last record's offset": {7, 100000, 1, 6, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := enginetest.Read(context.Background(), l, tc.offset, tc.max)
			if !errors.Is(err, tc.wantErr) || len(b) != tc.want*size {
				t.Fatalf("%d bytes, %v; want %d", len(b), err, tc.want*size)
			}
			if h, err := recordbatch.ParseHeader(b); tc.want > 0 && (err != nil || h.Base != tc.first) {
				t.Fatal(h.Base, err)
			}
		})
	}
}

func TestALargeBatchIsReadThroughASparseIndex(t *testing.T) {
	l := reopen(t, newMemFS(nil))
	l.engine.opts.SegmentBytes = 1 << 20
	for i := range 30 {
		mustAppend(t, l, simple(strings.Repeat("x", 40*i), "y"))
	}
	for o := range int64(60) {
		for _, n := range []int{1, 100, 5000} {
			b, err := enginetest.Read(context.Background(), l, o, n)
			if err != nil {
				t.Fatal(err)
			}
			if h, _ := recordbatch.ParseHeader(b); h.Base != o/2*2 || (len(b) > n && len(b) != h.Size) {
				t.Fatal(o, n, h.Base, len(b))
			}
		}
	}
}

func TestOffsetForTime(t *testing.T) {
	for name, size := range map[string]int64{"through the index": 150, "through whole segments": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			o := memOptions(newMemFS(nil))
			o.IndexIntervalBytes, o.SegmentBytes = size, 4*size
			checkOffsetForTime(t, openLog(t, openEngine(t, workDir, o), p0))
		})
	}
}

func checkOffsetForTime(t *testing.T, l *commitLog) {
	at := func(first int64, deltas ...int64) []byte {
		tb := testBatch{First: first}
		for _, d := range deltas {
			tb.Records = append(tb.Records, testRecord{Delta: d, Value: []byte(strings.Repeat("v", 50))})
		}
		return tb.Encode()
	}
	changed := func(b []byte, attributes int16) []byte {
		binary.BigEndian.PutUint16(b[recordbatch.PosAttributes:], uint16(attributes))
		return fixCRC(b)
	}
	for _, b := range [][]byte{
		at(100, 0, 10, 5),                     // 0 to 2
		at(50, 0, 1),                          // 3, 4: late
		at(200, 0, 50, 100),                   // 5 to 7
		changed(at(400, 0, 10), 2),            // 8, 9: not what its compression says
		changed(at(500, 0, 10), 8),            // 10, 11: log append time
		at(450, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9), // 12 to 21: late
		at(600, 0, 7),                         // 22, 23
	} {
		mustAppend(t, l, b)
	}
	type answer struct {
		Offset, Time int64
		OK           bool
	}
	tests := map[int64]answer{
		0: {0, 100, true}, 100: {0, 100, true}, 101: {1, 110, true}, 110: {1, 110, true}, 111: {5, 200, true}, 201: {6, 250, true},
		251: {7, 300, true}, 301: {8, 400, true}, 405: {8, 400, true}, 411: {10, 510, true}, 510: {10, 510, true}, 511: {22, 600, true},
		601: {23, 607, true}, 607: {23, 607, true}, 608: {}, math.MaxInt64: {}, math.MinInt64: {0, 100, true},
	}
	check := func(l *commitLog, tests map[int64]answer) {
		t.Helper()
		for ts, want := range tests {
			var got answer
			var err error
			got.Offset, got.Time, got.OK, err = l.OffsetForTime(context.Background(), ts)
			if got != want || err != nil {
				t.Errorf("time %d: %v, %v; want %v", ts, got, err, want)
			}
		}
	}
	check(l, tests)
	if err := l.Trim(context.Background(), 6); err != nil {
		t.Fatal(err)
	}
	check(l, map[int64]answer{0: {6, 250, true}, 260: {7, 300, true}, 608: {}})
	if err := l.Trim(context.Background(), 24); err != nil {
		t.Fatal(err)
	}
	check(l, map[int64]answer{0: {}, 260: {}})
}

func TestRetentionAndTrim(t *testing.T) {
	ctx := context.Background()
	day := 24 * time.Hour
	start := time.UnixMilli(1_000_000_000_000)
	fill := func(t *testing.T, c storage.Config) *commitLog {
		l := reopen(t, newMemFS(nil))
		l.engine.now = func() time.Time { return start }
		if _, err := l.engine.Open(ctx, p0, 0, c); err != nil {
			t.Fatal(err)
		}
		for i := range 10 { // a record a day, of a segment each
			b := testBatch{First: start.Add(time.Duration(i) * day).UnixMilli(), Records: values(strings.Repeat("x", 600))}.Encode()
			mustAppend(t, l, b)
		}
		return l
	}
	size := int64(len(testBatch{Records: values(strings.Repeat("x", 600))}.Encode()))
	tests := map[string]struct {
		config storage.Config
		after  time.Duration
		want   int64 // start offset
	}{
		"nothing goes without retention":                  {storage.Config{}, 1000 * day, 0},
		"what is younger stays":                           {storage.Config{RetentionTime: 3 * day}, 3 * day, 0},
		"what is older goes":                              {storage.Config{RetentionTime: 3 * day}, 7*day + time.Hour, 5},
		"all goes when all is older":                      {storage.Config{RetentionTime: 3 * day}, 100 * day, 10},
		"as much as is asked for stays":                   {storage.Config{RetentionBytes: 4 * size}, 0, 6},
		"a segment goes only when enough is left":         {storage.Config{RetentionBytes: 4*size - 1}, 0, 6},
		"one more byte keeps one more segment":            {storage.Config{RetentionBytes: 4*size + 1}, 0, 5},
		"the active segment stays":                        {storage.Config{RetentionBytes: 1}, 0, 9},
		"time and bytes both count":                       {storage.Config{RetentionBytes: 8 * size, RetentionTime: 3 * day}, 7*day + time.Hour, 5},
		"all goes by time even where bytes would keep it": {storage.Config{RetentionBytes: 1 << 40, RetentionTime: day}, 100 * day, 10},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := fill(t, tc.config)
			if err := l.engine.EnforceRetention(start.Add(tc.after)); err != nil {
				t.Fatal(err)
			}
			wantStart(t, l, tc.want, 10)
			if l.Size() != (10-tc.want)*size {
				t.Fatal(l.Size())
			}
			if base := mustAppend(t, l, simple("next")); base != 10 {
				t.Fatal(base)
			}
			again := reopen(t, l.engine.fs.(*memFS).killed())
			wantStart(t, again, tc.want, 11)
		})
	}
	t.Run("trim", func(t *testing.T) {
		l := fill(t, storage.Config{})
		for _, to := range []int64{4, 2, 4} {
			if err := l.Trim(ctx, to); err != nil {
				t.Fatal(err)
			}
			wantStart(t, l, 4, 10)
		}
		for _, to := range []int64{-1, 11} {
			if err := l.Trim(ctx, to); !errors.Is(err, storage.ErrOffsetOutOfRange) {
				t.Fatal(err)
			}
		}
		wantStart(t, reopen(t, l.engine.fs.(*memFS).killed()), 4, 10)
	})
	t.Run("batches without timestamps go by when they were written", func(t *testing.T) {
		l := fill(t, storage.Config{RetentionTime: day})
		mustAppend(t, l, testBatch{First: -1, Records: []testRecord{{Value: []byte("x")}}}.Encode())
		if err := l.engine.EnforceRetention(start.Add(1000 * day)); err != nil {
			t.Fatal(err)
		}
		wantStart(t, l, 11, 11)
	})
}

func TestRetentionByTimeHoldsAfterAKill(t *testing.T) {
	m := newMemFS(nil)
	l := reopen(t, m)
	for i := range int64(5) {
		mustAppend(t, l, testBatch{First: 1_000_000 + i, Records: values(strings.Repeat("x", 300))}.Encode())
	}
	for now, want := range map[int64]int64{1_000_000: 0, 1_000_000 + 3_600_100: 5} {
		l := reopen(t, m.clone())
		if _, err := l.engine.Open(context.Background(), p0, 0, storage.Config{RetentionTime: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if err := l.engine.EnforceRetention(time.UnixMilli(now)); err != nil {
			t.Fatal(err)
		}
		wantStart(t, l, want, 5)
	}
}

func wantStart(t *testing.T, l *commitLog, start, end int64) {
	t.Helper()
	if l.StartOffset() != start || l.EndOffset() != end || l.HighWatermark() != end {
		t.Fatalf("the log has %d to %d, %d on disk; want %d to %d", l.StartOffset(), l.EndOffset(), l.HighWatermark(), start, end)
	}
	if _, err := enginetest.Read(context.Background(), l, start-1, 1); !errors.Is(err, storage.ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
	if b, err := enginetest.Read(context.Background(), l, start, 1); err != nil || (len(b) == 0) != (start == end) {
		t.Fatal(len(b), err)
	}
}
