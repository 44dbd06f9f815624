// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// OffsetForTime returns the first record whose timestamp is ts or later. See storage.Log.
//
// A compressed batch is looked into as far as maxInflated goes; beyond it, or where it cannot be decompressed, its first record stands in for the one
// that is looked for, and may be older. Damage that it meets on the way is an error, since the record may be there.
func (l *commitLog) OffsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error) {
	offset, timestamp, ok, err = l.offsetForTime(ctx, ts)
	if err != nil {
		return 0, 0, false, fmt.Errorf("look up time %d in %s: %w", ts, l, err)
	}
	return offset, timestamp, ok, nil
}

func (l *commitLog) offsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error) {
	views, start, err := l.viewsForTime(ts)
	if err != nil {
		return 0, 0, false, err
	}
	for i := range views {
		if err := ctx.Err(); err != nil {
			return 0, 0, false, err
		}
		offset, timestamp, ok, err = l.segmentForTime(&views[i], ts, start)
		switch {
		case err != nil && l.wasReplaced(&views[i], err):
			return l.offsetForTime(ctx, ts)
		case err != nil:
			return 0, 0, false, l.explain(views[i].base, err)
		case ok:
			return offset, timestamp, true, nil
		}
	}
	return 0, 0, false, nil
}

// viewsForTime returns the segments that may have a record of time ts or later, and the log's start.
func (l *commitLog) viewsForTime(ts int64) ([]view, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, 0, storage.ErrClosed
	}
	var views []view
	for i, s := range l.segments {
		if s.maxTime >= ts && s.next > l.start && s.base < l.hw {
			views = append(views, l.viewOf(i))
		}
	}
	return views, l.start, nil
}

func (l *commitLog) segmentForTime(v *view, ts, start int64) (offset, timestamp int64, ok bool, err error) {
	f, err := l.engine.files.acquire(&v.file)
	if err != nil {
		return 0, 0, false, err
	}
	defer l.engine.files.release(&v.file)
	index, err := l.indexOf(v, f)
	if err != nil {
		return 0, 0, false, err
	}
	at := placeOfTime(index, v.base, ts)
	if first := placeOf(index, v.base, start); first.pos > at.pos {
		at = first
	}
	sc := newScanner(f, v.file.path, v.size, at.pos, at.offset)
	sc.limit, sc.compacted = v.limit, v.compacted
	for {
		ev, err := sc.next()
		switch {
		case err != nil:
			return 0, 0, false, err
		case ev == atEnd:
			return 0, 0, false, nil
		case ev != atBatch:
			return 0, 0, false, new(sc.damage)
		case sc.head.Base >= v.hw:
			return 0, 0, false, nil
		}
		if sc.head.MaxTimestamp >= ts && sc.head.Next() > start {
			if offset, timestamp, ok = recordbatch.ForTime(sc.batch, &sc.head, ts, start); ok {
				return offset, timestamp, true, nil
			}
		}
	}
}
