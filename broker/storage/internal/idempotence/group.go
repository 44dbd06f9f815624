// SPDX-License-Identifier: Apache-2.0

package idempotence

import (
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// maxGroup and maxGroupBatches bound one write; Linux takes 1,024 buffers at once.
const (
	maxGroup        = 8 << 20
	maxGroupBatches = 512
)

// Append is an append on its way into a log.
type Append struct {
	// Batches are its bytes, and Headers the headers of the batches, which are sound.
	Batches []byte
	Headers []recordbatch.Header
	// Base is the first offset of the first batch, and Next the offset below which everything must be stored for the append to be; Err says why
	// it was not written.
	Base, Next int64
	Err        error
}

// Group is what is written at once: the fresh batches of one or more appends.
type Group struct {
	// Plan says what becomes of the log and of its producers.
	Plan Plan
	// Now is when it is written.
	Now time.Time
	// Stamped says that the batches get Now for their records' timestamps.
	Stamped bool
	// Taken is how many appends it has seen; of some nothing is to be written.
	Taken int
	// Parts are the bytes of the fresh batches, and Headers their headers.
	Parts   [][]byte
	Headers []*recordbatch.Header
	Bytes   int
	// alone says that no other append may be added.
	alone bool
}

// Fits says whether another append may be part of the group, where there is room for so many bytes. One of several batches is written on its own, so
// that all of it is refused where one batch is.
func (g *Group) Fits(p *Append, room int64) bool {
	bytes := int64(g.Bytes + len(p.Batches))
	return g.Taken == 0 || len(p.Headers) == 1 && !g.alone && len(g.Headers) < maxGroupBatches && bytes <= maxGroup && bytes <= room
}

// Add takes an append in: it notes in the append what becomes of it, and which of its batches are to be written.
func (g *Group) Add(known Producers, p *Append) {
	g.Taken++
	g.alone = len(p.Headers) > 1
	places := make([]Place, 0, 4)
	for i := range p.Headers {
		if g.Stamped {
			p.Headers[i].Attributes |= recordbatch.AttrLogAppendTime
			p.Headers[i].MaxTimestamp = g.Now.UnixMilli()
		}
		at, err := g.Plan.Add(known, &p.Headers[i], g.Now)
		if err != nil {
			p.Err = err // it is alone where an earlier batch of it has changed the plan, which is then not used
			return
		}
		places = append(places, at)
	}
	pos := 0
	for i := range p.Headers {
		h, at := &p.Headers[i], places[i]
		if at.Fresh {
			h.Base = at.Base
			g.Parts = append(g.Parts, p.Batches[pos:pos+h.Size])
			g.Headers = append(g.Headers, h)
			g.Bytes += h.Size
		} else if at.Appended != recordbatch.NoTime {
			recordbatch.SetAppendTime(p.Batches[pos:pos+h.Size], at.Appended)
		}
		if i == 0 {
			p.Base = at.Base
		}
		p.Next = max(p.Next, at.Next)
		pos += h.Size
	}
}

// Place writes into the fresh batches what the log decides about them: their offsets, the leader epoch and, where they are stamped, the time.
func (g *Group) Place(leaderEpoch int32) {
	for i, part := range g.Parts {
		recordbatch.SetPlace(part, g.Headers[i].Base, leaderEpoch)
		if g.Stamped {
			recordbatch.SetAppendTime(part, g.Headers[i].MaxTimestamp)
		}
	}
}
