// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Committed offsets are stored in the topic __consumer_offsets as Kafka stores them: a record per group, topic and partition, whose key is
// Kafka's OffsetCommitKey v1 and whose value is OffsetCommitValue v3; a record without a value is a tombstone. Any tool that reads
// Kafka's offsets topic reads ours.
const (
	offsetKeyVersion   = 1
	offsetValueVersion = 3

	// batchHeaderSize is the length of a record batch (format v2) without its records, in bytes.
	batchHeaderSize = 61
	// batchCRCFrom is where the bytes begin that a batch's CRC-32C covers.
	batchCRCFrom = 21
	// offsetsBatchSize is how many bytes of records go into a batch before another is begun; well below the topic's max.message.bytes.
	offsetsBatchSize = 256 << 10
	// offsetsReadSize is how many bytes are read at a time when a log is loaded.
	offsetsReadSize = 1 << 20
)

var crc32c = crc32.MakeTable(crc32.Castagnoli)

// errNotOffsets says that a batch in the offsets topic is not one of ours.
var errNotOffsets = errors.New("not a batch of committed offsets")

// groupRecord is a coordinator's record with the group that it belongs to.
type groupRecord struct {
	group string
	coordinator.Record
}

// encodeOffsets makes record batches that hold the records, in order.
func encodeOffsets(now time.Time, records []groupRecord) []byte {
	var batches []byte
	for len(records) > 0 {
		var n int
		batches, n = appendOffsetsBatch(batches, now, records)
		records = records[n:]
	}
	return batches
}

// appendOffsetsBatch appends one batch that holds as many of the records as fit, at least one, and returns how many those are.
func appendOffsetsBatch(dst []byte, now time.Time, records []groupRecord) (batch []byte, n int) {
	var body []byte
	for n < len(records) && (n == 0 || len(body) < offsetsBatchSize) {
		body = appendOffsetRecord(body, int32(n), records[n])
		n++
	}
	header := kmsg.RecordBatch{
		Length:          int32(batchHeaderSize - 12 + len(body)),
		Magic:           2,
		LastOffsetDelta: int32(n - 1),
		FirstTimestamp:  now.UnixMilli(),
		MaxTimestamp:    now.UnixMilli(),
		ProducerID:      -1,
		ProducerEpoch:   -1,
		FirstSequence:   -1,
		NumRecords:      int32(n),
		Records:         body,
	}
	start := len(dst)
	dst = header.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start+batchCRCFrom-4:], crc32.Checksum(dst[start+batchCRCFrom:], crc32c))
	return dst, n
}

// appendOffsetRecord appends one record.
func appendOffsetRecord(dst []byte, delta int32, r groupRecord) []byte {
	key := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: r.group, Topic: r.Topic, Partition: r.Partition}
	record := kmsg.Record{OffsetDelta: delta, Key: key.AppendTo(nil)}
	if !r.Deleted {
		value := kmsg.OffsetCommitValue{
			Version:         offsetValueVersion,
			Offset:          r.Offset.Offset,
			LeaderEpoch:     r.Offset.LeaderEpoch,
			Metadata:        r.Offset.Metadata,
			CommitTimestamp: r.Offset.CommitTime.UnixMilli(),
		}
		record.Value = value.AppendTo(nil)
	}
	// The length does not count itself, and as a zero it takes one byte.
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	return record.AppendTo(dst)
}

// readOffsets reads a log from the start and calls each with every committed offset and tombstone, in order. What is not one is skipped: each is
// then told why through skipped. It ends at the high watermark and returns it.
func readOffsets(ctx context.Context, log storage.Log, each func(groupRecord), skipped func(offset int64, why error)) (int64, error) {
	next, end := log.StartOffset(), log.HighWatermark()
	for next < end {
		data, err := readBytes(ctx, log, next, offsetsReadSize)
		if err != nil {
			return next, fmt.Errorf("read offset %d: %w", next, err)
		}
		if len(data) == 0 {
			return next, nil
		}
		for len(data) > 0 {
			batch, rest, err := splitBatch(data)
			if err != nil {
				return next, fmt.Errorf("read the batch at offset %d: %w", next, err)
			}
			if err := decodeOffsets(&batch, each); err != nil {
				skipped(batch.FirstOffset, err)
			}
			next, data = batch.FirstOffset+int64(batch.LastOffsetDelta)+1, rest
		}
	}
	return next, nil
}

// readBytes reads batches of a log into memory.
func readBytes(ctx context.Context, log storage.Log, offset int64, maxBytes int) ([]byte, error) {
	batches, err := log.Read(ctx, offset, maxBytes)
	if err != nil {
		return nil, err
	}
	defer batches.Close()
	return batches.Bytes()
}

// splitBatch takes the first batch off data.
func splitBatch(data []byte) (batch kmsg.RecordBatch, rest []byte, err error) {
	if len(data) < batchHeaderSize {
		return batch, nil, errors.New("the batch is cut short")
	}
	size := int64(int32(binary.BigEndian.Uint32(data[8:]))) + 12 // negative lengths are refused
	if size < batchHeaderSize || size > int64(len(data)) {
		return batch, nil, fmt.Errorf("the batch's length is %d of %d bytes", size, len(data))
	}
	if err := batch.ReadFrom(data[:size]); err != nil {
		return batch, nil, fmt.Errorf("decode the batch: %w", err)
	}
	if batch.LastOffsetDelta < 0 {
		return batch, nil, fmt.Errorf("the batch's last offset delta is %d", batch.LastOffsetDelta)
	}
	return batch, data[size:], nil
}

// decodeOffsets calls each with every offset of a batch. Records with other keys than Kafka's offset keys are passed over.
func decodeOffsets(batch *kmsg.RecordBatch, each func(groupRecord)) error {
	if batch.Magic != 2 || batch.Attributes&0x27 != 0 { // compressed or a control batch
		return errNotOffsets
	}
	body := batch.Records
	for range batch.NumRecords {
		length, n := binary.Varint(body)
		if n <= 0 || length < 0 || length > int64(len(body)-n) {
			return errNotOffsets
		}
		size := n + int(length)
		var record kmsg.Record
		if err := record.ReadFrom(body[:size]); err != nil {
			return fmt.Errorf("decode a record: %w", err)
		}
		body = body[size:]
		r, ok, err := decodeOffset(record.Key, record.Value)
		if err != nil {
			return err
		}
		if ok {
			each(r)
		}
	}
	return nil
}

// decodeOffset decodes a record; ok is false where it is none of an offset.
func decodeOffset(key, value []byte) (r groupRecord, ok bool, err error) {
	if len(key) < 2 || binary.BigEndian.Uint16(key) > offsetKeyVersion {
		return r, false, nil
	}
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return r, false, fmt.Errorf("decode an offset's key: %w", err)
	}
	r.group, r.Topic, r.Partition = k.Group, k.Topic, k.Partition
	if value == nil {
		r.Deleted = true
		return r, true, nil
	}
	v := kmsg.OffsetCommitValue{LeaderEpoch: -1} // versions below 3 have none
	if err := v.ReadFrom(value); err != nil {
		return r, false, fmt.Errorf("decode an offset's value: %w", err)
	}
	r.Offset = coordinator.Offset{
		Offset:      v.Offset,
		LeaderEpoch: v.LeaderEpoch,
		Metadata:    v.Metadata,
		CommitTime:  time.UnixMilli(v.CommitTimestamp),
	}
	return r, true, nil
}
