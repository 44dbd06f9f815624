// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// FS is what the engine asks of a file system. OSFS is the real one; tests have one that crashes.
//
// Names are absolute or relative to the working directory, as with package os, and so are the errors (fs.ErrNotExist and so on).
type FS interface {
	// Open opens a file with os.O_ flags; a new file gets mode 0640.
	Open(name string, flag int) (File, error)
	// Mkdir makes a directory, and is fs.ErrExist where there is one.
	Mkdir(name string) error
	// MkdirAll makes a directory and its parents; a directory that exists is no error.
	MkdirAll(name string) error
	// Rename renames a file or directory; a file that has the new name is replaced.
	Rename(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// ReadDir lists a directory in the order of names.
	ReadDir(name string) ([]Entry, error)
	// SyncDir makes the creates, renames and removes in a directory durable.
	SyncDir(name string) error
	// Lock takes the lock file, creating it; ErrLocked where another holder has it. Closing it gives it up.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Its methods may be called from several goroutines.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteAllAt writes buffers, one after the other, from byte pos on.
	WriteAllAt(buffers [][]byte, pos int64) error
	// Truncate sets the size in bytes.
	Truncate(size int64) error
	// Sync makes content and size durable.
	Sync() error
	// Size is the file's size in bytes.
	Size() (int64, error)
}

// Entry is a name in a directory.
type Entry struct {
	Name     string
	Dir      bool
	Size     int64
	Modified time.Time
}

// ErrLocked says that another process or engine holds a lock file.
var ErrLocked = errors.New("locked by another process")

const (
	fileMode = 0o640
	dirMode  = 0o750
)

// OSFS is the operating system's file system.
type OSFS struct{}

var _ FS = OSFS{}

// Open opens a file.
func (OSFS) Open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag|syscall.O_CLOEXEC, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Mkdir makes a directory.
func (OSFS) Mkdir(name string) error { return os.Mkdir(name, dirMode) }

// MkdirAll makes a directory and its parents.
func (OSFS) MkdirAll(name string) error { return os.MkdirAll(name, dirMode) }

// Rename renames a file or directory.
func (OSFS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file or an empty directory.
func (OSFS) Remove(name string) error { return os.Remove(name) }

// ReadDir lists a directory.
func (OSFS) ReadDir(name string) ([]Entry, error) {
	list, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(list))
	for _, d := range list {
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, Entry{Name: d.Name(), Dir: d.IsDir(), Size: info.Size(), Modified: info.ModTime()})
	}
	return entries, nil
}

// SyncDir makes the names in a directory durable.
func (OSFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// Lock takes an exclusive flock.
func (OSFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, fileMode)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close() // nothing was written
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", name, ErrLocked)
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}

// osFile adds Size to *os.File.
type osFile struct{ *os.File }

// Size is the file's size.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// isFull says whether an error means that the disk or the quota has no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// readFile reads a whole small file.
func readFile(fs FS, name string) ([]byte, error) {
	f, err := fs.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxStateFile {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, size, maxStateFile)
	}
	b := make([]byte, size)
	if size == 0 {
		return b, nil
	}
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// writeFile makes a file's whole content durable. The caller syncs the directory.
func writeFile(fs FS, name string, b []byte) error {
	f, err := fs.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
