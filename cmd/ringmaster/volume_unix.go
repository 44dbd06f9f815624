// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package main

import (
	"fmt"
	"math"
	"math/bits"
	"syscall"
)

// volumeBytes tells how many bytes the volume of a directory has, and how many of them this user can still use.
func volumeBytes(dir string) (total, usable int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("look up the volume of %s: %w", dir, err)
	}
	size := uint64(fs.Bsize) // its type differs between systems
	return product(fs.Blocks, size), product(fs.Bavail, size), nil
}

// product is a times b, as far as an int64 holds it.
func product(a, b uint64) int64 {
	high, low := bits.Mul64(a, b)
	if high > 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}
