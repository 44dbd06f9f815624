// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Produce, v0 to v13.
//
//   - v0 to v2 carry message sets, which are answered with UNSUPPORTED_FOR_MESSAGE_FORMAT. They are offered because librdkafka otherwise
//     takes the broker for one that knows no record batches.
//   - v3 has record batches and a transactional id, v7 zstd, v8 messages with errors, v9 is flexible, v10 names the leader with
//     NOT_LEADER_OR_FOLLOWER (KIP-951), v13 names topics by id.
//   - A record without a key is not taken by a compacted topic, and its batch with it: INVALID_RECORD, and from v8 on which records (KIP-467).
//   - With message.timestamp.type=LogAppendTime the response says when the batch was appended, in one that was sent again, when it was the first time.
//   - acks=-1 is answered when the batch is on disk, acks=1 when it is written, acks=0 never; with acks=0 an error closes the connection, as
//     in Kafka, so that the producer asks for metadata again.

// produce appends record batches. It does not wait for them: the response is finished once all are written, or stored.
func (s *Server) produce(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.ProduceRequest](r)
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = r.version
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	refusal := refuseProduce(req)
	pr := &producing{stored: make(chan struct{})}
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		out.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(in.Partitions))
		topic, code := s.producible(r.version, in)
		for j := range in.Partitions {
			p := &producePartition{s: s, topic: topic, acks: req.Acks, version: r.version, in: &in.Partitions[j], out: &out.Partitions[j]}
			p.init()
			switch {
			case refusal != nil:
				p.fail(refusal.code, refusal.msg)
			case code != codeNone:
				p.fail(code, "")
			default:
				p.append(ctx, pr)
			}
		}
	}
	r.stored = pr.stored
	r.finish = func(ctx context.Context) {
		for _, p := range pr.failed() {
			p.lose(ctx)
		}
		s.finishProduce(r, resp)
		if req.Acks == 0 && r.failed != codeNone {
			r.hangUp = fmt.Errorf("a produce with acks=0 failed with error code %d", r.failed)
		}
	}
	pr.end()
	if req.Acks == 0 {
		return nil
	}
	return resp
}

// producing counts what a produce waits for.
type producing struct {
	// stored is closed when there is nothing more to wait for.
	stored chan struct{}

	mu   sync.Mutex
	left int
	// begun says that all partitions have been begun.
	begun bool
	lost  []*producePartition
}

// begin counts a partition that is appended to.
func (pr *producing) begin() {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.left++
}

// done counts a partition that was appended to, or that could not be where its err is set.
func (pr *producing) done(p *producePartition) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.left--
	if p.err != nil {
		pr.lost = append(pr.lost, p)
	}
	pr.closeIfDone()
}

// end says that no more partitions are begun.
func (pr *producing) end() {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.begun = true
	pr.closeIfDone()
}

// closeIfDone tells who waits; mu is held.
func (pr *producing) closeIfDone() {
	if pr.begun && pr.left == 0 {
		close(pr.stored)
	}
}

// failed returns the partitions that could not be appended to.
func (pr *producing) failed() []*producePartition {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	return pr.lost
}

// refuseProduce says what is wrong with a request as a whole.
func refuseProduce(req *kmsg.ProduceRequest) *batchError {
	switch {
	case req.Acks < -1 || req.Acks > 1:
		return &batchError{codeInvalidRequiredAcks, fmt.Sprintf("acks must be -1 (all), 0 or 1, not %d", req.Acks)}
	case req.TransactionID != nil:
		return &batchError{codeTransactionalIDDenied, "there are no transactions; remove transactional.id from the producer"}
	}
	return nil
}

// producible returns the topic that is produced to, or a code that holds for all its partitions.
func (s *Server) producible(version int16, t *kmsg.ProduceRequestTopic) (*metadata.Topic, int16) {
	var topic *metadata.Topic
	unknown := codeUnknownTopicOrPartition
	if version >= 13 {
		topic, unknown = s.topicByID(t.TopicID), codeUnknownTopicID
	} else {
		topic = s.topic(t.Topic)
	}
	switch {
	case t.Topic == topicConsumerOffsets, topic != nil && topic.Internal:
		return nil, codeInvalidTopic // the brokers' own; what a client writes there is not to be trusted
	case topic == nil:
		return nil, unknown
	}
	return topic, codeNone
}

