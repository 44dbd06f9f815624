// SPDX-License-Identifier: Apache-2.0

package local

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// Names of a partition's small files; the package comment holds their format.
const (
	metaFile      = "meta"
	markFile      = "synced"
	cleanFile     = "clean"
	producersFile = "producers"
	passesFile    = "compacted"

	// tempExt ends the name of a file that is renamed once it is whole.
	tempExt = ".tmp"

	metaMagic      = "RMMETA01"
	cleanMagic     = "RMCLEAN2"
	producersMagic = "RMPRODS2"
	indexMagic     = "RMINDEX1"

	magicSize = 8
	crcSize   = 4
	markSize  = 8 + crcSize

	// maxStateFile bounds what is read into memory of a small file; a million producers make 130 MB.
	maxStateFile = 1 << 30
)

// appendInt appends an integer, most significant byte first.
func appendInt[T int16 | int32 | int64 | uint32](b []byte, v T) []byte {
	switch v := any(v).(type) {
	case int16:
		return binary.BigEndian.AppendUint16(b, uint16(v))
	case int32:
		return binary.BigEndian.AppendUint32(b, uint32(v))
	case uint32:
		return binary.BigEndian.AppendUint32(b, v)
	case int64:
		return binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// seal appends the CRC-32C of all of b.
func seal(b []byte) []byte { return appendInt(b, crc32.Checksum(b, recordbatch.Castagnoli)) }

// unseal checks the magic and the CRC and returns a decoder of what is between them.
func unseal(b []byte, magic string) (*decoder, error) {
	if len(b) < magicSize+crcSize {
		return nil, fmt.Errorf("it has %d bytes", len(b))
	}
	body, sum := b[:len(b)-crcSize], binary.BigEndian.Uint32(b[len(b)-crcSize:])
	if crc32.Checksum(body, recordbatch.Castagnoli) != sum {
		return nil, fmt.Errorf("its CRC-32C does not match")
	}
	if got := string(body[:magicSize]); got != magic {
		return nil, fmt.Errorf("it starts with %q, not %q", got, magic)
	}
	return &decoder{b: body[magicSize:]}, nil
}

// decoder takes integers from a byte slice. After the first failure everything is zero and err says why.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if len(d.b) < n {
		d.fail("it is too short")
		return make([]byte, n)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) byte() byte   { return d.take(1)[0] }
func (d *decoder) int16() int16 { return int16(binary.BigEndian.Uint16(d.take(2))) }
func (d *decoder) int32() int32 { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *decoder) int64() int64 { return int64(binary.BigEndian.Uint64(d.take(8))) }

// count takes the number of elements of at least size bytes each that follow, and fails where they cannot be there.
func (d *decoder) count(size int) int {
	n := int(d.int32())
	if n < 0 || n > len(d.b)/size {
		d.fail("it counts %d elements, which it has no room for", n)
		return 0
	}
	return n
}

// end fails where bytes are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("it has %d bytes too many", len(d.b))
	}
	return d.err
}

// meta is what must hold of a log across a crash and is not in its records.
type meta struct {
	epoch int32 // of the newest leader that opened the log
	start int64 // records below it are trimmed
}

func (m meta) encode() []byte {
	b := append(make([]byte, 0, 32), metaMagic...)
	b = appendInt(b, m.epoch)
	b = appendInt(b, m.start)
	return seal(b)
}

// readMeta reads a partition's meta file; fs.ErrNotExist where there is none.
func readMeta(fs FS, dir string) (meta, error) {
	name := filepath.Join(dir, metaFile)
	b, err := readFile(fs, name)
	if err != nil {
		return meta{}, err
	}
	d, err := unseal(b, metaMagic)
	if err == nil {
		m := meta{epoch: d.int32(), start: d.int64()}
		if m.start < 0 {
			d.fail("its start offset is %d", m.start)
		}
		if err = d.end(); err == nil {
			return m, nil
		}
	}
	return meta{}, fmt.Errorf("%s: %w: %w: remove this file to open the log from its oldest segment", name, storage.ErrDamaged, err)
}

// writeMeta replaces a partition's meta file in one piece. The caller syncs the directory.
func writeMeta(fs FS, dir string, m meta) error {
	return replaceFile(fs, filepath.Join(dir, metaFile), m.encode())
}

// replaceFile replaces a file's content in one piece. The caller syncs the directory.
func replaceFile(fs FS, name string, b []byte) error {
	if err := writeFile(fs, name+tempExt, b); err != nil {
		return err
	}
	return fs.Rename(name+tempExt, name)
}

// encodeMarks is the content of a new mark file. It has both marks, so that its size, which a crash may lose, never changes.
func encodeMarks(synced int64) []byte {
	return append(encodeMark(synced), encodeMark(synced)...)
}

// encodeMark is a mark; the mark file holds two.
func encodeMark(synced int64) []byte {
	return seal(appendInt(make([]byte, 0, markSize), synced))
}

// readMark returns the offset below which everything was on disk when it was written; ok is false where that is not known.
func readMark(fs FS, dir string) (synced int64, ok bool, err error) {
	b, err := readFile(fs, filepath.Join(dir, markFile))
	if os.IsNotExist(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	for ; len(b) >= markSize; b = b[markSize:] {
		if crc32.Checksum(b[:8], recordbatch.Castagnoli) == binary.BigEndian.Uint32(b[8:]) {
			synced, ok = max(synced, int64(binary.BigEndian.Uint64(b))), true
		}
	}
	return synced, ok, nil
}

// clean is the state of a log that was closed: what a start would else have to read the active segment for.
type clean struct {
	base, size, next, maxTime int64 // of the active segment
	index                     []indexEntry
	producers                 idempotence.Producers
}

func (c *clean) encode() []byte {
	b := append(make([]byte, 0, 64+len(c.index)*indexEntrySize+len(c.producers)*180), cleanMagic...)
	for _, v := range []int64{c.base, c.size, c.next, c.maxTime} {
		b = appendInt(b, v)
	}
	b = appendIndex(b, c.index)
	b = appendProducers(b, c.producers)
	return seal(b)
}

func decodeClean(b []byte, now time.Time) (*clean, error) {
	d, err := unseal(b, cleanMagic)
	if err != nil {
		return nil, err
	}
	c := &clean{base: d.int64(), size: d.int64(), next: d.int64(), maxTime: d.int64()}
	c.index = decodeIndex(d)
	c.producers = decodeProducers(d, now)
	return c, d.end()
}

// encodeProducers is the content of the producers file: the producers of all batches below the offset.
func encodeProducers(offset int64, ps idempotence.Producers) []byte {
	b := append(make([]byte, 0, 32+len(ps)*180), producersMagic...)
	b = appendInt(b, offset)
	return seal(appendProducers(b, ps))
}

// decodeProducersFile returns the producers of all batches below the offset.
func decodeProducersFile(b []byte, now time.Time) (offset int64, ps idempotence.Producers, err error) {
	d, err := unseal(b, producersMagic)
	if err != nil {
		return 0, nil, err
	}
	offset = d.int64()
	if offset < 0 {
		d.fail("its offset is %d", offset)
	}
	ps = decodeProducers(d, now)
	return offset, ps, d.end()
}
