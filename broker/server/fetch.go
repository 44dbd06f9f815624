// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Fetch, v4 to v17.
//
//   - v4 has record batches and isolation levels, v7 sessions (KIP-227), v9 leader epochs, v12 is flexible, v13 names topics by id, v16 the
//     nodes of leaders (KIP-951), v17 is for replicas.
//   - There are no sessions: every response says session id 0, which tells clients to ask for everything each time. A session id that a client
//     sends is not one of ours: FETCH_SESSION_ID_NOT_FOUND, unless it opens or closes one with the request.
//   - There are no transactions: the last stable offset is the high watermark, and both isolation levels read the same.
//   - Records come in whole batches as they are stored; the first may begin below the offset that was asked for, and clients skip that part.

const (
	// maxFetchBytes bounds a response, as Kafka's fetch.max.bytes does; a single batch may be larger.
	maxFetchBytes = 55 << 20
	// The epochs of a request that needs no session: one that would open one, and one that wants none.
	fetchEpochInitial int32 = 0
	fetchEpochFinal   int32 = -1
)

// fetch reads records, and waits for them where there are fewer than the client wants.
func (s *Server) fetch(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.FetchRequest](r)
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = r.version
	if req.SessionID != 0 && req.SessionEpoch != fetchEpochInitial && req.SessionEpoch != fetchEpochFinal {
		resp.ErrorCode = r.code(codeFetchSessionIDNotFound)
		return resp
	}
	f := newFetcher(s, req, resp)
	f.held = &r.fetched
	f.run(ctx)
	for _, p := range f.partitions {
		p.finish(req.IsolationLevel)
		r.code(p.out.ErrorCode)
	}
	f.addNodes()
	return resp
}

// fetcher is one fetch.
type fetcher struct {
	s          *Server
	resp       *kmsg.FetchResponse
	partitions []*fetchPartition
	minBytes   int
	maxBytes   int
	maxWait    time.Duration
	// bytes is how much has been read.
	bytes int
	// held is where the request notes how much of the server's memory for records it has taken.
	held *int64
	// failed says that a partition has an error, which the client is to hear of at once.
	failed bool
	// full says that there is more to read than the limits let through.
	full bool
}

// fetchPartition is the part of a fetch that reads one partition.
type fetchPartition struct {
	in    *kmsg.FetchRequestTopicPartition
	out   *kmsg.FetchResponseTopicPartition
	topic *metadata.Topic
	log   storage.Log
	// next is the offset to read from.
	next int64
}

func newFetcher(s *Server, req *kmsg.FetchRequest, resp *kmsg.FetchResponse) *fetcher {
	f := &fetcher{
		s: s, resp: resp, minBytes: int(req.MinBytes), maxBytes: min(max(int(req.MaxBytes), 0), maxFetchBytes),
		maxWait: time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond,
	}
	resp.Topics = make([]kmsg.FetchResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		out.Partitions = make([]kmsg.FetchResponseTopicPartition, len(in.Partitions))
		topic, unknown := s.topic(in.Topic), codeUnknownTopicOrPartition
		if req.Version >= 13 {
			topic, unknown = s.topicByID(in.TopicID), codeUnknownTopicID
		}
		for j := range in.Partitions {
			p := &fetchPartition{in: &in.Partitions[j], out: &out.Partitions[j], topic: topic, next: in.Partitions[j].FetchOffset}
			p.out.Default()
			p.out.Partition = p.in.Partition
			p.out.HighWatermark, p.out.LastStableOffset, p.out.LogStartOffset = -1, -1, -1
			if topic == nil {
				f.fail(p, unknown)
			}
			f.partitions = append(f.partitions, p)
		}
	}
	return f
}

func (f *fetcher) fail(p *fetchPartition, code int16) {
	p.out.ErrorCode = code
	f.failed = true
}

