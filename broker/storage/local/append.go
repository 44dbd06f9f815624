// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	defaultMaxBatchBytes = 1048588
	// maxAppendBytes bounds one append, and with it by how much a segment may be larger than its limit.
	maxAppendBytes = 1 << 30
)

// group is what is written at once: the fresh batches of one or more appends.
type group struct {
	plan plan
	now  time.Time
	// stamped says that the batches get now for their records' timestamps.
	stamped bool
	// taken is how many appends it has seen; of some nothing is to be written.
	taken int
	// alone says that no other append may be added.
	alone bool
	// parts are the bytes of the fresh batches, and headers their headers.
	parts   [][]byte
	headers []*header
	bytes   int
}

// add takes an append in: it notes in the append what becomes of it, and which of its batches are to be written.
func (g *group) add(known producers, p *pending) {
	g.taken++
	g.alone = len(p.headers) > 1
	places := make([]place, 0, 4)
	for i := range p.headers {
		if g.stamped {
			p.headers[i].attributes |= attrLogAppendTime
			p.headers[i].maxTimestamp = g.now.UnixMilli()
		}
		at, err := g.plan.add(known, &p.headers[i], g.now)
		if err != nil {
			p.err = err // it is alone where an earlier batch of it has changed the plan, which is then not used
			return
		}
		places = append(places, at)
	}
	pos := 0
	for i := range p.headers {
		h, at := &p.headers[i], places[i]
		if at.fresh {
			h.base = at.base
			g.parts = append(g.parts, p.batches[pos:pos+h.size])
			g.headers = append(g.headers, h)
			g.bytes += h.size
		} else if at.appended != noTime {
			setAppendTime(p.batches[pos:pos+h.size], at.appended)
		}
		if i == 0 {
			p.base = at.base
		}
		p.next = max(p.next, at.next)
		pos += h.size
	}
}

// writeGroup writes the group behind the active segment's last batch and sees to its sync. wmu is held.
func (l *commitLog) writeGroup(g *group) error {
	if err := l.begin(); err != nil {
		return fullError(err)
	}
	if err := l.makeRoom(g); err != nil {
		return fullError(err)
	}
	l.mu.Lock()
	epoch := l.epoch
	l.mu.Unlock()
	for i, part := range g.parts {
		setPlace(part, g.headers[i].base, epoch)
		if g.stamped {
			setAppendTime(part, g.headers[i].maxTimestamp)
		}
	}
	if err := l.writeFresh(g); err != nil {
		return err
	}
	l.known.commit(&g.plan)
	return nil
}

func (l *commitLog) writeFresh(g *group) error {
	seg := l.active()
	f, err := l.engine.files.acquire(&seg.file)
	if err != nil {
		return err
	}
	if err = f.WriteAllAt(g.parts, seg.size); err != nil {
		err = l.undo(seg, f, err)
		l.engine.files.release(&seg.file)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if seg.size == 0 {
		l.activeSince = g.now
	}
	for _, h := range g.headers {
		seg.checked.add(seg.size, seg.size+int64(h.size), g.now)
		seg.add(h, l.engine.opts.IndexIntervalBytes, g.now)
	}
	l.end = seg.next
	l.size += int64(g.bytes)
	if l.unsynced == nil {
		l.unsynced, l.syncFile = seg, f
	} else {
		l.engine.files.release(&seg.file)
	}
	l.written()
	return nil
}

// undo cuts a partial write off, so that what comes next follows the last whole batch.
func (l *commitLog) undo(seg *segment, f File, cause error) error {
	cause = fmt.Errorf("write %s at byte %d: %w", seg.file.path, seg.size, cause)
	if err := f.Truncate(seg.size); err != nil {
		l.fail(errors.Join(cause, fmt.Errorf("cut the partial write off: %w", err)))
		return cause
	}
	if !isFull(cause) {
		l.fail(cause)
	}
	return fullError(cause)
}

// makeRoom starts a new segment where the group would make the active one too large, or where that is old.
func (l *commitLog) makeRoom(g *group) error {
	l.mu.Lock()
	size := l.active().size
	due := size > 0 && (size+int64(g.bytes) > l.segmentBytes() || l.isAged(g.now))
	l.mu.Unlock()
	if !due {
		return nil
	}
	return l.startSegment()
}

// sealAged seals the active segment where it is old.
func (l *commitLog) sealAged(now time.Time) error {
	l.mu.Lock()
	due := l.active().size > 0 && l.isAged(now)
	l.mu.Unlock()
	if !due {
		return nil
	}
	if err := l.begin(); err != nil {
		return err
	}
	return l.startSegment()
}

// segmentBytes is the size at which a new segment is started; mu is held.
func (l *commitLog) segmentBytes() int64 {
	if l.config.SegmentBytes <= 0 {
		return l.engine.opts.SegmentBytes
	}
	return min(l.config.SegmentBytes, maxSegmentBytes)
}

// isAged says whether the active segment has the age at which a new one is started; mu is held.
func (l *commitLog) isAged(now time.Time) bool {
	return l.config.SegmentTime > 0 && now.Sub(l.activeSince) >= l.config.SegmentTime
}

// roll seals the active segment and starts a new one. What a recovery relies on is on disk before the new segment exists: all
// bytes of the old one, its index, and the producers of everything below the new one. wmu is held.
func (l *commitLog) roll() error {
	l.mu.Lock()
	old, end := l.active().view(), l.end
	l.mu.Unlock()
	if err := l.waitSynced(); err != nil {
		return err
	}
	fs := l.engine.fs
	if err := writeFile(fs, old.indexPath(), encodeIndexFile(old.base, &old.summary, old.index)); err != nil {
		return err
	}
	if err := replaceFile(fs, l.path(producersFile), encodeProducers(end, l.known)); err != nil {
		return err
	}
	next := l.newSegment(segmentName{base: end})
	if err := createEmpty(fs, next.file.path); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active().sealed = true
	l.active().index = nil // it is in the index file
	l.segments = append(slices.Clone(l.segments), next)
	l.hwPos, l.snapshot = 0, end
	return nil
}

// newSegment is an empty segment of the name.
func (l *commitLog) newSegment(n segmentName) *segment {
	return &segment{
		base:    n.base,
		pass:    n.pass,
		file:    cachedFile{path: l.path(n.file(logExt))},
		summary: summary{next: max(n.base, n.next), maxTime: noTime, modified: l.engine.now(), compacted: n.pass > 0},
	}
}

func createEmpty(fs FS, name string) error {
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	return f.Close()
}
