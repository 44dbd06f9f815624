// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// cutter passes connections on to a server, and cuts each after a random number of bytes in either direction: requests are cut in the middle, and answers are lost.
type cutter struct {
	t      *testing.T
	server string
	mean   int64 // bytes
	mu     sync.Mutex
	rng    *rand.Rand
	cuts   atomic.Int64
}

// startCutter starts one, which ends with the test, and returns its address.
func startCutter(t *testing.T, server string, seed uint64, mean int64) (*cutter, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, server: server, mean: mean, rng: rand.New(rand.NewPCG(seed, 7))}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return c, l.Addr().String()
}

// pass passes a connection on until one of its directions is to be cut.
func (c *cutter) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		return
	}
	defer server.Close()
	var all sync.WaitGroup
	for _, way := range []struct{ to, from net.Conn }{{server, client}, {client, server}} {
		c.mu.Lock()
		n := c.rng.Int64N(2 * c.mean)
		c.mu.Unlock()
		all.Go(func() {
			copied, _ := io.CopyN(way.to, way.from, n) // either side may have ended
			if copied == n {
				c.cuts.Add(1)
			}
			_ = client.Close()
			_ = server.Close()
		})
	}
	all.Wait()
}

// TestConnectionsAreCut has idempotent producers append over connections that are cut, while the log is compacted, trimmed and taken over.
func TestConnectionsAreCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := testredis.Start(t)
	c, address := startCutter(t, s.Address, seed, 30_000)
	o := quick("redis://" + address)
	e := openEngine(t, o)
	l := openLog(t, e, orders, 1)
	ld := startLoad(t, l, 4)
	rng := rand.New(rand.NewPCG(seed, 8))
	for epoch := int32(2); epoch < 22; epoch++ {
		ld.await(150)
		if rng.IntN(2) == 0 {
			if again := openLog(t, e, orders, epoch); again != l {
				t.Error("another log")
			}
		}
		b, err := l.Read(context.Background(), rng.Int64N(l.HighWatermark()+1), 2000)
		if err != nil && !isRetriable(err) {
			t.Error(err)
		}
		b.Close()
		if err := e.EnforceRetention(time.Now()); err != nil && !isRetriable(err) {
			t.Error(err)
		}
	}
	o.Conn.URL = s.URL()
	close(ld.stop)
	ld.all.Wait()
	t.Logf("%d connections cut, %d appends, %d records acknowledged, refused: %v", c.cuts.Load(), ld.tries, len(ld.acked), ld.errs)
	checkAcked(t, openLog(t, openEngine(t, o), orders, 100), ld.acked, true)
	if c.cuts.Load() < 10 || ld.errs[storage.ErrUnavailable.Error()] == 0 {
		t.Error("nothing was cut")
	}
}
