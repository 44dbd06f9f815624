// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// A large read is not read at all: the reader gets the place of whole batches in the file, from where they go to its socket. What is to be
// checked of them was checked before: an append checks what it writes, and other bytes are gone through once, in a buffer that all reads
// share, before they are first given out. What the disk makes of them after that shows at the next check, recheckAfter later at the latest.

const (
	// sectionMin is from how many bytes on a read is given out in its file. Below it a copy costs less than another system call.
	sectionMin = 32 << 10
	// recheckAfter is how long the bytes of a segment count as checked.
	recheckAfter = 10 * time.Minute
)

// section is a part of a segment's file. It has the file in use until it is closed.
type section struct {
	cache  *fileCache
	file   *cachedFile
	f      File
	pos, n int64
	closed sync.Once
}

var _ storage.Section = (*section)(nil)

// Len is the number of bytes.
func (s *section) Len() int { return int(s.n) }

// Close ends the use of the file.
func (s *section) Close() { s.closed.Do(func() { s.cache.release(s.file) }) }

// ReadAll returns the bytes.
func (s *section) ReadAll() ([]byte, error) {
	b := make([]byte, s.n)
	if got, err := s.f.ReadAt(b, s.pos); got < len(b) {
		return nil, s.short(int64(got), err)
	}
	return b, nil
}

// WriteTo writes the bytes to w, with sendfile where w is a socket and the file one of the operating system.
func (s *section) WriteTo(w io.Writer) (int64, error) {
	if sent, ok, err := sendFile(w, s.f, s.pos, s.n); ok {
		if err == nil && sent < s.n {
			err = s.short(sent, io.EOF)
		}
		return sent, err
	}
	return io.Copy(w, io.NewSectionReader(s.f, s.pos, s.n))
}

func (s *section) short(got int64, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s ends at byte %d, before byte %d: %w", s.file.path, s.pos+got, s.pos+s.n, storage.ErrDamaged)
	}
	return fmt.Errorf("read %s at byte %d: %w", s.file.path, s.pos+got, err)
}

// section returns the place of batches from the one that holds offset on, and the offset to read on from; nil where the read is a small one, or
// needs another look, or readers that are slow to take theirs keep too many files open. The caller has acquired the file and releases it where there is no section.
func (l *commitLog) section(v *view, f File, offset int64, maxBytes int) (s *section, next int64, err error) {
	if v.size < sectionMin || l.engine.files.crowded() {
		return nil, 0, nil
	}
	index, err := l.indexOf(v, f)
	if err != nil {
		return nil, 0, err
	}
	from := v.place
	if !v.known {
		if from, err = v.locate(f, index, offset); err != nil {
			return nil, 0, err
		}
	}
	if from.pos < 0 {
		return nil, 0, nil
	}
	to := v.boundary(index, from.pos+int64(maxBytes))
	if to.pos <= from.pos {
		if to, err = v.behind(f, from); err != nil {
			return nil, 0, err
		}
	}
	if to.pos-from.pos < sectionMin {
		return nil, 0, nil
	}
	if sound, err := l.ensureChecked(v, f, from, to); !sound || err != nil {
		return nil, 0, err
	}
	return &section{cache: l.engine.files, file: &v.file, f: f, pos: from.pos, n: to.pos - from.pos}, to.offset, nil
}

// boundary returns the last place at or before byte limit that a batch begins at or the readable part ends at, as far as that is known without
// a look at the file.
func (v *view) boundary(index []indexEntry, limit int64) indexEntry {
	if v.stored.pos <= limit {
		return v.stored
	}
	i := sort.Search(len(index), func(i int) bool { return index[i].pos > min(limit, v.stored.pos) })
	if i == 0 {
		return indexEntry{offset: v.base, pos: 0}
	}
	return index[i-1]
}

// behind returns the place behind one batch, which is given out whole whatever its size; a negative position where that is not what it must be.
func (v *view) behind(f File, at indexEntry) (indexEntry, error) {
	h, err := v.headerAt(f, at)
	if h == nil || err != nil {
		return indexEntry{pos: -1}, err
	}
	return indexEntry{offset: h.Next(), pos: at.pos + int64(h.Size)}, nil
}

// headerAt reads the header of the batch at a place; nil where it is not what it must be, which is found out by who goes there again.
func (v *view) headerAt(f File, at indexEntry) (*recordbatch.Header, error) {
	w, _ := headerWindows.Get().(*headerWindow)
	defer headerWindows.Put(w)
	w.file, w.bytes = f, nil
	return v.headerIn(w, at)
}

