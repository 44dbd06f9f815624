// SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
)

// appendProducers encodes the producers in the order of their ids, as the package comment says.
func appendProducers(b []byte, ps idempotence.Producers) []byte {
	ids := make([]int64, 0, len(ps))
	for id := range ps {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare[int64])
	b = appendInt(b, int32(len(ids)))
	for _, id := range ids {
		p := ps[id]
		b = appendInt(b, id)
		b = appendInt(b, p.Epoch)
		b = append(b, byte(p.Count))
		for _, s := range p.Batches[:p.Count] {
			b = appendInt(b, s.FirstSequence)
			b = appendInt(b, s.LastSequence)
			b = appendInt(b, s.Base)
			b = appendInt(b, s.Next)
			b = appendInt(b, s.Appended)
		}
	}
	return b
}

// decodeProducers is appendProducers' inverse; the producers count as seen now.
func decodeProducers(d *decoder, now time.Time) idempotence.Producers {
	n := d.count(11) // an id, an epoch and a count are the least
	ps := make(idempotence.Producers, n)
	before := int64(math.MinInt64)
	for i := range n {
		id := d.int64()
		if i > 0 && id <= before {
			d.fail("producer %d does not follow %d", id, before)
		}
		before = id
		p := &idempotence.Producer{Epoch: d.int16(), LastSeen: now}
		count := int(d.byte())
		if count > idempotence.KeptBatches {
			d.fail("a producer has %d batches, more than %d", count, idempotence.KeptBatches)
		}
		for i := 0; i < count && d.err == nil; i++ {
			p.Add(idempotence.Sent{FirstSequence: d.int32(), LastSequence: d.int32(), Base: d.int64(), Next: d.int64(), Appended: d.int64()})
		}
		if d.err != nil {
			return nil
		}
		ps[id] = p
	}
	return ps
}
