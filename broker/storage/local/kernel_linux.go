// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendFile sends n bytes of a file from pos on to a socket, within the kernel. It waits for the socket as any write does, up to its write
// deadline. ok is false, and nothing was sent, where w is no socket or f no file of the operating system.
func sendFile(w io.Writer, f File, pos, n int64) (sent int64, ok bool, err error) {
	from, isFile := f.(osFile)
	to, isSocket := w.(syscall.Conn)
	if !isFile || !isSocket {
		return 0, false, nil
	}
	socket, err := to.SyscallConn()
	if err != nil {
		return 0, true, err
	}
	file, err := from.SyscallConn()
	if err != nil {
		return 0, true, err
	}
	var readErr, writeErr error
	readErr = file.Read(func(in uintptr) bool {
		writeErr = socket.Write(func(out uintptr) bool {
			var again bool
			again, err = sendOn(int(out), int(in), pos, n, &sent)
			return !again
		})
		return true
	})
	return sent, true, errors.Join(readErr, writeErr, err)
}

// sendOn sends as much as the socket takes now of the n bytes at pos, of which sent are gone. again says that the socket takes no more for now.
func sendOn(out, in int, pos, n int64, sent *int64) (again bool, err error) {
	for *sent < n {
		at := pos + *sent
		got, err := syscall.Sendfile(out, in, &at, int(min(n-*sent, maxSend)))
		*sent += int64(max(got, 0))
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("send from the file: %w", err)
		case got == 0:
			return false, nil // the file is shorter
		}
	}
	return false, nil
}

// reserve gives a file n bytes on the disk.
func reserve(f File, n int64) error {
	file, ok := f.(osFile)
	if !ok {
		return fill(f, n)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var allocErr error
	err = raw.Control(func(fd uintptr) { allocErr = unix.Fallocate(int(fd), 0, 0, n) })
	if errors.Is(allocErr, unix.EOPNOTSUPP) {
		return fill(f, n)
	}
	return errors.Join(err, allocErr)
}

// writeBack lets the kernel begin to write bytes of a file to disk. What becomes of it shows at the next sync.
func writeBack(f File, pos, n int64) {
	file, ok := f.(osFile)
	if !ok {
		return
	}
	if raw, err := file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SyncFileRange(int(fd), pos, n, unix.SYNC_FILE_RANGE_WRITE) })
	}
}

// maxSend is how much one system call is asked for.
const maxSend = 1 << 30
