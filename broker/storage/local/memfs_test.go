// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// memFS is a file system in memory that forgets what was not synced.
//
// Every file has two contents, as a reader sees it and as the disk has it, and so has every directory. A crash keeps of the difference
// between them what the dice say: single sectors of files, single names of directories. A failed file sync leaves its sectors unwritten
// and clean, as Linux does: no later sync writes them. Every change is an op; fault is asked before each.
type memFS struct {
	mu     sync.Mutex
	root   *memNode
	locked map[string]bool
	rng    *rand.Rand
	ops    int
	dead   bool
	// fault returns the error that op number n (from 1) must fail with; errCrash stops everything from then on.
	fault func(op string, n int) error
}

var (
	errCrash = errors.New("the machine has crashed")
	// errDead is errCrash of what comes after the op that the machine crashed in.
	errDead = fmt.Errorf("%w before", errCrash)
)

const sector = 64 // bytes; small, so that a batch has several

type memNode struct {
	// of a directory; disk is what is durable, and disk's nodes are the same as names'
	dir         bool
	names, disk map[string]*memNode
	// of a file
	data, durable []byte
	dirty         map[int]bool // sectors
	modified      time.Time
}

func newMemFS(rng *rand.Rand) *memFS {
	return &memFS{root: newMemDir(), locked: map[string]bool{}, rng: rng}
}

func newMemDir() *memNode {
	return &memNode{dir: true, names: map[string]*memNode{}, disk: map[string]*memNode{}}
}

// op counts a change; mu is held.
func (m *memFS) op(name string) error {
	if m.dead {
		return errDead
	}
	m.ops++
	if m.fault == nil {
		return nil
	}
	err := m.fault(name, m.ops)
	if errors.Is(err, errCrash) {
		m.dead = true
	}
	return err
}

// half says whether a failing op has its effect nevertheless.
func (m *memFS) half(err error) bool {
	return errors.Is(err, errCrash) && !errors.Is(err, errDead) && m.rng.IntN(2) == 0
}

func (m *memFS) find(name string) (parent *memNode, base string, node *memNode, err error) {
	n := m.root
	parts := strings.Split(strings.Trim(filepath.Clean(name), "/"), "/")
	if len(parts) == 1 && parts[0] == "" {
		return nil, "", n, nil
	}
	for i, p := range parts {
		if i == len(parts)-1 {
			return n, p, n.names[p], nil
		}
		n = n.names[p]
		if n == nil || !n.dir {
			return nil, "", nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
	}
	panic("unreachable")
}

func (m *memFS) existing(name string) (parent *memNode, base string, node *memNode, err error) {
	parent, base, node, err = m.find(name)
	if err == nil && node == nil {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return parent, base, node, err
}

func (m *memFS) Open(name string, flag int) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errCrash
	}
	parent, base, n, err := m.find(name)
	if err != nil {
		return nil, err
	}
	if n == nil {
		if flag&os.O_CREATE == 0 {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		err := m.op("create")
		if err == nil || m.half(err) {
			n = &memNode{dirty: map[int]bool{}, modified: time.Now()}
			parent.names[base] = n
		}
		if err != nil {
			return nil, err
		}
	}
	f := &memFile{fs: m, n: n, name: name}
	if flag&os.O_TRUNC != 0 && len(n.data) > 0 {
		if err := f.truncate(0); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (m *memFS) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, base, n, err := m.find(name)
	if err != nil {
		return err
	}
	if n != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	err = m.op("mkdir")
	if err == nil || m.half(err) {
		parent.names[base] = newMemDir()
	}
	return err
}

// MkdirAll makes durable directories; they are given to the engine.
func (m *memFS) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for p := range strings.SplitSeq(strings.Trim(filepath.Clean(name), "/"), "/") {
		if n.names[p] == nil {
			n.names[p] = newMemDir()
			n.disk[p] = n.names[p]
		}
		n = n.names[p]
	}
	return nil
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, base, n, err := m.existing(from)
	if err != nil {
		return err
	}
	toParent, toBase, _, err := m.find(to)
	if err != nil {
		return err
	}
	err = m.op("rename")
	if err == nil || m.half(err) {
		delete(parent.names, base)
		toParent.names[toBase] = n
	}
	return err
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, base, n, err := m.existing(name)
	if err != nil {
		return err
	}
	if n.dir && len(n.names) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: errors.New("directory not empty")}
	}
	err = m.op("remove")
	if err == nil || m.half(err) {
		delete(parent.names, base)
	}
	return err
}

func (m *memFS) ReadDir(name string) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errCrash
	}
	_, _, n, err := m.existing(name)
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		c := n.names[base]
		list = append(list, Entry{Name: base, Dir: c.dir, Size: int64(len(c.data)), Modified: c.modified})
	}
	return list, nil
}

func (m *memFS) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _, n, err := m.existing(name)
	if err != nil {
		return err
	}
	if err := m.op("syncdir"); err != nil {
		return err
	}
	n.disk = maps.Clone(n.names)
	return nil
}

