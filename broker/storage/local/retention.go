// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Trim removes the records below the offset. See storage.Log.
func (l *commitLog) Trim(ctx context.Context, offset int64) error {
	if err := l.engine.makingRoom(func() error { return l.trim(ctx, offset) }); err != nil {
		return fmt.Errorf("trim %s to offset %d: %w", l, offset, err)
	}
	return nil
}

func (l *commitLog) trim(ctx context.Context, offset int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	start, hw := l.StartOffset(), l.HighWatermark()
	switch {
	case offset < 0 || offset > hw:
		return fmt.Errorf("the log has %d to %d: %w", start, hw, storage.ErrOffsetOutOfRange)
	case offset <= start:
		return nil
	}
	return fullError(l.advanceStart(offset))
}

// advanceStart makes to the log's start and removes the segments that are wholly below it. The start is on disk before a file goes,
// so that a crash in between leaves no gap that looks like damage. wmu is held, and start < to <= end.
func (l *commitLog) advanceStart(to int64) error {
	if err := l.begin(); err != nil {
		return err
	}
	if err := l.waitSealed(to); err != nil {
		return err
	}
	l.mu.Lock()
	all := to >= l.active().next && l.active().size > 0
	m := meta{epoch: l.epoch, start: to}
	l.mu.Unlock()
	if all {
		if err := l.roll(); err != nil {
			return err
		}
	}
	if err := l.keepProducers(l.keptFrom(to)); err != nil {
		return err
	}
	if err := l.writeMeta(m); err != nil {
		return err
	}
	return l.removeSegments(l.dropBelow(to))
}

// keptFrom is the base of the oldest segment that stays when the log starts at an offset; 0 where all stay.
func (l *commitLog) keptFrom(start int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := int64(0)
	for _, s := range l.segments[1:] {
		if s.base <= start {
			from = s.base
		}
	}
	return from
}

// dropBelow takes the segments that are wholly below the new start off the log.
func (l *commitLog) dropBelow(start int64) []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = start
	n := 0
	for n+1 < len(l.segments) && l.segments[n+1].base <= start {
		l.size -= l.segments[n].size
		n++
	}
	dropped := l.segments[:n]
	l.segments = slices.Clone(l.segments[n:])
	return dropped
}

// removeSegments removes the files of segments that are no longer of the log. What is left behind by a failure goes at the next open.
func (l *commitLog) removeSegments(segments []*segment) error {
	if len(segments) == 0 {
		return nil
	}
	var errs []error
	for _, s := range segments {
		l.engine.files.remove(&s.file)
		errs = append(errs,
			removeIfThere(l.engine.fs, s.file.path),
			removeIfThere(l.engine.fs, s.indexPath()))
	}
	errs = append(errs, l.syncDir())
	return errors.Join(errs...)
}

// retain seals the active segment where it is old, removes the segments that the topic's retention no longer asks for, and forgets idle producers.
func (l *commitLog) retain(now time.Time) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	l.known.Expire(now)
	err := fullError(l.sealAged(now)) // where the disk is too full for that, what retention removes makes room
	if to := l.retained(now); to > l.StartOffset() {
		err = errors.Join(err, l.advanceStart(to))
	}
	return err
}

// retained is the start offset that retention asks for. By time whole segments go whose newest record has expired, the active one
// too if all is expired; by bytes the oldest ones go while as much as RetentionBytes is left without them.
func (l *commitLog) retained(now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	to, size := l.start, l.size
	for i, s := range l.segments {
		last := i == len(l.segments)-1
		expired := l.config.RetentionTime > 0 && (!last || s.size > 0) && s.next <= l.hw &&
			s.expired(now.Add(-l.config.RetentionTime))
		surplus := l.config.RetentionBytes > 0 && !last && size-s.size >= l.config.RetentionBytes
		if !expired && !surplus {
			break
		}
		size -= s.size
		to = s.next
		if !last {
			to = l.segments[i+1].base
		}
	}
	return max(to, l.start)
}

// EnforceRetention removes what is older than now less a log's RetentionTime, or more than its RetentionBytes, in whole segments,
// from the logs that are open. The engine does so by itself every Options.RetentionCheckInterval.
func (e *Engine) EnforceRetention(now time.Time) error {
	var errs []error
	for _, l := range e.openLogs() {
		if err := e.makingRoom(func() error { return l.retain(now) }); err != nil && !errors.Is(err, storage.ErrClosed) {
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

// every calls fn again and again until the engine is closed.
func (e *Engine) every(interval time.Duration, fn func(now time.Time)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-ticker.C:
			fn(e.now())
		}
	}
}
