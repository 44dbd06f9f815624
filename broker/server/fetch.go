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

// Fetch, v4 to v18.
//
//   - v4 has record batches and isolation levels, v7 sessions (KIP-227, fetch_sessions.go), v9 leader epochs, v12 is flexible, v13 names topics
//     by id, v16 the nodes of leaders (KIP-951), v17 and v18 are for replicas.
//   - There are no transactions: the last stable offset is the high watermark, and both isolation levels read the same.
//   - Records come in whole batches as they are stored; the first may begin below the offset that was asked for, and clients skip that part.
//   - Large reads go from their files to the socket (fetch_response.go).

// maxFetchBytes bounds a response, as Kafka's fetch.max.bytes does; a single batch may be larger.
const maxFetchBytes = 55 << 20

// fetch reads records, and waits for them where there are fewer than the client wants.
func (s *Server) fetch(ctx context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.FetchRequest](r)
	resp := newFetchResponse(r.version)
	session, targets, code := s.sessions.begin(req)
	if code != codeNone {
		resp.ErrorCode = r.code(code)
		return resp
	}
	r.done = resp.close
	f := newFetcher(s, req, targets)
	f.held = &r.fetched
	defer func() { s.sessions.end(session, f.served) }()
	defer func() { // a panic must not leave files in use
		if !f.finished {
			f.close()
		}
	}()
	f.run(ctx)
	// What began as an incremental fetch and lost its session is told all that there is.
	incremental := session != nil && req.SessionEpoch != fetchEpochInitial
	if session != nil {
		resp.SessionID = session.id
	}
	f.answer(resp, incremental, req.IsolationLevel)
	for _, p := range f.partitions {
		r.code(p.out.ErrorCode)
	}
	return resp
}

// fetcher is one fetch.
type fetcher struct {
	s          *Server
	version    int16
	partitions []*fetchPartition
	minBytes   int
	maxBytes   int
	maxWait    time.Duration
	// snap is the snapshot that says that this broker leads the partitions.
	snap *metadata.Snapshot
	// bytes is how much has been read.
	bytes int
	// held is where the request notes how much of the server's memory for records it has taken.
	held *int64
	// failed says that a partition has an error, which the client is to hear of at once.
	failed bool
	// full says that there is more to read than the limits let through.
	full bool
	// served are the partitions that records are sent of.
	served map[*fetchTarget]bool
	// finished says that the records belong to the response.
	finished bool
}

// fetchPartition is the part of a fetch that reads one partition.
type fetchPartition struct {
	*fetchTarget
	topic *metadata.Topic
	log   storage.Log
	// next is the offset to read from.
	next int64
	// records are what was read, in order, and size their bytes.
	records []storage.Batches
	size    int
	out     kmsg.FetchResponseTopicPartition
}

