// SPDX-License-Identifier: Apache-2.0

package brokers

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxTapped is how large a message may be that a Tap looks at in bytes; of larger ones it knows the beginning alone.
const maxTapped = 64 << 10

// Tap notes what clients send by a Proxy, and how long the answers take.
type Tap struct {
	mu      sync.Mutex
	conns   int
	clients map[string]*tapped
}

// tapped is what is known of the clients of one client.id; the Tap's mu guards it.
type tapped struct {
	software map[string]bool
	requests []Exchange
}

// Exchange is a request and its answer.
type Exchange struct {
	// Conn is the number of the connection.
	Conn int
	// Key is the request's API key.
	Key int16
	// Sent is when it went to the broker, Took how long the answer took; negative while there is none.
	Sent time.Time
	Took time.Duration
}

// NewTap returns a Tap that has noted nothing.
func NewTap() *Tap { return &Tap{clients: map[string]*tapped{}} }

// Software is what the clients with a client.id have called themselves in ApiVersions (KIP-511), such as "librdkafka 2.16.0"; none for clients that do not.
func (t *Tap) Software(clientID string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[clientID]
	if c == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(c.software))
}

// Exchanges are what the clients with a client.id have sent, in order.
func (t *Tap) Exchanges(clientID string) []Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[clientID]
	if c == nil {
		return nil
	}
	return slices.Clone(c.requests)
}

// connection is a new connection's two directions.
func (t *Tap) connection() (requests, responses *frames) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns++
	c := &tappedConn{tap: t, number: t.conns, waiting: map[int32]place{}}
	return &frames{take: c.request}, &frames{take: c.response}
}

// tappedConn is a connection. The Tap's mu guards it.
type tappedConn struct {
	tap     *Tap
	number  int
	waiting map[int32]place // by correlation id
}

// place is where an Exchange is.
type place struct {
	client *tapped
	index  int
}

// request notes a request by its header: key, version, correlation id and client id.
func (c *tappedConn) request(frame []byte) {
	now := time.Now()
	r := kbin.Reader{Src: frame}
	key, version, correlation := r.Int16(), r.Int16(), r.Int32()
	clientID := ""
	if id := r.NullableString(); id != nil {
		clientID = *id
	}
	if r.Complete() != nil {
		return
	}
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	client := c.tap.clients[clientID]
	if client == nil {
		client = &tapped{software: map[string]bool{}}
		c.tap.clients[clientID] = client
	}
	if key == int16(kmsg.ApiVersions) && version >= 3 {
		req := kmsg.NewPtrApiVersionsRequest()
		req.SetVersion(version)
		kmsg.SkipTags(&r)
		if req.ReadFrom(r.Src) == nil {
			client.software[req.ClientSoftwareName+" "+req.ClientSoftwareVersion] = true
		}
	}
	c.waiting[correlation] = place{client, len(client.requests)}
	client.requests = append(client.requests, Exchange{Conn: c.number, Key: key, Sent: now, Took: -1})
}

// response notes that a request was answered.
func (c *tappedConn) response(frame []byte) {
	now := time.Now()
	if len(frame) < 4 {
		return
	}
	correlation := int32(binary.BigEndian.Uint32(frame))
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	p, ok := c.waiting[correlation]
	if !ok {
		return
	}
	delete(c.waiting, correlation)
	e := &p.client.requests[p.index]
	e.Took = now.Sub(e.Sent)
}

// frames is an io.Writer that takes one direction's bytes apart, and passes on the beginning of each message.
type frames struct {
	take func(frame []byte)
	size []byte // of the message, as far as it has come
	kept []byte // the message's beginning
	rest int    // how many of its bytes are still to come
}

// Write never fails: what it does not understand must not end a connection.
func (f *frames) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if f.rest == 0 {
			take := min(4-len(f.size), len(p))
			f.size, p = append(f.size, p[:take]...), p[take:]
			if len(f.size) == 4 {
				f.rest, f.size = int(binary.BigEndian.Uint32(f.size)), f.size[:0]
			}
			continue
		}
		take := min(f.rest, len(p))
		f.kept = append(f.kept, p[:min(take, maxTapped-len(f.kept))]...)
		f.rest, p = f.rest-take, p[take:]
		if f.rest == 0 {
			f.take(f.kept)
			f.kept = f.kept[:0]
		}
	}
	return n, nil
}
