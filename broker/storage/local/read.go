// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// maxReadBytes bounds one read, whatever is asked for; a larger single batch is still read whole.
const maxReadBytes = 64 << 20

// Read returns whole batches from the one that holds the offset on. See storage.Log.
func (l *commitLog) Read(ctx context.Context, offset int64, maxBytes int) (storage.Batches, error) {
	b, err := l.read(ctx, offset, min(max(maxBytes, 1), maxReadBytes))
	if err != nil {
		return storage.Batches{}, fmt.Errorf("read %s from offset %d: %w", l, offset, err)
	}
	return b, nil
}

func (l *commitLog) read(ctx context.Context, offset int64, maxBytes int) (storage.Batches, error) {
	if err := ctx.Err(); err != nil {
		return storage.Batches{}, err
	}
	for {
		v, err := l.holder(offset)
		if v == nil || err != nil {
			return storage.Batches{}, err
		}
		b, err := l.readSegment(v, offset, maxBytes)
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, errNoMore):
			offset = v.next
		case !l.wasReplaced(v, err):
			return storage.Batches{}, l.explain(offset, err)
		}
	}
}

// errNoMore says that compaction has left nothing from an offset on to the end of its segment.
var errNoMore = errors.New("nothing more in the segment")

// wasReplaced says whether a read failed because compaction made another segment of the one that was to be read.
func (l *commitLog) wasReplaced(v *view, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && v.base >= l.start && !slices.Contains(l.segments, v.segment)
}

// holder returns the segment that holds the offset, or nil where readers may not see it yet.
func (l *commitLog) holder(offset int64) (*view, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, storage.ErrClosed
	case offset < l.start || offset > l.end:
		return nil, fmt.Errorf("the log has %d to %d: %w", l.start, l.end, storage.ErrOffsetOutOfRange)
	case offset >= l.hw:
		return nil, nil
	}
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].base > offset })
	v := l.viewOf(max(i-1, 0))
	if l.ends == nil {
		return &v, nil
	}
	for _, e := range l.ends {
		if e.segment == v.segment && e.offset == offset && e.pos < v.size {
			v.known, v.place = true, e.indexEntry
		}
	}
	return &v, nil
}

// noteEnd notes where a read ended; next is the offset to read on from.
func (l *commitLog) noteEnd(s *segment, next, pos int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends == nil {
		l.ends = new([keptEnds]readEnd)
	}
	for _, e := range l.ends {
		if e.segment == s && e.offset == next {
			return
		}
	}
	l.ends[l.nextEnd] = readEnd{s, indexEntry{offset: next, pos: pos}}
	l.nextEnd = (l.nextEnd + 1) % keptEnds
}

// viewOf is what a reader may see of a segment; mu is held.
func (l *commitLog) viewOf(i int) view {
	v := l.segments[i].view()
	v.limit, v.hw, v.stored = l.end, l.hw, indexEntry{offset: l.hw, pos: l.hwPos}
	if i+1 < len(l.segments) {
		v.limit = l.segments[i+1].base
		v.stored = indexEntry{offset: v.next, pos: v.size}
	}
	return v
}

// explain finds out whether a read failed because the segment went away meanwhile.
func (l *commitLog) explain(offset int64, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return storage.ErrClosed
	case offset < l.start:
		return fmt.Errorf("the log starts at %d: %w", l.start, storage.ErrOffsetOutOfRange)
	}
	return err
}

func (l *commitLog) readSegment(v *view, offset int64, maxBytes int) (storage.Batches, error) {
	if offset >= v.next {
		return storage.Batches{}, &damage{path: v.file.path, pos: v.size, end: v.size, from: v.next, to: v.limit}
	}
	f, err := l.engine.files.acquire(&v.file)
	if err != nil {
		return storage.Batches{}, err
	}
	s, next, err := l.section(v, f, offset, maxBytes)
	if s != nil {
		l.noteEnd(v.segment, next, s.pos+s.n)
		return storage.InFile(s, next), nil // the section has the file in use
	}
	defer l.engine.files.release(&v.file)
	if err != nil {
		return storage.Batches{}, err
	}
	r := reader{f: f, view: v}
	b, err := l.readOn(&r, offset, maxBytes)
	if err != nil {
		return storage.Batches{}, err
	}
	l.noteEnd(v.segment, r.next, r.end)
	return storage.InMemory(b, r.next), nil
}

// readOn reads from where an earlier read ended, or from the place that the index gives. Where something on the way is not as it must
// be, it goes there again, checking every batch whole.
func (l *commitLog) readOn(r *reader, offset int64, maxBytes int) ([]byte, error) {
	if r.view.known {
		if b, err := r.read(r.view.place, offset, maxBytes, 0); !errors.Is(err, errUnsound) {
			return b, err
		}
	}
	index, err := l.indexOf(r.view, r.f)
	if err != nil {
		return nil, err
	}
	at := placeOf(index, r.view.base, offset)
	b, err := r.read(at, offset, maxBytes, int(l.engine.opts.IndexIntervalBytes))
	if !errors.Is(err, errUnsound) {
		return b, err
	}
	if at, err = r.find(at, offset); err != nil {
		return nil, err
	}
	if b, err = r.read(at, offset, maxBytes, 0); errors.Is(err, errUnsound) {
		err = fmt.Errorf("%s at byte %d changes while it is read: %w", r.view.file.path, at.pos, storage.ErrDamaged)
	}
	return b, err
}

