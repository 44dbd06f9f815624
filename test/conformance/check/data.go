// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// Partitions is how many partitions the topics of Data have.
	Partitions = 3
	// DataRecords is how many records Data makes.
	DataRecords = 300
	// OrderRecords is how many records, in one partition, the checks of order, offset and time write.
	OrderRecords = 2000
	// LargeBytes is the size of the value of the large record: with the rest of its batch it is just below max.message.bytes.
	LargeBytes = 1_000_000
	// GroupPartitions is how many partitions the rebalanced group reads.
	GroupPartitions = 6
	// GroupRecords is how many records are written to them before the second member leaves, and again after it.
	GroupRecords = 600
)

// Epoch is the time of the first record in the checks of time; each later record is a second younger.
func Epoch() time.Time { return time.UnixMilli(1_700_000_000_000) }

// Header is a record's header.
type Header struct {
	Key   string
	Value []byte
}

// Record is a record as a client writes or reads it.
type Record struct {
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Data are records with every kind of content: any bytes, a null key, a null value, no headers, and an empty header. Each names its partition;
// within a partition they are in the order of the list, and their offsets count from 0.
func Data() []Record {
	records := make([]Record, DataRecords)
	for i := range records {
		r := Record{Partition: int32(i % Partitions), Offset: int64(i / Partitions)}
		if i%5 != 4 {
			r.Key = []byte("key-" + strconv.Itoa(i))
		}
		if i%7 != 6 || i%5 == 4 { // some clients refuse a record that has neither
			r.Value = make([]byte, 100+i%50)
			for j := range r.Value {
				r.Value[j] = byte(i*31 + j*7)
			}
		}
		if i%3 == 0 {
			r.Headers = []Header{{Key: "n", Value: []byte(strconv.Itoa(i))}, {Key: "empty", Value: []byte{}}}
		}
		records[i] = r
	}
	return records
}

// Same says how the records that were read differ from those that were written.
func Same(want, got []Record) error {
	want, got = slices.Clone(want), slices.Clone(got)
	order := func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	}
	slices.SortStableFunc(want, order)
	slices.SortStableFunc(got, order)
	if len(got) != len(want) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Partition != w.Partition || g.Offset != w.Offset {
			return fmt.Errorf("record %d is at partition %d, offset %d; want partition %d, offset %d", i, g.Partition, g.Offset, w.Partition, w.Offset)
		}
		where := fmt.Sprintf("partition %d, offset %d", w.Partition, w.Offset)
		if !same(g.Key, w.Key) {
			return fmt.Errorf("%s: key %q, want %q", where, g.Key, w.Key)
		}
		if !same(g.Value, w.Value) {
			return fmt.Errorf("%s: value %q, want %q", where, g.Value, w.Value)
		}
		if !slices.EqualFunc(g.Headers, w.Headers, func(a, b Header) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) }) {
			return fmt.Errorf("%s: headers %q, want %q", where, g.Headers, w.Headers)
		}
	}
	return nil
}

// same tells null from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// Ledger is what the members of a group read and committed.
//
// Invariant: a record is in read at most once, unless it was read again before a commit covered it.
type Ledger struct {
	mu        sync.Mutex
	read      map[Place]bool
	committed map[int32]int64
	wrong     error
}

// Place is where a record is.
type Place struct {
	Partition int32
	Offset    int64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{read: map[Place]bool{}, committed: map[int32]int64{}} }

// Read notes a record that was read.
func (l *Ledger) Read(partition int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := l.committed[partition]; offset < next && l.wrong == nil {
		l.wrong = fmt.Errorf("partition %d, offset %d was read after offset %d was committed", partition, offset, next)
	}
	l.read[Place{partition, offset}] = true
}

// Committed notes a commit that succeeded: next is the offset of the first record that it does not cover.
func (l *Ledger) Committed(partition int32, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed[partition] = max(l.committed[partition], next)
}

// Len is how many records were read, each counted once.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.read)
}

// Check says whether n records were read and none of them after it had been committed.
func (l *Ledger) Check(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong != nil {
		return l.wrong
	}
	if len(l.read) != n {
		return fmt.Errorf("%d records were read, want %d", len(l.read), n)
	}
	return nil
}

// Middle is the record at which the checks of offset and time begin.
const Middle = 1234

// Time is the time of record i in the checks of time.
func Time(i int) time.Time { return Epoch().Add(time.Duration(i) * time.Second) }

// Ordered are the records of the checks of order, offset and time, all of partition 0.
func Ordered() []Record {
	records := make([]Record, OrderRecords)
	for i := range records {
		records[i] = Record{Offset: int64(i), Key: []byte(strconv.Itoa(i)), Value: []byte("value-" + strconv.Itoa(i))}
	}
	return records
}

// More is how many records are written to a topic that holds Data already.
const More = 30

// After moves the first records of Data behind all of Data.
func After(records []Record) []Record {
	moved := slices.Clone(records)
	for i := range moved {
		moved[i].Offset += DataRecords / Partitions
	}
	return moved
}

// Spread are GroupRecords records for the partitions of the rebalanced group.
func Spread() []Record {
	records := make([]Record, GroupRecords)
	for i := range records {
		records[i] = Record{Partition: int32(i % GroupPartitions), Offset: int64(i / GroupPartitions), Value: []byte("value-" + strconv.Itoa(i))}
	}
	return records
}

// Shared is how many partitions each member of a group has.
type Shared struct {
	mu    sync.Mutex
	owned []int
}

// NewShared returns a Shared for n members.
func NewShared(n int) *Shared { return &Shared{owned: make([]int, n)} }

// Member returns what a member calls with the number of its partitions.
func (s *Shared) Member(i int) func(partitions int) {
	return func(partitions int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.owned[i] = partitions
	}
}

// Even says whether every member has its share of the partitions.
func (s *Shared) Even() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.owned {
		if n != GroupPartitions/len(s.owned) {
			return fmt.Errorf("the members have %v partitions, want %d each", s.owned, GroupPartitions/len(s.owned))
		}
	}
	return nil
}
