// SPDX-License-Identifier: Apache-2.0

package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
)

// Filter takes records out of batches. It is not safe for concurrent use.
type Filter struct {
	kept []byte // the records of a batch that stay; reused
}

// Apply returns a batch without the records that keep does not want: the batch itself where it wants all, and nil where it wants none.
// The records that stay are as they were, under their old offsets, in the batch's compression; of the header only the length, the record
// count, the max timestamp and the CRC change. An error says why the batch cannot be looked into.
func (f *Filter) Apply(batch []byte, h *Header, keep func(offset int64, key []byte, tombstone bool) bool) ([]byte, error) {
	var out []byte
	if cap(f.kept) > keptBuffer {
		f.kept = nil
	}
	err := Inflated(batch, h, func(records []byte) error {
		f.kept = f.kept[:0]
		count, maxTime := int32(0), int64(math.MinInt64)
		err := EachKey(records, h, func(r *Record, key []byte, tombstone bool) {
			if keep(h.Base+r.OffsetDelta, key, tombstone) {
				f.kept = append(f.kept, r.Raw...)
				count++
				maxTime = max(maxTime, h.FirstTimestamp+r.TimestampDelta)
			}
		})
		switch {
		case err != nil:
			return err
		case count == h.Count:
			out = batch
			return nil
		case count == 0:
			return nil
		}
		if h.Attributes&AttrLogAppendTime != 0 {
			maxTime = h.MaxTimestamp
		}
		out, err = rebuildBatch(batch, h, f.kept, count, maxTime)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// rebuildBatch makes a batch of another's header and other records.
func rebuildBatch(batch []byte, h *Header, records []byte, count int32, maxTime int64) ([]byte, error) {
	b, err := Deflate(slices.Clone(batch[:HeaderSize]), records, h.Attributes&AttrCompression)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(b[PosLength:], uint32(len(b)-LengthCounts))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(maxTime))
	binary.BigEndian.PutUint32(b[PosRecordCount:], uint32(count))
	binary.BigEndian.PutUint32(b[PosCRC:], crc32.Checksum(b[PosAttributes:], Castagnoli))
	return b, nil
}