func newFetcher(s *Server, req *kmsg.FetchRequest, targets []*fetchTarget) *fetcher {
	f := &fetcher{
		s: s, version: req.Version, minBytes: int(req.MinBytes), maxBytes: min(max(int(req.MaxBytes), 0), maxFetchBytes),
		maxWait: time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond, snap: s.snapshot(),
	}
	all := make([]fetchPartition, len(targets))
	f.partitions = make([]*fetchPartition, len(targets))
	for i, t := range targets {
		p := &all[i]
		f.partitions[i] = p
		p.fetchTarget, p.next = t, t.offset
		p.out.Default()
		p.out.Partition = t.partition
		p.out.HighWatermark, p.out.LastStableOffset, p.out.LogStartOffset = -1, -1, -1
		unknown := codeUnknownTopicOrPartition
		if req.Version >= 13 {
			p.topic, unknown = s.topicByID(t.id), codeUnknownTopicID
		} else {
			p.topic = s.topic(t.topic)
		}
		if p.topic == nil {
			f.fail(p, unknown)
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
		log, code := f.s.openLog(ctx, p.topic, p.partition)
		if code == codeNone {
			code = checkLeaderEpoch(p.leaderEpoch, p.topic.LeaderEpoch(p.partition))
		}
		if code != codeNone {
			f.fail(p, code)
			continue
		}
		p.log = log
	}
}

// checkLeaderEpoch compares the leader epoch that a client knows with ours (KIP-320); -1 is a client that knows none.
func checkLeaderEpoch(epoch, ours int32) int16 {
	switch {
	case epoch < 0 || epoch == ours:
		return codeNone
	case epoch < ours:
		return codeFencedLeaderEpoch
	default:
		return codeUnknownLeaderEpoch
	}
}

// read reads what there is from every partition, within the limits.
func (f *fetcher) read(ctx context.Context) {
	snap := f.s.snapshot()
	for _, p := range f.partitions {
		if p.log == nil || p.out.ErrorCode != codeNone {
			continue
		}
		if snap != f.snap {
			if code := f.s.leads(p.topic, p.partition); code != codeNone {
				f.fail(p, code)
				continue
			}
		}
		if p.next == p.log.HighWatermark() {
			continue
		}
		limit := min(p.maxBytes-p.size, f.maxBytes-f.bytes)
		if limit <= 0 && f.bytes > 0 {
			f.full = true
			continue
		}
		f.readPartition(ctx, p, max(limit, 0))
	}
	f.snap = snap
}

// readPartition reads at most limit bytes of a partition, but at least a batch, as far as the server's memory for records goes.
func (f *fetcher) readPartition(ctx context.Context, p *fetchPartition, limit int) {
	granted := int(f.s.fetched.takeUpTo(int64(min(limit, maxFetchRead))))
	if granted == 0 && limit > 0 && f.bytes > 0 {
		f.full = true
		return
	}
	// What has begun is finished when the server stops.
	batches, err := p.log.Read(context.WithoutCancel(ctx), p.next, granted)
	took := 0
	switch {
	case err != nil:
		f.failRead(p, err)
	case batches.Len() == 0:
	case batches.Len() > granted && f.bytes > 0:
		// A batch that alone is over the limit is let through as the first of the response, so that a client with small limits does not stand
		// still (KIP-74).
		f.full = true
		batches.Close()
	default:
		took = batches.Len()
		f.take(p, batches)
	}
	kept := 0
	if took > 0 && batches.InMemory() {
		kept = took
	}
	*f.held += int64(kept)
	f.s.fetched.give(int64(granted - kept))
	if granted < limit && took > 0 && p.next < p.log.HighWatermark() {
		f.full = true // there is more than may be read now: the client asks again
	}
}

// take adds batches to what is sent.
func (f *fetcher) take(p *fetchPartition, batches storage.Batches) {
	p.records = append(p.records, batches)
	p.size += batches.Len()
	p.next = batches.Next
	f.bytes += batches.Len()
}

// failRead translates an error of the log. What was read before it is kept: the client meets the error with its next fetch.
func (f *fetcher) failRead(p *fetchPartition, err error) {
	if p.size > 0 {
		f.full = true
		return
	}
	code := f.s.logCode(p.topic, p.partition, err)
	if code == codeKafkaStorageError {
		f.s.logs.report(storage.Partition{Topic: p.topic.Name, Partition: p.partition}, "cannot read a partition", err)
		if errors.Is(err, storage.ErrDamaged) {
			code = codeCorruptMessage // clients report it; a storage error they would try again silently and for ever
		}
	}
	f.fail(p, code)
}

// close gives up what was read.
func (f *fetcher) close() {
	for _, p := range f.partitions {
		closeBatches(p.records)
	}
}

func closeBatches(records []storage.Batches) {
	for i := range records {
		records[i].Close()
	}
}

// answer moves what was read into the response: all partitions, or of an incremental fetch those that the client has not heard the same of.
func (f *fetcher) answer(resp *fetchResponse, incremental bool, isolation int8) {
	f.finished = true
	f.served = make(map[*fetchTarget]bool)
	leaders := make(map[int32]bool)
	for _, p := range f.partitions {
		p.finish(isolation)
		if p.out.ErrorCode == codeNotLeaderOrFollower && f.version >= 12 {
			p.out.CurrentLeader.LeaderID, p.out.CurrentLeader.LeaderEpoch = f.s.leaderOf(p.topic, p.partition)
			leaders[p.out.CurrentLeader.LeaderID] = true
		}
		if p.size > 0 {
			f.served[p.fetchTarget] = true
		}
		if p.news() || !incremental {
			resp.add(p)
		}
	}
	if len(leaders) > 0 && f.version >= 16 {
		resp.addNodes(f.s.snapshot(), leaders)
	}
}

// finish fills in what a response says of a partition besides its records.
func (p *fetchPartition) finish(isolation int8) {
	if isolation == 1 {
		p.out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	if p.log == nil || p.out.ErrorCode != codeNone && p.out.ErrorCode != codeOffsetOutOfRange {
		return
	}
	hw := p.log.HighWatermark()
	p.out.HighWatermark, p.out.LastStableOffset, p.out.LogStartOffset = hw, hw, p.log.StartOffset()
}

// news says whether there is something to tell of a partition, and notes that it is told.
func (p *fetchPartition) news() bool {
	out := &p.out
	same := p.told && p.size == 0 && out.ErrorCode == codeNone && p.highWatermark == out.HighWatermark && p.start == out.LogStartOffset
	p.told, p.highWatermark, p.start = out.ErrorCode == codeNone, out.HighWatermark, out.LogStartOffset
	return !same
}
