// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package local

// WriteAllAt writes buffers one by one.
func (f osFile) WriteAllAt(buffers [][]byte, pos int64) error {
	for _, b := range buffers {
		if _, err := f.WriteAt(b, pos); err != nil {
			return err
		}
		pos += int64(len(b))
	}
	return nil
}
