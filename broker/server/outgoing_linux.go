// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net"
	"syscall"
)

// writeMore writes what more follows at once, so that both go out in one packet where they can.
func writeMore(nc net.Conn, b []byte) (int, error) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nc.Write(b)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	written := 0
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		for written < len(b) {
			var n int
			n, sendErr = syscall.SendmsgN(int(fd), b[written:], nil, nil, syscall.MSG_MORE|syscall.MSG_NOSIGNAL)
			written += max(n, 0)
			switch {
			case errors.Is(sendErr, syscall.EINTR):
				sendErr = nil
			case errors.Is(sendErr, syscall.EAGAIN):
				sendErr = nil
				return false
			case sendErr != nil:
				return true
			}
		}
		return true
	})
	return written, errors.Join(err, sendErr)
}
