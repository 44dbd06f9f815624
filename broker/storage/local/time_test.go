// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"strings"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

func TestOffsetForTimeLooksIntoACompressedBatch(t *testing.T) {
	for name, codec := range map[string]int16{"gzip": recordbatch.CodecGzip, "snappy": recordbatch.CodecSnappy, "lz4": recordbatch.CodecLZ4, "zstd": recordbatch.CodecZstd} {
		t.Run(name, func(t *testing.T) {
			l := reopen(t, newMem())
			b := testBatch{First: 100, Records: []testRecord{{Delta: 0}, {Delta: 20}, {Delta: 10}, {Delta: 30}}}
			mustAppend(t, l, squeezed(t, b, codec))
			b.First = 200
			mustAppend(t, l, squeezed(t, b, codec))
			for ts, want := range map[int64][2]int64{0: {0, 100}, 101: {1, 120}, 120: {1, 120}, 121: {3, 130}, 131: {4, 200}, 221: {7, 230}} {
				offset, timestamp, ok, err := l.OffsetForTime(context.Background(), ts)
				if offset != want[0] || timestamp != want[1] || !ok || err != nil {
					t.Errorf("time %d: offset %d, time %d, %v, %v; want %v", ts, offset, timestamp, ok, err, want)
				}
			}
			if err := l.Trim(context.Background(), 2); err != nil {
				t.Fatal(err)
			}
			if offset, timestamp, _, err := l.OffsetForTime(context.Background(), 101); offset != 2 || timestamp != 110 || err != nil {
				t.Error(offset, timestamp, err)
			}
		})
	}
}

func TestOffsetForTimeTakesTheStartOfABatchThatIsTooLarge(t *testing.T) {
	l := reopen(t, newMem())
	b := testBatch{First: 100, Records: []testRecord{{Value: []byte(strings.Repeat("x", recordbatch.MaxInflated+1))}, {Delta: 20}}}
	mustAppend(t, l, squeezed(t, b, recordbatch.CodecZstd))
	if offset, timestamp, ok, err := l.OffsetForTime(context.Background(), 110); offset != 0 || timestamp != 100 || !ok || err != nil {
		t.Error(offset, timestamp, ok, err)
	}
}
