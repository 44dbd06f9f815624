// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// readFrames reads requests until the connection ends. The error is what the client did wrong; nil where it just left or was idle.
func (c *conn) readFrames() error {
	r := bufio.NewReaderSize(c.nc, readChunk/4)
	var next chan struct{} // of the request before
	followed := func() {
		if next != nil {
			close(next)
			next = nil
		}
	}
	defer followed()
	for {
		size, ok := c.awaitFrame(r)
		if !ok {
			return nil
		}
		followed()
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
	if h.key == keyFetch {
		c.fetches.Store(true)
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
