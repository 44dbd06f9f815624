// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const (
	// dirtyPercent is how much of a log must have come since its last compaction for the next one: Kafka's min.cleanable.dirty.ratio.
	dirtyPercent = 50
	// The little that is written to a small topic is compacted too: once it has dirtyBytes, or dirtyTime after the last time.
	dirtyBytes = 1 << 20
	dirtyTime  = time.Hour
)

// Compact compacts all logs that are open and whose topics ask for it, one after the other, up to their ends. now is the time from which on new tombstones are kept. The
// engine compacts by itself (see Options.RetentionCheckInterval) the logs that have enough to gain.
func (e *Engine) Compact(now time.Time) error { return e.compact(now, true) }

// compact compacts the logs that need it, or all.
func (e *Engine) compact(now time.Time, all bool) error {
	e.compacting.Lock() // one at a time: the memory is bounded
	defer e.compacting.Unlock()
	keys := compaction.NewKeyMap()
	var errs []error
	for _, l := range e.openLogs() {
		c := &cleaner{log: l, began: e.now(), now: now, Keeper: compaction.Keeper{Keys: keys}}
		if err := c.compact(e.ending, all); !isQuiet(err) {
			errs = append(errs, fmt.Errorf("compact %s: %w", l, err))
		}
	}
	return errors.Join(errs...)
}

// compactNeedy is what the engine does by itself.
func (e *Engine) compactNeedy(now time.Time) {
	if err := e.compact(now, false); err != nil {
		e.logger.Error("cannot compact; it will be tried again", "error", err)
	}
}

// cleaner compacts a log.
type cleaner struct {
	log        *partitionLog
	began, now time.Time // now was the time when it began
	compaction.Keeper
}

// compact compacts the log where that is due.
func (c *cleaner) compact(ctx context.Context, all bool) error {
	l := c.log
	config := l.topicConfig()
	if !config.Compact {
		return nil
	}
	l.cleaning.Lock()
	defer l.cleaning.Unlock()
	for {
		if err := l.usable(); err != nil {
			return err
		}
		l.mu.Lock()
		m := l.meta
		m.passes.Done = slices.Clone(m.passes.Done)
		l.mu.Unlock()
		p := &m.passes
		from := max(p.UpTo(), m.start)
		c.Expired = p.Expired(c.now, compaction.TombstoneRetention(&config))
		due := p.Left > 0 && c.Expired > p.Gone
		if from >= m.end && !due || !all && !due && !m.isDirty(c.now) {
			return nil
		}
		upTo, err := c.pass(ctx, &m, from)
		if err != nil {
			return errors.Join(err, l.dropClean())
		}
		if upTo >= m.end {
			return nil
		}
		all = true // as far as it goes
	}
}

// isDirty says whether enough was written since the log was compacted.
func (m *meta) isDirty(now time.Time) bool {
	dirty := m.total - max(m.cleaned, m.gone)
	if dirty <= 0 || dirty*100 < m.size()*dirtyPercent {
		return false
	}
	n := len(m.passes.Done)
	return dirty >= dirtyBytes || n == 0 || now.Sub(time.UnixMilli(m.passes.Done[n-1].At)) >= dirtyTime
}

// pass leaves of the log's records the newest of each key, as far as the memory for keys goes, and returns the offset up to which that is. What is below from has been
// gone over.
func (c *cleaner) pass(ctx context.Context, m *meta, from int64) (upTo int64, err error) {
	c.Keys.Reset(m.end-from, c.log.engine.opts.CompactionMemoryBytes)
	c.Blind, c.Left, c.Last = false, 0, m.end-1
	if upTo, err = c.readKeys(ctx, from, m.end); err != nil {
		return 0, err
	}
	o := &output{log: c.log, bytes: m.gone}
	err = c.each(ctx, m.start, upTo, func(e *entry, h *recordbatch.Header) (bool, error) {
		return true, o.add(ctx, e, h, c.Clean(e.batch, h))
	})
	if err != nil {
		return 0, err
	}
	p := m.passes
	p.Add(compaction.Pass{UpTo: upTo, At: c.now.Add(c.log.engine.now().Sub(c.began)).UnixMilli()}, c.Expired, c.Left)
	return upTo, o.finish(ctx, &p, upTo)
}

// readKeys notes the newest offset of every key from an offset on, until the map is full, and returns the offset up to which it came.
func (c *cleaner) readKeys(ctx context.Context, from, end int64) (upTo int64, err error) {
	upTo = from
	err = c.each(ctx, from, end, func(e *entry, h *recordbatch.Header) (bool, error) {
		at, full, err := c.ReadKeys(e.batch, h, from)
		if err != nil {
			c.log.engine.logger.Warn("a batch cannot be looked into; compaction leaves it as it is", "partition", c.log.String(), "offset", h.Base, "error", err)
		}
		if upTo = e.next; full {
			upTo = at
		}
		return !full, nil
	})
	return upTo, err
}

// each goes through the batches that begin from an offset on and below another, until fn returns false.
func (c *cleaner) each(ctx context.Context, from, end int64, fn func(e *entry, h *recordbatch.Header) (bool, error)) error {
	for from < end {
		if c.log.stopped(ctx) {
			return storage.ErrClosed
		}
		batches, err := c.log.read(ctx, from, scanBytes)
		if err != nil {
			return err
		}
		b, err := batches.Bytes()
		if err != nil {
			return err
		}
		for len(b) > 0 {
			h, err := recordbatch.ParseHeader(b)
			if err != nil {
				return err
			}
			if h.Base >= end {
				return nil
			}
			more, err := fn(&entry{next: h.Next(), batch: b[:h.Size:h.Size]}, &h)
			if !more || err != nil {
				return err
			}
			from, b = h.Next(), b[h.Size:]
		}
	}
	return nil
}
