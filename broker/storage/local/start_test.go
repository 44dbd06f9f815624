// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// cleanLogs makes a data directory with logs of one topic after a clean stop. Each has a sealed segment and an active one.
func cleanLogs(t testing.TB, dir string, logs int) {
	t.Helper()
	first := storage.Partition{Topic: "orders", Partition: 0}
	e := openEngine(t, dir, Options{SegmentBytes: 2000})
	l := openLog(t, e, first)
	for range 3 {
		mustAppend(t, l, kilobyte())
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(dir, "orders-0")
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < logs; i++ {
		to := filepath.Join(dir, fmt.Sprintf("orders-%d", i))
		if err := os.Mkdir(to, dirMode); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries { // links: nothing is written to these logs
			if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkStart10000 opens the logs of a broker with 10,000 partitions after a clean stop, and looks at what they take while they idle.
func BenchmarkStart10000(b *testing.B) {
	const logs = 10_000
	dir := b.TempDir()
	cleanLogs(b, dir, logs)
	for b.Loop() {
		before := heap()
		e, err := Open(dir, Options{Logger: quiet()})
		if err != nil {
			b.Fatal(err)
		}
		for i := range int32(logs) {
			openLog(b, e, storage.Partition{Topic: "orders", Partition: i})
		}
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/logs, "heap-B/log")
		b.ReportMetric(float64(e.files.open()), "open-files")
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(logs*float64(b.N)/b.Elapsed().Seconds(), "logs/s")
}
