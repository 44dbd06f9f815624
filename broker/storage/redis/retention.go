// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// forgetCount is how many producers are forgotten at once.
const forgetCount = 500

// Trim removes the records below the offset. See storage.Log.
func (l *partitionLog) Trim(ctx context.Context, offset int64) error {
	if err := l.trim(ctx, offset); err != nil {
		return fmt.Errorf("trim %s to offset %d: %w", l, offset, err)
	}
	return nil
}

func (l *partitionLog) trim(ctx context.Context, offset int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.cleaning.Lock()
	defer l.cleaning.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	start, end := l.meta.start, l.meta.end
	l.mu.Unlock()
	switch {
	case offset < 0 || offset > end:
		return fmt.Errorf("the log has %d to %d: %w", start, end, storage.ErrOffsetOutOfRange)
	case offset <= start:
		return nil
	}
	for {
		to, err := l.trimStep(ctx, offset)
		if err == nil {
			err = l.advanceStart(ctx, to)
		}
		if err != nil || to == offset {
			return err
		}
	}
}

// trimBytes bounds about how much one call removes, so that Redis answers others meanwhile.
const trimBytes = 64 << 20

// trimStep is the offset up to which the log is trimmed next, on the way to another.
func (l *partitionLog) trimStep(ctx context.Context, offset int64) (to int64, err error) {
	l.mu.Lock()
	gone := l.meta.gone
	l.mu.Unlock()
	to = offset
	err = l.eachEntry(ctx, func(e timeEntry) bool {
		if e.next < offset && e.bytes-gone >= trimBytes {
			to = e.next
		}
		return e.next < offset && to == offset
	})
	return to, err
}

// advanceStart makes an offset the log's start and removes the batches that are wholly below it. cleaning is held, and start < to <= end.
func (l *partitionLog) advanceStart(ctx context.Context, to int64) error {
	gone, err := l.bytesBelow(ctx, to)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	args := append(l.owner(), strconv.FormatInt(to, 10), strconv.FormatInt(gone, 10), fmt.Sprintf("%020d", to))
	reply, err := trimScript.run(asking, l.engine.client, []string{l.keys.log, l.keys.meta, l.keys.times}, args).ToArray()
	if err != nil {
		if refused := isRefusal(err); !refused {
			l.suspect(err)
		}
		return translate(ctx, err)
	}
	if word, _ := firstWord(reply); word != replyOK || len(reply) != 2 {
		return l.judge(args[1], words(reply))
	}
	batches, err := reply[1].AsInt64()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meta.start, l.meta.gone, l.batches = to, gone, batches
	return nil
}

// bytesBelow is the count of bytes gone once the batches are that are wholly below an offset.
func (l *partitionLog) bytesBelow(ctx context.Context, offset int64) (int64, error) {
	l.mu.Lock()
	at := timeEntry{next: l.meta.start, bytes: l.meta.gone}
	end, total := l.meta.end, l.meta.total
	l.mu.Unlock()
	if offset == end {
		return total, nil
	}
	last, err := l.entryBelow(ctx, at, offset)
	if err != nil {
		return 0, err
	}
	for last.next < offset {
		batches, err := l.read(ctx, last.next, scanBytes)
		if err != nil {
			return 0, err
		}
		b, err := batches.Bytes()
		if err != nil {
			return 0, err
		}
		for len(b) > 0 {
			h, err := recordbatch.ParseHeader(b)
			if err != nil {
				return 0, err
			}
			if last.next = h.Next(); last.next > offset {
				return last.bytes, nil
			}
			last.bytes += int64(h.Size)
			b = b[h.Size:]
		}
	}
	return last.bytes, nil
}

// entryBelow is the last entry of the index that ends at or below an offset; at where there is none.
func (l *partitionLog) entryBelow(ctx context.Context, at timeEntry, offset int64) (timeEntry, error) {
	err := l.eachEntry(ctx, func(e timeEntry) bool {
		if e.next > offset {
			return false
		}
		at = e
		return true
	})
	return at, err
}

