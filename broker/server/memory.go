// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// maxRequestMemory bounds the bytes of all connections' requests that have arrived and are not yet answered. Requests beyond it wait, and
	// with them the connections that they come on. It is never less than two of the largest requests.
	maxRequestMemory = 256 << 20
	// maxFetchMemory bounds the bytes of records in responses that are not yet written. Beyond it a fetch gets what is left, and at least one
	// batch, so that consumers that do not read their responses slow others down but do not stop them.
	maxFetchMemory = 128 << 20
	// maxFetchRead is how much is read from one partition at a time.
	maxFetchRead = 8 << 20
	// freeFrame is the size of a request that needs no leave where it is the only one of its connection, so that heartbeats pass where large
	// requests wait; the number of connections bounds what these take.
	freeFrame = readChunk
	// memoryPatience is how long a request waits for memory before its connection is closed.
	memoryPatience = 10 * time.Second

	// maxElements is how many elements the arrays of a request have at most, all together. Ten times the partitions of the largest topic.
	maxElements = 100000
	// elementBytes is about what an element takes, decoded, with the part of the response that answers it.
	elementBytes = 256
	// fewElements is the size of a request whose elements are not counted: it has no room for many.
	fewElements = 4 << 10
	// largeDecode is from what size on requests are decoded one at a time: an array of the smallest elements takes, decoded, many times its bytes
	// before it can be counted.
	largeDecode = 256 << 10
)

// memory bounds the bytes that are used for one purpose, over all connections.
type memory struct {
	limit int64

	mu   sync.Mutex
	used int64
	// freed is closed, and replaced, when bytes are given back while somebody waits.
	freed chan struct{}
}

// newMemory makes a bound of limit bytes.
func newMemory(limit int64) *memory { return &memory{limit: limit} }

// take waits until n bytes can be had, for patience at most or until stop is closed, and says whether they were taken. Where nothing is used any
// n can be had.
func (m *memory) take(n int64, patience time.Duration, stop <-chan struct{}) bool {
	freed := m.tryTake(n)
	if freed == nil {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for freed != nil {
		select {
		case <-freed:
		case <-timer.C:
			return false
		case <-stop:
			return false
		}
		freed = m.tryTake(n)
	}
	return true
}

// tryTake takes n bytes and returns nil, or returns what is closed when some are given back.
func (m *memory) tryTake(n int64) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used == 0 || m.used+n <= m.limit {
		m.used += n
		return nil
	}
	if m.freed == nil {
		m.freed = make(chan struct{})
	}
	return m.freed
}

// takeUpTo takes as many of n bytes as can be had now, and returns how many those are.
func (m *memory) takeUpTo(n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = max(min(n, m.limit-m.used), 0)
	m.used += n
	return n
}

// give gives n bytes back; a negative n takes bytes, beyond the limit where need be.
func (m *memory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if n > 0 && m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}

// inUse is how many bytes are taken.
func (m *memory) inUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// errElements says that a request is larger than anything that is asked for in earnest.
func errElements(n int) error {
	return fmt.Errorf("a request with %d elements is over the limit of %d; ask in several requests", n, maxElements)
}

// decodeBody decodes a request whose version is offered and returns how many elements it has, where that matters. What is taken for it while it
// is decoded is bounded: a produce, which may be large, is counted before, and others of some size are decoded one at a time.
func (s *Server) decodeBody(h header, rest []byte) (body kmsg.Request, elements int, err error) {
	size := len(rest)
	switch {
	case size <= fewElements:
	case h.key == keyProduce:
		if elements, err = produceElements(h.version, rest); err != nil {
			return nil, 0, fmt.Errorf("decode Produce v%d: %w", h.version, err)
		}
		if elements > maxElements {
			return nil, 0, errElements(elements)
		}
	case size > largeDecode:
		s.decoding.Lock()
		defer s.decoding.Unlock()
	}
	if body, err = decode(h, rest); err != nil {
		return nil, 0, err
	}
	if size > fewElements && h.key != keyProduce {
		if elements = countElements(reflect.ValueOf(body)); elements > maxElements {
			return nil, 0, errElements(elements)
		}
	}
	return body, elements, nil
}

// countElements counts the elements of all arrays in a decoded request, but for bytes.
func countElements(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return countElements(v.Elem())
	case reflect.Struct:
		n := 0
		for _, f := range v.Fields() {
			n += countElements(f)
		}
		return n
	case reflect.Slice:
		n := v.Len()
		if elem := v.Type().Elem().Kind(); elem != reflect.Struct {
			if elem == reflect.Uint8 {
				return 0
			}
			return n
		}
		for i := range v.Len() {
			n += countElements(v.Index(i))
		}
		return n
	default:
		return 0
	}
}

// produceElements counts the topics and partitions of a Produce request, without memory for them, and stops once they are too many.
func produceElements(version int16, b []byte) (n int, err error) {
	r := wireReader{b: b, flexible: version >= 9}
	if r.flexible {
		if r.b, r.err = skipTags(r.b); r.err != nil {
			return 0, r.err
		}
	}
	if version >= 3 {
		r.str() // the transactional id
	}
	r.skip(2 + 4) // acks and timeout
	for topics := r.count(); topics > 0 && r.err == nil; topics-- {
		n++
		if version >= 13 {
			r.skip(16)
		} else {
			r.str()
		}
		for partitions := r.count(); partitions > 0 && r.err == nil && n <= maxElements; partitions-- {
			n++
			r.skip(4)
			r.bytes()
			r.tags()
		}
		if n > maxElements {
			return n, nil
		}
		r.tags()
	}
	return n, r.err
}

// wireReader goes through the bytes of a request without keeping any.
type wireReader struct {
	b        []byte
	flexible bool
	err      error
}

func (r *wireReader) skip(n int64) {
	if r.err == nil && (n < 0 || n > int64(len(r.b))) {
		r.err = errShortRequest
	}
	if r.err == nil {
		r.b = r.b[n:]
	}
}

// length reads a length of size bytes, or a varint in flexible versions; -1 is null.
func (r *wireReader) length(size int) int64 {
	switch {
	case r.err != nil:
		return -1
	case r.flexible:
		var v uint64
		v, r.b, r.err = uvarint(r.b)
		return int64(v) - 1
	case len(r.b) < size:
		r.err = errShortRequest
		return -1
	}
	n := int64(0)
	for _, c := range r.b[:size] {
		n = n<<8 | int64(c)
	}
	r.b = r.b[size:]
	bits := 8 * size
	return n << (64 - bits) >> (64 - bits)
}

func (r *wireReader) str()         { r.skip(max(r.length(2), 0)) }
func (r *wireReader) bytes()       { r.skip(max(r.length(4), 0)) }
func (r *wireReader) count() int64 { return r.length(4) }

func (r *wireReader) tags() {
	if r.flexible && r.err == nil {
		r.b, r.err = skipTags(r.b)
	}
}
