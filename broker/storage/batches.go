// SPDX-License-Identifier: Apache-2.0

package storage

import "io"

// Batches are whole record batches that a Log gave out, in memory or still in a file. The zero value is none.
type Batches struct {
	// Next is the offset after the last record, from which to read on.
	Next int64
	// data are the batches where they are in memory.
	data []byte
	// file is where they are else.
	file Section
}

// Section is a part of a file that holds batches. It stays readable until it is closed, even where the file is removed.
type Section interface {
	// WriterTo writes the bytes to w; to a TCP connection without a copy through this process, where the platform can.
	io.WriterTo
	// Len is the number of bytes.
	Len() int
	// ReadAll returns the bytes.
	ReadAll() ([]byte, error)
	// Close ends the use of the file.
	Close()
}

// InMemory returns batches that are in memory; b is not to be changed any more.
func InMemory(b []byte, next int64) Batches { return Batches{Next: next, data: b} }

// InFile returns batches that are in a file.
func InFile(s Section, next int64) Batches { return Batches{Next: next, file: s} }

// Len is the number of bytes.
func (b *Batches) Len() int {
	if b.file != nil {
		return b.file.Len()
	}
	return len(b.data)
}

// InMemory says whether the bytes are in memory, so that Bytes cannot fail.
func (b *Batches) InMemory() bool { return b.file == nil }

// Bytes returns the batches. Where they are in a file they are read, and the error says why they cannot be.
func (b *Batches) Bytes() ([]byte, error) {
	if b.file == nil {
		return b.data, nil
	}
	return b.file.ReadAll()
}

// WriteTo writes the batches to w. See Section for when that takes no copy.
func (b *Batches) WriteTo(w io.Writer) (int64, error) {
	if b.file != nil {
		return b.file.WriteTo(w)
	}
	n, err := w.Write(b.data)
	return int64(n), err
}

// Close ends the use of what holds the batches. It may be called more than once.
func (b *Batches) Close() {
	if b.file != nil {
		b.file.Close()
		b.file = nil
	}
}
