// SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	lockFile = "LOCK"
	// tombPrefix starts the names of directories whose partition was deleted. No topic's name has a tilde.
	tombPrefix = "deleted~"

	defaultSegmentBytes  = 128 << 20
	maxSegmentBytes      = 1 << 30
	defaultIndexInterval = 32 << 10
	defaultOpenFiles     = 1024
	defaultCheckInterval = 5 * time.Minute
	// compactionInterval is how often compaction looks for what it can do: Kafka's log.cleaner.backoff.ms.
	compactionInterval   = 15 * time.Second
	defaultFlushInterval = 10 * time.Second
	// closers is how many logs are closed at a time; each waits for the disk.
	closers = 16
)

// Options tune an engine. The zero value of a field means its default.
type Options struct {
	// Logger takes what an operator should know: recoveries, damage, failures. Default: slog.Default().
	Logger *slog.Logger
	// SegmentBytes is the size at which a new segment is started, of topics whose storage.Config says none; at most 1 GiB. Default: 128 MiB. Retention
	// removes whole segments.
	SegmentBytes int64
	// IndexIntervalBytes is how many bytes of a segment one entry of its index stands for. Default: 32 KiB.
	IndexIntervalBytes int64
	// MaxOpenFiles is how many files are kept open beyond those in use. Default: 1024.
	MaxOpenFiles int
	// FS is the file system. Default: OSFS.
	FS FS
	// RetentionCheckInterval is how often retention is enforced. Compaction looks for what it can do every 15 s, or as often where that is less. Default:
	// 5 minutes; negative: neither does so by itself.
	RetentionCheckInterval time.Duration
	// ReserveBytes is how much room is kept for what makes room on a full disk. Default: 4 MiB; negative: none.
	ReserveBytes int64
	// FlushInterval is for how long storage.FlushOS leaves a write to the operating system, which by itself takes about 30 s on Linux, before it
	// is synced. Default: 10 s.
	FlushInterval time.Duration
	// CompactionMemoryBytes is how much memory compaction takes at most for the keys of a log, 28 bytes each; a log with more is gone over more than
	// once. It has it only while it works. Default: 128 MiB.
	CompactionMemoryBytes int64
}

func (o Options) withDefaults() (Options, error) {
	if o.SegmentBytes < 0 || o.SegmentBytes > maxSegmentBytes {
		return o, fmt.Errorf("segment size of %d bytes: use at most %d", o.SegmentBytes, maxSegmentBytes)
	}
	if o.IndexIntervalBytes < 0 || o.IndexIntervalBytes > maxSegmentBytes {
		return o, fmt.Errorf("index interval of %d bytes: use at most %d", o.IndexIntervalBytes, maxSegmentBytes)
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, defaultSegmentBytes)
	o.IndexIntervalBytes = cmp.Or(o.IndexIntervalBytes, defaultIndexInterval)
	o.RetentionCheckInterval = cmp.Or(o.RetentionCheckInterval, defaultCheckInterval)
	o.ReserveBytes = cmp.Or(o.ReserveBytes, reserveBytes)
	o.FlushInterval = cmp.Or(max(o.FlushInterval, 0), defaultFlushInterval)
	o.CompactionMemoryBytes = cmp.Or(max(o.CompactionMemoryBytes, 0), defaultCompactionMemory)
	o.MaxOpenFiles = cmp.Or(max(o.MaxOpenFiles, 0), defaultOpenFiles)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FS == nil {
		o.FS = OSFS{}
	}
	return o, nil
}

// Engine keeps logs in a directory. It implements storage.Engine.
type Engine struct {
	dir    string
	opts   Options
	fs     FS
	logger *slog.Logger
	files  *fileCache
	lock   io.Closer
	now    func() time.Time
	syncs  chan struct{} // holds something for each sync that goes on

	reserving sync.Mutex   // held while the reserve is made or given up
	saving    atomic.Int32 // nothing is appended while this is above 0: the reserve is used

	done       chan struct{}  // closed by Close
	checks     sync.WaitGroup // of retention and compaction
	compacting sync.Mutex     // held while a log is compacted

	mu     sync.Mutex
	closed bool
	slots  map[storage.Partition]*slot
}

