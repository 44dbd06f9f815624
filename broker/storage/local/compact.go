// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
)

const (
	// defaultCompactionMemory is as much as Kafka's log.cleaner.dedupe.buffer.size.
	defaultCompactionMemory = 128 << 20
	// dirtyPercent is how much of a log must have come since its last compaction for the next one: Kafka's min.cleanable.dirty.ratio.
	dirtyPercent = 50
	// The active segment is not compacted. It is sealed for that once it has sealBytes, or has been the active one for sealAfter, so that
	// the little that is written to a small topic is compacted too. (Kafka waits for segment.ms, 7 days.)
	sealBytes = 1 << 20
	sealAfter = time.Hour
)

var (
	// errStopped says that a compaction is not gone on with because the log or the engine is closed.
	errStopped = errors.New("stopped")
	// errChanged says that segments went away while they were compacted.
	errChanged = errors.New("the log's segments have changed")
)

// Compact compacts all logs that are open and whose topics ask for it, one after the other, up to their ends: their active segments are sealed
// first. now is the time from which on new tombstones are kept. The engine compacts by itself (see Options.RetentionCheckInterval) the logs that
// have enough to gain.
func (e *Engine) Compact(now time.Time) error { return e.compact(now, true) }

// compact compacts the logs that need it, or all.
func (e *Engine) compact(now time.Time, all bool) error {
	e.compacting.Lock() // one at a time: the memory is bounded
	defer e.compacting.Unlock()
	c := &cleaner{engine: e, began: e.now(), now: now, Keeper: compaction.Keeper{Keys: compaction.NewKeyMap()}}
	var errs []error
	for _, l := range e.openLogs() {
		err := e.makingRoom(func() error { return c.compact(l, all) })
		if err != nil && !errors.Is(err, storage.ErrClosed) && !errors.Is(err, errStopped) && !errors.Is(err, errChanged) {
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

// cleaner compacts logs.
type cleaner struct {
	engine     *Engine
	began, now time.Time  // now was the time when it began
	log        *commitLog // the one that it is at
	// Its Last is the newest record on disk, so that it stays after a crash too.
	compaction.Keeper
}

// compact compacts one log where that is due.
func (c *cleaner) compact(l *commitLog, all bool) error {
	config := l.topicConfig()
	if !config.Compact {
		return nil
	}
	l.cleaning.Lock() // close waits for it
	defer l.cleaning.Unlock()
	p, err := l.readPasses()
	if err != nil {
		return err
	}
	if err := l.sealDirty(c.now, p.UpTo(), all); err != nil {
		return fullError(err)
	}
	c.log = l
	for {
		retention := compaction.TombstoneRetention(&config)
		segments, from := l.sealedFrom(p.UpTo())
		end := int64(0)
		if n := len(segments); n > 0 {
			end = segments[n-1].next
		}
		due := p.Left > 0 && p.Expired(c.now, retention) > p.Gone
		if from >= end && !due || !all && !due && !l.isDirty(p.UpTo()) {
			return nil
		}
		c.Expired = p.Expired(c.now, retention)
		upTo, err := c.pass(segments, from, end)
		if err != nil {
			return err
		}
		p.Add(compaction.Pass{UpTo: upTo, At: c.now.Add(c.engine.now().Sub(c.began)).UnixMilli()}, c.Expired, c.Left)
		if err := l.writePasses(p); err != nil {
			return err
		}
		if upTo >= end {
			return nil
		}
		all = true // as far as it goes
	}
}

// sealDirty seals the active segment where it is time for it to be compacted, or where seal says so.
func (l *commitLog) sealDirty(now time.Time, compacted int64, seal bool) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	l.mu.Lock()
	active := l.active().view()
	due := active.size >= sealBytes || now.Sub(l.activeSince) >= sealAfter
	due = due && (l.dirtyFrom(compacted)+active.size)*100 >= l.size*dirtyPercent
	l.mu.Unlock()
	if active.size == 0 || !seal && !due {
		return nil
	}
	if err := l.begin(); err != nil {
		return err
	}
	return l.roll()
}

// dirtyFrom is how many bytes the sealed segments from the offset on have; mu is held.
func (l *commitLog) dirtyFrom(offset int64) int64 {
	n := int64(0)
	for _, s := range l.segments[:len(l.segments)-1] {
		if s.next > offset {
			n += s.size
		}
	}
	return n
}

// isDirty says whether enough was written since the log was compacted up to the offset.
func (l *commitLog) isDirty(compacted int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	dirty := l.dirtyFrom(compacted)
	return dirty > 0 && dirty*100 >= l.size*dirtyPercent
}

// sealedFrom returns the sealed segments, and the offset from which on they are to be compacted.
func (l *commitLog) sealedFrom(compacted int64) (segments []view, from int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.segments[:len(l.segments)-1] {
		if !s.sealed {
			break
		}
		segments = append(segments, l.viewOf(i))
	}
	return segments, max(compacted, l.start)
}

// pass leaves of the records in the segments the newest of each key, as far as the memory for keys goes, and returns the offset up to which
// that is. What is below from has been gone over.
func (c *cleaner) pass(segments []view, from, end int64) (upTo int64, err error) {
	c.Keys.Reset(end-from, c.engine.opts.CompactionMemoryBytes)
	c.Blind, c.Left = false, 0
	c.Last = c.log.durableEnd() - 1
	if upTo, err = c.readKeys(segments, from); err != nil {
		return 0, err
	}
	n := 0
	for n < len(segments) && segments[n].base < upTo {
		n++
	}
	for _, g := range groups(segments[:n], c.log.mergeLimit()) {
		if err := c.cleanGroup(g); err != nil {
			return 0, err
		}
	}
	return upTo, nil
}

// durableEnd is the offset below which everything is on disk.
func (l *commitLog) durableEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.onDisk
}

// mergeLimit is how large a segment may become that is made of several.
func (l *commitLog) mergeLimit() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segmentBytes()
}

