// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Group commit: while a log has records that are to be synced, one goroutine syncs its active segment over and over. Whoever appends during a
// sync is covered by the next one, together with all that come until then; a lone append waits for its own sync alone. There is no
// goroutine when everything is on disk.
//
// With storage.FlushOS readers see a batch once it is written, and nobody waits for a sync but who closes the log. A sync comes
// Options.FlushInterval after the first write that it covers, and when a segment is full (seal.go). To sync sooner, every few megabytes, costs a
// third of the throughput: it holds up writes to the end of the file that it finds there. So the kernel is told to write what lies behind that,
// a large piece at a time, and little is left for the sync (push).

const (
	// pushBytes is how many bytes the kernel is told to write at a time, and pushBehind how many at the end of the file it is not.
	pushBytes  = 8 << 20
	pushBehind = 1 << 20
	// maxSyncs is how many syncs an engine does at a time. Each has a thread, and a disk does not do more at once.
	maxSyncs = 32
)

// written sees to the sync of what was written to the active segment; mu is held.
func (l *commitLog) written() {
	if l.config.Flush != storage.FlushOS {
		l.startSync()
		return
	}
	l.show()
	l.push()
	l.startLater()
}

// push lets the kernel begin to write the active segment's older bytes; mu is held.
func (l *commitLog) push() {
	seg := l.active()
	from, to := seg.pushed, (seg.size-pushBehind)&^(pushBehind-1)
	if l.pushing || to-from < pushBytes {
		return
	}
	l.pushing, seg.pushed = true, to
	go func() {
		if f, err := l.engine.files.acquire(&seg.file); err == nil {
			writeBack(f, from, to-from)
			l.engine.files.release(&seg.file)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pushing = false
	}()
}

// show lets readers see everything that is written; mu is held.
func (l *commitLog) show() {
	if l.hw < l.end {
		l.hw, l.hwPos = l.end, l.active().size
		l.notifyAll()
	}
}

// startLater starts the goroutine in Options.FlushInterval where none is and none will be; mu is held.
func (l *commitLog) startLater() {
	switch {
	case l.syncing || l.laterSet || l.closed || l.failed != nil:
		return
	case l.later == nil:
		l.later = time.AfterFunc(l.engine.opts.FlushInterval, l.syncNow)
	default:
		l.later.Reset(l.engine.opts.FlushInterval)
	}
	l.laterSet = true
}

// syncNow starts a sync of what is written.
func (l *commitLog) syncNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.laterSet = false
	l.startSync()
}

// startSync starts the goroutine where none is and something is to be synced; mu is held.
func (l *commitLog) startSync() {
	if l.syncing || l.isSynced() || l.closed || l.failed != nil {
		return
	}
	l.syncing = true
	go l.syncLoop()
}

// isSynced says whether everything is on disk, and sealed; mu is held.
func (l *commitLog) isSynced() bool { return l.onDisk == l.end && len(l.unsealed) == 0 }

func (l *commitLog) syncLoop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for again := true; again && l.failed == nil && !l.closed; again = l.toSync() {
		var err error
		if len(l.unsealed) > 0 {
			err = l.syncUnsealed()
		} else {
			err = l.syncActive()
		}
		if err != nil {
			l.failLocked(err)
			break
		}
		if l.onDisk == l.end {
			l.releaseSynced()
		}
		l.wakeWaiters()
		if stored := l.takeStored(); len(stored) > 0 {
			l.mu.Unlock()
			for _, p := range stored {
				p.done(p.Base, nil)
			}
			l.mu.Lock()
		}
	}
	l.syncing = false
	switch {
	case l.closed:
		l.releaseSynced()
		l.releaseUnsealed()
	case !l.isSynced():
		l.startLater() // the files stay in use
	}
	l.wakeWaiters()
}

