// SPDX-License-Identifier: Apache-2.0

package compaction

import (
	"errors"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// Keeper decides in one pass over a log which records stay.
type Keeper struct {
	// Keys are the newest offsets of the keys.
	Keys *KeyMap
	// Last is the offset of the newest record, which stays, so that readers come to the log's end.
	Last int64
	// Expired is the offset below which tombstones may go.
	Expired int64
	// Blind says that something was met that cannot be looked into. What a tombstone deletes may be in it, so those behind it stay.
	Blind bool
	// Left counts the tombstones that stay.
	Left int64

	filter recordbatch.Filter
}

var errControl = errors.New("it is a control batch")

// ReadKeys notes the keys of a batch from an offset on; full is true where there is no room for the one at upTo. An error says why the batch cannot be looked into.
func (k *Keeper) ReadKeys(batch []byte, h *recordbatch.Header, from int64) (upTo int64, full bool, err error) {
	if h.Attributes&recordbatch.AttrControl != 0 {
		return 0, false, errControl
	}
	err = recordbatch.Inflated(batch, h, func(records []byte) error {
		return recordbatch.EachKey(records, h, func(r *recordbatch.Record, key []byte, _ bool) {
			o := h.Base + r.OffsetDelta
			if full || o < from || key == nil {
				return
			}
			if full = !k.Keys.Put(key, o); full {
				upTo = o
			}
		})
	})
	if full {
		err = nil
	}
	return upTo, full, err
}

// Clean returns what stays of a batch: the batch itself where all of it does, or where it cannot be looked into, and nil where nothing does.
func (k *Keeper) Clean(batch []byte, h *recordbatch.Header) []byte {
	if h.Attributes&recordbatch.AttrControl == 0 {
		if kept, err := k.filter.Apply(batch, h, k.keep); err == nil {
			return kept
		}
	}
	k.Blind = true
	return batch
}

// keep says whether a record stays.
func (k *Keeper) keep(offset int64, key []byte, tombstone bool) bool {
	switch {
	case key == nil || offset >= k.Last:
		return true
	case k.Keys.Newest(key) > offset:
		return false
	case tombstone && offset < k.Expired && !k.Blind:
		return false
	}
	if tombstone {
		k.Left++
	}
	return true
}
