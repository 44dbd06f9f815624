// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package main

import "errors"

// volumeBytes cannot tell a volume's size on this system.
func volumeBytes(string) (total, usable int64, err error) {
	return 0, 0, errors.ErrUnsupported
}