// syncActive syncs what is written to the active segment; mu is held, but not while it does so.
func (l *commitLog) syncActive() error {
	target, seg, pos, f := l.end, l.unsynced, l.unsynced.size, l.syncFile
	l.mu.Unlock()
	err := l.engine.sync(f)
	if err == nil {
		l.writeMark(target)
	}
	l.mu.Lock()
	if err != nil {
		return fmt.Errorf("sync %s: %w", seg.file.path, err)
	}
	l.onDisk = target
	if l.hw < target {
		l.hw, l.hwPos = target, pos
		l.notifyAll()
	}
	return nil
}

// sync syncs a file, when fewer than maxSyncs others are being synced.
func (e *Engine) sync(f File) error {
	e.syncs <- struct{}{}
	defer func() { <-e.syncs }()
	return f.Sync()
}

// toSync says whether another sync is due at once; mu is held.
func (l *commitLog) toSync() bool {
	return len(l.unsealed) > 0 || l.onDisk < l.end && (l.config.Flush != storage.FlushOS || l.onDisk < l.wanted)
}

// releaseSynced ends the use of the file that was synced; mu is held.
func (l *commitLog) releaseSynced() {
	if l.unsynced != nil {
		l.engine.files.release(&l.unsynced.file)
		l.unsynced, l.syncFile = nil, nil
	}
}

// writeMark notes how much is on disk. The mark itself need not be on disk: an older one only makes recovery write more of the tail
// anew, and see an unfinished write where damage of the very last records would be as likely.
func (l *commitLog) writeMark(synced int64) {
	f, err := l.engine.files.acquire(&l.mark)
	if err == nil {
		l.markAt = markSize - l.markAt // the other place
		_, err = f.WriteAt(encodeMark(synced), l.markAt)
		l.engine.files.release(&l.mark)
	}
	if err != nil {
		l.logger.Warn("cannot note what is on disk", "partition", l.String(), "error", err)
	}
}

// wakeWaiters lets everybody who waits for a sync look again; mu is held.
func (l *commitLog) wakeWaiters() {
	if l.synced != nil {
		close(l.synced)
		l.synced = nil
	}
}

// wait returns when everything below the offset is stored, as the config's Flush has it, and fails where the log failed or was closed before.
func (l *commitLog) wait(ctx context.Context, offset int64) error {
	for {
		done, err := l.waitStep(offset)
		if done == nil || err != nil {
			return err
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitStep returns what to wait for, or nil where all below the offset is stored.
func (l *commitLog) waitStep(offset int64) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isStored(offset):
		return nil, nil
	case l.failed != nil:
		return nil, l.failed
	case l.closed:
		return nil, storage.ErrClosed
	}
	if l.synced == nil {
		l.synced = make(chan struct{})
	}
	return l.synced, nil
}

// isStored says whether everything below the offset is stored, as the config's Flush has it; mu is held. What was shown to readers while that
// was FlushOS need not be stored any more once it is FlushSync.
func (l *commitLog) isStored(offset int64) bool {
	return l.onDisk >= offset || l.config.Flush == storage.FlushOS && l.hw >= offset
}

// waitSynced returns when everything is on disk, and all but the active segment is sealed; the disk answers or fails. wmu is held, so that
// nothing is added.
func (l *commitLog) waitSynced() error {
	l.mu.Lock()
	l.wanted = l.end
	l.mu.Unlock()
	return l.waitUntil(l.isSynced)
}

// waitSealed returns when every segment that begins below the offset is sealed, but for the active one. wmu is held.
func (l *commitLog) waitSealed(offset int64) error {
	return l.waitUntil(func() bool { return len(l.unsealed) == 0 || l.unsealed[0].segment.base >= offset })
}

// waitUntil waits for syncs until there is what is wanted.
func (l *commitLog) waitUntil(done func() bool) error {
	for {
		l.mu.Lock()
		ready, err := done(), l.failed
		if !ready && err == nil && l.closed {
			err = storage.ErrClosed
		}
		if ready || err != nil {
			l.mu.Unlock()
			if ready {
				err = nil
			}
			return err
		}
		l.startSync()
		if l.synced == nil {
			l.synced = make(chan struct{})
		}
		synced := l.synced
		l.mu.Unlock()
		<-synced
	}
}
