// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestABatchIsWhatAClientWouldSend(t *testing.T) {
	const size = 100
	b, count := recordBatch(newValues(1, size), 4<<10, 42)
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	if int(batch.NumRecords) != count || int(batch.Length) != len(b)-batchOverhead {
		t.Errorf("the header says %d records and %d bytes, there are %d and %d", batch.NumRecords, batch.Length, count, len(b)-batchOverhead)
	}
	if want := int32(crc32.Checksum(b[batchCheckedAt:], castagnoli)); batch.CRC != want {
		t.Errorf("the checksum is %x, want %x", batch.CRC, want)
	}
	rest := batch.Records
	for i := range count {
		length, n := binary.Varint(rest)
		var r kmsg.Record
		if err := r.ReadFrom(rest[:n+int(length)]); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if int(r.OffsetDelta) != i || r.Key != nil || len(r.Value) != size {
			t.Errorf("record %d has the offset delta %d, the key %q and a value of %d bytes", i, r.OffsetDelta, r.Key, len(r.Value))
		}
		rest = rest[n+int(length):]
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes follow the last record", len(rest))
	}
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	a, _ := recordBatch(newValues(7, 1024), 16<<10, 0)
	b, _ := recordBatch(newValues(7, 1024), 16<<10, 0)
	if !bytes.Equal(a, b) {
		t.Error("they differ")
	}
}

func TestAChecksumIsMendedWithoutReadingTheRecords(t *testing.T) {
	for _, limit := range []int{100, 16 << 10, 1000 << 10} {
		b, _ := recordBatch(newValues(3, 100), limit, 9)
		sum := newChecksum(b)
		for _, sequence := range []uint32{0, 1, 15, 1 << 30} {
			binary.BigEndian.PutUint64(b[batchProducerIDAt:], 4000)
			binary.BigEndian.PutUint32(b[batchSequenceAt:], sequence)
			sum.put(b)
			if got, want := binary.BigEndian.Uint32(b[batchCRCAt:]), crc32.Checksum(b[batchCheckedAt:], castagnoli); got != want {
				t.Errorf("%d bytes, sequence %d: %x, want %x", len(b), sequence, got, want)
			}
		}
	}
}

func TestWalkCountsWholeBatchesAlone(t *testing.T) {
	b, count := recordBatch(newValues(1, 10), 200, 0)
	binary.BigEndian.PutUint64(b, 100)
	tests := map[string]struct {
		in                    []byte
		wantRecords, wantNext int64
	}{
		"nothing":                        {nil, 0, -1},
		"one batch":                      {b, int64(count), 100 + int64(count)},
		"a second one that is cut off":   {append(append([]byte{}, b...), b[:len(b)-1]...), int64(count), 100 + int64(count)},
		"a header that is cut off":       {b[:batchHeader-1], 0, -1},
		"bytes that are no batch at all": {make([]byte, 200), 0, -1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if records, next := walk(test.in); records != test.wantRecords || next != test.wantNext {
				t.Errorf("%d records, next %d; want %d, %d", records, next, test.wantRecords, test.wantNext)
			}
		})
	}
}

func TestFramesNameEveryPartition(t *testing.T) {
	for name, w := range map[string]work{
		"one partition":                {Partitions: 1, BatchBytes: 1 << 10, RequestBytes: 4 << 10, RecordBytes: 100},
		"more than fit one request":    {Partitions: 10, BatchBytes: 1 << 10, RequestBytes: 4 << 10, RecordBytes: 100},
		"as many as fit":               {Partitions: 4, BatchBytes: 1 << 10, RequestBytes: 4 << 10, RecordBytes: 100},
		"a batch larger than requests": {Partitions: 3, BatchBytes: 8 << 10, RequestBytes: 4 << 10, RecordBytes: 100},
	} {
		t.Run(name, func(t *testing.T) {
			named := make([]int, w.Partitions)
			for _, f := range makeFrames(&w, "topic", 1) {
				var records int64
				for i := range f.batches {
					at := &f.batches[i]
					named[at.partition]++
					records += int64(at.records)
					if n, _ := walk(f.b[at.at:at.end]); n != int64(at.records) {
						t.Errorf("the batch for partition %d has %d records, want %d", at.partition, n, at.records)
					}
				}
				if f.records != records || f.bytes != records*100 {
					t.Errorf("a frame of %d records in %d bytes, want %d", f.records, f.bytes, records)
				}
			}
			for partition, n := range named {
				if n == 0 || n != named[0] {
					t.Errorf("partition %d is named %d times, partition 0 %d times", partition, n, named[0])
				}
			}
		})
	}
}
