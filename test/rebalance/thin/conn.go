// SPDX-License-Identifier: Apache-2.0

// Package thin has members of consumer groups that follow the protocols as a client does, each over a connection of its own, and do nothing else: a thousand whole
// clients would measure themselves.
package thin

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// largest is more than any answer that is asked for here.
const largest = 64 << 20

// conn is a connection to a broker.
type conn struct {
	nc          net.Conn
	r           *bufio.Reader
	format      *kmsg.RequestFormatter
	correlation int32
	out, in     []byte
}

// dial connects as a client of a name, and says that it is franz-go, so that a broker that holds heartbeats holds its.
func dial(ctx context.Context, address, clientID string) (*conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to a broker: %w", err)
	}
	c := &conn{nc: nc, r: bufio.NewReader(nc), format: kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))}
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.ClientSoftwareName, hello.ClientSoftwareVersion = "kgo", "1.22.3"
	if _, err := ask[*kmsg.ApiVersionsResponse](c, hello, 3); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("ask for a broker's versions: %w", err)
	}
	return c, nil
}

// ask sends a request and waits for its answer.
func ask[R kmsg.Response](c *conn, req kmsg.Request, version int16) (R, error) {
	var none R
	req.SetVersion(version)
	c.correlation++
	c.out = c.format.AppendRequest(c.out[:0], req, c.correlation)
	if _, err := c.nc.Write(c.out); err != nil {
		return none, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return none, err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - 4
	if size < 0 || size > largest {
		return none, fmt.Errorf("an answer of %d bytes", size)
	}
	if int64(cap(c.in)) < size {
		c.in = make([]byte, size)
	}
	body := c.in[:size]
	if _, err := io.ReadFull(c.r, body); err != nil {
		return none, err
	}
	resp, ok := req.ResponseKind().(R)
	if !ok {
		return none, fmt.Errorf("a %T has no such answer", req)
	}
	resp.SetVersion(version)
	if resp.IsFlexible() && resp.Key() != 18 {
		if size == 0 || body[0] != 0 {
			return none, errors.New("an answer's header has tags")
		}
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}
