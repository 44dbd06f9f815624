// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// pullBatch is how many messages a pull asks for; two pulls of a consumer are open at once, so that the server always has one.
	pullBatch = 1000
	openPulls = 2
	// pullExpires is how long a pull waits, in nanoseconds.
	pullExpires = 10 * time.Second
	// firstPull is the number of the first pull's subscription.
	firstPull = 2
)

// natsConn is a connection that speaks NATS' protocol of lines. It subscribes to everything below its inbox.
type natsConn struct {
	nc    net.Conn
	r     *bufio.Reader
	inbox string
}

// inboxes numbers the connections.
var inboxes atomic.Int64

func dialNATS(ctx context.Context, address string) (*natsConn, error) {
	nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &natsConn{nc: nc, r: bufio.NewReaderSize(nc, 256<<10), inbox: fmt.Sprintf("_INBOX.%d", inboxes.Add(1))}
	if _, err = c.r.ReadSlice('\n'); err == nil { // INFO
		_, err = fmt.Fprintf(nc, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\nSUB %s.> 1\r\n", c.inbox)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *natsConn) close() { _ = c.nc.Close() }

// message is what came to the inbox.
type message struct {
	// reply is the part of the subject after the inbox; subscription is the number of the one that it came through.
	reply        []byte
	subscription int
	// size is the length of headers and payload, which are still to be read.
	size int
	// headers says that there are some. Those that JetStream sends without a stored message are its word that a pull has ended.
	headers bool
}

// next reads up to the next message's payload.
func (c *natsConn) next() (message, error) {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return message{}, err
		}
		switch {
		case bytes.HasPrefix(line, []byte("PING")):
			if _, err := io.WriteString(c.nc, "PONG\r\n"); err != nil {
				return message{}, err
			}
		case bytes.HasPrefix(line, []byte("-ERR")):
			return message{}, fmt.Errorf("nats: %s", bytes.TrimSpace(line[4:]))
		case bytes.HasPrefix(line, []byte("MSG ")), bytes.HasPrefix(line, []byte("HMSG ")):
			fields := bytes.Fields(line)
			size, err := strconv.Atoi(string(fields[len(fields)-1]))
			if err != nil || len(fields) < 4 {
				return message{}, fmt.Errorf("nats: %s", line)
			}
			subscription, err := strconv.Atoi(string(fields[2]))
			return message{bytes.TrimPrefix(fields[1], []byte(c.inbox+".")), subscription, size, line[0] == 'H'}, err
		}
	}
}

// payload reads a message's payload.
func (c *natsConn) payload(m message) ([]byte, error) {
	b := make([]byte, m.size+2)
	_, err := io.ReadFull(c.r, b)
	return b[:m.size], err
}

// api asks JetStream for something.
func (c *natsConn) api(ctx context.Context, subject string, in, out any) error {
	defer context.AfterFunc(ctx, c.close)()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(c.nc, "PUB $JS.API.%s %s.api %d\r\n%s\r\n", subject, c.inbox, len(body), body); err != nil {
		return err
	}
	m, err := c.next()
	if err != nil {
		return err
	}
	b, err := c.payload(m)
	if err != nil {
		return err
	}
	if m.headers {
		return fmt.Errorf("nats: %s", bytes.TrimSpace(b))
	}
	var answer struct {
		Error struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	if answer.Error.Description != "" {
		return fmt.Errorf("nats: %s: %s", subject, answer.Error.Description)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// natsPeer has a stream of one subject for each partition; each record is a message, which JetStream acknowledges.
type natsPeer struct {
	title string
	s     *server
}

func (p *natsPeer) name() string    { return p.title }
func (p *natsPeer) server() *server { return p.s }

func streamName(topic string, partition int) string { return topic + "-" + strconv.Itoa(partition) }

func (p *natsPeer) create(ctx context.Context, topic string, w *work) error {
	c, err := dialNATS(ctx, p.s.address)
	if err != nil {
		return err
	}
	defer c.close()
	for i := range w.Partitions {
		name := streamName(topic, i)
		config := map[string]any{"name": name, "subjects": []string{name}, "storage": "file", "retention": "limits", "num_replicas": 1}
		if err := c.api(ctx, "STREAM.CREATE."+name, config, nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *natsPeer) remove(ctx context.Context, topic string) error {
	c, err := dialNATS(ctx, p.s.address)
	if err != nil {
		return err
	}
	defer c.close()
	for i := 0; ; i++ {
		err := c.api(ctx, "STREAM.DELETE."+streamName(topic, i), nil, nil)
		if err != nil && i > 0 && strings.Contains(err.Error(), "stream not found") {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// requests returns what NATS gets instead of Produce requests: a PUB for each record, in one write. The acknowledgements name the request.
func (p *natsPeer) requests(w *work, topic, inbox string, seed uint64) []request {
	v := newValues(seed, w.RecordBytes)
	_, count := recordBatch(v, w.BatchBytes, 0)
	spread := newSpread(w)
	requests := make([]request, spread.count)
	for i := range requests {
		r := &requests[i]
		first, end := spread.of(i)
		for partition := first; partition < end; partition++ {
			for range count {
				r.b = fmt.Appendf(r.b, "PUB %s %s.%d %d\r\n%s\r\n", streamName(topic, partition), inbox, i, w.RecordBytes, v.next())
				r.records++
			}
		}
		r.bytes = r.records * int64(w.RecordBytes)
	}
	return requests
}

func (p *natsPeer) produce(ctx context.Context, topic string, w *work, m *meter, limit int64) error {
	budget := newBudget(limit)
	g, ctx := errgroup.WithContext(ctx)
	for i := range w.Producers {
		lane := m.lane()
		g.Go(func() error {
			c, err := dialNATS(ctx, p.s.address)
			if err != nil {
				return err
			}
			requests := p.requests(w, topic, c.inbox, uint64(i+1))
			// acknowledged counts those that came for a request which is not the oldest: streams answer out of each other's order.
			acknowledged := make([]int64, len(requests))
			turn := 0
			pipe := &pipeline{nc: c.nc, inFlight: min(w.InFlight, len(requests)-1), budget: budget}
			return pipe.run(ctx, func(n int) *request { return &requests[n%len(requests)] }, func(s sent) error {
				for acknowledged[turn] < s.records {
					n, err := c.acknowledgement()
					if err != nil {
						return err
					}
					acknowledged[n]++
				}
				acknowledged[turn] = 0
				turn = (turn + 1) % len(requests)
				lane.add(s.records, s.bytes, time.Since(s.at))
				return nil
			})
		})
	}
	return g.Wait()
}

// acknowledgement reads one, and returns the number of its request.
func (c *natsConn) acknowledgement() (int, error) {
	m, err := c.next()
	if err != nil {
		return 0, err
	}
	n, numberErr := strconv.Atoi(string(m.reply))
	if m.headers || numberErr != nil {
		return 0, errors.New("nats: a message was not stored")
	}
	body, err := c.r.Peek(m.size)
	if err != nil {
		return 0, err
	}
	if bytes.Contains(body, []byte(`"error"`)) {
		return 0, fmt.Errorf("nats: %s", body)
	}
	_, err = c.r.Discard(m.size + 2)
	return n, err
}

func (p *natsPeer) consume(ctx context.Context, topic string, w *work, how reading, m *meter) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range min(w.Consumers, w.Partitions) {
		lane := m.lane()
		g.Go(func() error {
			var err error
			for again := true; again && err == nil && ctx.Err() == nil; again = how.again {
				err = p.readAll(ctx, topic, w, i, lane)
			}
			return unlessOver(ctx, err)
		})
	}
	return g.Wait()
}

// pull is one stream's part of what a consumer reads.
type pull struct {
	stream, consumer string
	left             int64 // to be received
	asked            int64 // of those, in open pulls
}

// readAll reads a consumer's streams to their end, with a pull consumer for each that need not acknowledge.
func (p *natsPeer) readAll(ctx context.Context, topic string, w *work, index int, l *lane) error {
	c, err := dialNATS(ctx, p.s.address)
	if err != nil {
		return err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	var pulls []*pull
	var left int64
	for i := index; i < w.Partitions; i += min(w.Consumers, w.Partitions) {
		s := &pull{stream: streamName(topic, i)}
		var made struct {
			Name    string `json:"name"`
			Pending int64  `json:"num_pending"`
		}
		config := map[string]any{
			"stream_name": s.stream,
			"config":      map[string]any{"ack_policy": "none", "deliver_policy": "all", "inactive_threshold": 5 * time.Second, "mem_storage": true},
		}
		if err := c.api(ctx, "CONSUMER.CREATE."+s.stream, config, &made); err != nil {
			return err
		}
		s.consumer, s.left = made.Name, made.Pending
		left += s.left
		pulls = append(pulls, s)
	}
	for n, s := range pulls {
		// What is pulled keeps the subject that it was published to; the subscription tells its stream.
		if _, err := fmt.Fprintf(c.nc, "SUB %s %d\r\n", c.pullSubject(n), firstPull+n); err != nil {
			return err
		}
		for range openPulls {
			if err := c.ask(s, n); err != nil {
				return err
			}
		}
	}
	for left > 0 {
		begin := time.Now()
		m, err := c.next()
		if err != nil {
			return err
		}
		n := m.subscription - firstPull
		if n < 0 || n >= len(pulls) {
			return errors.New("nats: a message that was not asked for")
		}
		if m.headers {
			b, err := c.payload(m)
			if err != nil {
				return err
			}
			return fmt.Errorf("nats: a pull ended early: %s", bytes.TrimSpace(b))
		}
		if _, err := c.r.Discard(m.size + 2); err != nil {
			return err
		}
		l.add(1, int64(m.size), time.Since(begin))
		s := pulls[n]
		s.left, s.asked, left = s.left-1, s.asked-1, left-1
		if s.asked <= pullBatch*(openPulls-1) {
			if err := c.ask(s, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullSubject is where the n-th stream's messages go; it is not below the inbox, or they would come twice.
func (c *natsConn) pullSubject(n int) string {
	return fmt.Sprintf("_PULL%s.%d", strings.TrimPrefix(c.inbox, "_INBOX"), n)
}

// ask asks for the next messages of a stream, if there are more.
func (c *natsConn) ask(s *pull, n int) error {
	batch := min(pullBatch, s.left-s.asked)
	if batch <= 0 {
		return nil
	}
	s.asked += batch
	body := fmt.Sprintf(`{"batch":%d,"expires":%d}`, batch, pullExpires.Nanoseconds())
	_, err := fmt.Fprintf(c.nc, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s %s %d\r\n%s\r\n", s.stream, s.consumer, c.pullSubject(n), len(body), body)
	return err
}
