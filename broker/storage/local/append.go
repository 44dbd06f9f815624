// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	defaultMaxBatchBytes = 1048588
	// maxAppendBytes bounds one call of Append, and with it by how much a segment may be larger than its limit.
	maxAppendBytes = 1 << 30
)

// Append appends whole batches. See storage.Log and, for what is refused, the package comment.
func (l *commitLog) Append(ctx context.Context, batches []byte, d storage.Durability) (int64, error) {
	base, err := l.append(ctx, batches, d)
	if err != nil {
		return -1, fmt.Errorf("append to %s: %w", l, err)
	}
	return base, nil
}

func (l *commitLog) append(ctx context.Context, batches []byte, d storage.Durability) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	headers, err := checkBatches(batches, l.maxBatchBytes())
	if err != nil {
		return 0, err
	}
	base, next, err := l.write(batches, headers)
	if err != nil || d != storage.Synced {
		return base, err
	}
	return base, l.wait(ctx, next)
}

func (l *commitLog) maxBatchBytes() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.config.MaxBatchBytes > 0 {
		return l.config.MaxBatchBytes
	}
	return defaultMaxBatchBytes
}

// write writes the batches that are not duplicates. It returns the offset of the first record, and the one that the high watermark
// must reach for all of them to be on disk.
func (l *commitLog) write(batches []byte, headers []header) (base, next int64, err error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return 0, 0, err
	}
	end, now := l.EndOffset(), l.engine.now()
	pl, err := l.known.plan(headers, end, now)
	if err != nil {
		return 0, 0, err
	}
	if pl.bytes == 0 {
		return pl.base, pl.next, nil
	}
	if err := l.begin(); err != nil {
		return 0, 0, fullError(err)
	}
	if err := l.makeRoom(pl.bytes); err != nil {
		return 0, 0, fullError(err)
	}
	fresh, headers := l.place(batches, headers, &pl, end)
	if err := l.writeFresh(fresh, headers); err != nil {
		return 0, 0, err
	}
	l.known.commit(&pl)
	return pl.base, pl.next, nil
}

// place sets offsets and leader epoch in the fresh batches, and returns them alone.
func (l *commitLog) place(batches []byte, headers []header, pl *plan, end int64) ([]byte, []header) {
	l.mu.Lock()
	epoch := l.epoch
	l.mu.Unlock()
	if pl.bytes < len(batches) {
		batches, headers = dropDuplicates(batches, headers, pl)
	}
	at := 0
	for i := range headers {
		h := &headers[i]
		h.base = end
		setPlace(batches[at:], end, epoch)
		end = h.next()
		at += h.size
	}
	return batches, headers
}

func dropDuplicates(batches []byte, headers []header, pl *plan) ([]byte, []header) {
	bytes, kept := make([]byte, 0, pl.bytes), make([]header, 0, len(headers))
	at := 0
	for i, h := range headers {
		if pl.fresh[i] {
			bytes = append(bytes, batches[at:at+h.size]...)
			kept = append(kept, h)
		}
		at += h.size
	}
	return bytes, kept
}

// writeFresh writes placed batches behind the active segment's last one and starts a sync.
func (l *commitLog) writeFresh(batches []byte, headers []header) error {
	seg := l.active()
	f, err := l.engine.files.acquire(&seg.file)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(batches, seg.size); err != nil {
		err = l.undo(seg, f, err)
		l.engine.files.release(&seg.file)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.engine.now()
	for i := range headers {
		seg.add(&headers[i], l.engine.opts.IndexIntervalBytes, now)
	}
	l.end = seg.next
	l.size += int64(len(batches))
	if l.unsynced == nil {
		l.unsynced, l.syncFile = seg, f
	} else {
		l.engine.files.release(&seg.file)
	}
	l.startSync()
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

// makeRoom starts a new segment where n more bytes would make the active one too large.
func (l *commitLog) makeRoom(n int) error {
	seg := l.active()
	if seg.size == 0 || seg.size+int64(n) <= l.engine.opts.SegmentBytes {
		return nil
	}
	return l.roll()
}

// roll seals the active segment and starts a new one. What a recovery relies on is on disk before the new segment exists: all
// bytes of the old one, its index, and the producers of everything below the new one. wmu is held.
func (l *commitLog) roll() error {
	l.mu.Lock()
	old, end := l.active().view(), l.end
	l.mu.Unlock()
	if err := l.waitSynced(end); err != nil {
		return err
	}
	fs := l.engine.fs
	if err := writeFile(fs, l.segmentPath(old.base, indexExt), encodeIndexFile(old.base, &old.summary, old.index)); err != nil {
		return err
	}
	if err := writeFile(fs, l.path(producersFile), encodeProducers(end, l.known)); err != nil {
		return err
	}
	next := l.newSegment(end)
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
	return nil
}

func (l *commitLog) newSegment(base int64) *segment {
	return &segment{
		base:    base,
		file:    cachedFile{path: l.segmentPath(base, logExt)},
		summary: summary{next: base, maxTime: noTime, modified: l.engine.now()},
	}
}

func createEmpty(fs FS, name string) error {
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	return f.Close()
}
