// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
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
	c.s.groups.hungUp(context.WithoutCancel(ctx), c)
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

// readFrames reads requests until the connection ends. The error is what the client did wrong; nil where it just left or was idle.
func (c *conn) readFrames() error {
	r := bufio.NewReaderSize(c.nc, readChunk/4)
	var next chan struct{} // of the request before
	defer func() {
		if next != nil {
			close(next)
		}
	}()
	for {
		size, ok := c.awaitFrame(r)
		if !ok {
			return nil
		}
		if err := checkFrameSize(size, c.s.cfg.MaxRequestBytes); err != nil {
			return err
		}
		if size > smallRequest {
			if key, err := r.Peek(2); err == nil {
				if err := c.checkRequestSize(size, int16(binary.BigEndian.Uint16(key))); err != nil {
					return err
				}
			}
		}
		alone, ok := c.budget.take(int(size))
		if !ok {
			return nil
		}
		c.setReadDeadline(time.Now().Add(c.s.cfg.IdleTimeout))
		held := &holding{m: c.s.requests, stop: c.finished, free: alone && size <= freeFrame}
		frame, err := readFrame(r, int(size), held)
		if err != nil {
			held.release()
			if errors.Is(err, errNoMemory) {
				return err
			}
			return nil // the client left in the middle of a request, or the server stops
		}
		c.s.metrics.bytesIn.Add(float64(size) + 4)
		req, err := c.parse(frame)
		if err != nil {
			held.release()
			return err
		}
		req.held = held
		if next != nil {
			close(next)
		}
		next = make(chan struct{})
		req.next = next
		select {
		case c.frames <- req:
		case <-c.finished:
			held.release()
			return nil
		}
	}
}

// checkRequestSize checks a request's length against what its API allows.
func (c *conn) checkRequestSize(size int32, key int16) error {
	a := c.s.apis[key]
	switch {
	case key == keyProduce:
		return nil
	case a == nil:
		return checkFrameSize(size, smallRequest)
	default:
		return checkFrameSize(size, max(a.maxBytes, smallRequest))
	}
}