// groups splits segments into neighbours that one segment of at most so many bytes can hold; larger ones stay alone.
func groups(segments []view, bytes int64) [][]view {
	var list [][]view
	first, size := 0, int64(0)
	for i := range segments {
		if i > first && size+segments[i].size > bytes {
			list = append(list, segments[first:i])
			first, size = i, 0
		}
		size += segments[i].size
	}
	if first < len(segments) {
		list = append(list, segments[first:])
	}
	return list
}

// readKeys notes the newest offset of every key from an offset on, until the map is full, and returns the offset up to which it came.
func (c *cleaner) readKeys(segments []view, from int64) (upTo int64, err error) {
	upTo = from
	for i := range segments {
		v := &segments[i]
		if v.next <= from {
			continue
		}
		full := false
		err := c.scan(v, func(sc *scanner, ev event) error {
			if ev != atBatch {
				c.log.reportDamage(&sc.damage)
				return nil
			}
			full = c.readBatchKeys(sc, from, &upTo)
			if full {
				return errFull
			}
			return nil
		})
		if full || err != nil && !errors.Is(err, errFull) {
			return upTo, ignore(err, errFull)
		}
		upTo = v.next
	}
	return upTo, nil
}

// errFull says that the map has no room for another key.
var errFull = errors.New("the map of keys is full")

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// readBatchKeys notes the keys of a batch; full is true where there is no room for the one at upTo.
func (c *cleaner) readBatchKeys(sc *scanner, from int64, upTo *int64) (full bool) {
	h := &sc.head
	if h.Next() <= from {
		return false
	}
	at, full, err := c.ReadKeys(sc.batch, h, from)
	if full {
		*upTo = at
	}
	if err != nil {
		c.engine.logger.Warn("a batch cannot be looked into; compaction leaves it as it is", "partition", c.log.String(),
			"file", sc.path, "byte", sc.at, "offset", h.Base, "error", err)
	}
	return full
}

// scan goes through a segment until fn fails.
func (c *cleaner) scan(v *view, fn func(*scanner, event) error) error {
	f, err := c.engine.files.acquire(&v.file)
	if errors.Is(err, fs.ErrNotExist) {
		return errChanged
	}
	if err != nil {
		return err
	}
	defer c.engine.files.release(&v.file)
	sc := newScanner(f, v.file.path, v.size, 0, v.base)
	sc.limit, sc.compacted = v.limit, v.compacted
	for {
		if c.stopped() {
			return errStopped
		}
		ev, err := sc.next()
		if err != nil {
			return err
		}
		if ev == atEnd {
			return nil
		}
		if err := fn(sc, ev); err != nil {
			return err
		}
	}
}

func (c *cleaner) stopped() bool {
	select {
	case <-c.engine.done:
		return true
	default:
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.log.closed
}

// cleanGroup makes one segment of several, or one anew, without the records that go. A segment that has damage stays as it is, so that the damage is
// still seen for what it is.
func (c *cleaner) cleanGroup(g []view) error {
	if len(g) == 0 {
		return nil
	}
	o := &output{cleaner: c, group: g}
	damaged, err := o.fill()
	if err == nil && damaged < 0 {
		err = o.finish()
	} else {
		o.drop()
	}
	if err != nil || damaged < 0 {
		return err
	}
	c.Blind = true
	if err := c.cleanGroup(g[:damaged]); err != nil {
		return err
	}
	return c.cleanGroup(g[damaged+1:])
}

// groupName is the name of the segment that a group becomes.
func groupName(g []view) segmentName {
	n := segmentName{base: g[0].base, next: g[len(g)-1].next}
	for i := range g {
		n.pass = max(n.pass, g[i].pass)
	}
	n.pass++
	return n
}

// replace makes a segment one of the log, in the place of others, of which it was made. From the rename on a start takes it for them.
func (l *commitLog) replace(group []view, temp string, s *segment) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	old := make([]*segment, len(group))
	for i := range group {
		old[i] = group[i].segment
	}
	first := slices.Index(l.segments, old[0])
	if first < 0 || len(l.segments)-first <= len(old) || !slices.Equal(l.segments[first:first+len(old)], old) {
		return errChanged
	}
	if err := l.keepProducers(s.next); err != nil {
		return err
	}
	if err := l.engine.fs.Rename(temp, s.file.path); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.mu.Lock()
	l.size += s.size
	for _, o := range old {
		l.size -= o.size
	}
	l.segments = slices.Concat(l.segments[:first], []*segment{s}, l.segments[first+len(old):])
	l.mu.Unlock()
	if err := l.removeSegments(old); err != nil {
		l.logger.Warn("cannot remove segments that were compacted; they will be removed at the next start", "partition", l.String(), "error", err)
	}
	return nil
}
