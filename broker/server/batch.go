// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"fmt"
)

// The fields of a record batch's header (format v2) that the server looks at, by their place in bytes. The storage engine checks the rest,
// and the checksum.
const (
	batchLengthAt          = 8
	batchMagicAt           = 16
	batchAttributesAt      = 21
	batchLastOffsetDeltaAt = 23
	batchMaxTimestampAt    = 35
	batchRecordCountAt     = 57
	recordBatchHeader      = 61
	// batchOverhead is what the length field does not count: the base offset and itself.
	batchOverhead = 12
)

// Bits of a batch's attributes.
const (
	compressionMask   = 0x07
	compressionZstd   = 4
	timestampTypeBit  = 0x08
	transactionalBit  = 0x10
	controlBit        = 0x20
	magicRecordBatch  = 2
	zstdSinceProduceV = 7
)

// batchError is why a batch is refused.
type batchError struct {
	code int16
	msg  string
}

func (e *batchError) Error() string { return e.msg }

// checkBatch checks the header of what a producer sent for a partition: exactly one record batch of format v2, as Kafka asks for, with
// nothing that only a broker may write.
func checkBatch(b []byte, produceVersion int16) error {
	if len(b) <= batchMagicAt {
		return &batchError{codeInvalidRecord, "there is no record batch"}
	}
	if magic := int8(b[batchMagicAt]); magic != magicRecordBatch {
		if magic == 0 || magic == 1 {
			return &batchError{codeUnsupportedForFormat, fmt.Sprintf("message format v%d is not taken; use a client that writes record batches (v2)", magic)}
		}
		return &batchError{codeCorruptMessage, fmt.Sprintf("unknown message format %d", magic)}
	}
	if len(b) < recordBatchHeader {
		return &batchError{codeCorruptMessage, "the record batch is cut short"}
	}
	switch length := int64(int32(binary.BigEndian.Uint32(b[batchLengthAt:]))) + batchOverhead; {
	case length < recordBatchHeader || length > int64(len(b)):
		return &batchError{codeCorruptMessage, "the record batch's length does not fit the request"}
	case length < int64(len(b)):
		return &batchError{codeInvalidRecord, "a produce request may have one record batch for each partition"}
	}
	count := int32(binary.BigEndian.Uint32(b[batchRecordCountAt:]))
	if last := int32(binary.BigEndian.Uint32(b[batchLastOffsetDeltaAt:])); count <= 0 || last != count-1 {
		return &batchError{codeInvalidRecord, fmt.Sprintf("a record batch of %d records cannot have a last offset delta of %d", count, last)}
	}
	return checkAttributes(binary.BigEndian.Uint16(b[batchAttributesAt:]), produceVersion)
}

// appendTime is when the log appended a batch, in milliseconds since 1970; -1 where its timestamps are the producer's.
func appendTime(b []byte) int64 {
	if binary.BigEndian.Uint16(b[batchAttributesAt:])&timestampTypeBit == 0 {
		return -1
	}
	return int64(binary.BigEndian.Uint64(b[batchMaxTimestampAt:]))
}

// checkAttributes checks a batch's attributes.
func checkAttributes(attributes uint16, produceVersion int16) error {
	switch codec := attributes & compressionMask; {
	case codec > compressionZstd:
		return &batchError{codeUnsupportedCompression, fmt.Sprintf("unknown compression %d", codec)}
	case codec == compressionZstd && produceVersion < zstdSinceProduceV:
		return &batchError{codeUnsupportedCompression, "zstd needs Produce v7 (KIP-110)"}
	case attributes&controlBit != 0:
		return &batchError{codeInvalidRecord, "a client may not write control batches"}
	case attributes&transactionalBit != 0:
		return &batchError{codeInvalidRecord, "there are no transactions; remove transactional.id from the producer"}
	case attributes&timestampTypeBit != 0:
		return &batchError{codeInvalidRecord, "a client may not write timestamps of the type LogAppendTime"}
	}
	return nil
}
