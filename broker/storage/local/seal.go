// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// With storage.FlushOS nobody waits for the disk, not even who starts a new segment. The old one goes into a queue, and is sealed, as roll does it, by the
// goroutine that syncs: in order, each before anything behind it is synced. A recovery goes through those that are not sealed (tail.go).

// maxUnsealed is how many segments may wait to be sealed; who starts another one waits. It bounds what a recovery must go through.
const maxUnsealed = 8

// unsealed is a segment that takes no more batches and is not sealed yet.
type unsealed struct {
	segment   *segment
	file      File   // in use
	end       int64  // the offset after its last record
	producers []byte // what the producers file is to hold
}

// startSegment starts a new segment. wmu is held.
func (l *commitLog) startSegment() error {
	l.mu.Lock()
	seg := l.active()
	later := l.config.Flush == storage.FlushOS && l.onDisk < l.end && len(l.unsealed) < maxUnsealed
	u := unsealed{segment: seg, end: l.end}
	l.mu.Unlock()
	if !later {
		return l.roll()
	}
	u.producers = encodeProducers(u.end, l.known)
	next := l.newSegment(segmentName{base: u.end})
	if err := createEmpty(l.engine.fs, next.file.path); err != nil {
		return err
	}
	var err error
	if u.file, err = l.engine.files.acquire(&seg.file); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsealed = append(l.unsealed, u)
	l.releaseSynced() // the queue has it in use
	l.segments = append(slices.Clone(l.segments), next)
	l.hwPos = 0
	l.startSync()
	return nil
}

// syncUnsealed syncs and seals the first segment of the queue; mu is held, but not while it does so.
func (l *commitLog) syncUnsealed() error {
	u := l.unsealed[0]
	l.mu.Unlock()
	err := l.engine.sync(u.file)
	if err == nil {
		l.writeMark(u.end)
		err = l.seal(&u)
	} else {
		err = fmt.Errorf("sync %s: %w", u.segment.file.path, err)
	}
	l.mu.Lock()
	if err != nil {
		return err
	}
	l.unsealed = slices.Clone(l.unsealed[1:])
	l.engine.files.release(&u.segment.file)
	u.segment.sealed, u.segment.index = true, nil
	l.onDisk = max(l.onDisk, u.end)
	return nil
}

// seal makes the name of the segment behind a synced one durable, and what is known of the producers, and writes its index: from then on a recovery takes both
// for whole. What cannot be written of these files, because the disk is full, is made anew when it is needed.
func (l *commitLog) seal(u *unsealed) error {
	s := u.segment
	err := replaceFile(l.engine.fs, l.path(producersFile), u.producers)
	if err := l.engine.fs.SyncDir(l.dir); err != nil {
		return fmt.Errorf("sync directory %s: %w", l.dir, err)
	}
	if err == nil {
		l.mu.Lock()
		l.snapshot = u.end
		l.mu.Unlock()
	}
	err = errors.Join(err, writeFile(l.engine.fs, s.indexPath(), encodeIndexFile(s.base, &s.summary, s.index)))
	if err != nil {
		l.logger.Warn("cannot write what a start reads instead of a segment", "partition", l.String(), "segment", s.file.path, "error", err)
	}
	return nil
}

// releaseUnsealed ends the use of the files in the queue; mu is held.
func (l *commitLog) releaseUnsealed() {
	for _, u := range l.unsealed {
		l.engine.files.release(&u.segment.file)
	}
	l.unsealed = nil
}
