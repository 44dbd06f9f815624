// SPDX-License-Identifier: Apache-2.0

package local

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
)

// filter takes records out of batches. It is not safe for concurrent use.
type filter struct {
	kept []byte // the records of a batch that stay; reused
}

// apply returns a batch without the records that keep does not want: the batch itself where it wants all, and nil where it wants none.
// The records that stay are as they were, under their old offsets, in the batch's compression; of the header only the length, the record
// count, the max timestamp and the CRC change. An error says why the batch cannot be looked into.
func (f *filter) apply(batch []byte, h *header, keep func(offset int64, key []byte, tombstone bool) bool) ([]byte, error) {
	var out []byte
	if cap(f.kept) > keptBuffer {
		f.kept = nil
	}
	err := inflated(batch, h, func(records []byte) error {
		f.kept = f.kept[:0]
		count, maxTime := int32(0), int64(math.MinInt64)
		err := eachKey(records, h, func(r *record, key []byte, tombstone bool) {
			if keep(h.base+r.offsetDelta, key, tombstone) {
				f.kept = append(f.kept, r.raw...)
				count++
				maxTime = max(maxTime, h.firstTimestamp+r.timestampDelta)
			}
		})
		switch {
		case err != nil:
			return err
		case count == h.count:
			out = batch
			return nil
		case count == 0:
			return nil
		}
		if h.attributes&attrLogAppendTime != 0 {
			maxTime = h.maxTimestamp
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
func rebuildBatch(batch []byte, h *header, records []byte, count int32, maxTime int64) ([]byte, error) {
	b, err := deflate(slices.Clone(batch[:headerSize]), records, h.attributes&attrCompression)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-lengthCounts))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(maxTime))
	binary.BigEndian.PutUint32(b[posRecordCount:], uint32(count))
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
	return b, nil
}
