// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const (
	// indexCount is how many entries of the index are read at once.
	indexCount = 512
	// scanBytes is how many bytes of batches are gone through at once.
	scanBytes = 256 << 10
)

// OffsetForTime returns the first record whose timestamp is ts or later. See storage.Log.
//
// A compressed batch is looked into as far as recordbatch.MaxInflated goes; beyond it, or where it cannot be decompressed, its first record stands in for the one that
// is looked for, and may be older.
func (l *partitionLog) OffsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error) {
	offset, timestamp, ok, err = l.offsetForTime(ctx, ts)
	if err != nil {
		return 0, 0, false, fmt.Errorf("look up time %d in %s: %w", ts, l, err)
	}
	return offset, timestamp, ok, nil
}

func (l *partitionLog) offsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error) {
	if err := l.engine.usable(ctx); err != nil {
		return 0, 0, false, err
	}
	start := l.StartOffset()
	from, err := l.searchIndex(ctx, ts)
	if err != nil {
		return 0, 0, false, err
	}
	for next := max(from, start); ; {
		batches, err := l.read(ctx, next, scanBytes)
		if err != nil || batches.Len() == 0 {
			return 0, 0, false, err
		}
		b, err := batches.Bytes()
		if err != nil {
			return 0, 0, false, err
		}
		for len(b) > 0 {
			h, err := recordbatch.ParseHeader(b)
			if err != nil {
				return 0, 0, false, err
			}
			if h.MaxTimestamp >= ts {
				if offset, timestamp, ok = recordbatch.ForTime(b[:h.Size], &h, ts, start); ok {
					return offset, timestamp, true, nil
				}
			}
			b = b[h.Size:]
		}
		next = batches.Next
	}
}

// searchIndex returns an offset below which nothing is of the time or later, and not far before what is.
func (l *partitionLog) searchIndex(ctx context.Context, ts int64) (int64, error) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	b, key, score := l.engine.client.B, l.keys.times, strconv.FormatInt(ts, 10)
	older, err := l.engine.client.Do(asking, b().Zrevrangebyscore().Key(key).Max("("+score).Min("-inf").Limit(0, 1).Build()).AsStrSlice()
	if err != nil {
		return 0, translate(ctx, err)
	}
	from := int64(0)
	if len(older) > 0 {
		e, err := parseTimeEntry(key, older[0])
		if err != nil {
			return 0, err
		}
		from = e.next
	}
	// The scores are of the newest record until then, which may have gone since.
	for at := int64(0); ; at += indexCount {
		members, err := l.engine.client.Do(asking, b().Zrangebyscore().Key(key).Min(score).Max("+inf").Limit(at, indexCount).Build()).AsStrSlice()
		if err != nil {
			return 0, translate(ctx, err)
		}
		entries, err := parseTimeEntries(key, members)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			if e.maxTime >= ts {
				return from, nil
			}
			from = e.next
		}
		if len(members) < indexCount {
			return from, nil
		}
	}
}
