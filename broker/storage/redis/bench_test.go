// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// The benchmarks append and read the same bytes twice, on the same server: through the engine, and by redis-benchmark, with as many connections as there are partitions
// and as many requests in flight. x-XADD and x-XRANGE are how many times as fast the engine is.

const (
	benchPartitions = 4
	benchInFlight   = 64
)

// batchOf is a batch of so many bytes, of records of about a kilobyte.
func batchOf(size int) []byte {
	var values []string
	for left := size; left > 0; left -= 1024 {
		values = append(values, strings.Repeat("x", min(left, 1000)))
	}
	return enginetest.Simple(values...)
}

// brokerHeap is about what a broker has in memory for other things. In a heap of a few megabytes the garbage collector would run for every second read.
const brokerHeap = 64 << 20

func benchServer(b *testing.B, fsync string) (*testredis.Server, []storage.Log) {
	b.Helper()
	heap := make([]byte, brokerHeap)
	b.Cleanup(func() { runtime.KeepAlive(heap) })
	s := testredis.Start(b, "--appendfsync", fsync)
	e, err := Open(context.Background(), Options{Conn: redisconn.Options{URL: s.URL()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	logs := make([]storage.Log, benchPartitions)
	for i := range logs {
		if logs[i], err = e.Open(context.Background(), storage.Partition{Topic: "bench", Partition: int32(i)}, 0, storage.Config{}); err != nil {
			b.Fatal(err)
		}
	}
	return s, logs
}

// appendMany appends n batches to each log, with benchInFlight of them in flight.
func appendMany(b *testing.B, logs []storage.Log, batch []byte, n int) {
	b.Helper()
	var all sync.WaitGroup
	for _, l := range logs {
		all.Go(func() {
			free := make(chan []byte, benchInFlight)
			for range benchInFlight {
				free <- bytes.Clone(batch)
			}
			for range n {
				mine := <-free
				l.AppendThen(mine, storage.Synced, func(_ int64, err error) {
					if err != nil {
						b.Error(err)
					}
					free <- mine
				})
			}
			for range benchInFlight {
				<-free
			}
		})
	}
	all.Wait()
}

// redisBenchmark runs a command of redis-benchmark and returns how many requests a second it has made.
func redisBenchmark(b *testing.B, s *testredis.Server, n, inFlight int, command ...string) float64 {
	b.Helper()
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		b.Fatal(err)
	}
	args := append([]string{
		"-p", port, "-n", strconv.Itoa(n), "-c", strconv.Itoa(benchPartitions), "-P", strconv.Itoa(inFlight), "-r", strconv.Itoa(benchPartitions), "--csv",
	}, command...)
	out, err := exec.Command("redis-benchmark", args...).Output()
	if err != nil {
		b.Skipf("redis-benchmark: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], "\",\"")
	if len(fields) < 2 {
		b.Fatalf("redis-benchmark says %s", out)
	}
	rate, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		b.Fatalf("redis-benchmark says %s", out)
	}
	return rate
}

func BenchmarkProduce(b *testing.B) {
	for _, fsync := range []string{"always", "everysec"} {
		for _, size := range []int{1 << 10, 16 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("appendfsync=%s/bytes=%d", fsync, size), func(b *testing.B) {
				s, logs := benchServer(b, fsync)
				batch := batchOf(size)
				n := max(128<<20/size/benchPartitions, 1)
				ours, theirs := 0.0, 0.0
				b.SetBytes(int64(n * benchPartitions * len(batch)))
				for b.Loop() {
					began := time.Now()
					appendMany(b, logs, batch, n)
					ours += float64(n*benchPartitions) / time.Since(began).Seconds()
					b.StopTimer()
					theirs += redisBenchmark(b, s, n*benchPartitions, benchInFlight, "XADD", "raw:__rand_int__", "*", "b", strings.Repeat("x", len(batch)))
					b.StartTimer()
				}
				b.ReportMetric(ours/theirs, "x-XADD")
			})
		}
	}
}

func BenchmarkConsume(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			s, logs := benchServer(b, "no")
			batch := batchOf(size)
			const perRead = 1 << 20
			n := max(64<<20/size/benchPartitions, 1)
			appendMany(b, logs, batch, n)
			records := logs[0].EndOffset() / int64(n)
			count := perRead / len(batch)
			reads := n / count
			ours, theirs := 0.0, 0.0
			b.SetBytes(int64(reads * benchPartitions * count * len(batch)))
			for b.Loop() {
				began := time.Now()
				var all sync.WaitGroup
				for _, l := range logs {
					all.Go(func() {
						for i := range reads {
							got, err := l.Read(context.Background(), int64(i*count)*records, perRead)
							if err != nil || got.Len() != count*len(batch) {
								b.Error(got.Len(), err)
							}
							got.Close()
						}
					})
				}
				all.Wait()
				ours += float64(reads*benchPartitions) / time.Since(began).Seconds()
				b.StopTimer()
				key := fmt.Sprintf("ringmaster:{t/bench/%d}:log", 0)
				theirs += redisBenchmark(b, s, reads*benchPartitions, 1, "XRANGE", key, strconv.FormatInt(int64(reads/2*count)*records+1, 10), "+", "COUNT", strconv.Itoa(count))
				b.StartTimer()
			}
			b.ReportMetric(ours/theirs, "x-XRANGE")
		})
	}
}
