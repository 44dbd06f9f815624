// SPDX-License-Identifier: Apache-2.0

package local

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

var errRecords = errors.New("its records do not fit their count and lengths")

// record is a record of a batch.
// Source: https://kafka.apache.org/documentation/#record
type record struct {
	raw                         []byte // all of it, with its length in front
	timestampDelta, offsetDelta int64
	rest                        []byte // key, value and headers
}

// nextRecord decodes the record that b starts with and returns what is behind it.
func nextRecord(b []byte) (r record, behind []byte, err error) {
	length, n := binary.Varint(b)
	if n <= 0 || length < 1 || length > int64(len(b)-n) {
		return r, nil, errRecords
	}
	end := n + int(length)
	r.raw = b[:end]
	at := n + 1 // attributes
	if r.timestampDelta, n = binary.Varint(b[at:end]); n <= 0 {
		return r, nil, errRecords
	}
	at += n
	if r.offsetDelta, n = binary.Varint(b[at:end]); n <= 0 {
		return r, nil, errRecords
	}
	r.rest = b[at+n : end]
	return r, b[end:], nil
}

// key returns the record's key, nil where it has none, and whether it is a tombstone: a key without a value.
func (r *record) key() (key []byte, tombstone bool, err error) {
	key, rest, ok := bytesField(r.rest)
	if !ok {
		return nil, false, errRecords
	}
	n, size := binary.Varint(rest)
	if size <= 0 || n > int64(len(rest)-size) {
		return nil, false, errRecords
	}
	return key, n < 0 && key != nil, nil
}

// bytesField decodes a length and as many bytes; nil where the length is negative.
func bytesField(b []byte) (field, behind []byte, ok bool) {
	length, n := binary.Varint(b)
	if n <= 0 || length > int64(len(b)-n) {
		return nil, nil, false
	}
	if length < 0 {
		return nil, b[n:], true
	}
	end := n + int(length)
	return b[n:end:end], b[end:], true
}

// eachRecord calls fn with every record of an uncompressed batch until it returns false. It fails where the records are not exactly count,
// each as long as it says.
func eachRecord(b []byte, count int32, fn func(r *record) bool) error {
	var r record
	var err error
	for range count {
		if r, b, err = nextRecord(b); err != nil {
			return err
		}
		if !fn(&r) {
			return nil
		}
	}
	if len(b) > 0 {
		return errRecords
	}
	return nil
}

// eachKey calls fn with every record of a batch that compaction can look into: each has its own offset within the batch's, in ascending
// order, and whole fields.
func eachKey(records []byte, h *header, fn func(r *record, key []byte, tombstone bool)) error {
	before := int64(-1)
	var bad error
	err := eachRecord(records, h.count, func(r *record) bool {
		var key []byte
		var tombstone bool
		if key, tombstone, bad = r.key(); bad != nil {
			return false
		}
		if r.offsetDelta <= before || r.offsetDelta > int64(h.lastDelta) {
			bad = fmt.Errorf("its records' offset deltas do not ascend to %d", h.lastDelta)
			return false
		}
		before = r.offsetDelta
		fn(r, key, tombstone)
		return true
	})
	return errors.Join(bad, err)
}

// maxNamed is how many records a storage.RecordError names.
const maxNamed = 100

// checkKeys checks a batch for a compacted topic: every record needs a key, by which it is compacted. A compressed batch is looked into, as far as
// maxInflated goes.
func checkKeys(batch []byte, h *header) error {
	var keyless []int32
	err := inflated(batch, h, func(records []byte) error {
		return eachKey(records, h, func(r *record, key []byte, _ bool) {
			if key == nil && len(keyless) < maxNamed {
				keyless = append(keyless, int32(r.offsetDelta))
			}
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: the topic is compacted, which needs a look at the records: %w", storage.ErrInvalidBatch, err)
	case len(keyless) > 0:
		return &storage.RecordError{Records: keyless, Reason: "has no key, and the topic is compacted by key: set a key, or cleanup.policy=delete"}
	}
	return nil
}
