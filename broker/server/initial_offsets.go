// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

const (
	// initialEarliest is metadata.Group.InitialOffset's word for the oldest record; the other one is for the end of the log.
	initialEarliest = "Earliest"
	// timestampEarliest and timestampLatest are ListOffsets' numbers for the two ends of a log.
	timestampEarliest = -2
	timestampLatest   = -1
	// peerTimeout is how long another broker has to say where its logs begin or end.
	peerTimeout = 3 * time.Second
	// peerListOffsets is the version of ListOffsets that brokers ask each other with.
	peerListOffsets = 1
	// maxPeerResponse is the longest answer of another broker, in bytes: 10,000 partitions of long names fit.
	maxPeerResponse = 8 << 20
)

// fillInitialOffsets gives the partitions of a managed group that have no committed offset the one that its ConsumerGroup says to begin
// with, so that a client begins there whatever it is configured to do. Where another broker leads the partition, it is asked; where it does
// not answer, the client is told to try again, for to begin elsewhere could leave records out.
func (s *Server) fillInitialOffsets(ctx context.Context, resp *kmsg.OffsetFetchResponseGroup) {
	snap := s.snapshot()
	if snap == nil || resp.ErrorCode != codeNone {
		return
	}
	group := snap.Groups[resp.Group]
	if group == nil || group.InitialOffset == "" {
		return
	}
	missing := missingOffsets(snap, group, resp)
	for _, leader := range slices.Sorted(maps.Keys(missing)) {
		if err := s.askInitialOffsets(ctx, snap, leader, group.InitialOffset == initialEarliest, missing[leader]); err != nil {
			if ok, left := s.unasked.allow(time.Now()); ok {
				s.log.WarnContext(ctx, "cannot tell where a managed group begins to read; its clients try again", "group", group.ID, "leader", leader, "error", err, "left out", left)
			}
			setFetchCode(resp, codeCoordinatorLoading)
			return
		}
	}
}

// missingOffset is a partition without a committed offset; at is where it goes in the response.
type missingOffset struct {
	topic *metadata.Topic
	at    *kmsg.OffsetFetchResponseGroupTopicPartition
}

// missingOffsets finds the group's partitions without a committed offset, by leader.
func missingOffsets(snap *metadata.Snapshot, group *metadata.Group, resp *kmsg.OffsetFetchResponseGroup) map[int32][]missingOffset {
	missing := make(map[int32][]missingOffset)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if !slices.Contains(group.Topics, t.Topic) {
			continue
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.Offset < 0 && exists(snap, t.Topic, p.Partition) {
				topic := snap.Topics[t.Topic]
				leader := topic.Leaders[p.Partition]
				missing[leader] = append(missing[leader], missingOffset{topic: topic, at: p})
			}
		}
	}
	return missing
}

// askInitialOffsets fills in the offsets of partitions that one broker leads.
func (s *Server) askInitialOffsets(ctx context.Context, snap *metadata.Snapshot, leader int32, earliest bool, missing []missingOffset) error {
	if leader == s.cfg.NodeID {
		return s.ownInitialOffsets(ctx, earliest, missing)
	}
	i := slices.IndexFunc(snap.Brokers, func(b metadata.Broker) bool { return b.ID == leader })
	if i < 0 {
		return fmt.Errorf("broker %d is not up", leader)
	}
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	resp, err := askPeer(ctx, snap.Brokers[i], listOffsetsRequest(earliest, missing))
	if err != nil {
		return err
	}
	offsets := make(map[string]map[int32]int64)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != codeNone {
				return fmt.Errorf("broker %d answers %s-%d with error code %d", leader, t.Topic, p.Partition, p.ErrorCode)
			}
			if offsets[t.Topic] == nil {
				offsets[t.Topic] = make(map[int32]int64)
			}
			offsets[t.Topic][p.Partition] = p.Offset
		}
	}
	for _, m := range missing {
		offset, ok := offsets[m.topic.Name][m.at.Partition]
		if !ok {
			return fmt.Errorf("broker %d says nothing of %s-%d", leader, m.topic.Name, m.at.Partition)
		}
		m.at.Offset = offset
	}
	return nil
}

// ownInitialOffsets fills in the offsets of partitions that this broker leads.
func (s *Server) ownInitialOffsets(ctx context.Context, earliest bool, missing []missingOffset) error {
	for _, m := range missing {
		log, code := s.openLog(ctx, m.topic, m.at.Partition)
		if code != codeNone {
			return fmt.Errorf("open %s-%d: error code %d", m.topic.Name, m.at.Partition, code)
		}
		if m.at.Offset = log.HighWatermark(); earliest {
			m.at.Offset = log.StartOffset()
		}
	}
	return nil
}

// listOffsetsRequest asks where partitions begin or end.
func listOffsetsRequest(earliest bool, missing []missingOffset) *kmsg.ListOffsetsRequest {
	timestamp := int64(timestampLatest)
	if earliest {
		timestamp = timestampEarliest
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = peerListOffsets, -1
	for _, m := range missing { // a topic's partitions follow each other
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != m.topic.Name {
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = m.topic.Name
			req.Topics = append(req.Topics, topic)
		}
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = m.at.Partition, timestamp
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, partition)
	}
	return req
}

// askPeer sends a request to another broker, over a connection of its own: this is rare, once for a client that starts and has no offset.
func askPeer(ctx context.Context, b metadata.Broker, req *kmsg.ListOffsetsRequest) (*kmsg.ListOffsetsResponse, error) {
	address := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %d: %w", b.ID, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends what waits below
	defer func() {
		stop()
		_ = conn.Close()
	}()
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("ringmaster-broker")).AppendRequest(nil, req, 1)
	if _, err := conn.Write(frame); err != nil {
		return nil, fmt.Errorf("ask broker %d for offsets: %w", b.ID, err)
	}
	body, err := readPeerResponse(conn)
	if err != nil {
		return nil, fmt.Errorf("read the answer of broker %d: %w", b.ID, err)
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode the answer of broker %d: %w", b.ID, err)
	}
	return resp, nil
}

// readPeerResponse reads a response with the old header, and returns its body.
func readPeerResponse(r io.Reader) ([]byte, error) {
	var header [8]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size < 4 || size > maxPeerResponse {
		return nil, errors.New("the answer's length is " + strconv.FormatUint(uint64(size), 10))
	}
	body := make([]byte, size-4)
	_, err := io.ReadFull(r, body)
	return body, err
}
