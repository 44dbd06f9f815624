// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// smallRequest is how large a request of any API may be.
	smallRequest = 1 << 20
	// maxPipelined is how many requests of a connection may wait for their turn.
	maxPipelined = 64
	// maxPipelinedBytes is how many bytes of requests may wait on a connection, unless a single one is larger.
	maxPipelinedBytes = 8 << 20
	// readChunk is how much memory is taken for a frame before its bytes arrive.
	readChunk = 64 << 10
	// lingerTime is how long a client may take to close its side of a connection when the server stops.
	lingerTime = time.Second
	// writeTimeout is how long a client may take to accept one response.
	writeTimeout = 2 * time.Minute
)

// conn is a connection. One goroutine reads frames and decodes them; another handles the requests one after the other and writes the
// responses, so that they are in order, as Kafka's clients expect. Reading goes on while a handler waits: that is how the end of the
// connection and a request that follows are noticed.
type conn struct {
	s        *Server
	nc       net.Conn
	host     string
	listener string

	// frames are the requests that wait for their turn.
	frames chan *request
	// budget counts the bytes of the requests in frames and in the handler.
	budget budget
	// finished is closed when the worker has given up, so that the reader does too.
	finished  chan struct{}
	closeOnce sync.Once
	cancel    context.CancelFunc

	// client is what kind of client uses the connection. pace is what is known of its heartbeats, and belongs to the worker.
	client atomic.Int32
	pace   beatPace
	// fetches says that a Fetch has come by the connection.
	fetches atomic.Bool

	mu      sync.Mutex
	noReads bool
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		s: s, nc: nc, host: hostOf(nc.RemoteAddr()), listener: nc.LocalAddr().String(),
		frames: make(chan *request, maxPipelined), finished: make(chan struct{}), cancel: func() {},
	}
	c.budget.init(maxPipelinedBytes)
	if tc, ok := nc.(*net.TCPConn); ok {
		// These fail only where the connection is dead already.
		_ = tc.SetNoDelay(true)
		_ = tc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4})
	}
	return c
}

// hostOf returns an address's IP without port and zone; IPv4 in IPv6 is written as IPv4.
func hostOf(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("").String()
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// run serves the connection until it ends.
func (c *conn) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.close()
	// waiting ends when the reader has seen the end of the connection, or the server stops.
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()

	var reader sync.WaitGroup
	reader.Go(func() {
		defer stopWaiting()
		defer close(c.frames)
		if err := c.readFrames(); err != nil {
			c.s.metrics.badFrames.Inc()
			c.logClosed(err)
		}
	})
	stopped := context.AfterFunc(ctx, stopWaiting)
	defer stopped()
	if err := c.work(ctx, waiting); err != nil {
		c.logClosed(err)
	}
	close(c.finished)
	c.budget.close()
	c.linger()
	c.close()
	reader.Wait()
	if !c.readingStopped() { // else it is the broker that goes, and says nothing of the client
		c.s.groups.hungUp(context.WithoutCancel(ctx), c)
	}
	for req := range c.frames { // what nobody answers any more
		c.letGo(req)
	}
}

// linger lets the client take its last answers where the server stops: to close a connection with requests that nobody has read would reset it, and
// take back what is on its way.
func (c *conn) linger() {
	tcp, ok := c.nc.(*net.TCPConn)
	if !ok || !c.readingStopped() || tcp.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.nc)
}

// logClosed logs why the connection is closed.
func (c *conn) logClosed(reason error) {
	ok, left := c.s.closings.allow(time.Now())
	if left > 0 {
		c.s.log.Warn("connections were closed that are not logged one by one", "count", left)
	}
	if ok {
		c.s.log.Warn("connection closed", "client", c.nc.RemoteAddr().String(), "reason", reason)
	}
}

// close closes the connection.
func (c *conn) close() {
	c.closeOnce.Do(func() { _ = c.nc.Close() })
}

// abort closes the connection and ends what its handler does.
func (c *conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	c.close()
}

// stopReading makes the reader stop: requests that are read already are answered, then the connection ends.
func (c *conn) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noReads = true
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// setReadDeadline sets the read deadline, unless reading was stopped.
func (c *conn) setReadDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.noReads {
		_ = c.nc.SetReadDeadline(t)
	}
}

func (c *conn) readingStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noReads
}
