// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Group commit: while a log has records that are not on disk, one goroutine syncs its active segment over and over. Whoever
// appends during a sync is covered by the next one, together with all that come until then; a lone append waits for its own sync
// alone. There is no goroutine when everything is on disk.

// startSync starts the goroutine where none is; mu is held.
func (l *commitLog) startSync() {
	if l.syncing || l.closed || l.failed != nil {
		return
	}
	l.syncing = true
	go l.syncLoop()
}

func (l *commitLog) syncLoop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.hw < l.end && l.failed == nil && !l.closed {
		target, f := l.end, l.syncFile
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
		l.hw = target
		l.wakeWaiters()
		l.notifyAll()
	}
	l.syncing = false
	l.engine.files.release(&l.unsynced.file)
	l.unsynced, l.syncFile = nil, nil
	l.wakeWaiters()
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

// wait returns when everything below the offset is on disk, and fails where the log failed or was closed before.
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

// waitStep returns what to wait for, or nil where all below the offset is on disk.
func (l *commitLog) waitStep(offset int64) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.hw >= offset:
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

// waitSynced is wait without an end; the disk answers or fails.
func (l *commitLog) waitSynced(offset int64) error { return l.wait(context.Background(), offset) }
