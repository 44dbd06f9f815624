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

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	// batchHeaderSize is the length of a record batch (format v2) without its records, in bytes.
	batchHeaderSize = 61
	// batchCRCFrom is where the bytes begin that a batch's CRC-32C covers.
	batchCRCFrom = 21
	// offsetsBatchSize is how many bytes of records go into a batch before another is begun.
	offsetsBatchSize = 256 << 10
	// maxOffsetsBatch is how many bytes a batch of the offsets topic may have, whatever its max.message.bytes: only brokers write there, and all that follows
	// from one step of a group is stored in one batch.
	maxOffsetsBatch = 64 << 20
	// recordOverhead is more than a record takes beside its key and its value, in bytes.
	recordOverhead = 32
	// offsetsReadSize is how many bytes are read at a time when a log is loaded.
	offsetsReadSize = 1 << 20
)

var crc32c = crc32.MakeTable(crc32.Castagnoli)

// errNotOffsets says that a batch in the offsets topic is not one of ours.
var errNotOffsets = errors.New("not a batch of committed offsets")

// encodeSteps makes record batches that hold the records of a group's steps, in order. The records of one step are in one batch, unless that were larger than
// maxOffsetsBatch, so that a crash leaves all of a step or nothing.
func encodeSteps(now time.Time, steps [][]groupRecord) ([]byte, error) {
	b := batches{now: now}
	for _, step := range steps {
		records := make([]kmsg.Record, len(step))
		size := 0
		for i, r := range step {
			key, value, err := encodeRecord(r)
			if err != nil {
				return nil, fmt.Errorf("encode a record of group %q: %w", r.group, err)
			}
			records[i] = kmsg.Record{Key: key, Value: value}
			size += len(key) + len(value) + recordOverhead
		}
		b.room(size, offsetsBatchSize)
		for i := range records {
			r := &records[i]
			b.room(len(r.Key)+len(r.Value)+recordOverhead, maxOffsetsBatch-batchHeaderSize)
			b.add(r)
		}
	}
	b.end()
	return b.done, nil
}

// batches makes record batches.
type batches struct {
	now time.Time
	// done are the batches that are ended; body are the n records of the one that is not.
	done, body []byte
	n          int32
	// record is where a record is encoded, to find its length.
	record []byte
}

// room ends the batch if size more bytes would make it larger than limit.
func (b *batches) room(size, limit int) {
	if len(b.body)+size > limit {
		b.end()
	}
}

// add adds a record to the batch.
func (b *batches) add(r *kmsg.Record) {
	r.OffsetDelta = b.n
	b.record = r.AppendTo(b.record[:0])
	// The length does not count itself, and the zero that is there for it takes one byte.
	b.body = binary.AppendVarint(b.body, int64(len(b.record)-1))
	b.body = append(b.body, b.record[1:]...)
	b.n++
}

// end ends the batch, if it has records.
func (b *batches) end() {
	if b.n == 0 {
		return
	}
	header := kmsg.RecordBatch{
		Length:          int32(batchHeaderSize - 12 + len(b.body)),
		Magic:           2,
		LastOffsetDelta: b.n - 1,
		FirstTimestamp:  b.now.UnixMilli(),
		MaxTimestamp:    b.now.UnixMilli(),
		ProducerID:      -1,
		ProducerEpoch:   -1,
		FirstSequence:   -1,
		NumRecords:      b.n,
		Records:         b.body,
	}
	start := len(b.done)
	b.done = header.AppendTo(b.done)
	binary.BigEndian.PutUint32(b.done[start+batchCRCFrom-4:], crc32.Checksum(b.done[start+batchCRCFrom:], crc32c))
	b.body, b.n = b.body[:0], 0
}

// readRecords reads a log from the start and calls each with every record of a group, in order. What cannot be decoded is passed over, and told through
// skipped with the offset of its batch. It ends at the high watermark and returns it.
func readRecords(ctx context.Context, log storage.Log, each func(groupRecord), skipped func(offset int64, why error)) (int64, error) {
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
			decodeBatch(&batch, each, func(why error) { skipped(batch.FirstOffset, why) })
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

// decodeBatch calls each with every record of a batch whose key is known, and skipped with why others, or the rest of the batch, cannot be decoded.
func decodeBatch(batch *kmsg.RecordBatch, each func(groupRecord), skipped func(why error)) {
	if batch.Magic != 2 || batch.Attributes&0x27 != 0 { // compressed or a control batch
		skipped(errNotOffsets)
		return
	}
	body := batch.Records
	for range batch.NumRecords {
		length, n := binary.Varint(body)
		if n <= 0 || length < 0 || length > int64(len(body)-n) {
			skipped(errNotOffsets)
			return
		}
		size := n + int(length)
		var record kmsg.Record
		if err := record.ReadFrom(body[:size]); err != nil {
			skipped(fmt.Errorf("decode a record: %w", err))
			return
		}
		body = body[size:]
		switch r, ok, err := decodeRecord(record.Key, record.Value); {
		case err != nil:
			skipped(err)
		case ok:
			each(r)
		}
	}
}
