// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// writeGroup writes the group behind the active segment's last batch and sees to its sync. wmu is held.
func (l *commitLog) writeGroup(g *idempotence.Group) error {
	if err := l.begin(); err != nil {
		return fullError(err)
	}
	if err := l.makeRoom(g); err != nil {
		return fullError(err)
	}
	l.mu.Lock()
	epoch := l.epoch
	l.mu.Unlock()
	g.Place(epoch)
	if err := l.writeFresh(g); err != nil {
		return err
	}
	l.known.Commit(&g.Plan)
	return nil
}

func (l *commitLog) writeFresh(g *idempotence.Group) error {
	seg := l.active()
	f, err := l.engine.files.acquire(&seg.file)
	if err != nil {
		return err
	}
	if err = f.WriteAllAt(g.Parts, seg.size); err != nil {
		err = l.undo(seg, f, err)
		l.engine.files.release(&seg.file)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if seg.size == 0 {
		l.activeSince = g.Now
	}
	for _, h := range g.Headers {
		seg.checked.add(seg.size, seg.size+int64(h.Size), g.Now)
		seg.add(h, l.engine.opts.IndexIntervalBytes, g.Now)
	}
	l.end = seg.next
	l.size += int64(g.Bytes)
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
func (l *commitLog) makeRoom(g *idempotence.Group) error {
	l.mu.Lock()
	size := l.active().size
	due := size > 0 && (size+int64(g.Bytes) > l.segmentBytes() || l.isAged(g.Now))
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
		summary: summary{next: max(n.base, n.next), maxTime: recordbatch.NoTime, modified: l.engine.now(), compacted: n.pass > 0},
	}
}

func createEmpty(fs FS, name string) error {
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	return f.Close()
}
