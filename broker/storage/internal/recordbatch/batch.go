// SPDX-License-Identifier: Apache-2.0

// Package recordbatch reads, checks and remakes record batches of format v2. The storage engines share it.
package recordbatch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Positions of the fields of a record batch v2, from its first byte.
// Source: https://kafka.apache.org/documentation/#recordbatch
const (
	PosBaseOffset      = 0
	PosLength          = 8
	PosLeaderEpoch     = 12
	PosMagic           = 16
	PosCRC             = 17
	PosAttributes      = 21 // the CRC covers from here to the end
	PosLastOffsetDelta = 23
	posFirstTimestamp  = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posFirstSequence   = 53
	PosRecordCount     = 57
	HeaderSize         = 61

	// LengthCounts is how many bytes of a batch its length field does not count.
	LengthCounts = 12
	MagicV2      = 2

	AttrCompression   = 0x07
	AttrLogAppendTime = 0x08
	AttrTransactional = 0x10
	AttrControl       = 0x20
	lastCompression   = 4 // zstd

	// NoTime is the max timestamp of nothing, and of batches without timestamps.
	NoTime = -1

	defaultMaxBatchBytes = 1048588
	// maxAppendBytes bounds one append, and with it by how much a segment may be larger than its limit.
	maxAppendBytes = 1 << 30
)

// Castagnoli is the polynomial of a batch's CRC-32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the fixed part of a batch.
type Header struct {
	Base           int64
	Size           int // of the whole batch, in bytes
	Crc            uint32
	Attributes     int16
	Count          int32 // of records
	LastDelta      int32 // the last offset less the base offset: count-1, or more where records were compacted away
	FirstTimestamp int64
	MaxTimestamp   int64
	ProducerID     int64
	ProducerEpoch  int16
	FirstSequence  int32
}

// Next is the offset after the batch's last one, whether a record has that or had it.
func (h *Header) Next() int64 { return h.Base + int64(h.LastDelta) + 1 }

// Follows says whether a batch of a segment may come where the offset does: in a compacted segment offsets may be left out, before
// the batch and in it.
func (h *Header) Follows(offset int64, compacted bool) bool {
	if compacted {
		return h.Base >= offset
	}
	return h.Base == offset && h.LastDelta == h.Count-1
}

// AppendTime is when the log appended the batch, in milliseconds since 1970; NoTime where its timestamps are the producer's.
func (h *Header) AppendTime() int64 {
	if h.Attributes&AttrLogAppendTime == 0 {
		return NoTime
	}
	return h.MaxTimestamp
}

// compressed says whether the records are compressed.
func (h *Header) compressed() bool { return h.Attributes&AttrCompression != 0 }

// ParseHeader decodes a batch's header and checks all that can be checked without the records and without knowing which
// offset it must have.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%d bytes are less than a batch's header of %d", len(b), HeaderSize)
	}
	length := int32(binary.BigEndian.Uint32(b[PosLength:]))
	h := Header{
		Base:           int64(binary.BigEndian.Uint64(b[PosBaseOffset:])),
		Size:           int(length) + LengthCounts,
		Crc:            binary.BigEndian.Uint32(b[PosCRC:]),
		Attributes:     int16(binary.BigEndian.Uint16(b[PosAttributes:])),
		Count:          int32(binary.BigEndian.Uint32(b[PosRecordCount:])),
		LastDelta:      int32(binary.BigEndian.Uint32(b[PosLastOffsetDelta:])),
		FirstTimestamp: int64(binary.BigEndian.Uint64(b[posFirstTimestamp:])),
		MaxTimestamp:   int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])),
		ProducerID:     int64(binary.BigEndian.Uint64(b[posProducerID:])),
		ProducerEpoch:  int16(binary.BigEndian.Uint16(b[posProducerEpoch:])),
		FirstSequence:  int32(binary.BigEndian.Uint32(b[posFirstSequence:])),
	}
	switch {
	case length < HeaderSize-LengthCounts:
		return h, fmt.Errorf("its length field of %d is less than a header's %d", length, HeaderSize-LengthCounts)
	case length > math.MaxInt32-LengthCounts:
		return h, fmt.Errorf("its length field of %d is too large", length)
	case b[PosMagic] != MagicV2:
		return h, fmt.Errorf("its format is v%d, not v2: use a client that speaks Kafka 0.11 or later", int8(b[PosMagic]))
	case h.Count <= 0:
		return h, fmt.Errorf("it counts %d records", h.Count)
	case h.LastDelta < h.Count-1:
		return h, fmt.Errorf("its last offset delta of %d does not fit its %d records", h.LastDelta, h.Count)
	}
	return h, nil
}

