// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing" //nolint:depguard // a library for tests
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Compacter is an engine that compacts when it is told to. What an engine with logs of Config.Compact promises is tested with it.
type Compacter interface {
	storage.Engine
	// Compact compacts all logs that are open and ask for it, up to their ends, as at a time.
	Compact(now time.Time) error
}

const tombstonesStay = time.Hour

// startCompacted opens a compacted log, of an engine that is a Compacter.
func startCompacted(t *testing.T, open Opener) (Compacter, storage.Log) {
	t.Helper()
	e := start(t, open)
	c, ok := e.(Compacter)
	if !ok {
		t.Skip("the engine does not compact when it is told to")
	}
	return c, openCompacted(t, e)
}

func openCompacted(t *testing.T, e storage.Engine) storage.Log {
	t.Helper()
	l, err := e.Open(context.Background(), orders, 0, storage.Config{Compact: true, TombstoneRetention: tombstonesStay})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// keyed is a batch of records that are "key=value", or "key" alone for a tombstone.
func keyed(pairs ...string) []byte { return keyedBatch(pairs...).Encode() }

func keyedBatch(pairs ...string) Batch {
	b := Batch{First: 1000}
	for i, p := range pairs {
		key, value, ok := bytes.Cut([]byte(p), []byte("="))
		b.Records = append(b.Records, Record{Key: key, Value: value, Tombstone: !ok, Delta: int64(i)})
	}
	return b
}

// Stored is a record that was read, with what Record has not.
type Stored struct {
	Record
	Offset, Timestamp int64
}

// String is the record as keyed has it, after its offset.
func (s *Stored) String() string {
	if s.Tombstone {
		return fmt.Sprintf("%d:%s", s.Offset, s.Key)
	}
	return fmt.Sprintf("%d:%s=%s", s.Offset, s.Key, s.Value)
}

// Records decodes whole batches that are not compressed, or compressed with gzip.
func Records(b []byte) ([]Stored, error) {
	var all []Stored
	for len(b) > 0 {
		batch := b[:sizeOf(b)]
		b = b[len(batch):]
		records := batch[headerSize:]
		if batch[posAttributes+1]&7 == attrGzip {
			var err error
			if records, err = decompress(records); err != nil {
				return nil, err
			}
		}
		first := int64(binary.BigEndian.Uint64(batch[posFirstTimestamp:]))
		for range countOf(batch) {
			var s Stored
			if s, records = decodeRecord(records); records == nil {
				return nil, errors.New("a record is cut")
			}
			s.Offset, s.Timestamp = baseOf(batch)+s.Offset, first+s.Delta
			all = append(all, s)
		}
	}
	return all, nil
}

// unzippers are kept because each takes much memory.
var unzippers = sync.Pool{New: func() any { return new(gzip.Reader) }}

func decompress(b []byte) ([]byte, error) {
	r, _ := unzippers.Get().(*gzip.Reader)
	defer unzippers.Put(r)
	if err := r.Reset(bytes.NewReader(b)); err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// decodeRecord decodes a record, with its offset delta for an offset; rest is nil where it is cut.
func decodeRecord(b []byte) (s Stored, rest []byte) {
	size, n := binary.Varint(b)
	if n <= 0 || size < 1 || size > int64(len(b)-n) {
		return s, nil
	}
	rest = b[n+int(size) : len(b) : len(b)]
	b = b[n+1 : n+int(size)] // behind the attributes
	s.Delta, n = binary.Varint(b)
	s.Offset, b = decodeVarint(b[n:])
	s.Key, b = decodeField(b)
	s.Value, _ = decodeField(b)
	s.Tombstone = s.Value == nil
	if rest == nil {
		rest = []byte{}
	}
	return s, rest
}

func decodeVarint(b []byte) (int64, []byte) {
	v, n := binary.Varint(b)
	return v, b[max(n, 0):]
}

func decodeField(b []byte) (field, rest []byte) {
	n, b := decodeVarint(b)
	if n < 0 || n > int64(len(b)) {
		return nil, b
	}
	return b[:n:n], b[n:]
}

// readAll reads a log from an offset on, a few bytes at a time, and returns the records from there on.
func readAll(t *testing.T, l storage.Log, from int64, maxBytes int) []Stored {
	t.Helper()
	var all []Stored
	for offset := from; offset < l.HighWatermark(); {
		batches, err := l.Read(context.Background(), offset, maxBytes)
		if err != nil {
			t.Fatalf("read offset %d: %v", offset, err)
		}
		b, err := batches.Bytes()
		if err != nil || len(b) == 0 || batches.Next <= offset {
			t.Fatalf("read offset %d of %d: %d bytes up to %d, %v", offset, l.HighWatermark(), len(b), batches.Next, err)
		}
		records, err := Records(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Offset >= offset {
				all = append(all, r)
			}
		}
		offset = batches.Next
		batches.Close()
	}
	return all
}

func wantRecords(t *testing.T, l storage.Log, want ...string) {
	t.Helper()
	var got []string
	for _, r := range readAll(t, l, l.StartOffset(), 1) {
		got = append(got, r.String())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the log has %v, want %v", got, want)
	}
}

func compact(t *testing.T, e Compacter, now time.Time) {
	t.Helper()
	if err := e.Compact(now); err != nil {
		t.Fatal(err)
	}
}

func compacted(t *testing.T, open Opener) {
	e, l := startCompacted(t, open)
	add(t, l, 0, keyed("a=1", "b=1", "a=2"), keyed("b=2"), keyed("c=1", "c=2", "a=3"))
	zipped := keyedBatch("c=3", "d=1")
	zipped.Gzip = true
	add(t, l, 7, zipped.Encode(), keyed("d=2", "e=1"))
	compact(t, e, time.Now())
	wantBounds(t, l, 0, 11)
	wantRecords(t, l, "3:b=2", "6:a=3", "7:c=3", "9:d=2", "10:e=1")
	add(t, l, 11, keyed("b=3"))
	for range 2 {
		compact(t, e, time.Now())
		wantRecords(t, l, "6:a=3", "7:c=3", "9:d=2", "10:e=1", "11:b=3")
	}
	for _, f := range []found{{0, 6, 1002, true}, {1003, 0, 0, false}} {
		f.check(t, l)
	}
	if err := l.Trim(context.Background(), 8); err != nil {
		t.Fatal(err)
	}
	wantRecords(t, l, "9:d=2", "10:e=1", "11:b=3")
}

func tombstones(t *testing.T, open Opener) {
	e, l := startCompacted(t, open)
	now := time.Now()
	add(t, l, 0, keyed("a=1", "b=1"), keyed("a"), keyed("c=1"))
	compact(t, e, now)
	wantRecords(t, l, "1:b=1", "2:a", "3:c=1")
	add(t, l, 4, keyed("b", "c=2"))
	compact(t, e, now.Add(tombstonesStay/2)) // from now on b's tombstone waits
	wantRecords(t, l, "2:a", "4:b", "5:c=2")
	compact(t, e, now.Add(tombstonesStay+time.Minute))
	wantRecords(t, l, "4:b", "5:c=2")
	compact(t, e, now.Add(2*tombstonesStay))
	wantRecords(t, l, "5:c=2")
	add(t, l, 6, keyed("c"))
	compact(t, e, now.Add(3*tombstonesStay))
	compact(t, e, now.Add(5*tombstonesStay))
	wantRecords(t, l, "6:c") // the newest record stays, so that a reader comes to the end
	wantBounds(t, l, 0, 7)
}

func keyless(t *testing.T, open Opener) {
	_, l := startCompacted(t, open)
	mixed := keyedBatch("a=1", "b=1")
	mixed.Records[1].Key = nil
	zipped := mixed
	zipped.Gzip = true
	garbage := Batch{Attributes: attrGzip, Records: mixed.Records}.Encode()
	for name, b := range map[string][]byte{"plain": mixed.Encode(), "compressed": zipped.Encode()} {
		_, err := l.Append(context.Background(), b, storage.Synced)
		var bad *storage.RecordError
		if !errors.Is(err, storage.ErrInvalidRecord) || !errors.As(err, &bad) || !slices.Equal(bad.Records, []int32{1}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Append(context.Background(), garbage, storage.Synced); !errors.Is(err, storage.ErrInvalidBatch) {
		t.Errorf("not to be decompressed: %v", err)
	}
	many := Batch{Records: Values(make([]string, 200)...)}.Encode()
	var bad *storage.RecordError
	if _, err := l.Append(context.Background(), many, storage.Synced); !errors.As(err, &bad) || len(bad.Records) != 100 || bad.Records[99] != 99 {
		t.Errorf("200 records: %v", err)
	}
	wantBounds(t, l, 0, 0)
	empty := keyedBatch("=1")
	empty.Records[0].Key = []byte{}
	add(t, l, 0, empty.Encode()) // an empty key is a key
}

// compactedLife is a random life of a compacted log, with restarts, held against what was appended.
func compactedLife(t *testing.T, open Opener) {
	seed := rand.Uint64() //nolint:gosec // a test's dice are to be thrown again
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // as above
	e, l := startCompacted(t, open)
	var appended []Stored
	newest := map[string]int64{}
	now := time.Now()
	for range 300 {
		switch n := rng.IntN(20); {
		case n < 16:
			b := Batch{First: int64(len(appended)), Gzip: n < 5}
			for i := range 1 + rng.IntN(4) {
				r := Record{Key: fmt.Appendf(nil, "k%d", rng.IntN(30)), Delta: int64(i), Tombstone: rng.IntN(5) == 0}
				if !r.Tombstone {
					r.Value = bytes.Repeat([]byte{'x'}, rng.IntN(60))
				}
				b.Records = append(b.Records, r)
			}
			add(t, l, int64(len(appended)), b.Encode())
			for _, r := range b.Records {
				newest[string(r.Key)] = int64(len(appended))
				appended = append(appended, Stored{Record: r, Offset: int64(len(appended)), Timestamp: b.First + r.Delta})
			}
		case n < 18:
			now = now.Add(time.Duration(rng.Int64N(int64(tombstonesStay))))
			compact(t, e, now)
		case n < 19:
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			e, l = startCompacted(t, open)
		default:
			checkCompacted(t, rng, l, appended, newest)
		}
	}
	checkCompacted(t, rng, l, appended, newest)
}

func checkCompacted(t *testing.T, rng *rand.Rand, l storage.Log, appended []Stored, newest map[string]int64) {
	t.Helper()
	wantBounds(t, l, 0, int64(len(appended)))
	all := readAll(t, l, 0, 1+rng.IntN(2000))
	there := map[int64]bool{}
	for i, r := range all {
		want := appended[r.Offset]
		if i > 0 && r.Offset <= all[i-1].Offset || r.String() != want.String() || r.Timestamp != want.Timestamp {
			t.Fatalf("the log has %s of time %d, after %s was appended at %d", r.String(), r.Timestamp, want.String(), want.Timestamp)
		}
		there[r.Offset] = true
	}
	for key, o := range newest {
		if !there[o] && !appended[o].Tombstone {
			t.Fatalf("the newest record of %s, %s, is gone", key, appended[o].String())
		}
	}
	for range 20 {
		from := rng.Int64N(int64(len(appended)) + 1)
		got, want := readAll(t, l, from, 1+rng.IntN(500)), 0
		for _, r := range all {
			if r.Offset >= from {
				want++
			}
		}
		if len(got) != want {
			t.Fatalf("from offset %d there are %d records, want %d", from, len(got), want)
		}
	}
}