type memLock struct {
	fs   *memFS
	name string
}

func (l memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locked, l.name)
	return nil
}

func (m *memFS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, fmt.Errorf("%s: %w", name, ErrLocked)
	}
	m.locked[name] = true
	return memLock{m, name}, nil
}

// die ends the process: whatever it goes on to do has no effect.
func (m *memFS) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

// killed is the file system after the process died: what readers saw is still there.
func (m *memFS) killed() *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memFS{root: m.root, locked: map[string]bool{}, rng: m.rng}
}

// crashed is the file system after the machine died. Each unsynced change is kept with probability keep.
func (m *memFS) crashed(keep float64) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &crasher{rng: m.rng, keep: keep, done: map[*memNode]*memNode{}}
	return &memFS{root: c.node(m.root), locked: map[string]bool{}, rng: m.rng}
}

type crasher struct {
	rng  *rand.Rand
	keep float64
	done map[*memNode]*memNode // a renamed file may be under both names
}

func (c *crasher) kept() bool { return c.rng.Float64() < c.keep }

func (c *crasher) node(n *memNode) *memNode {
	if d := c.done[n]; d != nil {
		return d
	}
	if !n.dir {
		d := c.file(n)
		c.done[n] = d
		return d
	}
	d := newMemDir()
	c.done[n] = d
	all := maps.Clone(n.disk)
	maps.Copy(all, n.names)
	for _, base := range slices.Sorted(maps.Keys(all)) {
		was, is := n.disk[base], n.names[base]
		if was != is && c.kept() {
			was = is
		}
		if was != nil {
			d.names[base] = c.node(was)
			d.disk[base] = d.names[base]
		}
	}
	return d
}

func (c *crasher) file(n *memNode) *memNode {
	size := len(n.durable)
	if c.kept() {
		size = len(n.data)
	}
	b := make([]byte, size)
	copy(b, n.durable)
	for i := range (size + sector - 1) / sector {
		if n.dirty[i] && i*sector < len(n.data) && c.kept() {
			copy(b[i*sector:min((i+1)*sector, size)], n.data[i*sector:])
		}
	}
	return &memNode{data: b, durable: slices.Clone(b), dirty: map[int]bool{}, modified: n.modified}
}

type memFile struct {
	fs   *memFS
	n    *memNode
	name string
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.dead {
		return 0, errCrash
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.fs.op("write")
	if errors.Is(err, errDead) {
		return 0, err
	}
	n := len(b)
	if err != nil {
		n = f.fs.rng.IntN(len(b) + 1)
	}
	if grow := off + int64(n) - int64(len(f.n.data)); grow > 0 && n > 0 {
		f.n.data = append(f.n.data, make([]byte, grow)...)
	}
	copy(f.n.data[min(off, int64(len(f.n.data))):], b[:n])
	for i := off / sector; n > 0 && i <= (off+int64(n)-1)/sector; i++ {
		f.n.dirty[int(i)] = true
	}
	f.n.modified = time.Now()
	return n, err
}

func (f *memFile) WriteAllAt(buffers [][]byte, off int64) error {
	_, err := f.WriteAt(slices.Concat(buffers...), off)
	return err
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.truncate(size)
}

func (f *memFile) truncate(size int64) error {
	err := f.fs.op("truncate")
	if err != nil && !f.fs.half(err) {
		return err
	}
	if size > int64(len(f.n.data)) {
		panic("truncate is not used to grow")
	}
	for i := int(size / sector); i*sector < max(len(f.n.data), len(f.n.durable)); i++ {
		f.n.dirty[i] = true
	}
	f.n.data = f.n.data[:size:size]
	return err
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.fs.op("sync")
	if errors.Is(err, errCrash) {
		return err
	}
	if err == nil {
		b := make([]byte, len(f.n.data))
		copy(b, f.n.durable)
		for i := range f.n.dirty {
			if i*sector < len(b) {
				copy(b[i*sector:min((i+1)*sector, len(b))], f.n.data[i*sector:])
			}
		}
		f.n.durable = b
	}
	clear(f.n.dirty)
	return err
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error { return nil }

// edit changes a file's content, on the disk too.
func (m *memFS) edit(name string, fn func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _, n, err := m.existing(name)
	if err != nil {
		panic(err)
	}
	n.data = fn(slices.Clone(n.data))
	n.durable = slices.Clone(n.data)
}

// clone is an independent copy of the file system, as readers see it.
func (m *memFS) clone() *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memFS{root: cloneNode(m.root), locked: map[string]bool{}, rng: m.rng}
}

func cloneNode(n *memNode) *memNode {
	if !n.dir {
		return &memNode{data: slices.Clone(n.data), durable: slices.Clone(n.data), dirty: map[int]bool{}, modified: n.modified}
	}
	d := newMemDir()
	for base, c := range n.names {
		d.names[base] = cloneNode(c)
		d.disk[base] = d.names[base]
	}
	return d
}
