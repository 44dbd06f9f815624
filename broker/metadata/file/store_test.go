// SPDX-License-Identifier: Apache-2.0

package file

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

func TestATopicIsDeletedOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	full := false
	s := store{dir: dir, rename: os.Rename, write: func(path string, raw []byte) error {
		if _, err := os.Stat(filepath.Join(dir, reserveName)); full && (err == nil || filepath.Base(path) == reserveName) {
			return &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
		}
		return writeSynced(path, raw)
	}}
	m, err := open(s, Options{Host: "h", Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := m.CreateTopic(t.Context(), metadata.NewTopic{Name: name, Partitions: 1, Config: metadata.DefaultTopicConfig}); err != nil {
			t.Fatal(err)
		}
	}
	full = true
	if err := m.DeleteTopic(t.Context(), "a"); err != nil {
		t.Errorf("on a full disk: %v", err)
	}
	if m.Snapshot().Topics["a"] != nil {
		t.Error("the topic is still there")
	}
	full = false
	if err := m.DeleteTopic(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, reserveName)); err != nil || info.Size() < reserveBytes {
		t.Errorf("the reserve is not kept anew: %v, %v", info, err)
	}
}
