// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is a request of a client, decoded.
//
// The byte slices in body point into the request's frame. A handler that keeps one after it has returned copies it.
type request struct {
	key     int16
	version int16
	// correlationID is the client's number for the request; the response repeats it.
	correlationID int32
	// clientID is the client.id that the client sent, empty for none.
	clientID string
	// host is the client's IP address, without a port.
	host string
	// from is the connection that the request came by; nil in tests of handlers.
	from *conn
	// listener is the address that the client connected to, as HOST:PORT.
	listener string
	// header and rest are the request before it is decoded.
	header header
	rest   []byte
	// body is the decoded request; its Version is set.
	body kmsg.Request
	// next is closed when another request has begun to arrive on the same connection, or the connection is at its end. Kafka answers in order, so a
	// request that is held back on purpose (a long-polled Heartbeat) is to be answered then.
	next <-chan struct{}
	// frame is the whole request, of size bytes.
	frame []byte
	size  int
	// stored is closed when the response can be finished, by finish; nil where the handler has returned a finished one. Until then later requests of
	// the connection are handled.
	stored <-chan struct{}
	finish func(ctx context.Context)
	// done gives up what the response holds, once it is written or nobody wants it.
	done func()
	// held is what the request takes of the memory for requests; nil in tests of handlers.
	held *holding
	// fetched is how many bytes the response takes of the memory for fetched records.
	fetched int64
	// failed is the first error code that the handler answered with, for the metrics.
	failed int16
	// hangUp is set by a handler that wants the connection closed instead of a response: the only way to tell a producer with acks=0 that
	// something is wrong.
	hangUp error
}

// followed says whether another request has begun to arrive on the connection.
func (r *request) followed() bool {
	select {
	case <-r.next:
		return true
	default:
		return false
	}
}

// bodyOf returns a request's body as the type that belongs to its key.
func bodyOf[T kmsg.Request](r *request) T {
	v, _ := r.body.(T) // decode made it by the key; anything else is a fault here, which the connection recovers from
	return v
}

// code notes an error code for the metrics and returns it.
func (r *request) code(code int16) int16 {
	if r.failed == codeNone {
		r.failed = code
	}
	return code
}

// firstNamed says whether a request names something for the first time, and notes it. What is named again has no second answer: it would be the same,
// and answers can be far larger than what asks for them.
func firstNamed[K comparable](named map[K]bool, key K) bool {
	if named[key] {
		return false
	}
	named[key] = true
	return true
}

// errShortHeader says that a frame ends within the request header.
var errShortHeader = errors.New("the request header is cut short")

// errShortRequest says that a frame ends within the request's body.
var errShortRequest = errors.New("the request is cut short")

// header is the request header, v1 or (flexible versions) v2, as far as it does not depend on the version.
type header struct {
	key           int16
	version       int16
	correlationID int32
	clientID      string
}

// parseHeader reads the header of a frame (without its length) and returns what follows the client id: the header's tags in flexible
// versions, then the body. The client id is a nullable string of the old format in every version (KIP-482).
func parseHeader(frame []byte) (h header, rest []byte, err error) {
	if len(frame) < 10 {
		return header{}, nil, errShortHeader
	}
	h.key = int16(binary.BigEndian.Uint16(frame))
	h.version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.correlationID = int32(binary.BigEndian.Uint32(frame[4:]))
	n := int(int16(binary.BigEndian.Uint16(frame[8:])))
	rest = frame[10:]
	switch {
	case n < -1:
		return header{}, nil, fmt.Errorf("the client id's length is %d", n)
	case n > len(rest):
		return header{}, nil, errShortHeader
	case n > 0:
		h.clientID = string(rest[:n])
		rest = rest[n:]
	}
	return h, rest, nil
}

// skipTags skips the tagged fields of a flexible header (KIP-482); we know none.
func skipTags(b []byte) ([]byte, error) {
	count, b, err := uvarint(b)
	if err != nil {
		return nil, err
	}
	for ; count > 0; count-- {
		var size uint64
		if _, b, err = uvarint(b); err != nil { // the tag
			return nil, err
		}
		if size, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if size > uint64(len(b)) {
			return nil, errShortHeader
		}
		b = b[size:]
	}
	return b, nil
}

// uvarint reads an unsigned varint of at most 32 bits.
func uvarint(b []byte) (v uint64, rest []byte, err error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > 1<<32-1 {
		return 0, nil, errShortHeader
	}
	return v, b[n:], nil
}

// decode makes a request of a header and the bytes after the client id. The version is one that the API offers.
func decode(h header, rest []byte) (kmsg.Request, error) {
	body := kmsg.RequestForKey(h.key)
	if body == nil {
		return nil, fmt.Errorf("unknown api key %d", h.key)
	}
	body.SetVersion(h.version)
	if body.IsFlexible() {
		var err error
		if rest, err = skipTags(rest); err != nil {
			return nil, fmt.Errorf("decode the header's tags: %w", err)
		}
	}
	if err := body.ReadFrom(rest); err != nil {
		return nil, fmt.Errorf("decode %s v%d: %w", kmsg.NameForKey(h.key), h.version, err)
	}
	return body, nil
}

// appendResponse appends a response as a frame: length, correlation id, the header's tags in flexible versions, body. ApiVersions responses
// have the old header in every version, so that a client that does not know the broker can read them (KIP-511).
func appendResponse(dst []byte, correlationID int32, resp kmsg.Response) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if resp.IsFlexible() && resp.Key() != keyAPIVersions {
		dst = append(dst, 0)
	}
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}