// slot holds a partition's log while it is open. Its mu is held while the log is opened, closed or deleted, so that others are not
// held up.
type slot struct {
	mu   sync.Mutex
	log  *commitLog
	dead bool // it is no longer in the map
}

var _ storage.Engine = (*Engine)(nil)

// Open opens the engine on a directory, which it creates where there is none. One engine at a time can have a directory.
func Open(dir string, opts Options) (*Engine, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err = opts.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("data directory %s cannot be made: give the broker's user write access to its parent, or choose "+
			"another directory: %w", dir, err)
	}
	_ = opts.FS.SyncDir(filepath.Dir(dir)) // a parent that may not be read holds the directory since long
	lock, err := opts.FS.Lock(filepath.Join(dir, lockFile))
	switch {
	case errors.Is(err, ErrLocked):
		return nil, fmt.Errorf("data directory %s is used by another broker: stop it, or choose another directory: %w", dir, err)
	case err != nil:
		return nil, fmt.Errorf("data directory %s cannot be written: give the broker's user write access, or choose another "+
			"directory: %w", dir, err)
	}
	e := &Engine{
		dir: dir, opts: opts, fs: opts.FS, logger: opts.Logger, files: newFileCache(opts.FS, opts.MaxOpenFiles),
		lock: lock, now: time.Now, syncs: make(chan struct{}, maxSyncs), done: make(chan struct{}), slots: make(map[storage.Partition]*slot),
	}
	if err = e.removeTombs(); err != nil {
		_ = lock.Close() // nothing was opened
		return nil, fmt.Errorf("open data directory %s: %w", dir, err)
	}
	e.keepReserve()
	if opts.RetentionCheckInterval > 0 {
		e.checks.Go(func() { e.every(opts.RetentionCheckInterval, e.enforceRetention) })
		e.checks.Go(func() { e.every(min(opts.RetentionCheckInterval, compactionInterval), e.compactNeedy) })
	}
	return e, nil
}

// Open opens a partition's log. See storage.Engine. A log that failed is closed and opened again, with a recovery: the result is
// then another Log than before.
func (e *Engine) Open(ctx context.Context, p storage.Partition, leaderEpoch int32, c storage.Config) (storage.Log, error) {
	l, err := e.open(ctx, p, leaderEpoch, c)
	if err != nil {
		return nil, fmt.Errorf("open log %s-%d: %w", p.Topic, p.Partition, err)
	}
	return l, nil
}

func (e *Engine) open(ctx context.Context, p storage.Partition, epoch int32, c storage.Config) (*commitLog, error) {
	name, err := dirName(p)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := e.lockSlot(p)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if s.log != nil && s.log.hasFailed() {
		_ = s.log.close() // says again that it failed
		s.log = nil
	}
	if s.log != nil {
		return s.log, s.log.setLeader(epoch, c)
	}
	l, err := e.openLog(p, name, epoch, c)
	if err != nil {
		return nil, err
	}
	s.log = l
	return l, nil
}

func (l *commitLog) hasFailed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed != nil
}

// lockSlot returns a partition's slot with its mu held.
func (e *Engine) lockSlot(p storage.Partition) (*slot, error) {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return nil, storage.ErrClosed
		}
		s := e.slots[p]
		if s == nil {
			s = &slot{}
			e.slots[p] = s
		}
		e.mu.Unlock()
		s.mu.Lock()
		if !s.dead {
			return s, nil
		}
		s.mu.Unlock()
	}
}

// List returns the partitions that have a log, sorted by topic, then number.
func (e *Engine) List(ctx context.Context) ([]storage.Partition, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("list logs: %w", storage.ErrClosed)
	}
	entries, err := e.fs.ReadDir(e.dir)
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var list []storage.Partition
	for _, entry := range entries {
		if p, ok := parseDirName(entry.Name); ok && entry.Dir {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, comparePartitions)
	return list, nil
}

