// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// readCount is how many entries of each stream one XREAD asks for.
const readCount = 1000

// newRedis returns a Redis whose append-only file is synced as policy says. Its rewrites and snapshots are off: they would fork in the middle
// of a measurement; the file is rewritten after each work.
func newRedis(title, policy string) *server {
	return &server{
		title: title,
		command: func(dir, address string) *exec.Cmd {
			host, port, _ := net.SplitHostPort(address)
			return exec.Command("redis-server", "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes",
				"--appendfsync", policy, "--auto-aof-rewrite-percentage", "0")
		},
		ask: func(ctx context.Context, address string) error {
			c, err := dialRedis(ctx, address)
			if err != nil {
				return err
			}
			defer c.close()
			_, err = c.ask("PING")
			return err
		},
	}
}

// redisConn is a connection that pipelines.
type redisConn struct {
	nc net.Conn
	r  *bufio.Reader
}

func dialRedis(ctx context.Context, address string) (*redisConn, error) {
	nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &redisConn{nc, bufio.NewReaderSize(nc, 256<<10)}, nil
}

func (c *redisConn) close() { _ = c.nc.Close() }

// appendCommand encodes a command.
func appendCommand(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// ask sends a command and returns its answer, if that is a string or a number.
func (c *redisConn) ask(args ...string) (string, error) {
	if _, err := c.nc.Write(appendCommand(nil, args...)); err != nil {
		return "", err
	}
	kind, n, err := c.header()
	if err != nil || kind != '$' || n < 0 {
		return "", err
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(c.r, b)
	return string(b[:n]), err
}

// header reads the first line of a value: its kind, and its number where it has one.
func (c *redisConn) header() (kind byte, n int, err error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return 0, 0, errors.New("an answer of Redis is empty")
	}
	switch line[0] {
	case '-':
		return 0, 0, fmt.Errorf("redis: %s", line[1:])
	case '+':
		return '+', 0, nil
	}
	n, err = strconv.Atoi(string(line[1:]))
	return line[0], n, err
}

// redisPeer has a stream for each partition; each record is an entry of one field.
type redisPeer struct {
	title string
	s     *server
}

func (p *redisPeer) name() string                                { return p.title }
func (p *redisPeer) server() *server                             { return p.s }
func (p *redisPeer) create(context.Context, string, *work) error { return nil }

func streamKey(topic string, partition int) string { return topic + ":" + strconv.Itoa(partition) }

// remove removes the streams and waits until the append-only file is rewritten without them.
func (p *redisPeer) remove(ctx context.Context, _ string) error {
	c, err := dialRedis(ctx, p.s.address)
	if err != nil {
		return err
	}
	defer c.close()
	for _, command := range []string{"FLUSHALL", "BGREWRITEAOF"} {
		if _, err := c.ask(command); err != nil {
			return err
		}
	}
	for {
		info, err := c.ask("INFO", "persistence")
		if err != nil || strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return err
		}
		if !sleepUntil(ctx, time.Now().Add(10*time.Millisecond)) {
			return context.Cause(ctx)
		}
	}
}

// redisRequests returns what Redis gets instead of Produce requests: an XADD for each record, in one write.
func redisRequests(w *work, topic string, seed uint64) []request {
	v := newValues(seed, w.RecordBytes)
	_, count := recordBatch(v, w.BatchBytes, 0)
	spread := newSpread(w)
	requests := make([]request, spread.count)
	for i := range requests {
		r := &requests[i]
		first, end := spread.of(i)
		for partition := first; partition < end; partition++ {
			for range count {
				r.b = appendCommand(r.b, "XADD", streamKey(topic, partition), "*", "v", string(v.next()))
				r.records++
			}
		}
		r.bytes = r.records * int64(w.RecordBytes)
	}
	return requests
}

