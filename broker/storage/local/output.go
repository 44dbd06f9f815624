// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"os"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// outputChunk is how many bytes of a new segment are written at a time.
const outputChunk = 1 << 20

// output is the segment that compaction makes of a group. Where the group is one segment of which nothing goes there is none.
type output struct {
	*cleaner
	group []view

	x    indexer
	size int64 // of the new segment
	// f is the new segment's file, nil as long as it is the first bytes of the group's only one; pos is where buf belongs in it.
	f    File
	temp string
	pos  int64
	buf  []byte
}

// fill goes through the group and writes what stays. It ends at a segment that has damage, and returns its number, else -1.
func (o *output) fill() (damaged int, err error) {
	o.x = indexer{interval: o.engine.opts.IndexIntervalBytes, maxTime: recordbatch.NoTime}
	if len(o.group) > 1 {
		if err := o.start(); err != nil {
			return -1, err
		}
	}
	for i := range o.group {
		v := &o.group[i]
		if v.next != v.limit {
			return i, nil // its end is lost
		}
		err := o.scan(v, func(sc *scanner, ev event) error {
			if ev != atBatch {
				damaged = i
				return errDamagedSegment
			}
			return o.batch(sc)
		})
		switch {
		case err == errDamagedSegment: //nolint:errorlint // it is not wrapped
			return damaged, nil
		case err != nil:
			return -1, err
		}
	}
	return -1, nil
}

var errDamagedSegment = fmt.Errorf("a segment is damaged")

// batch writes what stays of a batch.
func (o *output) batch(sc *scanner) error {
	h, b := &sc.head, sc.batch
	kept := o.Clean(b, h)
	if o.f == nil && len(kept) == len(b) && &kept[0] == &b[0] {
		o.x.add(o.size, h)
		o.size += int64(h.Size)
		return nil
	}
	if o.f == nil {
		if err := o.start(); err != nil {
			return err
		}
	}
	if kept == nil {
		return nil
	}
	return o.write(kept)
}

// start makes the file, and copies what the new segment has in common with the old one.
func (o *output) start() error {
	l := o.log
	o.temp = l.path(groupName(o.group).file(cleanedExt))
	f, err := o.engine.fs.Open(o.temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	o.f = f
	v := &o.group[0]
	from, err := o.engine.files.acquire(&v.file)
	if err != nil {
		return err
	}
	defer o.engine.files.release(&v.file)
	b := make([]byte, min(outputChunk, o.size))
	for o.pos < o.size {
		b = b[:min(int64(len(b)), o.size-o.pos)]
		if n, err := from.ReadAt(b, o.pos); n < len(b) {
			return fmt.Errorf("read %s at byte %d: %w", v.file.path, o.pos, err)
		}
		if _, err := f.WriteAt(b, o.pos); err != nil {
			return err
		}
		o.pos += int64(len(b))
	}
	return nil
}

func (o *output) write(batch []byte) error {
	h, err := recordbatch.ParseHeader(batch)
	if err != nil {
		return fmt.Errorf("a batch that was made anew: %w", err)
	}
	o.x.add(o.size, &h)
	o.size += int64(h.Size)
	o.buf = append(o.buf, batch...)
	if len(o.buf) < outputChunk {
		return nil
	}
	return o.flush()
}

func (o *output) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	if _, err := o.f.WriteAt(o.buf, o.pos); err != nil {
		return err
	}
	o.pos += int64(len(o.buf))
	o.buf = o.buf[:0]
	return nil
}

// finish makes the new segment durable, with its index, and the log's.
func (o *output) finish() error {
	if o.f == nil {
		return nil
	}
	s := o.log.newSegment(groupName(o.group))
	s.sealed, s.size, s.maxTime = true, o.size, o.x.maxTime
	s.modified = o.group[0].modified
	for i := range o.group {
		if t := o.group[i].modified; t.After(s.modified) {
			s.modified = t
		}
	}
	err := o.flush()
	if err == nil {
		err = o.f.Sync()
	}
	if cerr := o.f.Close(); err == nil {
		err = cerr
	}
	o.f = nil
	if err == nil {
		err = writeFile(o.engine.fs, s.indexPath(), encodeIndexFile(s.base, &s.summary, o.x.entries))
	}
	if err == nil {
		err = o.log.replace(o.group, o.temp, s)
	}
	if err != nil {
		o.removeFile(o.temp)
		o.removeFile(s.indexPath())
		return fullError(fmt.Errorf("make %s: %w", s.file.path, err))
	}
	return nil
}

// drop gives the new segment up.
func (o *output) drop() {
	if o.f == nil {
		return
	}
	_ = o.f.Close() // what it holds is not needed
	o.f = nil
	o.removeFile(o.temp)
}

// removeFile removes what is not needed; what is left behind goes at the next start.
func (o *output) removeFile(name string) {
	if err := removeIfThere(o.engine.fs, name); err != nil {
		o.engine.logger.Warn("cannot remove what compaction leaves behind; it will be removed at the next start", "file", name, "error", err)
	}
}