func comparePartitions(a, b storage.Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// Delete closes a partition's log and removes its records. See storage.Engine.
func (e *Engine) Delete(ctx context.Context, p storage.Partition) error {
	if err := e.remove(ctx, p); err != nil {
		return fmt.Errorf("delete log %s-%d: %w", p.Topic, p.Partition, err)
	}
	return nil
}

func (e *Engine) remove(ctx context.Context, p storage.Partition) error {
	name, err := dirName(p)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := e.lockSlot(p)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.log != nil {
		s.log.abandon()
	}
	s.log, s.dead = nil, true
	e.mu.Lock()
	delete(e.slots, p)
	e.mu.Unlock()
	// Renamed first: a crash in the middle of the removal must not leave half a log.
	tomb, err := e.bury(filepath.Join(e.dir, name))
	if tomb == "" || err != nil {
		return err
	}
	if err = e.removeTree(tomb); err != nil {
		e.logger.Warn("cannot remove a deleted log; it will be removed at the next start", "directory", tomb, "error", err)
	}
	return nil
}

// bury gives a partition's directory a name that is no partition's; tomb is empty where there is no directory.
func (e *Engine) bury(dir string) (tomb string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock() // two deletes must not choose the same name
	for n := 0; ; n++ {
		tomb = filepath.Join(e.dir, tombPrefix+strconv.Itoa(n))
		if _, err = e.fs.ReadDir(tomb); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if err = e.fs.Rename(dir, tomb); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return tomb, e.fs.SyncDir(e.dir)
}

// removeTombs removes what a crash left of deleted logs.
func (e *Engine) removeTombs() error {
	entries, err := e.fs.ReadDir(e.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Dir && strings.HasPrefix(entry.Name, tombPrefix) {
			if err := e.removeTree(filepath.Join(e.dir, entry.Name)); err != nil {
				return fmt.Errorf("remove what is left of a deleted log: %w", err)
			}
		}
	}
	return nil
}

// removeTree removes a directory that holds files alone.
func (e *Engine) removeTree(dir string) error {
	entries, err := e.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := removeIfThere(e.fs, filepath.Join(dir, entry.Name)); err != nil {
			return err
		}
	}
	return removeIfThere(e.fs, dir)
}

func removeIfThere(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// openLogs returns the logs that are open, sorted by partition.
func (e *Engine) openLogs() []*commitLog {
	e.mu.Lock()
	slots := make([]*slot, 0, len(e.slots))
	for _, s := range e.slots {
		slots = append(slots, s)
	}
	e.mu.Unlock()
	logs := make([]*commitLog, 0, len(slots))
	for _, s := range slots {
		s.mu.Lock()
		if s.log != nil {
			logs = append(logs, s.log)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(logs, func(a, b *commitLog) int { return comparePartitions(a.partition, b.partition) })
	return logs
}

// Close closes every log. What was appended is on disk when it returns, unless it returns an error. A second Close does nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	close(e.done)
	e.checks.Wait()
	err := e.closeLogs()
	return errors.Join(err, e.lock.Close())
}

func (e *Engine) closeLogs() error {
	logs := e.openLogs()
	errs := make([]error, len(logs))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(closers, len(logs)) {
		wg.Go(func() {
			for i := range next {
				if err := logs[i].close(); err != nil {
					errs[i] = fmt.Errorf("close log %s: %w", logs[i], err)
				}
			}
		})
	}
	for i := range logs {
		next <- i
	}
	close(next)
	wg.Wait()
	return firstFew(errs)
}

// firstFew joins errors; where there are many, which then are alike, the first few and how many others there are.
func firstFew(errs []error) error {
	const few = 3
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) <= few {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs[:few:few], fmt.Errorf("and %d more like these", len(errs)-few))...)
}
