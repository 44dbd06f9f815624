// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
)

// What is known of the idempotent producers is in the producers file, of all batches below its offset, and in the log's batches, of the rest. For a
// recovery to find all of it, whatever a crash leaves:
//
//   - The file never speaks of a batch that is not on disk: its offset is at most that below which everything is. Else the log would end
//     before it after a crash, and give the offsets to other batches, of which the file would say something else.
//   - No batch that the file does not cover leaves the log, be it by retention, a trim, a compaction or a recovery, before a file that covers it is on
//     disk under its name. A segment that was compacted says nothing of producers any more.
//
// snapshot is the offset that this holds for: it is set when the directory is synced, and not before.

// keepProducers makes durable what is known of the producers, where the producers file does not cover all batches below the offset: those of
// segments that a recovery has sealed, or that were sealed while the disk was full. It comes before such batches go. wmu is held.
func (l *commitLog) keepProducers(below int64) error {
	l.mu.Lock()
	kept := below <= l.snapshot
	l.mu.Unlock()
	if kept {
		return nil
	}
	if err := l.waitSynced(); err != nil {
		return err
	}
	return l.writeProducers(l.EndOffset())
}

// writeProducers makes the producers file that of all batches below the offset, which are on disk. wmu is held, and the queue of segments that are to be
// sealed is empty.
func (l *commitLog) writeProducers(offset int64) error {
	if err := replaceFile(l.engine.fs, l.path(producersFile), encodeProducers(offset, l.known)); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshot = offset
	return nil
}

// readProducers reads the producers file. One that is missing or damaged is one of offset 0 that knows none.
func (r *recovery) readProducers() error {
	r.known, r.snapshot = idempotence.Producers{}, 0
	name := r.path(producersFile)
	b, err := readFile(r.engine.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what is known of producers: %w", err)
	}
	offset, ps, err := decodeProducersFile(b, r.now)
	if err != nil {
		r.logger.Warn("the file of producers is damaged; they are looked for in the log", "partition", r.String(), "file", name, "error", err)
		return nil
	}
	r.known, r.snapshot = ps, offset
	return nil
}