func (v *view) headerIn(w *headerWindow, at indexEntry) (*recordbatch.Header, error) {
	if at.pos+recordbatch.HeaderSize > v.size {
		return nil, nil //nolint:nilnil // see headerAt
	}
	b, err := w.at(at.pos, v.size)
	if err != nil {
		return nil, fmt.Errorf("read %s at byte %d: %w", v.file.path, at.pos, err)
	}
	h, err := recordbatch.ParseHeader(b)
	if err != nil || !h.Follows(at.offset, v.compacted) || int64(h.Size) > v.size-at.pos || h.Next() > v.hw {
		return nil, nil //nolint:nilnil,nilerr // see headerAt
	}
	return &h, nil
}

// headerWindow reads headers of small batches many at a time.
type headerWindow struct {
	file  File
	pos   int64
	bytes []byte
	buf   [4096]byte
}

// at returns a header's bytes; size is where the file ends.
func (w *headerWindow) at(pos, size int64) ([]byte, error) {
	if i := pos - w.pos; w.bytes != nil && i >= 0 && i+recordbatch.HeaderSize <= int64(len(w.bytes)) {
		return w.bytes[i : i+recordbatch.HeaderSize], nil
	}
	w.pos, w.bytes = pos, w.buf[:min(int64(len(w.buf)), size-pos)]
	if got, err := w.file.ReadAt(w.bytes, pos); got < len(w.bytes) {
		w.bytes = nil
		return nil, err
	}
	return w.bytes[:recordbatch.HeaderSize], nil
}

// locate returns the place of the batch that holds the offset, by the headers from the index's entry on; a negative position where that is not
// what it must be.
func (v *view) locate(f File, index []indexEntry, offset int64) (indexEntry, error) {
	at := placeOf(index, v.base, offset)
	w, _ := headerWindows.Get().(*headerWindow)
	defer headerWindows.Put(w)
	w.file, w.bytes = f, nil
	for {
		h, err := v.headerIn(w, at)
		switch {
		case h == nil || err != nil:
			return indexEntry{pos: -1}, err
		case h.Next() > offset:
			return indexEntry{offset: h.Base, pos: at.pos}, nil
		}
		at.pos += int64(h.Size)
		at.offset = h.Next()
	}
}

var headerWindows = sync.Pool{New: func() any { return new(headerWindow) }}

// checked is the part of a segment whose bytes were checked, [from, to), and when the first of them were.
type checked struct {
	from, to int64
	since    time.Time
}

// add notes that [from, to) was checked. Where that does not touch what is known, the later part is kept.
func (c *checked) add(from, to int64, now time.Time) {
	switch {
	case c.from == c.to || from > c.to || to < c.from:
		*c = checked{from: from, to: to, since: now}
	default:
		c.from, c.to = min(c.from, from), max(c.to, to)
	}
}

// ensureChecked goes through the batches between two places unless that was done, and says whether all are sound.
func (l *commitLog) ensureChecked(v *view, f File, from, to indexEntry) (bool, error) {
	now := l.engine.now()
	if l.isChecked(v, from.pos, to.pos, now) {
		return true, nil
	}
	sc := newScanner(f, v.file.path, to.pos, from.pos, from.offset)
	sc.limit, sc.compacted = v.limit, v.compacted
	sc.window, _ = checkBuffers.Get().([]byte)
	defer func() { checkBuffers.Put(sc.window[:0]) }() //nolint:staticcheck // a slice header is little beside a window
	for {
		ev, err := sc.next()
		switch {
		case err != nil:
			return false, err
		case ev == atBatch:
			continue
		case ev != atEnd:
			return false, nil
		}
		l.noteChecked(v, from.pos, to.pos, now)
		return true, nil
	}
}

func (l *commitLog) noteChecked(v *view, from, to int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.checked.add(from, to, now)
}

// checkBuffers are the windows of scanners that check what is about to be read.
var checkBuffers = sync.Pool{New: func() any { return []byte(nil) }}

func (l *commitLog) isChecked(v *view, from, to int64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.sealed && now.Sub(v.checked.since) > recheckAfter {
		v.checked = checked{}
	}
	return v.checked.from <= from && to <= v.checked.to
}