// awaitFrame waits for a frame's length. ok is false where the client left, or was idle for too long with no request under way.
func (c *conn) awaitFrame(r *bufio.Reader) (size int32, ok bool) {
	for {
		c.setReadDeadline(time.Now().Add(c.s.cfg.IdleTimeout))
		b, err := r.Peek(4)
		if err == nil {
			_, _ = r.Discard(4)
			return int32(binary.BigEndian.Uint32(b)), true
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.readingStopped() || c.budget.idle() {
			return 0, false
		}
	}
}

// checkFrameSize checks the length that a client sent, before memory is taken for it. The smallest header has ten bytes.
func checkFrameSize(size, limit int32) error {
	switch {
	case size < 10:
		return fmt.Errorf("a request of %d bytes is no Kafka request", size)
	case size > limit:
		return fmt.Errorf("a request of %d bytes is over the limit of %d", size, limit)
	}
	return nil
}

// errNoMemory says that requests of all connections take as much memory as they may, and did so for too long.
var errNoMemory = fmt.Errorf("the requests under way take all the memory that there is for them, and did for %s", memoryPatience)

// holding is what one request holds of the memory for requests. It belongs to one goroutine at a time.
type holding struct {
	m *memory
	// stop ends the waiting for memory.
	stop <-chan struct{}
	// free marks a request whose bytes need no leave.
	free bool
	n    int64
}

// take takes n bytes more.
func (h *holding) take(n int) error {
	if h == nil || h.free || n == 0 {
		return nil
	}
	if !h.m.take(int64(n), memoryPatience, h.stop) {
		return errNoMemory
	}
	h.n += int64(n)
	return nil
}

// release gives all back.
func (h *holding) release() {
	if h != nil && h.n > 0 {
		h.m.give(h.n)
		h.n = 0
	}
}

// frames are the buffers of produce requests that were answered. One belongs to a request from its first byte until its response is written.
var frames = sync.Pool{New: func() any { return new([]byte) }}

// newFrame returns the memory for the first bytes of a frame, with room for all of it where a buffer is at hand that has that.
func newFrame(size int) []byte {
	if size > readChunk/8 {
		if kept, _ := frames.Get().(*[]byte); cap(*kept) >= readChunk/8 {
			return (*kept)[:min(size, readChunk, cap(*kept))]
		}
	}
	return make([]byte, min(size, readChunk))
}

// keepFrame keeps a buffer for later frames. Nobody may use it any more.
func keepFrame(frame []byte) {
	if c := cap(frame); c >= readChunk/8 && c <= keptBuffer {
		frames.Put(&frame)
	}
}

// readFrame reads a frame's bytes. Memory grows as they arrive, so that a length alone costs nothing, and is taken from held, which may be nil.
func readFrame(r *bufio.Reader, size int, held *holding) ([]byte, error) {
	if err := held.take(min(size, readChunk)); err != nil {
		return nil, err
	}
	frame := newFrame(size)
	read := 0
	for {
		n, err := io.ReadFull(r, frame[read:])
		if read += n; err != nil {
			return nil, fmt.Errorf("read a request: %w", err)
		}
		if read == size {
			return frame, nil
		}
		more := min(size, 4*len(frame))
		if err := held.take(more - len(frame)); err != nil {
			return nil, err
		}
		if more <= cap(frame) {
			frame = frame[:more]
			continue
		}
		grown := make([]byte, more)
		copy(grown, frame)
		frame = grown
	}
}

// parse makes a request of a frame. An error ends the connection. An unknown version of ApiVersions is let through, with no body.
func (c *conn) parse(frame []byte) (*request, error) {
	h, rest, err := parseHeader(frame)
	if err != nil {
		return nil, err
	}
	req := &request{
		key: h.key, version: h.version, correlationID: h.correlationID, clientID: h.clientID,
		host: c.host, from: c, listener: c.listener, frame: frame, size: len(frame),
	}
	a := c.s.apis[h.key]
	switch {
	case a == nil:
		return nil, fmt.Errorf("api key %d (%s) is not offered", h.key, kmsg.NameForKey(h.key))
	case h.key == keyAPIVersions && (h.version < a.min || h.version > a.max):
		return req, nil
	case h.version < a.min || h.version > a.max:
		return nil, fmt.Errorf("%s v%d is not offered, only v%d to v%d", kmsg.NameForKey(h.key), h.version, a.min, a.max)
	}
	req.header, req.rest = h, rest
	return req, nil
}

// decode decodes a request when its turn has come, so that of the requests that wait only the bytes are kept, which take less.
func (c *conn) decode(req *request) error {
	if req.rest == nil {
		return nil // ApiVersions of an unknown version
	}
	body, elements, err := c.s.decodeBody(req.header, req.rest)
	if err != nil {
		return err
	}
	req.body, req.rest = body, nil
	if elements > 0 {
		req.held.free = false
	}
	return req.held.take(elements * elementBytes)
}

// answer is what becomes of a request whose turn has come.
type answer struct {
	req  *request
	resp kmsg.Response
	// started is when its turn came.
	started time.Time
}

// ready says whether the response can be written without waiting.
func (a *answer) ready() bool {
	if a.req.stored == nil {
		return true
	}
	select {
	case <-a.req.stored:
		return true
	default:
		return false
	}
}

// work handles requests in order until there are none, and writes the responses in the same order. A produce whose records are written, but not
// yet stored, does not hold up the next request, so that many produces of a connection share a sync. ctx is for requests that are to be done
// whatever becomes of the connection, waiting for those that wait.
func (c *conn) work(ctx, waiting context.Context) error {
	var queue []*answer // those that cannot be written yet, the oldest first
	defer func() {
		for _, a := range queue {
			<-a.req.stored // it uses the request
			c.letGo(a.req)
		}
	}()
	frames := c.frames
	for frames != nil || len(queue) > 0 {
		var stored <-chan struct{}
		if len(queue) > 0 {
			stored = queue[0].req.stored
		}
		in := frames
		if len(queue) == maxPipelined {
			in = nil
		}
		select {
		case req, ok := <-in:
			if !ok {
				frames = nil
				continue
			}
			if c.s.apis[req.key].waits {
				// It may wait for longer than what came before it.
				if err := c.finishAll(ctx, &queue); err != nil {
					c.letGo(req)
					return err
				}
			}
			a, err := c.handle(ctx, waiting, req)
			switch {
			case err != nil:
				c.letGo(req)
				return errors.Join(c.finishAll(ctx, &queue), err)
			case len(queue) > 0 || !a.ready():
				queue = append(queue, a)
				continue
			}
			if err := c.finish(ctx, a); err != nil {
				return err
			}
		case <-stored:
			for len(queue) > 0 && queue[0].ready() {
				a := queue[0]
				queue = queue[1:]
				if err := c.finish(ctx, a); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// finishAll waits for all answers and writes them.
func (c *conn) finishAll(ctx context.Context, queue *[]*answer) error {
	for len(*queue) > 0 {
		a := (*queue)[0]
		*queue = (*queue)[1:]
		if err := c.finish(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// finish finishes an answer when it is stored, and writes its response.
func (c *conn) finish(ctx context.Context, a *answer) (err error) {
	defer c.letGo(a.req)
	defer func() {
		if p := recover(); p != nil {
			err = c.failed(a.req, p)
		}
	}()
	if a.req.stored != nil {
		<-a.req.stored
		a.req.finish(ctx)
	}
	c.s.metrics.observe(a.req, time.Since(a.started), a.resp)
	if a.req.hangUp != nil || a.resp == nil {
		return a.req.hangUp
	}
	return c.respond(a.req, a.resp)
}

// letGo gives back what a request and its response held.
func (c *conn) letGo(req *request) {
	if req.done != nil {
		req.done()
	}
	req.held.release()
	c.s.fetched.give(req.fetched)
	c.budget.give(req.size)
	if req.key == keyProduce {
		keepFrame(req.frame)
	}
}

// failed logs a panic in what handles a request. What the request had begun may go on: its memory is not used again.
func (c *conn) failed(req *request, p any) error {
	req.frame = nil
	c.s.metrics.panics.Inc()
	c.s.log.Error("a request's handler failed", "api", kmsg.NameForKey(req.key), "version", req.version,
		"client", c.nc.RemoteAddr().String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return fmt.Errorf("the handler of %s v%d failed", kmsg.NameForKey(req.key), req.version)
}

// handle calls the handler of a request. A panic in it ends the connection alone.
func (c *conn) handle(ctx, waiting context.Context, req *request) (a *answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.failed(req, p)
		}
	}()
	if err := c.decode(req); err != nil {
		c.s.metrics.badFrames.Inc()
		return nil, err
	}
	a = &answer{req: req, started: time.Now()}
	api := c.s.apis[req.key]
	if api.waits {
		ctx = waiting
	}
	a.resp = api.handle(c.s, ctx, req)
	return a, nil
}

// respond writes a response.
func (c *conn) respond(req *request, resp kmsg.Response) error {
	o := newOutgoing(req.correlationID, resp)
	defer o.release()
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := o.writeTo(c.nc)
	c.s.metrics.bytesOut.Add(float64(n))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the client did not take a response within %s", writeTimeout)
	case errors.Is(err, storage.ErrDamaged):
		return fmt.Errorf("read records: %w", err)
	default: // the client has left; what it sent before is still done
		c.close()
		return nil
	}
}

// budget bounds the bytes of a connection's requests in memory.
type budget struct {
	mu     sync.Mutex
	cond   sync.Cond
	limit  int
	used   int
	closed bool
}

func (b *budget) init(limit int) { b.limit, b.cond.L = limit, &b.mu }

// take waits until there is room for n bytes; one request alone always has room, and alone says that it is. ok is false once the budget is closed.
func (b *budget) take(n int) (alone, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && b.used > 0 && b.used+n > b.limit {
		b.cond.Wait()
	}
	alone = b.used == 0
	b.used += n
	return alone, !b.closed
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.cond.Signal()
}

func (b *budget) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cond.Broadcast()
}

func (b *budget) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used == 0
}