// eachEntry calls fn with the entries of the index, the oldest first, until it returns false.
func (l *partitionLog) eachEntry(ctx context.Context, fn func(timeEntry) bool) error {
	for at := int64(0); ; at += indexCount {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		b := l.engine.client.B().Zrange().Key(l.keys.times).Min(strconv.FormatInt(at, 10)).Max(strconv.FormatInt(at+indexCount-1, 10))
		members, err := l.engine.client.Do(asking, b.Build()).AsStrSlice()
		cancel()
		if err != nil {
			return translate(ctx, err)
		}
		entries, err := parseTimeEntries(l.keys.times, members)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !fn(e) {
				return nil
			}
		}
		if len(members) < indexCount {
			return nil
		}
	}
}

// retain removes the records that the topic's retention no longer asks for, and forgets idle producers.
func (l *partitionLog) retain(ctx context.Context, now time.Time) error {
	err := l.forget(ctx, now)
	for err == nil {
		var more bool
		if more, err = l.retainSome(ctx, now); !more {
			break
		}
	}
	return err
}

// retainSome removes some of the oldest records that may go, and says whether there may be more.
func (l *partitionLog) retainSome(ctx context.Context, now time.Time) (more bool, err error) {
	l.cleaning.Lock()
	defer l.cleaning.Unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	l.mu.Lock()
	c, m := l.config, l.meta
	l.mu.Unlock()
	if c.RetentionTime <= 0 && c.RetentionBytes <= 0 {
		return false, nil
	}
	cutoff := int64(math.MinInt64)
	if c.RetentionTime > 0 {
		cutoff = now.Add(-c.RetentionTime).UnixMilli()
	}
	to, stays := m.start, false
	err = l.eachEntry(ctx, func(e timeEntry) bool {
		surplus := c.RetentionBytes > 0 && m.total-e.bytes >= c.RetentionBytes
		if stays = !surplus && e.maxTime >= cutoff; !stays {
			to = e.next
			more = e.bytes-m.gone >= trimBytes
		}
		return !stays && !more
	})
	if err != nil {
		return false, err
	}
	if !stays && !more && l.tailExpired(cutoff) {
		to = m.end
	}
	if to <= m.start {
		return false, nil
	}
	return more, l.advanceStart(ctx, to)
}

// tailExpired says whether the records behind the last entry of the index are older than the time.
func (l *partitionLog) tailExpired(cutoff int64) bool {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.index.maxTime < cutoff && l.index.maxTime != math.MinInt64
}

// forget forgets idle producers, here and in Redis.
func (l *partitionLog) forget(ctx context.Context, now time.Time) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	ids := l.known.Expire(now)
	for len(ids) > 0 {
		n := min(len(ids), forgetCount)
		args := l.owner()
		for _, id := range ids[:n] {
			args = append(args, strconv.FormatInt(id, 10))
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		reply, err := forgetScript.run(asking, l.engine.client, []string{l.keys.log, l.keys.meta, l.keys.producers}, args).AsStrSlice()
		cancel()
		if err != nil {
			return translate(ctx, err)
		}
		if len(reply) != 1 || reply[0] != replyOK {
			return l.judge(args[1], reply)
		}
		ids = ids[n:]
	}
	return nil
}

// EnforceRetention removes what is older than now less a log's RetentionTime, or more than its RetentionBytes, in steps of about 64 KiB, from the logs that are open.
// The engine does so by itself every Options.RetentionCheckInterval.
func (e *Engine) EnforceRetention(now time.Time) error {
	var errs []error
	for _, l := range e.openLogs() {
		if err := l.retain(e.ending, now); !isQuiet(err) {
			errs = append(errs, fmt.Errorf("enforce retention of %s: %w", l, err))
		}
	}
	return errors.Join(errs...)
}

// enforceRetention is what the engine does by itself.
func (e *Engine) enforceRetention(now time.Time) {
	if err := e.EnforceRetention(now); err != nil {
		e.logger.Error("cannot enforce retention", "error", err)
	}
}
