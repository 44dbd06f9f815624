// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const scanChunk = 1 << 20

// damage is a part of a segment that holds no sound batch.
type damage struct {
	path     string
	pos, end int64 // the bytes [pos, end)
	from, to int64 // the offsets [from, to) that are lost; none where equal
}

// Error says what is damaged; it wraps storage.ErrDamaged.
func (d *damage) Error() string {
	if d.from == d.to {
		return fmt.Sprintf("%s at byte %d: %d bytes that belong to no batch: %v", d.path, d.pos, d.end-d.pos, storage.ErrDamaged)
	}
	return fmt.Sprintf("%s at byte %d: records %d to %d cannot be read, and %d can: %v", d.path, d.pos, d.from, d.to-1, d.to,
		storage.ErrDamaged)
}

// Unwrap is storage.ErrDamaged.
func (d *damage) Unwrap() error { return storage.ErrDamaged }

// event is what a scanner came to.
type event int8

const (
	atEnd    event = iota
	atBatch        // a sound batch: scanner.head, at, batch
	atDamage       // bytes that are no sound batch, and a sound one behind them: scanner.damage
	atTail         // bytes that are no sound batch, and none behind them: scanner.damage; its to is not known
)

// scanner goes through a segment's batches and checks every one whole: header, CRC-32C, and that its base offset is the one that
// follows. It never goes beyond size, and holds in memory one batch or scanChunk bytes.
type scanner struct {
	f    io.ReaderAt
	path string
	size int64
	// compacted says that offsets may be left out, as in a compacted segment.
	compacted bool
	// limit is the offset that no record may reach; the next segment's base.
	limit int64

	pos    int64 // where the next batch must start
	offset int64 // and which base offset it must have

	head   recordbatch.Header
	at     int64
	batch  []byte // valid until the next call
	damage damage

	window    []byte
	windowPos int64
}

func newScanner(f io.ReaderAt, path string, size, pos, offset int64) *scanner {
	return &scanner{f: f, path: path, size: size, limit: math.MaxInt64, pos: pos, offset: offset}
}

// next goes to the next batch or damage. An error is one of reading.
func (s *scanner) next() (event, error) {
	if s.pos >= s.size {
		return atEnd, nil
	}
	ok, err := s.sound(s.pos, s.offset)
	if err != nil {
		return atEnd, err
	}
	if ok && s.head.Follows(s.offset, s.compacted) {
		s.at = s.pos
		s.pos += int64(s.head.Size)
		s.offset = s.head.Next()
		return atBatch, nil
	}
	s.damage = damage{path: s.path, pos: s.pos, end: s.size, from: s.offset, to: s.offset}
	found, err := s.resync()
	if err != nil {
		return atEnd, err
	}
	if !found {
		s.pos = s.size
		return atTail, nil
	}
	s.damage.end, s.damage.to = s.at, s.head.Base
	s.pos, s.offset = s.at, s.head.Base
	return atDamage, nil
}

// sound says whether there is a whole batch at pos, with a base offset of at least minBase, and sets head and batch.
func (s *scanner) sound(pos, minBase int64) (bool, error) {
	if s.size-pos < recordbatch.HeaderSize {
		return false, nil
	}
	b, err := s.bytes(pos, recordbatch.HeaderSize)
	if err != nil {
		return false, err
	}
	h, err := recordbatch.ParseHeader(b)
	if err != nil || h.Base < minBase || !h.Follows(h.Base, s.compacted) || h.Base >= s.limit-int64(h.LastDelta) || int64(h.Size) > s.size-pos {
		return false, nil //nolint:nilerr // what is no header is no sound batch; that is the answer
	}
	b, err = s.bytes(pos, h.Size)
	if err != nil || !recordbatch.CRCMatches(b, &h) {
		return false, err
	}
	s.head, s.batch = h, b
	return true, nil
}

// resync looks for the next sound batch behind the bad bytes at pos and sets head and at. It tries the place that the bad batch's
// own length gives first, so that a batch which holds bytes that look like batches is passed over whole.
func (s *scanner) resync() (bool, error) {
	if s.size-s.pos >= recordbatch.HeaderSize {
		b, err := s.bytes(s.pos, recordbatch.HeaderSize)
		if err != nil {
			return false, err
		}
		if h, err := recordbatch.ParseHeader(b); err == nil && int64(h.Size) < s.size-s.pos {
			s.at = s.pos + int64(h.Size)
			if ok, err := s.sound(s.at, s.offset); ok || err != nil {
				return ok, err
			}
		}
	}
	for pos := s.pos + 1; s.size-pos >= recordbatch.HeaderSize; pos++ {
		b, err := s.peek(pos)
		if err != nil {
			return false, err
		}
		i := bytes.IndexByte(b[recordbatch.PosMagic:len(b)-(recordbatch.HeaderSize-recordbatch.PosMagic)+1], recordbatch.MagicV2)
		if i < 0 {
			pos += int64(len(b) - recordbatch.HeaderSize) // the loop adds one: all places where a header fits have been looked at
			continue
		}
		pos += int64(i)
		s.at = pos
		if ok, err := s.sound(pos, s.offset); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// peek returns what the window holds from pos on, which is at least a header.
func (s *scanner) peek(pos int64) ([]byte, error) {
	i := pos - s.windowPos
	if i >= 0 && i+recordbatch.HeaderSize <= int64(len(s.window)) {
		return s.window[i:], nil
	}
	return s.bytes(pos, int(min(scanChunk, s.size-pos)))
}

// bytes returns n bytes at pos, which are within size. They are valid until the next call.
func (s *scanner) bytes(pos int64, n int) ([]byte, error) {
	if i := pos - s.windowPos; i >= 0 && i+int64(n) <= int64(len(s.window)) {
		return s.window[i : i+int64(n)], nil
	}
	want := int(min(max(int64(n), scanChunk), s.size-pos))
	if cap(s.window) < want {
		s.window = make([]byte, want)
	}
	s.window, s.windowPos = s.window[:want], pos
	got, err := s.f.ReadAt(s.window, pos)
	if got < want {
		s.window = s.window[:0]
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %s at byte %d: %w", s.path, pos, err)
	}
	return s.window[:n], nil
}
