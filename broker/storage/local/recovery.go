// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// recovery opens one log. Its steps are in the order of run; the package comment says what a crash may leave behind.
type recovery struct {
	*commitLog
	now   time.Time
	files map[string]Entry
	names []segmentName // of the log's segments, sorted
	old   []segmentName // of those that compaction made others of

	meta    meta
	hasMeta bool
	stopped *clean // the state of a clean stop; nil after a crash

	// tail is the number of the first segment that is not known to be whole on disk. Only a log that flushes as the OS does has one before the last.
	tail int
	// marked is what the mark file says: everything below it was on disk before the crash. Without a mark it is known of nothing.
	marked  int64
	hasMark bool
}

// openLog opens a partition's log from its directory, and creates what is not there.
func (e *Engine) openLog(p storage.Partition, name string, epoch int32, c storage.Config) (*commitLog, error) {
	l := &commitLog{engine: e, partition: p, dir: filepath.Join(e.dir, name), logger: e.logger, config: c, epoch: epoch, activeSince: e.now()}
	l.mark.path = l.path(markFile)
	r := &recovery{commitLog: l, now: e.now()}
	if err := r.run(); err != nil {
		l.shut()
		return nil, fullError(err)
	}
	return l, nil
}

func (r *recovery) run() error {
	if err := r.list(); err != nil {
		return err
	}
	if err := r.readMeta(); err != nil {
		return err
	}
	if len(r.names) == 0 {
		return r.create()
	}
	if err := r.readStopped(); err != nil {
		return err
	}
	if err := r.haveActive(); err != nil {
		return err
	}
	if err := r.removeLeftovers(); err != nil {
		return err
	}
	if err := r.openSegments(); err != nil {
		return err
	}
	if err := r.openActive(); err != nil {
		return err
	}
	return r.finish()
}

// list lists the directory, which it makes where there is none.
func (r *recovery) list() error {
	fsys := r.engine.fs
	entries, err := fsys.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fsys.Mkdir(r.dir)
	}
	if err != nil {
		return err
	}
	r.files = make(map[string]Entry, len(entries))
	for _, e := range entries {
		r.files[e.Name] = e
		if n, ok := parseSegmentName(e.Name, logExt); ok {
			r.names = append(r.names, n)
		}
	}
	r.names, r.old = superseded(r.names)
	return nil
}

// readMeta reads epoch and start offset. Without a meta file the oldest segment says where the log starts.
func (r *recovery) readMeta() error {
	m, err := readMeta(r.engine.fs, r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m = meta{epoch: math.MinInt32}
		if len(r.names) > 0 {
			m.start = r.names[0].base
		}
	case err != nil:
		return err
	case r.epoch < m.epoch:
		return fmt.Errorf("leader epoch %d, where %d has opened the log: %w", r.epoch, m.epoch, storage.ErrFenced)
	default:
		r.hasMeta = true
	}
	r.meta = m
	return nil
}

// create makes a new log, or finishes what a crash interrupted. The segment comes last: without one nothing was appended.
func (r *recovery) create() error {
	fsys := r.engine.fs
	start := r.meta.start
	if err := writeMeta(fsys, r.dir, meta{epoch: r.epoch, start: start}); err != nil {
		return err
	}
	if err := writeFile(fsys, r.path(markFile), encodeMarks(start)); err != nil {
		return err
	}
	if err := removeIfThere(fsys, r.path(cleanFile)); err != nil {
		return err
	}
	if err := removeIfThere(fsys, r.path(producersFile)); err != nil {
		return err
	}
	if err := r.startAt(start); err != nil {
		return err
	}
	r.known = idempotence.Producers{}
	return fsys.SyncDir(r.engine.dir)
}

// startAt makes an empty segment the log's only one.
func (r *recovery) startAt(base int64) error {
	seg := r.newSegment(segmentName{base: base})
	if err := createEmpty(r.engine.fs, seg.file.path); err != nil {
		return err
	}
	r.segments = []*segment{seg}
	r.start, r.hw, r.onDisk, r.end, r.size = base, base, base, base, 0
	return r.syncDir()
}

