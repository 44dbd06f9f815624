// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions of requests that are used; every broker measured here offers them. They name topics, not topic ids, so that a request can be
// encoded before its topic is made.
const (
	versionProduce         = 9
	versionFetch           = 12
	versionListOffsets     = 5
	versionOffsetCommit    = 7
	versionCreateTopics    = 5
	versionDeleteTopics    = 4
	versionInitProducer    = 2
	versionAPIVersions     = 0
	versionFindCoordinator = 1
	versionMetadata        = 12
	versionJoinGroup       = 9
	versionSyncGroup       = 5
	versionHeartbeat       = 4
	versionLeaveGroup      = 5

	versionConsumerGroupHeartbeat = 1
)

const (
	// largestResponse is more than any answer that is asked for here.
	largestResponse = 256 << 20
	dialTimeout     = 30 * time.Second
)

// kafkaConn is a connection to a broker, without any of what a client library does besides: the load must cost little, since it shares two
// cores with what it measures.
type kafkaConn struct {
	nc          net.Conn
	r           *bufio.Reader
	encoder     *kmsg.RequestFormatter
	correlation int32
	out         []byte
	in          []byte
}

// dialKafka connects.
func dialKafka(ctx context.Context, address string) (*kafkaConn, error) {
	nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &kafkaConn{nc: nc, r: bufio.NewReaderSize(nc, 64<<10), encoder: kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))}, nil
}

func (c *kafkaConn) close() { _ = c.nc.Close() }

// fetchBuffers are kept for ever: memory that is used for the first time costs more than what it then receives, and the first peer would pay.
var fetchBuffers = make(chan []byte, 64)

// borrow gives the connection room for large responses.
func (c *kafkaConn) borrow() {
	select {
	case c.in = <-fetchBuffers:
	default:
		c.in = make([]byte, fetchBytes+fetchBytes/4)
		for i := 0; i < len(c.in); i += 4 << 10 {
			c.in[i] = 1
		}
	}
}

// giveBack undoes borrow; the connection is used no more.
func (c *kafkaConn) giveBack() {
	select {
	case fetchBuffers <- c.in:
	default:
	}
}

// closeWith closes the connection when ctx ends, so that what reads from it returns; the function undoes that.
func (c *kafkaConn) closeWith(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, c.close)
}

// send writes a request.
func (c *kafkaConn) send(req kmsg.Request) error {
	c.correlation++
	c.out = c.encoder.AppendRequest(c.out[:0], req, c.correlation)
	_, err := c.nc.Write(c.out)
	return err
}

// receive reads the next response's body, which is good until the next call.
func (c *kafkaConn) receive(flexible bool) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head[:]))) - 4
	if size < 0 || size > largestResponse {
		return nil, fmt.Errorf("a response of %d bytes", size)
	}
	if cap(c.in) < size {
		c.in = make([]byte, size+size/4)
	}
	body := c.in[:size]
	if _, err := io.ReadFull(c.r, body); err != nil {
		return nil, err
	}
	if flexible {
		if size == 0 || body[0] != 0 {
			return nil, errors.New("a response's header has tags")
		}
		body = body[1:]
	}
	return body, nil
}

// ask sends a request and waits for its response.
func (c *kafkaConn) ask(req kmsg.Request, version int16) (kmsg.Response, error) {
	req.SetVersion(version)
	if err := c.send(req); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	body, err := c.receive(resp.IsFlexible() && resp.Key() != 18)
	if err != nil {
		return nil, err
	}
	return resp, resp.ReadFrom(body)
}

// askKafka says whether a broker answers ApiVersions.
func askKafka(ctx context.Context, address string) error {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return err
	}
	defer c.close()
	defer c.closeWith(ctx)()
	_, err = c.ask(kmsg.NewPtrApiVersionsRequest(), versionAPIVersions)
	return err
}

// createTopic makes a topic and waits until all its partitions have a leader that answers.
func createTopic(ctx context.Context, address, topic string, partitions int, configs map[string]string) error {
	if err := makeTopic(ctx, address, topic, partitions, configs); err != nil {
		return err
	}
	c, err := dialKafka(ctx, address)
	if err != nil {
		return err
	}
	defer c.close()
	defer c.closeWith(ctx)()
	for {
		_, err := endOffsets(c, topic, partitions)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s has no leaders: %w", topic, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// makeTopic makes a topic, and waits for no more than the answer.
func makeTopic(ctx context.Context, address, topic string, partitions int, configs map[string]string) error {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return err
	}
	defer c.close()
	defer c.closeWith(ctx)()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, int32(partitions), 1
	for _, name := range sortedKeys(configs) {
		entry, value := kmsg.NewCreateTopicsRequestTopicConfig(), configs[name]
		entry.Name, entry.Value = name, &value
		t.Configs = append(t.Configs, entry)
	}
	req.Topics = append(req.Topics, t)
	resp, err := as[*kmsg.CreateTopicsResponse](c.ask(req, versionCreateTopics))
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("create topic %s: %w: %s", topic, err, deref(t.ErrorMessage))
		}
	}
	return nil
}

// endOffsets asks for the offset after the last record of each partition.
func endOffsets(c *kafkaConn, topic string, partitions int) ([]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for i := range partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = int32(i), -1, -1
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := as[*kmsg.ListOffsetsResponse](c.ask(req, versionListOffsets))
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	ends := make([]int64, partitions)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("list offsets of %s/%d: %w", topic, p.Partition, err)
			}
			ends[p.Partition] = p.Offset
		}
	}
	return ends, nil
}

// deleteTopic deletes a topic.
func deleteTopic(ctx context.Context, address, topic string) error {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return err
	}
	defer c.close()
	defer c.closeWith(ctx)()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	req.TopicNames = []string{topic}
	resp, err := as[*kmsg.DeleteTopicsResponse](c.ask(req, versionDeleteTopics))
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("delete topic %s: %w", topic, err)
		}
	}
	return nil
}

// as gives a response its type.
func as[T kmsg.Response](resp kmsg.Response, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	typed, ok := resp.(T)
	if !ok {
		return typed, fmt.Errorf("the answer is a %T", resp)
	}
	return typed, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
