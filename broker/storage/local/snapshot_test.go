// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// produced is a batch of an idempotent producer, of one record.
func produced(sequence int32, key, value string) []byte {
	b := pairs(key + "=" + value)
	b.Producer, b.Sequence = 5, sequence
	return b.Encode()
}

// wantKnown checks that a producer's batch that comes again is answered with its offset.
func wantKnown(t *testing.T, l *commitLog, batch []byte, want int64) {
	t.Helper()
	end := l.EndOffset()
	if base := mustAppend(t, l, batch); base != want || l.EndOffset() != end {
		t.Fatalf("the batch that comes again gets %d, not %d", base, want)
	}
}

// wantCovered checks that the producers file says nothing of what a crash may take.
func wantCovered(t *testing.T, m *memFS, l *commitLog) {
	t.Helper()
	crashed := m.crashed(0)
	offset, _, err := decodeProducersFile(must(readFile(crashed, l.path(producersFile))), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if end := reopen(t, crashed).EndOffset(); offset > end {
		t.Fatalf("the producers file is of offset %d, and the log ends at %d", offset, end)
	}
}

func openOS(t *testing.T, m *memFS) *commitLog {
	t.Helper()
	e := openMem(t, memOptions(m))
	l, err := e.Open(context.Background(), p0, 0, storage.Config{Flush: storage.FlushOS, Compact: true})
	if err != nil {
		t.Fatal(err)
	}
	return l.(*commitLog)
}

func TestAProducerWhoseBatchesWereCompactedIsKnownAfterACrash(t *testing.T) {
	batch := produced(0, "k", strings.Repeat("x", 80))
	fill := func(l *commitLog) {
		mustAppend(t, l, batch)
		for i := range 40 {
			mustAppend(t, l, pairs(fmt.Sprintf("k=%d%s", i, strings.Repeat("x", 80))).Encode())
		}
	}
	tests := map[string]func(m *memFS) (*memFS, *commitLog){
		"a start has sealed their segment": func(m *memFS) (*memFS, *commitLog) {
			l, release := heldSyncs(t, m, simple(strings.Repeat("y", 500)), 2)
			defer close(release)
			mustAppend(t, l, batch)
			for len(l.segments) < maxUnsealed {
				mustAppend(t, l, pairs("k="+strings.Repeat("x", 80)).Encode())
			}
			m = m.clone()
			return m, openOS(t, m)
		},
		"it was sealed while the disk was full": func(m *memFS) (*memFS, *commitLog) {
			l := openOS(t, m)
			m.mu.Lock()
			m.fault = func(op string, _ int) error {
				if op == "rename" {
					return syscall.ENOSPC
				}
				return nil
			}
			m.mu.Unlock()
			fill(l)
			if err := l.waitSealed(l.EndOffset()); err != nil {
				t.Fatal(err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.fault = nil
			return m, l
		},
		"it was sealed as it should be": func(m *memFS) (*memFS, *commitLog) {
			l := openOS(t, m)
			fill(l)
			return m, l
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			m, l := prepare(newMem())
			if err := l.waitSealed(l.EndOffset()); err != nil {
				t.Fatal(err)
			}
			base := mustAppend(t, l, batch)
			if err := l.engine.compact(time.Now(), false); err != nil {
				t.Fatal(err)
			}
			if got := stored(t, l); len(got) > 15 {
				t.Fatalf("%d records are left: the segments were not compacted", len(got))
			}
			wantCovered(t, m, l)
			wantKnown(t, openOS(t, m.crashed(0)), batch, base)
		})
	}
}

func TestTheProducersFileSaysNothingOfWhatACrashMayTake(t *testing.T) {
	killed := newMem()
	_, release := heldSyncs(t, killed, simple(strings.Repeat("y", 500)), maxUnsealed)
	defer close(release)
	m := killed.clone()
	l := openOS(t, m) // it seals the segments, and writes no producers file
	batch := produced(0, "k", "1")
	base := mustAppend(t, l, batch)
	if err := l.Trim(context.Background(), l.active().base); err != nil {
		t.Fatal(err)
	}
	wantCovered(t, m, l)
	for _, keep := range []float64{0, 1} {
		crashed := openOS(t, m.crashed(keep))
		if crashed.EndOffset() > base {
			wantKnown(t, crashed, batch, base)
		}
	}
}

func TestAProducerIsKnownWhoseLogLostAllAboveItsStart(t *testing.T) {
	m := newMem()
	l := openOS(t, m)
	batch := produced(0, "k", "1")
	mustAppend(t, l, batch)
	if err := l.waitSynced(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, pairs("k=2", "k=3").Encode())
	if err := l.Trim(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m = m.crashed(0)
		l = openOS(t, m)
		wantStart(t, l, 2, 2)
	}
	wantKnown(t, l, batch, 0)
}

func TestALogIsNotOpenedWhileItsProducersCannotBeRead(t *testing.T) {
	m := newMem()
	l := openOS(t, m)
	batch := produced(0, "k", "1")
	mustAppend(t, l, batch)
	mustAppend(t, l, pairs("k=2").Encode())
	mustCompact(t, l.engine, time.Now())
	wantStored(t, l, "1:k=2")
	m = m.crashed(0)
	failed := false
	e := openMem(t, memOptions(hookFS{FS: m, beforeRead: func(name string) error {
		if strings.HasSuffix(name, producersFile) && !failed {
			failed = true
			return syscall.EIO
		}
		return nil
	}}))
	_, err := e.Open(context.Background(), p0, 0, storage.Config{})
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "open log orders-0: read what is known of producers: ") {
		t.Fatal(err)
	}
	wantKnown(t, openLog(t, e, p0), batch, 0)
}
