// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package server

import "net"

// writeMore writes what more follows at once.
func writeMore(nc net.Conn, b []byte) (int, error) { return nc.Write(b) }
