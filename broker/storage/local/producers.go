// SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	// keptBatches is how many of an idempotent producer's last batches are known, so that any of them may be sent again. Kafka's
	// clients have at most five requests in flight for that reason (KIP-98).
	keptBatches = 5
	// producerExpiry is how long a producer that appends nothing is remembered; Kafka's producer.id.expiration.ms.
	producerExpiry = 24 * time.Hour
)

// sent is a batch of a producer that is in the log.
type sent struct {
	firstSequence, lastSequence int32
	base, next                  int64 // its first offset, and the one after its last
	appended                    int64 // when the log appended it, in milliseconds since 1970; noTime where its timestamps are the producer's
}

// producer is what the log knows of an idempotent producer.
// Invariant: each batch's first sequence number follows the last one of the batch before it.
type producer struct {
	epoch    int16
	count    int8 // of batches, 0 to keptBatches
	batches  [keptBatches]sent
	lastSeen time.Time
}

func (p *producer) add(s sent) {
	if p.count == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.count--
	}
	p.batches[p.count] = s
	p.count++
}

// producers holds the idempotent producers of one log by producer id. It is not safe for concurrent use.
type producers map[int64]*producer

// addSequence is sequence + n, going round from 2^31-1 to 0.
func addSequence(sequence, n int32) int32 {
	return int32((int64(sequence) + int64(n)) & 0x7fffffff)
}

// check decides about one batch: it is a duplicate (then dup is the one in the log), or it may be appended, or err says why not.
func (p *producer) check(h *header) (dup *sent, err error) {
	switch {
	case h.producerEpoch < p.epoch:
		return nil, fmt.Errorf("producer %d: epoch %d, where %d has appended: %w", h.producerID, h.producerEpoch, p.epoch,
			storage.ErrStaleProducerEpoch)
	case h.producerEpoch > p.epoch:
		if h.firstSequence != 0 {
			return nil, fmt.Errorf("producer %d: new epoch %d starts at sequence number %d, not 0: %w", h.producerID,
				h.producerEpoch, h.firstSequence, storage.ErrOutOfOrderSequence)
		}
		return nil, nil
	}
	last := addSequence(h.firstSequence, h.lastDelta)
	for i := range p.count {
		s := &p.batches[i]
		if s.firstSequence == h.firstSequence && s.lastSequence == last {
			return s, nil
		}
	}
	if p.count == 0 {
		return nil, nil
	}
	if want := addSequence(p.batches[p.count-1].lastSequence, 1); h.firstSequence != want {
		return nil, fmt.Errorf("producer %d epoch %d: sequence number %d, where %d was to follow: %w", h.producerID,
			h.producerEpoch, h.firstSequence, want, storage.ErrOutOfOrderSequence)
	}
	return nil, nil
}

// apply notes a batch that is in the log at base. Live appends and recovery both come here, so that both end in the same state.
func (p *producer) apply(h *header, base int64, now time.Time) {
	if h.producerEpoch != p.epoch {
		*p = producer{epoch: h.producerEpoch}
	}
	p.lastSeen = now
	p.add(sent{
		firstSequence: h.firstSequence,
		lastSequence:  addSequence(h.firstSequence, h.lastDelta),
		base:          base,
		next:          base + int64(h.lastDelta) + 1,
		appended:      h.appendTime(),
	})
}

// apply notes a batch of the log.
func (ps producers) apply(h *header, base int64, now time.Time) {
	if h.producerID < 0 {
		return
	}
	p := ps[h.producerID]
	if p == nil {
		p = &producer{epoch: h.producerEpoch}
		ps[h.producerID] = p
	}
	p.apply(h, base, now)
}

// expire forgets the producers that have appended nothing for producerExpiry.
func (ps producers) expire(now time.Time) {
	for id, p := range ps {
		if now.Sub(p.lastSeen) > producerExpiry {
			delete(ps, id)
		}
	}
}

// plan is what the appends of a group will do.
type plan struct {
	// end is the offset that the next fresh batch gets.
	end int64
	// changed holds the producers as they will be once the fresh batches are written.
	changed map[int64]*producer
}

// place is where a batch is or will be: its first offset and the one after its last. It is fresh where it is not in the log yet; else appended is
// as sent has it.
type place struct {
	base, next int64
	fresh      bool
	appended   int64
}

// add decides about a batch that comes after those that were added before, without changing the log's producers. An error leaves the plan as it was.
func (pl *plan) add(ps producers, h *header, now time.Time) (place, error) {
	if h.producerID >= 0 {
		dup, err := pl.producer(ps, h).check(h)
		if err != nil {
			return place{}, err
		}
		if dup != nil {
			return place{base: dup.base, next: dup.next, appended: dup.appended}, nil
		}
	}
	at := place{base: pl.end, next: pl.end + int64(h.count), fresh: true}
	pl.end = at.next
	if h.producerID >= 0 {
		pl.changed[h.producerID].apply(h, at.base, now)
	}
	return at, nil
}

// producer returns the plan's own copy of a batch's producer.
func (pl *plan) producer(ps producers, h *header) *producer {
	if p := pl.changed[h.producerID]; p != nil {
		return p
	}
	var p producer
	if old := ps[h.producerID]; old != nil {
		p = *old
	} else {
		p.epoch = h.producerEpoch
	}
	if pl.changed == nil {
		pl.changed = make(map[int64]*producer, 1)
	}
	pl.changed[h.producerID] = &p
	return &p
}

// commit makes the plan's producers the log's.
func (ps producers) commit(pl *plan) {
	for id, p := range pl.changed {
		ps[id] = p
	}
}

// append encodes the producers in the order of their ids, as the package comment says.
func (ps producers) append(b []byte) []byte {
	ids := make([]int64, 0, len(ps))
	for id := range ps {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare[int64])
	b = appendInt(b, int32(len(ids)))
	for _, id := range ids {
		p := ps[id]
		b = appendInt(b, id)
		b = appendInt(b, p.epoch)
		b = append(b, byte(p.count))
		for _, s := range p.batches[:p.count] {
			b = appendInt(b, s.firstSequence)
			b = appendInt(b, s.lastSequence)
			b = appendInt(b, s.base)
			b = appendInt(b, s.next)
			b = appendInt(b, s.appended)
		}
	}
	return b
}

// decodeProducers is append's inverse; the producers count as seen now.
func decodeProducers(d *decoder, now time.Time) producers {
	n := d.count(11) // an id, an epoch and a count are the least
	ps := make(producers, n)
	before := int64(math.MinInt64)
	for i := range n {
		id := d.int64()
		if i > 0 && id <= before {
			d.fail("producer %d does not follow %d", id, before)
		}
		before = id
		p := &producer{epoch: d.int16(), lastSeen: now}
		count := int(d.byte())
		if count > keptBatches {
			d.fail("a producer has %d batches, more than %d", count, keptBatches)
		}
		for i := 0; i < count && d.err == nil; i++ {
			p.add(sent{firstSequence: d.int32(), lastSequence: d.int32(), base: d.int64(), next: d.int64(), appended: d.int64()})
		}
		if d.err != nil {
			return nil
		}
		ps[id] = p
	}
	return ps
}
