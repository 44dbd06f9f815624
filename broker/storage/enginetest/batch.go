// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync"
)

// Positions of a record batch's fields, in bytes. Source: https://kafka.apache.org/documentation/#recordbatch
const (
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posFirstTimestamp  = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posFirstSequence   = 53
	posRecordCount     = 57
	headerSize         = 61
	attrGzip           = 1
	lengthCounts       = 12 // bytes that the length field does not count
)

// Record is a record of a Batch. It has no headers.
type Record struct {
	// Key is the record's key; nil: none.
	Key   []byte
	Value []byte
	// Tombstone says that it has no value, as opposed to an empty one.
	Tombstone bool
	// Delta is added to the batch's timestamp, in milliseconds.
	Delta int64
}

// Batch describes a record batch of format v2.
type Batch struct {
	// First is the timestamp that the records' are relative to, in milliseconds since 1970.
	First      int64
	Attributes int16
	// Producer is an idempotent producer's id, with its Epoch and first Sequence number; zero: no idempotent producer.
	Producer int64
	Epoch    int16
	Sequence int32
	Records  []Record
	// Gzip says that the records are compressed with gzip, which Attributes then say too.
	Gzip bool
}

// Values makes a record of each value, a millisecond after the other.
func Values(values ...string) []Record {
	records := make([]Record, len(values))
	for i, v := range values {
		records[i] = Record{Value: []byte(v), Delta: int64(i)}
	}
	return records
}

// Simple encodes a batch with a record of each value, with timestamps from 1000 on.
func Simple(values ...string) []byte { return Batch{First: 1000, Records: Values(values...)}.Encode() }

// Encode returns the batch as a producer sends it: base offset and leader epoch are zero.
func (tb Batch) Encode() []byte {
	b := make([]byte, headerSize)
	maxTime := tb.First
	for i, r := range tb.Records {
		record := []byte{0} // attributes
		record = binary.AppendVarint(record, r.Delta)
		record = binary.AppendVarint(record, int64(i))
		record = appendField(record, r.Key, r.Key == nil)
		record = appendField(record, r.Value, r.Tombstone)
		record = binary.AppendVarint(record, 0) // no headers
		b = binary.AppendVarint(b, int64(len(record)))
		b = append(b, record...)
		maxTime = max(maxTime, tb.First+r.Delta)
	}
	if tb.Gzip {
		tb.Attributes |= attrGzip
		b = compress(b)
	}
	producer, epoch, sequence := tb.Producer, tb.Epoch, tb.Sequence
	if producer == 0 {
		producer, epoch, sequence = -1, -1, -1
	}
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-lengthCounts))
	b[posMagic] = 2
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(tb.Attributes))
	binary.BigEndian.PutUint32(b[posLastOffsetDelta:], uint32(len(tb.Records)-1))
	binary.BigEndian.PutUint64(b[posFirstTimestamp:], uint64(tb.First))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(maxTime))
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(producer))
	binary.BigEndian.PutUint16(b[posProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[posFirstSequence:], uint32(sequence))
	binary.BigEndian.PutUint32(b[posRecordCount:], uint32(len(tb.Records)))
	return FixCRC(b)
}

func appendField(b, field []byte, none bool) []byte {
	if none {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(field))), field...)
}

// zippers are kept because each takes a megabyte.
var zippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compress compresses what follows a batch's header.
func compress(batch []byte) []byte {
	b := bytes.NewBuffer(bytes.Clone(batch[:headerSize]))
	w, _ := zippers.Get().(*gzip.Writer)
	defer zippers.Put(w)
	w.Reset(b)
	_, err := w.Write(batch[headerSize:])
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // a buffer takes everything
	}
	return b.Bytes()
}

// FixCRC sets the checksum of a batch that was changed, and returns the batch.
func FixCRC(b []byte) []byte {
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// placed returns a copy of a batch with the base offset and leader epoch that a log sets.
func placed(batch []byte, base int64, leaderEpoch int32) []byte {
	b := append([]byte(nil), batch...)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(leaderEpoch))
	return b
}

// baseOf is a batch's base offset, countOf its number of records, sizeOf its size in bytes.
func baseOf(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

func countOf(b []byte) int64 { return int64(binary.BigEndian.Uint32(b[posRecordCount:])) }

func sizeOf(b []byte) int { return int(binary.BigEndian.Uint32(b[posLength:])) + lengthCounts }