// indexOf returns a segment's index. That of a sealed one is loaded from its file, or made anew where the file is not sound.
func (l *commitLog) indexOf(v *view, f File) ([]indexEntry, error) {
	if !v.sealed {
		return v.index, nil
	}
	if index := l.engine.files.loaded(&v.file); index != nil {
		return index, nil
	}
	index, err := readIndexFile(l.engine.fs, v.indexPath(), v.base)
	if err != nil {
		l.logger.Warn("an index is made anew", "partition", l.String(), "segment", v.file.path, "error", err)
		x := indexer{interval: l.engine.opts.IndexIntervalBytes, maxTime: recordbatch.NoTime}
		if err := scanSealed(f, v, &x); err != nil {
			return nil, err
		}
		index = x.entries
	}
	l.engine.files.setLoaded(&v.file, index)
	return index, nil
}

// scanSealed indexes the sound batches of a sealed segment.
func scanSealed(f File, v *view, x *indexer) error {
	sc := newScanner(f, v.file.path, v.size, 0, v.base)
	sc.limit, sc.compacted = v.limit, v.compacted
	for {
		ev, err := sc.next()
		if err != nil {
			return err
		}
		switch ev {
		case atBatch:
			x.add(sc.at, &sc.head)
		case atDamage:
		case atEnd, atTail:
			return nil
		}
	}
}

// errUnsound says that a batch is not sound. It never leaves the package: the slow way finds out what exactly is damaged.
var errUnsound = errors.New("unsound batch")

// reader reads from one segment.
type reader struct {
	f    File
	view *view
	// next and end are where a successful read ended: the offset and the byte after its last batch.
	next, end int64
}

// read returns the batches from the one that holds offset on, at most maxBytes but at least one. It goes from a known place to
// that batch by the headers alone, which must follow each other; ahead is how far that may be, in bytes. What is returned has its
// CRC checked.
func (r *reader) read(at indexEntry, offset int64, maxBytes, ahead int) ([]byte, error) {
	for at.pos < r.view.size {
		chunk, err := r.bytes(at.pos, min(int64(maxBytes)+int64(ahead)+recordbatch.HeaderSize, r.view.size-at.pos))
		if err != nil {
			return nil, err
		}
		pos := 0
		for len(chunk)-pos >= recordbatch.HeaderSize {
			h, err := recordbatch.ParseHeader(chunk[pos:])
			if err != nil || !h.Follows(at.offset, r.view.compacted) || int64(h.Size) > r.view.size-at.pos {
				return nil, errUnsound
			}
			if h.Next() > offset {
				return r.collect(chunk[pos:], at.pos, &h, maxBytes)
			}
			pos += h.Size // perhaps beyond the chunk
			at.pos += int64(h.Size)
			at.offset = h.Next()
		}
		if pos == 0 {
			break // what is left is too short for a header
		}
	}
	return nil, errUnsound
}

// collect returns the sound batches at the front of chunk, which is at pos in the file: the first, with the header h, whatever its
// size, then those that fit in maxBytes and are below the high watermark.
func (r *reader) collect(chunk []byte, pos int64, h *recordbatch.Header, maxBytes int) ([]byte, error) {
	if h.Size > len(chunk) {
		var err error
		if chunk, err = r.bytes(pos, int64(h.Size)); err != nil {
			return nil, err
		}
	}
	if !recordbatch.CRCMatches(chunk[:h.Size], h) {
		return nil, errUnsound
	}
	n := h.Size
	r.next = h.Next()
	for r.next < r.view.hw {
		h, ok := r.view.soundBatch(chunk[n:], r.next, maxBytes-n)
		if !ok {
			break // too much, or for the next read to say what is wrong
		}
		n += h.Size
		r.next = h.Next()
	}
	r.end = pos + int64(n)
	return chunk[:n:n], nil
}

// soundBatch says whether b starts with a whole, sound batch of at most maxBytes that may come at the offset.
func (v *view) soundBatch(b []byte, offset int64, maxBytes int) (recordbatch.Header, bool) {
	h, err := recordbatch.ParseHeader(b)
	return h, err == nil && h.Follows(offset, v.compacted) && h.Size <= min(len(b), maxBytes) && recordbatch.CRCMatches(b[:h.Size], &h)
}

func (r *reader) bytes(pos, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := r.f.ReadAt(b, pos)
	if got == len(b) {
		return b, nil
	}
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s ends at byte %d, before its %d bytes: %w", r.view.file.path, pos+int64(got), r.view.size,
			storage.ErrDamaged)
	}
	return nil, fmt.Errorf("read %s at byte %d: %w", r.view.file.path, pos, err)
}

// find returns the place of the sound batch that holds the offset, or the damage that does. It checks every batch on the way.
func (r *reader) find(at indexEntry, offset int64) (indexEntry, error) {
	sc := newScanner(r.f, r.view.file.path, r.view.size, at.pos, at.offset)
	sc.limit, sc.compacted = r.view.limit, r.view.compacted
	for {
		ev, err := sc.next()
		if err != nil {
			return indexEntry{}, err
		}
		switch ev {
		case atBatch:
			if sc.head.Next() > offset {
				return indexEntry{offset: sc.head.Base, pos: sc.at}, nil
			}
		case atDamage:
			if sc.damage.to > offset {
				return indexEntry{}, new(sc.damage)
			}
		case atEnd, atTail:
			if ev == atEnd && r.view.compacted {
				return indexEntry{}, errNoMore
			}
			d := damage{path: r.view.file.path, pos: sc.pos, end: r.view.size, from: sc.offset, to: r.view.next}
			if ev == atTail {
				d.pos = sc.damage.pos
			}
			return indexEntry{}, &d
		}
	}
}