// readStopped reads the clean-shutdown marker, and the mark where that does not hold.
func (r *recovery) readStopped() error {
	last := r.names[len(r.names)-1]
	name := r.path(cleanFile)
	b, err := readFile(r.engine.fs, name)
	if err == nil {
		c, derr := decodeClean(b, r.now)
		switch {
		case derr != nil:
			r.logger.Warn("the clean-shutdown marker is damaged; the log is recovered", "file", name, "error", derr)
		case c.base != last.base || last.pass > 0 || c.size != r.files[last.file(logExt)].Size:
			r.logger.Warn("the clean-shutdown marker does not fit the log; the log is recovered", "file", name)
		default:
			r.stopped, r.clean = c, true
			return nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.marked, r.hasMark, err = readMark(r.engine.fs, r.dir)
	return err
}

// haveActive makes an active segment where the last one is a compacted one, which takes no more records: the disk has lost what followed.
func (r *recovery) haveActive() error {
	last := r.names[len(r.names)-1]
	if last.pass == 0 {
		return nil
	}
	next := segmentName{base: last.next}
	r.logger.Error("the log's last segment is lost; the log goes on where it began", "partition", r.String(), "offset", next.base)
	if err := createEmpty(r.engine.fs, r.path(next.file(logExt))); err != nil {
		return err
	}
	r.names = append(r.names, next)
	return r.syncDir()
}

// removeLeftovers removes what a crash left half done: segments below the start or compacted into others, those of a compaction that did not come
// to its end, indexes without a segment, a marker that does not hold, a new file that was not renamed.
func (r *recovery) removeLeftovers() error {
	n := 0
	for n+1 < len(r.names) && r.names[n+1].base <= r.meta.start {
		n++
	}
	var names []string
	for _, old := range slices.Concat(r.old, r.names[:n]) {
		names = append(names, old.file(logExt))
	}
	r.names = r.names[n:]
	for name := range r.files {
		index, ok := parseSegmentName(name, indexExt)
		if ok && !slices.Contains(r.names, index) || strings.HasSuffix(name, cleanedExt) || strings.HasSuffix(name, tempExt) {
			names = append(names, name)
		}
	}
	if _, ok := r.files[cleanFile]; ok && !r.clean {
		names = append(names, cleanFile)
	}
	if len(r.old) > 0 {
		// A process that died may have renamed the new segments without that being on disk.
		if err := r.syncDir(); err != nil {
			return err
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := removeIfThere(r.engine.fs, r.path(name)); err != nil {
			return err
		}
	}
	return nil
}

// openSegments fills in what is known of the segments. One that is sealed, which its index says, was on disk whole before the next one was
// sealed; what comes after the last of these is the tail.
func (r *recovery) openSegments() error {
	for _, name := range r.names {
		seg := r.newSegment(name)
		file := r.files[name.file(logExt)]
		seg.size, seg.modified = file.Size, file.Modified
		r.segments = append(r.segments, seg)
	}
	r.tail = len(r.names) - 1
	if r.stopped == nil {
		for r.tail > 0 && !r.isSealed(r.tail-1) {
			r.tail--
		}
	}
	for i, seg := range r.segments[:r.tail] {
		seg.sealed = true
		limit := r.names[i+1].base
		if err := r.openSealed(seg, limit); err != nil {
			return err
		}
		if seg.next < limit {
			r.reportDamage(&damage{path: seg.file.path, pos: seg.size, end: seg.size, from: seg.next, to: limit})
		}
	}
	return nil
}

// isSealed says whether a segment other than the last was on disk whole.
func (r *recovery) isSealed(i int) bool {
	seg, limit := r.segments[i], r.names[i+1].base
	if seg.compacted || limit <= r.marked {
		return true
	}
	s, err := readIndexHeader(r.engine.fs, seg.indexPath(), seg.base)
	return err == nil && s.size == seg.size && s.next == limit
}

// openSealed takes a sealed segment's summary from its index file, or goes through the segment and writes the index anew.
func (r *recovery) openSealed(seg *segment, limit int64) error {
	name := seg.indexPath()
	s, err := readIndexHeader(r.engine.fs, name, seg.base)
	if err == nil && s.size == seg.size && s.next <= limit {
		seg.next, seg.maxTime = s.next, s.maxTime
		return nil
	}
	// Of a compacted segment the name says where it ends, but not whether batches are missing there.
	whole := seg.compacted && (err != nil || s.size <= seg.size)
	r.logger.Warn("an index does not fit its segment; it is made anew", "file", name, "error", err)
	x := indexer{interval: r.engine.opts.IndexIntervalBytes, maxTime: recordbatch.NoTime}
	next := seg.base
	err = r.scan(seg, limit, func(sc *scanner, ev event) bool {
		switch ev {
		case atBatch:
			x.add(sc.at, &sc.head)
			next = sc.head.Next()
		case atDamage:
			r.reportDamage(&sc.damage)
		case atTail:
			whole = false
		case atEnd: // openSegments reports what is missing at the end
		}
		return true
	})
	if err != nil {
		return err
	}
	if !whole {
		seg.next = next
	}
	seg.maxTime = x.maxTime
	if err := writeFile(r.engine.fs, name, encodeIndexFile(seg.base, &seg.summary, x.entries)); err != nil {
		r.logger.Warn("cannot write an index; it will be made anew when it is needed", "error", err)
	}
	return nil
}

// scan goes through a segment from its start until fn returns false.
func (r *recovery) scan(seg *segment, limit int64, fn func(*scanner, event) bool) error {
	f, err := r.engine.files.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer r.engine.files.release(&seg.file)
	sc := newScanner(f, seg.file.path, seg.size, 0, seg.base)
	sc.limit, sc.compacted = limit, seg.compacted
	for {
		ev, err := sc.next()
		if err != nil {
			return err
		}
		if ev == atEnd || !fn(sc, ev) {
			return nil
		}
	}
}

func (l *commitLog) reportDamage(d *damage) {
	l.logger.Error("records are damaged; they are not served, the others are", "partition", l.String(), "error", d.Error())
}

// finish checks that start and end fit each other, and makes the new leader epoch durable.
func (r *recovery) finish() error {
	r.end = r.active().next
	r.start = max(r.meta.start, r.segments[0].base)
	for _, s := range r.segments {
		r.size += s.size
	}
	if r.end < r.start {
		r.logger.Error("the log ends before its start offset; it goes on empty from there", "partition", r.String(),
			"start", r.start, "end", r.end)
		old := r.segments
		if err := r.writeProducers(r.end); err != nil {
			return err
		}
		if err := r.startAt(r.start); err != nil {
			return err
		}
		if err := r.removeSegments(old); err != nil {
			return err
		}
	}
	r.hw, r.hwPos, r.onDisk = r.end, r.active().size, r.end
	if r.stopped == nil {
		if err := r.cutPasses(); err != nil {
			return err
		}
	}
	if !r.hasMeta || r.epoch > r.meta.epoch {
		return r.writeMeta(meta{epoch: r.epoch, start: r.start})
	}
	return nil
}