// CRCMatches says whether a whole batch has its header's CRC-32C.
func CRCMatches(batch []byte, h *Header) bool {
	return crc32.Checksum(batch[PosAttributes:], Castagnoli) == h.Crc
}

// CheckBatches splits b into batches and checks every one by the topic's config. The errors wrap storage's.
func CheckBatches(b []byte, c *storage.Config) ([]Header, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: there is none", storage.ErrInvalidBatch)
	}
	if len(b) > maxAppendBytes {
		return nil, fmt.Errorf("%w: %d bytes at once are more than %d", storage.ErrBatchTooLarge, len(b), maxAppendBytes)
	}
	headers := make([]Header, 0, 1)
	for at := 0; at < len(b); {
		h, err := checkBatch(b[at:], c)
		if err == nil && c.Compact {
			err = checkKeys(b[at:at+h.Size], &h)
		}
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", len(headers), err)
		}
		headers = append(headers, h)
		at += h.Size
	}
	return headers, nil
}

// checkBatch checks the batch that b starts with, for an append.
func checkBatch(b []byte, c *storage.Config) (Header, error) {
	maxBytes := c.MaxBatchBytes
	if maxBytes <= 0 {
		maxBytes = defaultMaxBatchBytes
	}
	h, err := ParseHeader(b)
	switch {
	case err != nil:
		return h, fmt.Errorf("%w: %w", storage.ErrInvalidBatch, err)
	case h.LastDelta != h.Count-1:
		return h, fmt.Errorf("%w: its last offset delta of %d does not fit its %d records", storage.ErrInvalidBatch, h.LastDelta, h.Count)
	case int64(h.Size) > int64(maxBytes):
		return h, fmt.Errorf("%w: %d bytes are more than the topic's limit of %d", storage.ErrBatchTooLarge, h.Size, maxBytes)
	case h.Size > len(b):
		return h, fmt.Errorf("%w: it says %d bytes, but %d are there", storage.ErrInvalidBatch, h.Size, len(b))
	case !CRCMatches(b[:h.Size], &h):
		return h, fmt.Errorf("%w: its CRC-32C does not match", storage.ErrInvalidBatch)
	case h.Attributes&AttrControl != 0:
		return h, fmt.Errorf("%w: a control batch is not a producer's to write", storage.ErrInvalidBatch)
	case h.Attributes&AttrTransactional != 0:
		return h, fmt.Errorf("%w: transactions are not supported: produce without a transactional id", storage.ErrInvalidBatch)
	case h.Attributes&AttrCompression > lastCompression:
		return h, fmt.Errorf("%w: its compression %d is unknown", storage.ErrInvalidBatch, h.Attributes&AttrCompression)
	case h.ProducerID >= 0 && (h.ProducerEpoch < 0 || h.FirstSequence < 0):
		return h, fmt.Errorf("%w: producer %d has epoch %d and sequence number %d", storage.ErrInvalidBatch,
			h.ProducerID, h.ProducerEpoch, h.FirstSequence)
	}
	if !h.compressed() {
		if err := EachRecord(b[HeaderSize:h.Size], h.Count, func(*Record) bool { return true }); err != nil {
			return h, fmt.Errorf("%w: %w", storage.ErrInvalidBatch, err)
		}
	}
	return h, nil
}

// SetPlace writes what the log decides about a batch: its base offset and the leader epoch. The CRC covers neither.
func SetPlace(batch []byte, base int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(batch[PosBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(batch[PosLeaderEpoch:], uint32(leaderEpoch))
}

// SetAppendTime writes the time at which a batch was appended, in milliseconds since 1970, in the place of the producer's, and a CRC that fits.
func SetAppendTime(batch []byte, ms int64) {
	batch[PosAttributes+1] |= AttrLogAppendTime
	binary.BigEndian.PutUint64(batch[posMaxTimestamp:], uint64(ms))
	binary.BigEndian.PutUint32(batch[PosCRC:], crc32.Checksum(batch[PosAttributes:], Castagnoli))
}
