// SPDX-License-Identifier: Apache-2.0

package local

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
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21 // the CRC covers from here to the end
	posLastOffsetDelta = 23
	posFirstTimestamp  = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posFirstSequence   = 53
	posRecordCount     = 57
	headerSize         = 61

	// lengthCounts is how many bytes of a batch its length field does not count.
	lengthCounts = 12
	magicV2      = 2

	attrCompression   = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	lastCompression   = 4 // zstd
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the fixed part of a batch.
type header struct {
	base           int64
	size           int // of the whole batch, in bytes
	crc            uint32
	attributes     int16
	count          int32 // of records
	lastDelta      int32 // the last offset less the base offset: count-1, or more where records were compacted away
	firstTimestamp int64
	maxTimestamp   int64
	producerID     int64
	producerEpoch  int16
	firstSequence  int32
}

// next is the offset after the batch's last one, whether a record has that or had it.
func (h *header) next() int64 { return h.base + int64(h.lastDelta) + 1 }

// follows says whether a batch of a segment may come where the offset does: in a compacted segment offsets may be left out, before
// the batch and in it.
func (h *header) follows(offset int64, compacted bool) bool {
	if compacted {
		return h.base >= offset
	}
	return h.base == offset && h.lastDelta == h.count-1
}

// appendTime is when the log appended the batch, in milliseconds since 1970; noTime where its timestamps are the producer's.
func (h *header) appendTime() int64 {
	if h.attributes&attrLogAppendTime == 0 {
		return noTime
	}
	return h.maxTimestamp
}

// compressed says whether the records are compressed.
func (h *header) compressed() bool { return h.attributes&attrCompression != 0 }

// parseHeader decodes a batch's header and checks all that can be checked without the records and without knowing which
// offset it must have.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerSize {
		return header{}, fmt.Errorf("%d bytes are less than a batch's header of %d", len(b), headerSize)
	}
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	h := header{
		base:           int64(binary.BigEndian.Uint64(b[posBaseOffset:])),
		size:           int(length) + lengthCounts,
		crc:            binary.BigEndian.Uint32(b[posCRC:]),
		attributes:     int16(binary.BigEndian.Uint16(b[posAttributes:])),
		count:          int32(binary.BigEndian.Uint32(b[posRecordCount:])),
		lastDelta:      int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:])),
		firstTimestamp: int64(binary.BigEndian.Uint64(b[posFirstTimestamp:])),
		maxTimestamp:   int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])),
		producerID:     int64(binary.BigEndian.Uint64(b[posProducerID:])),
		producerEpoch:  int16(binary.BigEndian.Uint16(b[posProducerEpoch:])),
		firstSequence:  int32(binary.BigEndian.Uint32(b[posFirstSequence:])),
	}
	switch {
	case length < headerSize-lengthCounts:
		return h, fmt.Errorf("its length field of %d is less than a header's %d", length, headerSize-lengthCounts)
	case length > math.MaxInt32-lengthCounts:
		return h, fmt.Errorf("its length field of %d is too large", length)
	case b[posMagic] != magicV2:
		return h, fmt.Errorf("its format is v%d, not v2: use a client that speaks Kafka 0.11 or later", int8(b[posMagic]))
	case h.count <= 0:
		return h, fmt.Errorf("it counts %d records", h.count)
	case h.lastDelta < h.count-1:
		return h, fmt.Errorf("its last offset delta of %d does not fit its %d records", h.lastDelta, h.count)
	}
	return h, nil
}

// crcMatches says whether a whole batch has its header's CRC-32C.
func crcMatches(batch []byte, h *header) bool {
	return crc32.Checksum(batch[posAttributes:], castagnoli) == h.crc
}

// checkBatches splits b into batches and checks every one by the topic's config. The errors wrap storage's.
func checkBatches(b []byte, c *storage.Config) ([]header, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: there is none", storage.ErrInvalidBatch)
	}
	if len(b) > maxAppendBytes {
		return nil, fmt.Errorf("%w: %d bytes at once are more than %d", storage.ErrBatchTooLarge, len(b), maxAppendBytes)
	}
	headers := make([]header, 0, 1)
	for at := 0; at < len(b); {
		h, err := checkBatch(b[at:], c)
		if err == nil && c.Compact {
			err = checkKeys(b[at:at+h.size], &h)
		}
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", len(headers), err)
		}
		headers = append(headers, h)
		at += h.size
	}
	return headers, nil
}

// checkBatch checks the batch that b starts with, for an append.
func checkBatch(b []byte, c *storage.Config) (header, error) {
	maxBytes := c.MaxBatchBytes
	if maxBytes <= 0 {
		maxBytes = defaultMaxBatchBytes
	}
	h, err := parseHeader(b)
	switch {
	case err != nil:
		return h, fmt.Errorf("%w: %w", storage.ErrInvalidBatch, err)
	case h.lastDelta != h.count-1:
		return h, fmt.Errorf("%w: its last offset delta of %d does not fit its %d records", storage.ErrInvalidBatch, h.lastDelta, h.count)
	case int64(h.size) > int64(maxBytes):
		return h, fmt.Errorf("%w: %d bytes are more than the topic's limit of %d", storage.ErrBatchTooLarge, h.size, maxBytes)
	case h.size > len(b):
		return h, fmt.Errorf("%w: it says %d bytes, but %d are there", storage.ErrInvalidBatch, h.size, len(b))
	case !crcMatches(b[:h.size], &h):
		return h, fmt.Errorf("%w: its CRC-32C does not match", storage.ErrInvalidBatch)
	case h.attributes&attrControl != 0:
		return h, fmt.Errorf("%w: a control batch is not a producer's to write", storage.ErrInvalidBatch)
	case h.attributes&attrTransactional != 0:
		return h, fmt.Errorf("%w: transactions are not supported: produce without a transactional id", storage.ErrInvalidBatch)
	case h.attributes&attrCompression > lastCompression:
		return h, fmt.Errorf("%w: its compression %d is unknown", storage.ErrInvalidBatch, h.attributes&attrCompression)
	case h.producerID >= 0 && (h.producerEpoch < 0 || h.firstSequence < 0):
		return h, fmt.Errorf("%w: producer %d has epoch %d and sequence number %d", storage.ErrInvalidBatch,
			h.producerID, h.producerEpoch, h.firstSequence)
	}
	if !h.compressed() {
		if err := eachRecord(b[headerSize:h.size], h.count, func(*record) bool { return true }); err != nil {
			return h, fmt.Errorf("%w: %w", storage.ErrInvalidBatch, err)
		}
	}
	return h, nil
}

// setPlace writes what the log decides about a batch: its base offset and the leader epoch. The CRC covers neither.
func setPlace(batch []byte, base int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(batch[posBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(batch[posLeaderEpoch:], uint32(leaderEpoch))
}

// setAppendTime writes the time at which a batch was appended, in milliseconds since 1970, in the place of the producer's, and a CRC that fits.
func setAppendTime(batch []byte, ms int64) {
	batch[posAttributes+1] |= attrLogAppendTime
	binary.BigEndian.PutUint64(batch[posMaxTimestamp:], uint64(ms))
	binary.BigEndian.PutUint32(batch[posCRC:], crc32.Checksum(batch[posAttributes:], castagnoli))
}
