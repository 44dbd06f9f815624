// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"sync"
)

// The places, in bytes, of the fields of a record batch (format v2) that are changed for each send.
const (
	batchLengthAt     = 8
	batchCRCAt        = 17
	batchCheckedAt    = 21 // the checksum covers what follows
	batchDeltaAt      = 23
	batchProducerIDAt = 43
	batchEpochAt      = 51
	batchSequenceAt   = 53
	batchCountAt      = 57
	batchHeader       = 61
	// batchOverhead is what the length field does not count: the base offset and itself.
	batchOverhead = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// values makes a work's records: half of each is random, half repeats, so that a compressor would make about half of it.
type values struct {
	random *rand.ChaCha8
	size   int
}

func newValues(seed uint64, size int) *values {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return &values{random: rand.NewChaCha8(key), size: size}
}

// next returns a new value.
func (v *values) next() []byte {
	value := make([]byte, v.size)
	_, _ = v.random.Read(value[:v.size/2]) // it never fails
	for i := v.size / 2; i < v.size; i++ {
		value[i] = 'a' + byte(i%8)
	}
	return value
}

// appendRecord appends a record without key and headers.
func appendRecord(b []byte, delta int, value []byte) []byte {
	body := make([]byte, 0, len(value)+16)
	body = append(body, 0)                         // attributes
	body = binary.AppendVarint(body, 0)            // timestamp delta
	body = binary.AppendVarint(body, int64(delta)) // offset delta
	body = binary.AppendVarint(body, -1)           // no key
	body = binary.AppendVarint(body, int64(len(value)))
	body = append(body, value...)
	body = binary.AppendVarint(body, 0) // headers
	b = binary.AppendVarint(b, int64(len(body)))
	return append(b, body...)
}

// recordBatch returns a batch of as many records as fit limit bytes, at least one, and how many they are. It has no producer id.
func recordBatch(v *values, limit int, timestamp int64) ([]byte, int) {
	b := make([]byte, batchHeader, limit+v.size)
	count := 0
	for count == 0 || len(b)+v.size+16 <= limit {
		b = appendRecord(b, count, v.next())
		count++
	}
	binary.BigEndian.PutUint32(b[batchLengthAt:], uint32(len(b)-batchOverhead))
	binary.BigEndian.PutUint32(b[12:], ^uint32(0)) // leader epoch
	b[16] = 2                                      // the format
	binary.BigEndian.PutUint32(b[batchDeltaAt:], uint32(count-1))
	binary.BigEndian.PutUint64(b[27:], uint64(timestamp)) // of the first record
	binary.BigEndian.PutUint64(b[35:], uint64(timestamp)) // of the last
	binary.BigEndian.PutUint64(b[batchProducerIDAt:], ^uint64(0))
	binary.BigEndian.PutUint16(b[batchEpochAt:], ^uint16(0))
	binary.BigEndian.PutUint32(b[batchSequenceAt:], ^uint32(0))
	binary.BigEndian.PutUint32(b[batchCountAt:], uint32(count))
	binary.BigEndian.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchCheckedAt:], castagnoli))
	return b, count
}

// checksum mends a batch's CRC-32C after its header was changed, without reading the records again: the CRC is linear, so what the header adds
// to it is shifted over the records by a matrix that depends on their length alone.
type checksum struct {
	shift   *shift
	records uint32
}

// shift is such a matrix: what each bit of the register becomes.
type shift [32]uint32

// shifts are kept by the number of bytes that they shift over.
var shifts sync.Map

// newChecksum reads a batch's records once.
func newChecksum(batch []byte) checksum {
	records := batch[batchHeader:]
	return checksum{shift: shiftOver(len(records)), records: run(0, records)}
}

func shiftOver(n int) *shift {
	if known, ok := shifts.Load(n); ok {
		return known.(*shift)
	}
	zeros := make([]byte, n)
	s := new(shift)
	for bit := range s {
		s[bit] = run(1<<bit, zeros)
	}
	shifts.Store(n, s)
	return s
}

// run runs bytes through the register of the CRC, without the inversions before and after.
func run(register uint32, b []byte) uint32 { return ^crc32.Update(^register, castagnoli, b) }

// put writes the batch's checksum.
func (c *checksum) put(batch []byte) {
	register := run(^uint32(0), batch[batchCheckedAt:batchHeader])
	sum := c.records
	for bit := 0; register != 0; bit++ {
		if register&1 != 0 {
			sum ^= c.shift[bit]
		}
		register >>= 1
	}
	binary.BigEndian.PutUint32(batch[batchCRCAt:], ^sum)
}

// walk counts the records of whole batches; next is the offset after the last of them, or -1 if there is none.
func walk(b []byte) (records, next int64) {
	next = -1
	for len(b) >= batchHeader {
		length := int(int32(binary.BigEndian.Uint32(b[batchLengthAt:]))) + batchOverhead
		if length < batchHeader || length > len(b) {
			break // a batch that is cut off by the fetch's limit
		}
		records += int64(int32(binary.BigEndian.Uint32(b[batchCountAt:])))
		next = int64(binary.BigEndian.Uint64(b)) + int64(int32(binary.BigEndian.Uint32(b[batchDeltaAt:]))) + 1
		b = b[length:]
	}
	return records, next
}
