// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// openActive opens the last segment: after a clean stop from the marker, else by reading it and those before it that are not sealed.
func (r *recovery) openActive() error {
	if c := r.stopped; c != nil {
		seg := r.active()
		seg.next, seg.maxTime, seg.index = c.next, c.maxTime, c.index
		r.known = c.producers
		return nil
	}
	if err := r.readProducers(); err != nil {
		return err
	}
	from := r.snapshot
	if err := r.replaySealed(from); err != nil {
		return err
	}
	if err := r.openTail(from); err != nil {
		return err
	}
	end := r.active().next
	if from <= end {
		return nil
	}
	// The disk has lost batches that it had. The file must not speak of them when others have their offsets.
	r.known = idempotence.Producers{}
	if err := r.replayAll(); err != nil {
		return err
	}
	return r.writeProducers(end)
}

// openTail opens the segments that are not sealed. The log ends in the first of them that does not reach the next one: a crash of the machine may keep
// later segments and lose what was before them.
func (r *recovery) openTail(from int64) error {
	for i := r.tail; i < len(r.segments); i++ {
		seg := r.segments[i]
		t := tail{x: indexer{interval: r.engine.opts.IndexIntervalBytes, maxTime: recordbatch.NoTime}, end: 0, next: seg.base, anew: -1}
		if err := r.scanTail(seg, &t, from); err != nil {
			return err
		}
		if err := r.makeDurable(seg, &t); err != nil {
			return err
		}
		seg.size, seg.next, seg.maxTime, seg.index = t.end, t.next, t.x.maxTime, t.x.entries
		if i+1 == len(r.segments) {
			return nil
		}
		if lost := r.segments[i+1:]; t.next < lost[0].base {
			r.logger.Warn("segments that follow a torn one are removed", "partition", r.String(), "offset", t.next, "segments", len(lost))
			r.segments = r.segments[:i+1]
			return r.removeSegments(lost)
		}
		if err := writeFile(r.engine.fs, seg.indexPath(), encodeIndexFile(seg.base, &seg.summary, seg.index)); err != nil {
			return err
		}
		seg.sealed, seg.index = true, nil
	}
	return nil
}

// tail is what was found of a segment that is not sealed.
type tail struct {
	x    indexer
	end  int64 // the byte after the last sound batch
	next int64 // the offset after its last record
	anew int64 // the byte from which on it is not known to be on disk; -1 where all is
}

// scanTail goes through a segment up to the torn tail. The tail is what follows the last sound batch. It is also what
// follows the first unsound one that was not yet known to be on disk: a crash of the machine may keep a later write and lose an
// earlier one, and neither was acknowledged. An unsound batch that had been on disk is damage, and what follows it is kept.
func (r *recovery) scanTail(seg *segment, t *tail, from int64) error {
	return r.scan(seg, r.limit(seg), func(sc *scanner, ev event) bool {
		switch ev {
		case atBatch:
			t.add(sc, r.hasMark, r.marked)
			if sc.head.Base >= from {
				r.known.Apply(&sc.head, sc.head.Base, r.now)
			}
			return true
		case atDamage:
			if r.hasMark && sc.damage.from >= r.marked {
				return false
			}
			r.reportDamage(&sc.damage)
			return true
		case atTail, atEnd:
		}
		return false
	})
}

// limit is the offset that no record of a segment reaches.
func (r *recovery) limit(seg *segment) int64 {
	if i := slices.Index(r.segments, seg); i+1 < len(r.segments) {
		return r.segments[i+1].base
	}
	return math.MaxInt64
}

func (t *tail) add(sc *scanner, hasMark bool, marked int64) {
	t.x.add(sc.at, &sc.head)
	t.end, t.next = sc.pos, sc.offset
	if t.anew < 0 && (!hasMark || sc.head.Next() > marked) {
		t.anew = sc.at
	}
}

// makeDurable cuts the torn tail off and makes all that is left durable. What the mark does not cover is written anew: after a failed
// fsync the kernel may hold it as clean although it never reached the disk.
func (r *recovery) makeDurable(seg *segment, t *tail) error {
	f, err := r.engine.files.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer r.engine.files.release(&seg.file)
	if t.end < seg.size {
		r.reportCut(seg, t)
		if err = f.Truncate(t.end); err != nil {
			return fmt.Errorf("cut the torn tail of %s off at byte %d: %w", seg.file.path, t.end, err)
		}
	}
	if t.anew >= 0 {
		if err = rewrite(f, t.anew, t.end); err != nil {
			return fmt.Errorf("write the tail of %s anew: %w", seg.file.path, err)
		}
	}
	if err = f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", seg.file.path, err)
	}
	if !r.hasMark || r.marked != t.next {
		if err := replaceFile(r.engine.fs, r.path(markFile), encodeMarks(t.next)); err != nil {
			return err
		}
	}
	if err := r.syncDir(); err != nil {
		return err
	}
	return r.engine.fs.SyncDir(r.engine.dir)
}

func (r *recovery) reportCut(seg *segment, t *tail) {
	log, message := r.logger.Warn, "a torn tail is cut off"
	if r.hasMark && r.marked > t.next {
		log, message = r.logger.Error, "the disk has lost records that had been on it; what is left of the log's tail is cut off"
	}
	log(message, "partition", r.String(), "file", seg.file.path, "byte", t.end, "bytes", seg.size-t.end, "offset", t.next)
}

// rewrite writes the bytes [pos, end) of a file as they are.
func rewrite(f File, pos, end int64) error {
	b := make([]byte, min(end-pos, scanChunk))
	for pos < end {
		b = b[:min(end-pos, int64(len(b)))]
		if n, err := f.ReadAt(b, pos); n < len(b) {
			return err
		}
		if _, err := f.WriteAt(b, pos); err != nil {
			return err
		}
		pos += int64(len(b))
	}
	return nil
}

// replaySealed applies the sealed segments' batches from the offset on to the producers. After a crash there is nothing to do: a
// snapshot is written before a segment is made. Segments that were compacted say nothing of a producer, whose newest batch may have gone: it is
// then one that is not known.
func (r *recovery) replaySealed(from int64) error {
	for _, seg := range r.segments {
		if !seg.sealed || seg.next <= from || seg.compacted {
			continue
		}
		if err := r.replay(seg, seg.next, from); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) replayAll() error {
	if err := r.replaySealed(0); err != nil {
		return err
	}
	return r.replay(r.active(), math.MaxInt64, 0)
}

func (r *recovery) replay(seg *segment, limit, from int64) error {
	return r.scan(seg, limit, func(sc *scanner, ev event) bool {
		if ev == atBatch && sc.head.Base >= from {
			r.known.Apply(&sc.head, sc.head.Base, r.now)
		}
		return true
	})
}
