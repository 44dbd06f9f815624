// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"net"
	"sync"
	"testing"
	"time"
)

// road is a way to a Redis that can be blocked: what is sent waits, and arrives when it is free again.
type road struct {
	url string
	// free is held for writing while the road is blocked.
	free    sync.RWMutex
	blocked bool
}

// block blocks the road, and clear makes it free again. They belong to one goroutine.
func (r *road) block() {
	if !r.blocked {
		r.free.Lock()
		r.blocked = true
	}
}

func (r *road) clear() {
	if r.blocked {
		r.blocked = false
		r.free.Unlock()
	}
}

func newRoad(t testing.TB, to string) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &road{url: "redis://" + l.Addr().String()}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			go r.carry(near, far)
			go r.carry(far, near)
		}
	}()
	return r
}

func (r *road) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		r.free.RLock()
		_, err = to.Write(b[:n])
		r.free.RUnlock()
		if err != nil {
			return
		}
	}
}

func TestABrokerIsCutOffFromRedis(t *testing.T) {
	server := start(t)
	way := newRoad(t, server.Address)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, way.url, node(2))
	create(t, one.Metadata, "orders", 6)
	before := await(t, one.Metadata, "two leaders", ledBy(2, 1, 2))
	await(t, two.Metadata, "two leaders", ledBy(2, 1, 2))

	way.block()
	begun := time.Now()
	await(t, two.Metadata, "a broker that leads nothing", noneOf(2))
	t.Logf("the broker that was cut off believed that it led for %v", time.Since(begun))
	alone := await(t, one.Metadata, "its partitions with the other", ledBy(2, 1))
	t.Logf("the other led its partitions after %v, with a lease of %v", time.Since(begun), testLease)
	checkMoves(t, before, alone)

	way.clear()
	begun = time.Now()
	again := await(t, two.Metadata, "partitions for it again", ledBy(2, 1, 2))
	t.Logf("it leads again %v after it reached Redis", time.Since(begun))
	checkMoves(t, alone, again)
}