// finishProduce notes errors, and tells who leads the partitions that this broker does not.
func (s *Server) finishProduce(r *request, resp *kmsg.ProduceResponse) {
	snap := s.snapshot()
	leaders := make(map[int32]bool)
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			r.code(p.ErrorCode)
			if p.CurrentLeader.LeaderID >= 0 {
				leaders[p.CurrentLeader.LeaderID] = true
			}
		}
	}
	if len(leaders) == 0 || r.version < 10 {
		return
	}
	for _, b := range snap.Brokers {
		if leaders[b.ID] {
			node := kmsg.NewProduceResponseBroker()
			node.NodeID, node.Host, node.Port = b.ID, b.Host, b.Port
			resp.Brokers = append(resp.Brokers, node)
		}
	}
}

// producePartition is the part of a produce that goes to one partition.
type producePartition struct {
	s       *Server
	topic   *metadata.Topic
	acks    int16
	version int16
	in      *kmsg.ProduceRequestTopicPartition
	out     *kmsg.ProduceResponseTopicPartition
	// log is where the batch is appended to.
	log storage.Log
	// err is why it could not be.
	err error
}

func (p *producePartition) init() {
	p.out.Default()
	p.out.Partition = p.in.Partition
	p.out.BaseOffset, p.out.LogAppendTime, p.out.LogStartOffset = -1, -1, -1
}

func (p *producePartition) fail(code int16, msg string) {
	p.out.ErrorCode = code
	if msg != "" {
		p.out.ErrorMessage = &msg
	}
}

// append checks the partition's batch and begins to append it.
func (p *producePartition) append(ctx context.Context, pr *producing) {
	if err := checkBatch(p.in.Records, p.version); err != nil {
		var refused *batchError
		if errors.As(err, &refused) {
			p.fail(refused.code, refused.msg)
		}
		return
	}
	log, code := p.s.openLog(ctx, p.topic, p.in.Partition)
	if code != codeNone {
		p.fail(code, "")
		if code == codeNotLeaderOrFollower {
			p.out.CurrentLeader.LeaderID, p.out.CurrentLeader.LeaderEpoch = p.s.leaderOf(p.topic, p.in.Partition)
		}
		return
	}
	durability := storage.Written
	if p.acks == -1 {
		durability = storage.Synced
	}
	p.log = log
	pr.begin()
	log.AppendThen(p.in.Records, durability, func(base int64, err error) {
		if p.err = err; err == nil {
			p.out.BaseOffset, p.out.LogAppendTime, p.out.LogStartOffset = base, appendTime(p.in.Records), log.StartOffset()
		}
		pr.done(p)
	})
}

// lose tells of a batch that could not be appended, and lets the log be opened anew where it has to be.
func (p *producePartition) lose(ctx context.Context) {
	p.failAppend(p.err)
	if p.s.lost(p.topic, p.in.Partition, p.err) {
		p.s.reopen(ctx, p.topic, p.in.Partition, p.log)
	}
}

// failAppend translates an error of the log. What is wrong with the disk is for the operator to know, too.
func (p *producePartition) failAppend(err error) {
	code := p.s.logCode(p.topic, p.in.Partition, err)
	if code == codeKafkaStorageError {
		p.s.logs.report(storage.Partition{Topic: p.topic.Name, Partition: p.in.Partition}, "cannot append to a partition", err)
		msg := "the broker cannot write to its storage; its log says why"
		if errors.Is(err, storage.ErrFull) {
			msg = "the broker's disk is full"
		}
		p.fail(code, msg)
		return
	}
	var bad *storage.RecordError
	if errors.As(err, &bad) {
		p.refuse(bad)
		return
	}
	p.fail(code, err.Error())
}

// refuse names the records that a topic does not take (KIP-467). Clients show the message of each, and this one where they do not know of those.
func (p *producePartition) refuse(bad *storage.RecordError) {
	p.fail(codeInvalidRecord, bad.Error())
	for _, i := range bad.Records {
		record := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		record.RelativeOffset, record.ErrorMessage = i, optional("the record "+bad.Reason)
		p.out.ErrorRecords = append(p.out.ErrorRecords, record)
	}
}

// leaderOf returns the leader of a partition and its epoch, -1 and -1 where there is none.
func (s *Server) leaderOf(topic *metadata.Topic, partition int32) (id, epoch int32) {
	if now := s.topic(topic.Name); now != nil && partition >= 0 && int(partition) < len(now.Leaders) && now.Leaders[partition] >= 0 {
		return now.Leaders[partition], now.LeaderEpoch(partition)
	}
	return -1, -1
}
