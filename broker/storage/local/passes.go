// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	passesMagic = "RMCOMPA1"
	passSize    = 16
	// maxPasses is how many passes are told apart. Of more, every second is forgotten: its tombstones then go with those of the pass after it.
	maxPasses = 256
	// defaultTombstoneRetention is Kafka's delete.retention.ms.
	defaultTombstoneRetention = 24 * time.Hour
)

// passes is what compaction has done to a log.
//
// A tombstone may go once readers had TombstoneRetention to see it since nothing older with its key is left, which is since the first pass that
// went beyond it (Kafka keeps that time in every batch, KIP-534). So the times of the passes are kept, and survive that segments are merged.
type passes struct {
	// done are the passes, by offset and time. Of those that are longer ago than TombstoneRetention only the newest is needed.
	done []pass
	// gone is the offset below which tombstones have gone, and left how many the last pass left behind.
	gone, left int64
}

// pass is one that left, of the records below the offset upTo, the newest of each key. at is when it ended, in milliseconds since 1970.
type pass struct{ upTo, at int64 }

// upTo is the offset up to which the log is compacted.
func (p *passes) upTo() int64 {
	if len(p.done) == 0 {
		return 0
	}
	return p.done[len(p.done)-1].upTo
}

// expired is the offset below which tombstones may go.
func (p *passes) expired(now time.Time, retention time.Duration) int64 {
	to := int64(0)
	for _, d := range p.done {
		if d.at <= now.Add(-retention).UnixMilli() {
			to = max(to, d.upTo)
		}
	}
	return to
}

// add notes a pass that removed the tombstones below the offset gone, and left so many.
func (p *passes) add(d pass, gone, left int64) {
	var kept []pass
	for _, old := range p.done {
		if old.upTo >= gone && old.upTo < d.upTo {
			kept = append(kept, old)
		}
	}
	if len(kept) >= maxPasses {
		n := 0
		for i := 1; i < len(kept); i += 2 {
			kept[n] = kept[i]
			n++
		}
		kept = kept[:n]
	}
	// A pass that went no further than an older one leaves that one's time.
	if p.upTo() < d.upTo {
		kept = append(kept, d)
	} else if n := len(p.done); n > 0 {
		kept = append(kept, p.done[n-1])
	}
	p.done, p.gone, p.left = kept, gone, left
}

// cut forgets what was said of offsets that the log has lost.
func (p *passes) cut(end int64) {
	n := len(p.done)
	for n > 0 && p.done[n-1].upTo > end {
		n--
	}
	p.done = p.done[:n]
	p.gone = min(p.gone, p.upTo())
}

func (p *passes) encode() []byte {
	b := append(make([]byte, 0, 48+len(p.done)*passSize), passesMagic...)
	b = appendInt(b, p.gone)
	b = appendInt(b, p.left)
	b = appendInt(b, int32(len(p.done)))
	for _, d := range p.done {
		b = appendInt(b, d.upTo)
		b = appendInt(b, d.at)
	}
	return seal(b)
}

func decodePasses(b []byte) (*passes, error) {
	d, err := unseal(b, passesMagic)
	if err != nil {
		return nil, err
	}
	p := &passes{gone: d.int64(), left: d.int64()}
	p.done = make([]pass, d.count(passSize))
	for i := range p.done {
		p.done[i] = pass{upTo: d.int64(), at: d.int64()}
		if i > 0 && p.done[i].upTo <= p.done[i-1].upTo || p.done[i].upTo <= 0 {
			d.fail("pass %d does not follow the one before it", i)
		}
	}
	if p.gone < 0 || p.gone > p.upTo() {
		d.fail("tombstones have gone up to %d, of %d", p.gone, p.upTo())
	}
	return p, d.end()
}

// readPasses reads what compaction has done. Where that cannot be known it is taken to have done nothing, which loses time alone.
func (l *commitLog) readPasses() (*passes, error) {
	name := l.path(passesFile)
	b, err := readFile(l.engine.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return &passes{}, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := decodePasses(b)
	if err != nil {
		l.logger.Warn("what compaction has done is not known; it starts anew", "partition", l.String(), "file", name, "error", err)
		return &passes{}, nil
	}
	return p, nil
}

// writePasses makes it durable.
func (l *commitLog) writePasses(p *passes) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if err := replaceFile(l.engine.fs, l.path(passesFile), p.encode()); err != nil {
		return fullError(fmt.Errorf("write %s: %w", l.path(passesFile), err))
	}
	return l.syncDir()
}

// cutPasses makes what compaction has done fit a log that may have lost its end.
func (r *recovery) cutPasses() error {
	if _, ok := r.files[passesFile]; !ok {
		return nil
	}
	p, err := r.readPasses()
	if err != nil || p.upTo() <= r.end {
		return err
	}
	p.cut(r.end)
	if err := replaceFile(r.engine.fs, r.path(passesFile), p.encode()); err != nil {
		return err
	}
	return r.syncDir()
}

func tombstoneRetention(c *storage.Config) time.Duration {
	if c.TombstoneRetention > 0 {
		return c.TombstoneRetention
	}
	return defaultTombstoneRetention
}
