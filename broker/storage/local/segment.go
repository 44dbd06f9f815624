// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const (
	logExt   = ".log"
	indexExt = ".index"
	// cleanedExt ends the name of a segment that compaction is making.
	cleanedExt = ".cleaned"

	indexEntrySize  = 24
	indexHeaderSize = magicSize + 4*8 + crcSize
)

// indexEntry is the place of a batch.
type indexEntry struct {
	offset int64 // of the batch's first record
	pos    int64 // of the batch's first byte in the segment
	before int64 // the max timestamp of all batches before it in the segment, in milliseconds since 1970
}

// summary is what is known of a segment without its index.
type summary struct {
	size    int64 // bytes of the file that are in use
	next    int64 // the offset after the last record; of a compacted segment, the base of the next one
	maxTime int64 // the max timestamp of its batches, in milliseconds since 1970
	// modified is when the file was last written: it stands in for records that have no timestamps.
	modified time.Time
	// compacted says that offsets may be left out, between batches and in them. Its name says so, and next: see parseSegmentName.
	compacted bool
}

// segment is one file of a log.
// Invariant: index is sorted by offset and by pos, and its first entry is the first sound batch.
type segment struct {
	base int64
	pass int64 // how often compaction made it anew
	file cachedFile

	// The log's mu guards what follows. Only the active segment, the last, changes.
	summary
	index  []indexEntry // of the active segment; a sealed one's is loaded with its file
	sealed bool
	// pushed is how many bytes the kernel was told to write to disk.
	pushed int64
	// checked is what of the file is known to be sound.
	checked checked
}

// view is a segment as a reader saw it under the log's lock. The index may be read without it: entries are only appended.
type view struct {
	*segment
	summary
	index  []indexEntry
	sealed bool
	limit  int64      // no record of the segment reaches it: the next segment's base, or the log's end
	hw     int64      // the log's
	stored indexEntry // the place that readers see the segment up to
	known  bool       // an earlier read ended where this one begins: at place
	place  indexEntry
}

// indexPath is the path of the index file.
func (s *segment) indexPath() string { return strings.TrimSuffix(s.file.path, logExt) + indexExt }

func (s *segment) view() view {
	return view{segment: s, summary: s.summary, index: s.index, sealed: s.sealed}
}

// indexer builds a sparse index: an entry for the first batch and for the first one after every interval bytes.
type indexer struct {
	interval int64
	entries  []indexEntry
	maxTime  int64
}

func (x *indexer) add(pos int64, h *recordbatch.Header) {
	if n := len(x.entries); n == 0 || pos-x.entries[n-1].pos >= x.interval {
		x.entries = append(x.entries, indexEntry{offset: h.Base, pos: pos, before: x.maxTime})
	}
	x.maxTime = max(x.maxTime, h.MaxTimestamp)
}

// add notes that a batch was appended; the log's mu is held.
func (s *segment) add(h *recordbatch.Header, interval int64, now time.Time) {
	x := indexer{interval: interval, entries: s.index, maxTime: s.maxTime}
	x.add(s.size, h)
	s.index = x.entries
	s.summary = summary{size: s.size + int64(h.Size), next: h.Next(), maxTime: x.maxTime, modified: now}
}

// expired says whether everything in the segment is older than the cutoff.
func (s *summary) expired(cutoff time.Time) bool {
	if s.maxTime < 0 {
		return s.modified.Before(cutoff)
	}
	return s.maxTime < cutoff.UnixMilli()
}

// placeOf returns the last entry at or below the offset, or the segment's start.
func placeOf(index []indexEntry, base, offset int64) indexEntry {
	i := sort.Search(len(index), func(i int) bool { return index[i].offset > offset })
	if i == 0 {
		return indexEntry{offset: base, pos: 0, before: recordbatch.NoTime}
	}
	return index[i-1]
}

// placeOfTime returns an entry before which everything is older than ts (milliseconds since 1970).
func placeOfTime(index []indexEntry, base, ts int64) indexEntry {
	i := sort.Search(len(index), func(i int) bool { return index[i].before >= ts })
	if i == 0 {
		return indexEntry{offset: base, pos: 0, before: recordbatch.NoTime}
	}
	return index[i-1]
}

func appendIndex(b []byte, index []indexEntry) []byte {
	b = appendInt(b, int32(len(index)))
	for _, e := range index {
		b = appendInt(b, e.offset)
		b = appendInt(b, e.pos)
		b = appendInt(b, e.before)
	}
	return b
}

func decodeIndex(d *decoder) []indexEntry {
	n := d.count(indexEntrySize)
	index := make([]indexEntry, n)
	for i := range index {
		index[i] = indexEntry{offset: d.int64(), pos: d.int64(), before: d.int64()}
		if i > 0 && (index[i].offset <= index[i-1].offset || index[i].pos <= index[i-1].pos) {
			d.fail("entry %d of the index does not follow the one before it", i)
			return nil
		}
	}
	return index
}

// encodeIndexFile is the content of a sealed segment's index file: a sealed header, so that a start need read no more, then the
// entries, sealed again.
func encodeIndexFile(base int64, s *summary, index []indexEntry) []byte {
	b := append(make([]byte, 0, indexHeaderSize+8+len(index)*indexEntrySize), indexMagic...)
	for _, v := range []int64{base, s.size, s.next, s.maxTime} {
		b = appendInt(b, v)
	}
	b = seal(b)
	return seal(appendIndex(b, index))
}

func decodeIndexHeader(b []byte, base int64) (summary, error) {
	d, err := unseal(b[:min(len(b), indexHeaderSize)], indexMagic)
	if err != nil {
		return summary{}, err
	}
	if got := d.int64(); got != base {
		d.fail("it belongs to segment %d", got)
	}
	s := summary{size: d.int64(), next: d.int64(), maxTime: d.int64()}
	return s, d.end()
}

// readIndexHeader reads the summary that a sealed segment's index file starts with.
func readIndexHeader(fs FS, name string, base int64) (summary, error) {
	f, err := fs.Open(name, os.O_RDONLY)
	if err != nil {
		return summary{}, err
	}
	defer func() { _ = f.Close() }() // only read
	b := make([]byte, indexHeaderSize)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return summary{}, fmt.Errorf("read %s: %w", name, err)
	}
	return decodeIndexHeader(b, base)
}

// readIndexFile reads a sealed segment's index.
func readIndexFile(fs FS, name string, base int64) ([]indexEntry, error) {
	b, err := readFile(fs, name)
	if err != nil {
		return nil, err
	}
	if _, err = decodeIndexHeader(b, base); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// The second seal covers the whole file, so it is checked as one; then the header's own is passed over.
	d, err := unseal(b, indexMagic)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d.take(indexHeaderSize - magicSize)
	index := decodeIndex(d)
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return index, nil
}
