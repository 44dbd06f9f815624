// SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
)

// hookFS calls functions around the calls of a file system.
type hookFS struct {
	FS
	beforeSync  func(name string)
	beforeWrite func(name string) error
	beforeRead  func(name string) error
}

func (h hookFS) Open(name string, flag int) (File, error) {
	f, err := h.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return hookFile{f, h, name}, nil
}

type hookFile struct {
	File
	h    hookFS
	name string
}

func (f hookFile) Sync() error {
	if f.h.beforeSync != nil {
		f.h.beforeSync(f.name)
	}
	return f.File.Sync()
}

func (f hookFile) ReadAt(b []byte, off int64) (int, error) {
	if f.h.beforeRead != nil {
		if err := f.h.beforeRead(f.name); err != nil {
			return 0, err
		}
	}
	return f.File.ReadAt(b, off)
}

func (f hookFile) WriteAllAt(buffers [][]byte, off int64) error {
	_, err := f.WriteAt(slices.Concat(buffers...), off)
	return err
}

func (f hookFile) WriteAt(b []byte, off int64) (int, error) {
	if f.h.beforeWrite != nil {
		if err := f.h.beforeWrite(f.name); err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(b, off)
}
