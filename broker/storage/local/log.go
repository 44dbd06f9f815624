// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
)

// commitLog is the log of one partition.
//
// Writers (append, roll, trim, retention, close) hold wmu for the whole of what they do; mu is held only to look at or change the
// fields below it, never across I/O. Where both are held, wmu comes first. Readers hold neither while they read.
type commitLog struct {
	engine    *Engine
	partition storage.Partition
	dir       string
	logger    *slog.Logger
	mark      cachedFile
	markAt    int64 // where the last mark was written; of the goroutine that syncs

	// cleaning is held while the log is compacted. It comes before wmu.
	cleaning sync.Mutex

	// qmu guards the appends that wait to be written, and whether a goroutine is there that does so. It is held alone.
	qmu     sync.Mutex
	queue   []*pending
	writing bool

	wmu   sync.Mutex
	clean bool // the clean file is there: nothing was written since the log was opened. wmu guards it.
	known idempotence.Producers

	mu sync.Mutex
	// segments is never empty, sorted by base, and replaced, not changed, when a segment comes or goes.
	segments []*segment
	epoch    int32
	config   storage.Config
	// Invariant: start <= hw <= end, and onDisk <= hw. An append with storage.FlushSync waits for onDisk, which hw follows.
	start, hw, end int64
	// hwPos is the byte of the active segment that hw is at.
	hwPos int64
	size  int64
	// activeSince is when the active segment got its first batch, or when the log was opened, where that is later.
	activeSince time.Time
	// onDisk is the offset below which everything is on disk.
	onDisk int64
	// snapshot is the offset of the producers file that is on disk, as far as that is known; see snapshot.go. Invariant: snapshot <= onDisk.
	snapshot int64

	// pushing says that the kernel is being told to write older bytes.
	pushing bool

	failed error // why nothing can be appended until the log is opened again
	closed bool
	// unsynced is the active segment while onDisk < end or it is being synced: its file stays in use for that long.
	unsynced *segment
	syncFile File
	unsealed []unsealed // the segments before the active one that are not sealed, the oldest first
	syncing  bool
	waiting  []*pending    // written, and called once they are stored; in no order
	synced   chan struct{} // closed after the sync that is going on; nil where nobody waits
	wanted   int64         // somebody waits until all below this offset is on disk, whatever the config's Flush
	later    *time.Timer   // starts a sync, where laterSet
	laterSet bool
	watchers map[int]chan<- struct{}
	watched  int
	// ends holds where the last reads ended: whoever reads on from there need not look for the place. nil: nobody has read.
	ends    *[keptEnds]readEnd
	nextEnd int
}

// readEnd is a place at which a batch begins.
type readEnd struct {
	segment *segment
	indexEntry
}

// keptEnds is how many consumers at different places a log serves without looking for their places.
const keptEnds = 8

var _ storage.Log = (*commitLog)(nil)

func (l *commitLog) String() string {
	return fmt.Sprintf("%s-%d", l.partition.Topic, l.partition.Partition)
}

func (l *commitLog) path(name string) string { return filepath.Join(l.dir, name) }

// StartOffset is the offset of the oldest record, or EndOffset where there is none.
func (l *commitLog) StartOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start
}

// HighWatermark is the offset after the newest record that is stored, as the config's Flush has it.
func (l *commitLog) HighWatermark() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hw
}

// EndOffset is the offset that the next record gets.
func (l *commitLog) EndOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Size is the number of bytes of the log's segments.
func (l *commitLog) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Subscribe makes the log send on c, without blocking, whenever its high watermark grows or it is closed.
func (l *commitLog) Subscribe(c chan<- struct{}) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		notify(c)
		return func() {}
	}
	id := l.watched
	l.watched++
	if l.watchers == nil {
		l.watchers = make(map[int]chan<- struct{})
	}
	l.watchers[id] = c
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, id)
	}
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// notifyAll tells the subscribers; mu is held. The order cannot be seen, as nothing blocks.
func (l *commitLog) notifyAll() {
	for _, c := range l.watchers {
		notify(c)
	}
}

// active is the segment that is appended to; wmu or mu is held.
func (l *commitLog) active() *segment { return l.segments[len(l.segments)-1] }

// writable says why nothing can be written now; wmu is held.
func (l *commitLog) writable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usable()
}

// usable says why nothing can be appended; mu is held.
func (l *commitLog) usable() error {
	switch {
	case l.closed:
		return storage.ErrClosed
	case l.failed != nil:
		return fmt.Errorf("the log takes no records until it is opened again: %w", l.failed)
	}
	return nil
}

// fail makes the log refuse to write. After a failed fsync the kernel may have dropped what was not written and say that all is
// well the next time, so neither a retry nor a truncation tells what is on disk; only recovery does, which writes the tail anew.
func (l *commitLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(err)
}

