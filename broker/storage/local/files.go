// SPDX-License-Identifier: Apache-2.0

package local

import (
	"container/list"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// cachedFile is a file that is opened when it is used and closed when too many are open.
type cachedFile struct {
	path string

	// The cache's mu guards what follows.
	f       File
	index   []indexEntry // of a sealed segment, once it was loaded; goes with f
	users   int          // while there are any, f stays open
	removed bool         // it is never opened again
	place   *list.Element
}

// fileCache keeps at most limit files open, and those that are in use. A file that has data which is not yet on disk must stay in
// use: Linux reports a failed write-back to the descriptors that were open then.
type fileCache struct {
	fs    FS
	limit int

	mu   sync.Mutex
	used list.List // of *cachedFile that are open, the most recently used first
}

func newFileCache(fsys FS, limit int) *fileCache { return &fileCache{fs: fsys, limit: limit} }

// acquire opens the file where it is not open. The caller must release it. A removed file is fs.ErrNotExist, even where a file of
// the same name exists again.
func (c *fileCache) acquire(cf *cachedFile) (File, error) {
	if f, err := c.acquireOpen(cf); f != nil || err != nil {
		return f, err
	}
	f, err := c.fs.Open(cf.path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	var surplus []File
	switch {
	case cf.removed:
		surplus, f, err = []File{f}, nil, removedError(cf)
	case cf.f != nil: // another one opened it meanwhile
		surplus, f = []File{f}, cf.f
		c.use(cf)
	default:
		cf.f = f
		cf.place = c.used.PushFront(cf)
		cf.users++
		surplus = c.evict()
	}
	c.mu.Unlock()
	closeAll(surplus)
	return f, err
}

func (c *fileCache) acquireOpen(cf *cachedFile) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cf.removed {
		return nil, removedError(cf)
	}
	if cf.f == nil {
		return nil, nil
	}
	c.use(cf)
	return cf.f, nil
}

func removedError(cf *cachedFile) error { return fmt.Errorf("%s: %w", cf.path, fs.ErrNotExist) }

func (c *fileCache) use(cf *cachedFile) {
	cf.users++
	c.used.MoveToFront(cf.place)
}

// release ends the use of a file that acquire returned.
func (c *fileCache) release(cf *cachedFile) {
	c.mu.Lock()
	cf.users--
	var surplus []File
	if cf.users == 0 && cf.removed {
		surplus = c.drop(cf)
	} else if cf.users == 0 {
		surplus = c.evict()
	}
	c.mu.Unlock()
	closeAll(surplus)
}

// remove closes the file for good, once the last user has released it.
func (c *fileCache) remove(cf *cachedFile) {
	c.mu.Lock()
	cf.removed = true
	var surplus []File
	if cf.users == 0 && cf.f != nil {
		surplus = c.drop(cf)
	}
	c.mu.Unlock()
	closeAll(surplus)
}

// loaded returns the index that setLoaded keeps with an open file.
func (c *fileCache) loaded(cf *cachedFile) []indexEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cf.index
}

func (c *fileCache) setLoaded(cf *cachedFile, index []indexEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cf.f != nil {
		cf.index = index
	}
}

// crowded says that more files are open than the limit, all of which are in use.
func (c *fileCache) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used.Len() > c.limit
}

// open is how many files are open.
func (c *fileCache) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used.Len()
}

func (c *fileCache) drop(cf *cachedFile) []File {
	f := cf.f
	c.used.Remove(cf.place)
	cf.f, cf.place, cf.index = nil, nil, nil
	return []File{f}
}

func (c *fileCache) evict() []File {
	var surplus []File
	for e := c.used.Back(); e != nil && c.used.Len() > c.limit; {
		cf, _ := e.Value.(*cachedFile)
		e = e.Prev()
		if cf.users == 0 {
			surplus = append(surplus, c.drop(cf)...)
		}
	}
	return surplus
}

// closeAll closes files that hold nothing which is not on disk, so a failure loses nothing.
func closeAll(files []File) {
	for _, f := range files {
		_ = f.Close()
	}
}
