// SPDX-License-Identifier: Apache-2.0

package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

var errRecords = errors.New("its records do not fit their count and lengths")

// Record is a record of a batch.
// Source: https://kafka.apache.org/documentation/#record
type Record struct {
	Raw                         []byte // all of it, with its length in front
	TimestampDelta, OffsetDelta int64
	rest                        []byte // key, value and headers
}

// nextRecord decodes the record that b starts with and returns what is behind it.
func nextRecord(b []byte) (r Record, behind []byte, err error) {
	length, n := binary.Varint(b)
	if n <= 0 || length < 1 || length > int64(len(b)-n) {
		return r, nil, errRecords
	}
	end := n + int(length)
	r.Raw = b[:end]
	at := n + 1 // attributes
	if r.TimestampDelta, n = binary.Varint(b[at:end]); n <= 0 {
		return r, nil, errRecords
	}
	at += n
	if r.OffsetDelta, n = binary.Varint(b[at:end]); n <= 0 {
		return r, nil, errRecords
	}
	r.rest = b[at+n : end]
	return r, b[end:], nil
}

// key returns the record's key, nil where it has none, and whether it is a tombstone: a key without a value.
func (r *Record) key() (key []byte, tombstone bool, err error) {
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

// EachRecord calls fn with every record of an uncompressed batch until it returns false. It fails where the records are not exactly count,
// each as long as it says.
func EachRecord(b []byte, count int32, fn func(r *Record) bool) error {
	var r Record
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

// EachKey calls fn with every record of a batch that compaction can look into: each has its own offset within the batch's, in ascending
// order, and whole fields.
func EachKey(records []byte, h *Header, fn func(r *Record, key []byte, tombstone bool)) error {
	before := int64(-1)
	var bad error
	err := EachRecord(records, h.Count, func(r *Record) bool {
		var key []byte
		var tombstone bool
		if key, tombstone, bad = r.key(); bad != nil {
			return false
		}
		if r.OffsetDelta <= before || r.OffsetDelta > int64(h.LastDelta) {
			bad = fmt.Errorf("its records' offset deltas do not ascend to %d", h.LastDelta)
			return false
		}
		before = r.OffsetDelta
		fn(r, key, tombstone)
		return true
	})
	return errors.Join(bad, err)
}

// maxNamed is how many records a storage.RecordError names.
const maxNamed = 100

// checkKeys checks a batch for a compacted topic: every record needs a key, by which it is compacted. A compressed batch is looked into, as far as
// MaxInflated goes.
func checkKeys(batch []byte, h *Header) error {
	var keyless []int32
	err := Inflated(batch, h, func(records []byte) error {
		return EachKey(records, h, func(r *Record, key []byte, _ bool) {
			if key == nil && len(keyless) < maxNamed {
				keyless = append(keyless, int32(r.OffsetDelta))
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

// ForTime returns the first record of a batch from the offset start on whose timestamp is ts or later. Where the batch cannot be looked into
// that is taken to be its first one.
func ForTime(batch []byte, h *Header, ts, start int64) (offset, timestamp int64, ok bool) {
	if h.Attributes&AttrLogAppendTime != 0 {
		return max(h.Base, start), h.MaxTimestamp, true
	}
	err := Inflated(batch, h, func(records []byte) error {
		return EachRecord(records, h.Count, func(r *Record) bool {
			o, t := h.Base+r.OffsetDelta, h.FirstTimestamp+r.TimestampDelta
			if o < max(h.Base, start) || o >= h.Next() || t < ts {
				return true
			}
			offset, timestamp, ok = o, t, true
			return false
		})
	})
	if err != nil {
		return max(h.Base, start), h.FirstTimestamp, true
	}
	return offset, timestamp, ok
}
