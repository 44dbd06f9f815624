// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// WriteAllAt writes buffers with as few system calls as the kernel needs.
func (f osFile) WriteAllAt(buffers [][]byte, pos int64) error {
	if len(buffers) == 1 {
		_, err := f.WriteAt(buffers[0], pos)
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var writeErr error
	err = raw.Write(func(fd uintptr) bool {
		writeErr = writeBuffers(int(fd), buffers, pos)
		return true
	})
	if err == nil && writeErr != nil {
		err = &os.PathError{Op: "write", Path: f.Name(), Err: writeErr}
	}
	return err
}

func writeBuffers(fd int, buffers [][]byte, pos int64) error {
	for len(buffers) > 0 {
		n, err := unix.Pwritev(fd, buffers, pos)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrShortWrite
		}
		pos += int64(n)
		for len(buffers) > 0 && n >= len(buffers[0]) {
			n -= len(buffers[0])
			buffers = buffers[1:]
		}
		if n > 0 {
			rest := append([][]byte{buffers[0][n:]}, buffers[1:]...)
			buffers = rest
		}
	}
	return nil
}