func (l *commitLog) failLocked(err error) {
	if l.failed != nil || l.closed {
		return
	}
	l.failed = err
	l.failWaiting(err)
	l.wakeWaiters()
	l.logger.Error("the log takes no records until it is opened again", "partition", l.String(), "error", err)
}

// syncDir makes the partition's directory durable. Where that fails nothing can be said about what it holds.
func (l *commitLog) syncDir() error {
	err := l.engine.fs.SyncDir(l.dir)
	if err != nil {
		err = fmt.Errorf("sync directory %s: %w", l.dir, err)
		l.fail(err)
	}
	return err
}

// begin removes the clean-shutdown marker; it comes before anything else is written. wmu is held.
func (l *commitLog) begin() error {
	if !l.clean {
		return nil
	}
	if err := removeIfThere(l.engine.fs, l.path(cleanFile)); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.clean = false
	return nil
}

// setLeader takes the epoch and config of an Open of a log that is open.
func (l *commitLog) setLeader(epoch int32, c storage.Config) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	l.mu.Lock()
	m := meta{epoch: epoch, start: l.start}
	old := l.epoch
	l.mu.Unlock()
	if epoch < old {
		return fmt.Errorf("leader epoch %d, where %d has opened the log: %w", epoch, old, storage.ErrFenced)
	}
	if epoch > old {
		if err := l.writeMeta(m); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.config = epoch, c
	if c.Flush == storage.FlushOS {
		l.show()
		l.wakeWaiters()
		if stored := l.takeStored(); len(stored) > 0 {
			go func() {
				for _, p := range stored {
					p.done(p.Base, nil)
				}
			}()
		}
	} else {
		l.startSync()
	}
	return nil
}

// writeMeta makes epoch and start offset durable; wmu is held.
func (l *commitLog) writeMeta(m meta) error {
	if err := writeMeta(l.engine.fs, l.dir, m); err != nil {
		return fullError(fmt.Errorf("write %s: %w", l.path(metaFile), err))
	}
	return l.syncDir()
}

// close makes everything durable, leaves a clean-shutdown marker and closes the log.
func (l *commitLog) close() error {
	l.wmu.Lock()
	err := l.stop()
	l.shut()
	l.wmu.Unlock()
	l.waitIdle()
	return err
}

// abandon closes a log that is about to be deleted.
func (l *commitLog) abandon() {
	l.wmu.Lock()
	l.shut()
	l.wmu.Unlock()
	l.waitIdle()
}

// waitIdle returns when no compaction and no sync is going on; the log is closed, which a compaction that begins later sees.
func (l *commitLog) waitIdle() {
	l.cleaning.Lock()
	defer l.cleaning.Unlock()
	for {
		l.mu.Lock()
		if !l.syncing {
			l.mu.Unlock()
			return
		}
		if l.synced == nil {
			l.synced = make(chan struct{})
		}
		done := l.synced
		l.mu.Unlock()
		<-done
	}
}

// stop syncs the log and writes the marker, where something was written since it was opened.
func (l *commitLog) stop() error {
	l.mu.Lock()
	closed, failed := l.closed, l.failed
	l.mu.Unlock()
	if closed || l.clean {
		return nil
	}
	if failed != nil {
		return failed // recovery has to find out what is on disk
	}
	if err := l.waitSynced(); err != nil {
		return err
	}
	err := l.writeClean()
	if isFull(err) {
		l.logger.Warn("no room for the clean-shutdown marker; the next start reads the log's end", "partition", l.String())
		return nil // everything is on disk
	}
	return err
}

func (l *commitLog) writeClean() error {
	l.mu.Lock()
	v := l.active().view()
	l.mu.Unlock()
	c := clean{base: v.base, size: v.size, next: v.next, maxTime: v.maxTime, index: v.index, producers: l.known}
	if err := writeFile(l.engine.fs, l.path(cleanFile), c.encode()); err != nil {
		// Half a marker (a full disk) is as good as none, but would be reported as damage at the next start.
		return errors.Join(err, removeIfThere(l.engine.fs, l.path(cleanFile)))
	}
	l.clean = true
	return l.syncDir()
}

// shut marks the log closed, whatever is on disk, and ends all waiting; wmu is held.
func (l *commitLog) shut() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.failWaiting(storage.ErrClosed)
	if l.later != nil {
		l.later.Stop()
	}
	if !l.syncing {
		l.releaseSynced()
		l.releaseUnsealed()
	}
	l.wakeWaiters()
	l.notifyAll()
	l.watchers = nil
	segments := slices.Clone(l.segments)
	l.mu.Unlock()
	for _, s := range segments {
		l.engine.files.remove(&s.file)
	}
	l.engine.files.remove(&l.mark)
}

// fullError adds storage.ErrFull to an error of a full disk.
func fullError(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	}
	return err
}
