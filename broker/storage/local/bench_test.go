// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

// kilobyte is a batch of 1 KiB.
func kilobyte() []byte {
	b := simple("")
	return simple(strings.Repeat("x", 1024-len(b)-2))
}

func benchLog(b *testing.B) *commitLog {
	b.Helper()
	return openLog(b, openEngine(b, b.TempDir(), Options{}), p0)
}

func BenchmarkAppend(b *testing.B) {
	for name, d := range map[string]storage.Durability{"Written": storage.Written, "Synced": storage.Synced} {
		b.Run(name, func(b *testing.B) {
			l, batch := benchLog(b), kilobyte()
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(context.Background(), batch, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppendOS appends batches of 64 KiB to a log that flushes as the OS does, and tells how long the slowest hundredth of the appends take.
func BenchmarkAppendOS(b *testing.B) {
	l := openFlush(b, openEngine(b, b.TempDir(), Options{}), storage.FlushOS)
	batch := bytes.Repeat(kilobyte(), 64)
	times := make([]time.Duration, 0, b.N)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		if _, err := l.Append(context.Background(), batch, storage.Synced); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(times[len(times)-1].Microseconds()), "max-µs")
}

func BenchmarkParallelAppendSynced(b *testing.B) {
	l := benchLog(b)
	b.SetBytes(int64(len(kilobyte())))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		batch := kilobyte()
		for pb.Next() {
			if _, err := l.Append(context.Background(), batch, storage.Synced); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for name, n := range map[string]int{"1KiB": 1 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			l := benchLog(b)
			for range 64 {
				if _, err := l.Append(context.Background(), bytes.Repeat(kilobyte(), 1024), storage.Synced); err != nil {
					b.Fatal(err)
				}
			}
			var offset atomic.Int64
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				o := offset.Add(997) % (l.HighWatermark() - 2000)
				if got, err := enginetest.Read(context.Background(), l, o, n); err != nil || len(got) != n {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
