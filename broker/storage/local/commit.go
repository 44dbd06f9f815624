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
// With storage.FlushOS readers see a batch once it is written, and nobody waits for a sync but who starts a new segment or closes the log.
// A sync comes Options.FlushInterval after the first write that it covers, or once syncAhead bytes are written, so that those who wait find
// little left.

// syncAhead is how many bytes storage.FlushOS leaves to the operating system.
const syncAhead = 4 << 20

// written sees to the sync of what was written to the active segment; mu is held.
func (l *commitLog) written() {
	if l.config.Flush != storage.FlushOS {
		l.startSync()
		return
	}
	l.show()
	if l.active().size-l.syncedSize >= syncAhead {
		l.startSync()
	} else {
		l.startLater()
	}
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
	if l.syncing || l.onDisk == l.end || l.closed || l.failed != nil {
		return
	}
	l.syncing = true
	go l.syncLoop()
}

func (l *commitLog) syncLoop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for again := true; again && l.failed == nil && !l.closed; again = l.toSync() {
		target, pos, f := l.end, l.unsynced.size, l.syncFile
		l.mu.Unlock()
		err := f.Sync()
		if err == nil {
			l.writeMark(target)
		}
		l.mu.Lock()
		if err != nil {
			l.failLocked(fmt.Errorf("sync %s: %w", l.unsynced.file.path, err))
			break
		}
		l.onDisk, l.syncedSize = target, pos
		if l.hw < target {
			l.hw, l.hwPos = target, pos
			l.notifyAll()
		}
		l.wakeWaiters()
		if stored := l.takeStored(); len(stored) > 0 {
			l.mu.Unlock()
			for _, p := range stored {
				p.done(p.base, nil)
			}
			l.mu.Lock()
		}
	}
	l.syncing = false
	if l.onDisk < l.end && l.failed == nil && !l.closed {
		l.startLater() // the file stays in use
	} else {
		l.releaseSynced()
	}
	l.wakeWaiters()
}

// toSync says whether another sync is due at once; mu is held.
func (l *commitLog) toSync() bool {
	return l.onDisk < l.end && (l.config.Flush != storage.FlushOS || l.onDisk < l.wanted)
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
		_, err = f.WriteAt(encodeMark(synced), 0)
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
	if l.isStored(offset) {
		return nil, nil
	}
	return l.waitOnDisk(offset)
}

// isStored says whether everything below the offset is stored, as the config's Flush has it; mu is held. What was shown to readers while that
// was FlushOS need not be stored any more once it is FlushSync.
func (l *commitLog) isStored(offset int64) bool {
	return l.onDisk >= offset || l.config.Flush == storage.FlushOS && l.hw >= offset
}

// waitOnDisk returns what to wait for, or nil where all below the offset is on disk; mu is held.
func (l *commitLog) waitOnDisk(offset int64) (<-chan struct{}, error) {
	switch {
	case l.onDisk >= offset:
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

// waitSynced returns when everything is on disk; the disk answers or fails. wmu is held, so that nothing is added.
func (l *commitLog) waitSynced() error {
	for {
		l.mu.Lock()
		l.wanted = l.end
		l.startSync()
		done, err := l.waitOnDisk(l.end)
		l.mu.Unlock()
		if done == nil || err != nil {
			return err
		}
		<-done
	}
}