func (p *redisPeer) produce(ctx context.Context, topic string, w *work, m *meter, limit int64) error {
	budget := newBudget(limit)
	g, ctx := errgroup.WithContext(ctx)
	for i := range w.Producers {
		lane := m.lane()
		g.Go(func() error {
			c, err := dialRedis(ctx, p.s.address)
			if err != nil {
				return err
			}
			requests := redisRequests(w, topic, uint64(i+1))
			pipe := &pipeline{nc: c.nc, inFlight: w.InFlight, budget: budget}
			return pipe.run(ctx, func(n int) *request { return &requests[n%len(requests)] }, func(s sent) error {
				for range s.records {
					if err := c.skip(); err != nil {
						return fmt.Errorf("add to a stream: %w", err)
					}
				}
				lane.add(s.records, s.bytes, time.Since(s.at))
				return nil
			})
		})
	}
	return g.Wait()
}

func (p *redisPeer) consume(ctx context.Context, topic string, w *work, how reading, m *meter) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range min(w.Consumers, w.Partitions) {
		lane := m.lane()
		g.Go(func() error {
			c, err := dialRedis(ctx, p.s.address)
			if err != nil {
				return err
			}
			defer c.close()
			defer context.AfterFunc(ctx, c.close)()
			for again := true; again && err == nil && ctx.Err() == nil; again = how.again {
				err = c.readAll(ctx, topic, w, i, lane)
			}
			return unlessOver(ctx, err)
		})
	}
	return g.Wait()
}

// readAll reads a consumer's streams to their end.
func (c *redisConn) readAll(ctx context.Context, topic string, w *work, index int, l *lane) error {
	var keys, ids []string
	place := make(map[string]int)
	for i := index; i < w.Partitions; i += min(w.Consumers, w.Partitions) {
		place[streamKey(topic, i)] = len(keys)
		keys, ids = append(keys, streamKey(topic, i)), append(ids, "0")
	}
	for ctx.Err() == nil {
		args := append([]string{"XREAD", "COUNT", strconv.Itoa(readCount), "STREAMS"}, keys...)
		begin := time.Now()
		if _, err := c.nc.Write(appendCommand(nil, append(args, ids...)...)); err != nil {
			return err
		}
		records, err := c.entries(func(key, id string) { ids[place[key]] = id })
		if err != nil || records == 0 {
			return err
		}
		l.add(records, records*int64(w.RecordBytes), time.Since(begin))
	}
	return nil
}

// entries reads the answer to an XREAD: for each stream its key, and its entries as pairs of an id and a list of a field and its value. It
// tells each stream's last id.
func (c *redisConn) entries(last func(key, id string)) (records int64, err error) {
	_, streams, err := c.header()
	if err != nil {
		return 0, err
	}
	for range max(streams, 0) { // -1: nothing
		if _, _, err := c.header(); err != nil {
			return 0, err
		}
		key, err := c.text()
		if err != nil {
			return 0, err
		}
		_, n, err := c.header()
		if err != nil {
			return 0, err
		}
		var id string
		for i := range n {
			if id, err = c.entry(i == n-1); err != nil {
				return 0, err
			}
		}
		last(key, id)
		records += int64(n)
	}
	return records, nil
}

// entry reads one entry, and returns its id if that is wanted.
func (c *redisConn) entry(wanted bool) (id string, err error) {
	if _, _, err := c.header(); err != nil {
		return "", err
	}
	if wanted {
		id, err = c.text()
	} else {
		err = c.skip()
	}
	if err != nil {
		return "", err
	}
	_, fields, err := c.header()
	for range fields {
		if err == nil {
			err = c.skip()
		}
	}
	return id, err
}

// text reads a string.
func (c *redisConn) text() (string, error) {
	_, n, err := c.header()
	if err != nil {
		return "", err
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(c.r, b)
	return string(b[:n]), err
}

// skip passes over a string.
func (c *redisConn) skip() error {
	_, n, err := c.header()
	if err != nil {
		return err
	}
	_, err = c.r.Discard(n + 2)
	return err
}
