// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package main

import (
	"path/filepath"
	"testing"
)

func TestVolumeBytesOfNowhere(t *testing.T) {
	if _, _, err := volumeBytes(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that does not exist has a volume")
	}
	for name, c := range map[string]struct {
		a, b uint64
		want int64
	}{"nothing": {0, 4096, 0}, "some": {3, 4096, 12288}, "more than can be counted": {1 << 60, 1 << 12, 1<<63 - 1}, "just too much": {1 << 51, 1 << 12, 1<<63 - 1}} {
		if got := product(c.a, c.b); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