// run opens the logs, reads, and waits until there is enough, the time is over, ctx ends, or something changes that the client must know.
func (f *fetcher) run(ctx context.Context) {
	f.open(ctx)
	f.read(ctx)
	if f.done() || f.maxWait == 0 {
		return
	}
	timer := time.NewTimer(f.maxWait)
	defer timer.Stop()
	grown := make(chan struct{}, 1)
	for _, p := range f.partitions {
		if p.log != nil {
			defer p.log.Subscribe(grown)() //nolint:gocritic // every subscription lasts until the end of the wait
		}
	}
	for {
		changed := f.s.snapshotChanged()
		f.read(ctx)
		if f.done() {
			return
		}
		select {
		case <-grown:
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *fetcher) done() bool {
	return f.failed || f.full || f.bytes >= f.minBytes || len(f.partitions) == 0
}

// open opens the logs of the partitions.
func (f *fetcher) open(ctx context.Context) {
	for _, p := range f.partitions {
		if p.out.ErrorCode != codeNone {
			continue
		}
		log, code := f.s.openLog(ctx, p.topic, p.in.Partition)
		if code == codeNone {
			code = checkLeaderEpoch(p.in.CurrentLeaderEpoch)
		}
		if code != codeNone {
			f.fail(p, code)
			continue
		}
		p.log = log
	}
}

// checkLeaderEpoch compares the leader epoch that a client knows with ours (KIP-320); -1 is a client that knows none.
func checkLeaderEpoch(epoch int32) int16 {
	switch {
	case epoch < 0 || epoch == leaderEpoch:
		return codeNone
	case epoch < leaderEpoch:
		return codeFencedLeaderEpoch
	default:
		return codeUnknownLeaderEpoch
	}
}

// read reads what there is from every partition, within the limits.
func (f *fetcher) read(ctx context.Context) {
	for _, p := range f.partitions {
		if p.log == nil || p.out.ErrorCode != codeNone {
			continue
		}
		if code := f.s.leads(p.topic, p.in.Partition); code != codeNone {
			f.fail(p, code)
			continue
		}
		if p.next == p.log.HighWatermark() {
			continue
		}
		limit := min(int(p.in.PartitionMaxBytes)-len(p.out.RecordBatches), f.maxBytes-f.bytes)
		if limit <= 0 && f.bytes > 0 {
			f.full = true
			continue
		}
		f.readPartition(ctx, p, max(limit, 0))
	}
}

// readPartition reads at most limit bytes of a partition, but at least a batch, as far as the server's memory for records goes.
func (f *fetcher) readPartition(ctx context.Context, p *fetchPartition, limit int) {
	granted := int(f.s.fetched.takeUpTo(int64(min(limit, maxFetchRead))))
	if granted == 0 && limit > 0 && f.bytes > 0 {
		f.full = true
		return
	}
	// What has begun is finished when the server stops.
	read, err := p.log.Read(context.WithoutCancel(ctx), p.next, granted)
	defer read.Close()
	var batches []byte
	if err == nil {
		batches, err = read.Bytes()
	}
	before := f.bytes
	if err == nil {
		f.take(p, batches, granted)
	} else {
		f.failRead(p, err)
	}
	took := f.bytes - before
	*f.held += int64(took)
	f.s.fetched.give(int64(granted - took))
	if granted < limit && took > 0 && p.next < p.log.HighWatermark() {
		f.full = true // there is more than may be read now: the client asks again
	}
}

// take adds batches to the response. A batch that alone is over the limit is let through as the first of the response, so that a client
// with small limits does not stand still (KIP-74).
func (f *fetcher) take(p *fetchPartition, batches []byte, limit int) {
	if len(batches) == 0 {
		return
	}
	if len(batches) > limit && f.bytes > 0 {
		f.full = true
		return
	}
	next, err := nextOffset(batches)
	if err != nil {
		f.failRead(p, err)
		return
	}
	p.next = next
	f.bytes += len(batches)
	if p.out.RecordBatches == nil {
		p.out.RecordBatches = batches
		return
	}
	p.out.RecordBatches = append(p.out.RecordBatches, batches...)
}

// failRead translates an error of the log. What was read before it is kept: the client meets the error with its next fetch.
func (f *fetcher) failRead(p *fetchPartition, err error) {
	if len(p.out.RecordBatches) > 0 {
		f.full = true
		return
	}
	code := f.s.logCode(p.topic, p.in.Partition, err)
	if code == codeKafkaStorageError {
		f.s.logs.report(storage.Partition{Topic: p.topic.Name, Partition: p.in.Partition}, "cannot read a partition", err)
		if errors.Is(err, storage.ErrDamaged) || errors.Is(err, errBadBatches) {
			code = codeCorruptMessage // clients report it; a storage error they would try again silently and for ever
		}
	}
	f.fail(p, code)
}

// finish fills in what a response says of a partition besides its records.
func (p *fetchPartition) finish(isolation int8) {
	if isolation == 1 {
		p.out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	if p.out.RecordBatches == nil {
		p.out.RecordBatches = []byte{} // some clients cannot read null
	}
	if p.log == nil || p.out.ErrorCode != codeNone && p.out.ErrorCode != codeOffsetOutOfRange {
		return
	}
	hw := p.log.HighWatermark()
	p.out.HighWatermark, p.out.LastStableOffset, p.out.LogStartOffset = hw, hw, p.log.StartOffset()
}

// addNodes tells who leads the partitions that this broker does not (v12 and v16).
func (f *fetcher) addNodes() {
	if f.resp.Version < 12 || !f.failed {
		return
	}
	leaders := make(map[int32]bool)
	for _, p := range f.partitions {
		if p.out.ErrorCode == codeNotLeaderOrFollower {
			id, epoch := f.s.leaderOf(p.topic, p.in.Partition)
			p.out.CurrentLeader.LeaderID, p.out.CurrentLeader.LeaderEpoch = id, epoch
			leaders[id] = true
		}
	}
	if f.resp.Version < 16 || len(leaders) == 0 {
		return
	}
	for _, b := range f.s.snapshot().Brokers {
		if leaders[b.ID] {
			node := kmsg.NewFetchResponseBroker()
			node.NodeID, node.Host, node.Port = b.ID, b.Host, b.Port
			f.resp.Brokers = append(f.resp.Brokers, node)
		}
	}
}
