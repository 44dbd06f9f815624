// SPDX-License-Identifier: Apache-2.0

// Package enginetest checks that a storage engine keeps the contract of package storage. Every engine's tests call Run.
package enginetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing" //nolint:depguard // a library for tests

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Opener opens an engine. Each Opener has its own data, which is empty at first; a second call opens the same data again, after the
// engine was closed.
type Opener func(t *testing.T) storage.Engine

// Run runs every test of the contract. fresh returns an Opener of new, empty data.
func Run(t *testing.T, fresh func(t *testing.T) Opener) {
	tests := map[string]func(t *testing.T, open Opener){
		"a new log is empty":                                           newLog,
		"appended batches get the offsets that follow":                 appendBatches,
		"a batch that is not sound is refused, and nothing is written": refuseUnsound,
		"a batch above the limit is refused":                           refuseLarge,
		"what is cancelled is not done":                                cancelled,
		"parallel appends leave no gap":                                parallelAppends,
		"a written append shows when it is on disk":                    written,
		"an idempotent producer's batches are appended once":           producers,
		"a producer's sequence numbers go round":                       producerWraps,
		"a read returns whole batches":                                 readBatches,
		"what a read returns belongs to the caller":                    readOwned,
		"offsets are found by time":                                    offsetsByTime,
		"trimmed records are gone":                                     trim,
		"a subscriber is woken":                                        subscribe,
		"an open log is opened again as the same":                      openAgain,
		"an older leader epoch is fenced":                              fence,
		"logs are listed in order":                                     list,
		"a deleted log is gone":                                        deleteLog,
		"a closed engine refuses everything":                           closed,
		"everything is there after a restart":                          restart,
		"a random life is that of the model":                           randomLife,
		"a log that flushes as the OS does stores what is appended":    flushOS,
		"a log may change how it flushes":                              changeFlush,
		"compaction leaves the newest record of each key":              compacted,
		"a tombstone stays for its time, then goes":                    tombstones,
		"a compacted log takes no record without a key":                keyless,
		"a random life of a compacted log keeps what it must":          compactedLife,
		"a log gives its records the time of the append if it is to":   appendTimes,
		"a batch that is sent again says when it was appended":         appendTimeOfDuplicates,
		"small and short-lived segments hold the same records":         smallSegments,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

var orders = storage.Partition{Topic: "orders", Partition: 3}

func start(t *testing.T, open Opener) storage.Engine {
	t.Helper()
	e := open(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func openLog(t *testing.T, e storage.Engine, epoch int32) storage.Log {
	t.Helper()
	l, err := e.Open(context.Background(), orders, epoch, storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// add appends copies of batches, which Append may change, and wants the offset.
func add(t *testing.T, l storage.Log, want int64, batches ...[]byte) {
	t.Helper()
	base, err := l.Append(context.Background(), bytes.Join(batches, nil), storage.Synced)
	if err != nil || base != want {
		t.Fatalf("append: offset %d, %v; want %d", base, err, want)
	}
}

// wantBounds checks a log whose records are all on disk.
func wantBounds(t *testing.T, l storage.Log, first, end int64) {
	t.Helper()
	if l.StartOffset() != first || l.HighWatermark() != end || l.EndOffset() != end {
		t.Fatalf("the log starts at %d, has its high watermark at %d and ends at %d; want %d and %d", l.StartOffset(),
			l.HighWatermark(), l.EndOffset(), first, end)
	}
}

// wantRead checks what a read returns, byte for byte.
func wantRead(t *testing.T, l storage.Log, offset int64, maxBytes int, want ...[]byte) {
	t.Helper()
	got, err := Read(context.Background(), l, offset, maxBytes)
	if err != nil || !bytes.Equal(got, bytes.Join(want, nil)) {
		t.Fatalf("read offset %d: %d bytes, %v; want %d batches", offset, len(got), err, len(want))
	}
}

// Read reads batches and returns their bytes; nil where there are none. It fails where Batches say of themselves what is not so.
func Read(ctx context.Context, l storage.Log, offset int64, maxBytes int) ([]byte, error) {
	batches, err := l.Read(ctx, offset, maxBytes)
	if err != nil {
		return nil, err
	}
	defer batches.Close()
	b, err := batches.Bytes()
	if err != nil {
		return nil, err
	}
	if len(b) != batches.Len() {
		return nil, fmt.Errorf("the batches say that they have %d bytes, and have %d", batches.Len(), len(b))
	}
	next := int64(0)
	for rest := b; len(rest) > 0; {
		if len(rest) < headerSize {
			return nil, fmt.Errorf("%d bytes after the last whole batch", len(rest))
		}
		size := int(binary.BigEndian.Uint32(rest[8:])) + 12
		if size < headerSize || size > len(rest) {
			return nil, fmt.Errorf("a batch of %d bytes, where %d are left", size, len(rest))
		}
		next = int64(binary.BigEndian.Uint64(rest)) + int64(binary.BigEndian.Uint32(rest[23:])) + 1
		rest = rest[size:]
	}
	if len(b) > 0 && next != batches.Next {
		return nil, fmt.Errorf("the batches end before offset %d, and say %d", next, batches.Next)
	}
	return b, nil
}
