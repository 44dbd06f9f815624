// SPDX-License-Identifier: Apache-2.0

// Package idempotence knows what idempotent producers have appended to a log, so that nothing is appended twice (KIP-98). The storage engines share it.
package idempotence

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const (
	// KeptBatches is how many of an idempotent producer's last batches are known, so that any of them may be sent again. Kafka's
	// clients have at most five requests in flight for that reason (KIP-98).
	KeptBatches = 5
	// producerExpiry is how long a producer that appends nothing is remembered; Kafka's producer.id.expiration.ms.
	producerExpiry = 24 * time.Hour
)

// Sent is a batch of a producer that is in the log.
type Sent struct {
	FirstSequence, LastSequence int32
	Base, Next                  int64 // its first offset, and the one after its last
	Appended                    int64 // when the log appended it, in milliseconds since 1970; recordbatch.NoTime where its timestamps are the producer's
}

// Producer is what the log knows of an idempotent producer.
// Invariant: each batch's first sequence number follows the last one of the batch before it.
type Producer struct {
	Epoch    int16
	Count    int8 // of batches, 0 to KeptBatches
	Batches  [KeptBatches]Sent
	LastSeen time.Time
}

// Add notes a batch that is in the log, and forgets the oldest one where more than KeptBatches would be known.
func (p *Producer) Add(s Sent) {
	if p.Count == KeptBatches {
		copy(p.Batches[:], p.Batches[1:])
		p.Count--
	}
	p.Batches[p.Count] = s
	p.Count++
}

// Producers holds the idempotent producers of one log by producer id. It is not safe for concurrent use.
type Producers map[int64]*Producer

// addSequence is sequence + n, going round from 2^31-1 to 0.
func addSequence(sequence, n int32) int32 {
	return int32((int64(sequence) + int64(n)) & 0x7fffffff)
}

// check decides about one batch: it is a duplicate (then dup is the one in the log), or it may be appended, or err says why not.
func (p *Producer) check(h *recordbatch.Header) (dup *Sent, err error) {
	switch {
	case h.ProducerEpoch < p.Epoch:
		return nil, fmt.Errorf("producer %d: epoch %d, where %d has appended: %w", h.ProducerID, h.ProducerEpoch, p.Epoch,
			storage.ErrStaleProducerEpoch)
	case h.ProducerEpoch > p.Epoch:
		if h.FirstSequence != 0 {
			return nil, fmt.Errorf("producer %d: new epoch %d starts at sequence number %d, not 0: %w", h.ProducerID,
				h.ProducerEpoch, h.FirstSequence, storage.ErrOutOfOrderSequence)
		}
		return nil, nil
	}
	last := addSequence(h.FirstSequence, h.LastDelta)
	for i := range p.Count {
		s := &p.Batches[i]
		if s.FirstSequence == h.FirstSequence && s.LastSequence == last {
			return s, nil
		}
	}
	if p.Count == 0 {
		return nil, nil
	}
	if want := addSequence(p.Batches[p.Count-1].LastSequence, 1); h.FirstSequence != want {
		return nil, fmt.Errorf("producer %d epoch %d: sequence number %d, where %d was to follow: %w", h.ProducerID,
			h.ProducerEpoch, h.FirstSequence, want, storage.ErrOutOfOrderSequence)
	}
	return nil, nil
}

// Apply notes a batch that is in the log at base. Live appends and recovery both come here, so that both end in the same state.
func (p *Producer) apply(h *recordbatch.Header, base int64, now time.Time) {
	if h.ProducerEpoch != p.Epoch {
		*p = Producer{Epoch: h.ProducerEpoch}
	}
	p.LastSeen = now
	p.Add(Sent{
		FirstSequence: h.FirstSequence,
		LastSequence:  addSequence(h.FirstSequence, h.LastDelta),
		Base:          base,
		Next:          base + int64(h.LastDelta) + 1,
		Appended:      h.AppendTime(),
	})
}

// Apply notes a batch of the log.
func (ps Producers) Apply(h *recordbatch.Header, base int64, now time.Time) {
	if h.ProducerID < 0 {
		return
	}
	p := ps[h.ProducerID]
	if p == nil {
		p = &Producer{Epoch: h.ProducerEpoch}
		ps[h.ProducerID] = p
	}
	p.apply(h, base, now)
}

// Expire forgets the producers that have appended nothing for producerExpiry, and returns their ids, sorted.
func (ps Producers) Expire(now time.Time) []int64 {
	var gone []int64
	for id, p := range ps {
		if now.Sub(p.LastSeen) > producerExpiry {
			gone = append(gone, id)
			delete(ps, id)
		}
	}
	slices.Sort(gone)
	return gone
}

// Plan is what the appends of a group will do.
type Plan struct {
	// End is the offset that the next fresh batch gets.
	End int64
	// changed holds the producers as they will be once the fresh batches are written.
	changed map[int64]*Producer
}

// Place is where a batch is or will be: its first offset and the one after its last. It is fresh where it is not in the log yet; else appended is
// as sent has it.
type Place struct {
	Base, Next int64
	Fresh      bool
	Appended   int64
}

// Add decides about a batch that comes after those that were added before, without changing the log's producers. An error leaves the plan as it was.
func (pl *Plan) Add(ps Producers, h *recordbatch.Header, now time.Time) (Place, error) {
	if h.ProducerID >= 0 {
		dup, err := pl.producer(ps, h).check(h)
		if err != nil {
			return Place{}, err
		}
		if dup != nil {
			return Place{Base: dup.Base, Next: dup.Next, Appended: dup.Appended}, nil
		}
	}
	at := Place{Base: pl.End, Next: pl.End + int64(h.Count), Fresh: true}
	pl.End = at.Next
	if h.ProducerID >= 0 {
		pl.changed[h.ProducerID].apply(h, at.Base, now)
	}
	return at, nil
}

// producer returns the plan's own copy of a batch's producer.
func (pl *Plan) producer(ps Producers, h *recordbatch.Header) *Producer {
	if p := pl.changed[h.ProducerID]; p != nil {
		return p
	}
	var p Producer
	if old := ps[h.ProducerID]; old != nil {
		p = *old
	} else {
		p.Epoch = h.ProducerEpoch
	}
	if pl.changed == nil {
		pl.changed = make(map[int64]*Producer, 1)
	}
	pl.changed[h.ProducerID] = &p
	return &p
}

// Changed returns the producers as they will be, by id, ascending.
func (pl *Plan) Changed() iter.Seq2[int64, *Producer] {
	return func(yield func(int64, *Producer) bool) {
		for _, id := range slices.Sorted(maps.Keys(pl.changed)) {
			if !yield(id, pl.changed[id]) {
				return
			}
		}
	}
}

// Commit makes the plan's producers the log's.
func (ps Producers) Commit(pl *Plan) {
	for id, p := range pl.changed {
		ps[id] = p
	}
}

// NewSent is what was kept of a batch elsewhere: its first sequence number, first offset, number of records, and when the log appended it; ok is false where no batch
// has these.
func NewSent(firstSequence, base, records, appended int64) (s Sent, ok bool) {
	if firstSequence < 0 || firstSequence > math.MaxInt32 || base < 0 || records < 1 || records > math.MaxInt32 || base > math.MaxInt64-records {
		return s, false
	}
	return Sent{
		FirstSequence: int32(firstSequence), LastSequence: addSequence(int32(firstSequence), int32(records-1)), Base: base, Next: base + records, Appended: appended,
	}, true
}
