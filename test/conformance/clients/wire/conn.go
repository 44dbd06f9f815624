// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is a connection to a broker.
type conn struct {
	net.Conn
	next int32
}

// dial connects to a broker; the connection takes what the context allows.
func dial(ctx context.Context, address string) (*conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = c.SetDeadline(deadline)
	}
	return &conn{Conn: c}, err
}

// frame sends a frame, and reads one.
func (c *conn) frame(request []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 16<<20 {
		return nil, fmt.Errorf("a response of %d bytes", n)
	}
	response := make([]byte, n)
	_, err := io.ReadFull(c, response)
	return response, err
}

// ask sends a request of its version and returns the response.
func (c *conn) ask(req kmsg.Request) (kmsg.Response, error) {
	c.next++
	raw, err := c.frame(kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire")).AppendRequest(nil, req, c.next))
	if err != nil {
		return nil, err
	}
	if len(raw) < 5 || binary.BigEndian.Uint32(raw) != uint32(c.next) {
		return nil, errors.New("the response is of another request")
	}
	raw = raw[4:]
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != 18 {
		if raw[0] != 0 {
			return nil, errors.New("the response's header has tags")
		}
		raw = raw[1:]
	}
	return resp, resp.ReadFrom(raw)
}

// once dials, asks and hangs up.
func once[R kmsg.Response](ctx context.Context, address string, req kmsg.Request) (R, error) {
	var none R
	c, err := dial(ctx, address)
	if err != nil {
		return none, err
	}
	defer c.Close()
	resp, err := c.ask(req)
	if err != nil {
		return none, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	r, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("a response %T", resp)
	}
	return r, nil
}

// batch is a record batch of one record, as an idempotent producer sends it.
func batch(producer int64, epoch int16, sequence int32, value []byte) []byte {
	r := kmsg.Record{Value: value}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{
		Magic: 2, ProducerID: producer, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: 1, Records: r.AppendTo(nil),
		PartitionLeaderEpoch: -1, FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(),
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
