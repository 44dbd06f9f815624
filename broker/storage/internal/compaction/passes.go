// SPDX-License-Identifier: Apache-2.0

package compaction

import (
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	// MaxPasses is how many passes are told apart. Of more, every second is forgotten: its tombstones then go with those of the pass after it.
	MaxPasses = 256
	// defaultTombstoneRetention is Kafka's delete.retention.ms.
	defaultTombstoneRetention = 24 * time.Hour
)

// Passes is what compaction has done to a log.
//
// A tombstone may go once readers had TombstoneRetention to see it since nothing older with its key is left, which is since the first pass that
// went beyond it (Kafka keeps that time in every batch, KIP-534). So the times of the passes are kept, and survive that segments are merged.
type Passes struct {
	// Done are the passes, by offset and time. Of those that are longer ago than TombstoneRetention only the newest is needed.
	Done []Pass
	// Gone is the offset below which tombstones have gone, and left how many the last pass left behind.
	Gone, Left int64
}

// Pass is one that left, of the records below the offset upTo, the newest of each key. at is when it ended, in milliseconds since 1970.
type Pass struct{ UpTo, At int64 }

// UpTo is the offset up to which the log is compacted.
func (p *Passes) UpTo() int64 {
	if len(p.Done) == 0 {
		return 0
	}
	return p.Done[len(p.Done)-1].UpTo
}

// Expired is the offset below which tombstones may go.
func (p *Passes) Expired(now time.Time, retention time.Duration) int64 {
	to := int64(0)
	for _, d := range p.Done {
		if d.At <= now.Add(-retention).UnixMilli() {
			to = max(to, d.UpTo)
		}
	}
	return to
}

// Add notes a pass that removed the tombstones below the offset gone, and left so many.
func (p *Passes) Add(d Pass, gone, left int64) {
	var kept []Pass
	for _, old := range p.Done {
		if old.UpTo >= gone && old.UpTo < d.UpTo {
			kept = append(kept, old)
		}
	}
	if len(kept) >= MaxPasses {
		n := 0
		for i := 1; i < len(kept); i += 2 {
			kept[n] = kept[i]
			n++
		}
		kept = kept[:n]
	}
	// A pass that went no further than an older one leaves that one's time.
	if p.UpTo() < d.UpTo {
		kept = append(kept, d)
	} else if n := len(p.Done); n > 0 {
		kept = append(kept, p.Done[n-1])
	}
	p.Done, p.Gone, p.Left = kept, gone, left
}

// Cut forgets what was said of offsets that the log has lost.
func (p *Passes) Cut(end int64) {
	n := len(p.Done)
	for n > 0 && p.Done[n-1].UpTo > end {
		n--
	}
	p.Done = p.Done[:n]
	p.Gone = min(p.Gone, p.UpTo())
}

// TombstoneRetention is how long a topic keeps tombstones.
func TombstoneRetention(c *storage.Config) time.Duration {
	if c.TombstoneRetention > 0 {
		return c.TombstoneRetention
	}
	return defaultTombstoneRetention
}
