// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// cacheVersion is the version of the cache file's format. A file of another version is ignored: it is a cache.
const cacheVersion = 1

type cacheFile struct {
	Version  int                `json:"version"`
	Snapshot *metadata.Snapshot `json:"snapshot"`
}

// load reads the last known metadata. Without a file the error is fs.ErrNotExist.
func load(path string) (*metadata.Snapshot, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c cacheFile
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.Version != cacheVersion || c.Snapshot == nil {
		return nil, fmt.Errorf("%s has version %d, not %d", path, c.Version, cacheVersion)
	}
	return c.Snapshot, nil
}

// save replaces the file in one step, durably.
func save(path string, s *metadata.Snapshot) error {
	raw, err := json.Marshal(cacheFile{Version: cacheVersion, Snapshot: s})
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // Gone already when it was renamed.
	if _, err := temp.Write(raw); err != nil {
		return closing(temp, err)
	}
	if err := temp.Sync(); err != nil {
		return closing(temp, err)
	}
	if err := temp.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return closing(dir, dir.Sync())
}

// closing closes f and returns err, or the error of closing if there was none before.
func closing(f *os.File, err error) error {
	if cerr := f.Close(); err == nil {
		return cerr
	}
	return err
}
