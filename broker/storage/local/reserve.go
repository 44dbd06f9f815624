// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"os"
	"path/filepath"
)

// What makes room on a full disk needs some first: a start offset, a segment's index, the producers. For that the engine keeps a file of no content,
// which is given up for the time that it takes, while nothing is appended.

const (
	reserveFile = "RESERVE"
	// reserveBytes is enough for the small files of many logs and the first compacted segments.
	reserveBytes = 4 << 20
)

// makingRoom does what gives room back. Where there is none to begin with, it gives up the reserve and does it again.
func (e *Engine) makingRoom(do func() error) error {
	err := do()
	if !isFull(err) || !e.giveReserve() {
		return err
	}
	e.saving.Add(1)
	defer func() {
		e.saving.Add(-1)
		e.keepReserve()
	}()
	return do()
}

// giveReserve removes the reserve, and says whether there was one.
func (e *Engine) giveReserve() bool {
	e.reserving.Lock()
	defer e.reserving.Unlock()
	return e.fs.Remove(e.reservePath()) == nil
}

// keepReserve makes the reserve where there is none and there is room for it.
func (e *Engine) keepReserve() {
	e.reserving.Lock()
	defer e.reserving.Unlock()
	if e.opts.ReserveBytes < 0 {
		return
	}
	if err := e.allocate(e.reservePath(), e.opts.ReserveBytes); err != nil && !isFull(err) {
		e.logger.Warn("cannot keep room for a full disk", "file", e.reservePath(), "error", err)
	}
}

func (e *Engine) reservePath() string { return filepath.Join(e.dir, reserveFile) }

// allocate makes a file of n bytes that the disk has room for, unless it is there.
func (e *Engine) allocate(name string, n int64) error {
	f, err := e.fs.Open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil && size < n {
		err = reserve(f, n)
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return errors.Join(err, removeIfThere(e.fs, name))
	}
	return nil
}

// fill writes n zeros to a file.
func fill(f File, n int64) error {
	zeros := make([]byte, min(n, 64<<10))
	for pos := int64(0); pos < n; pos += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(n-pos, int64(len(zeros)))], pos); err != nil {
			return err
		}
	}
	return nil
}
