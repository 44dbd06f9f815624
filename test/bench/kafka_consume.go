// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// What a fetch asks for.
const (
	fetchWait           = 500 * time.Millisecond
	fetchPartitionBytes = 1 << 20
	fetchBytes          = 10 << 20
	commitInterval      = time.Second
)

// reading is how a topic is read.
type reading struct {
	// from is where to begin: 0, or -1 for the end.
	from int64
	// again begins anew when the end is reached; else the work is done then. Neither holds for one that begins at the end.
	again bool
	// group has offsets committed for it, once a second.
	group string
}

// fetcher reads some of a topic's partitions over one connection, one request at a time, as clients do.
type fetcher struct {
	w    *work
	c    *kafkaConn
	lane *lane
	how  reading
	req  *kmsg.FetchRequest
	// done marks the partitions that were read to their end.
	done map[int32]bool
	// place is where a partition is in the request.
	place map[int32]int
}

// kafkaConsume reads all partitions with w.Consumers connections.
func kafkaConsume(ctx context.Context, address, topic string, w *work, how reading, m *meter) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range min(w.Consumers, w.Partitions) {
		lane := m.lane()
		lane.reader = how.from < 0
		g.Go(func() error {
			f, err := newFetcher(ctx, address, topic, w, i, how)
			if err != nil {
				return err
			}
			f.lane = lane
			f.c.borrow()
			defer f.c.giveBack()
			defer f.c.close()
			defer f.c.closeWith(ctx)()
			return unlessOver(ctx, f.run(ctx))
		})
	}
	return g.Wait()
}

func newFetcher(ctx context.Context, address, topic string, w *work, index int, how reading) (*fetcher, error) {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return nil, err
	}
	f := &fetcher{w: w, c: c, how: how, done: make(map[int32]bool), place: make(map[int32]int)}
	if how.group != "" {
		if err := findCoordinator(ctx, c, how.group); err != nil {
			c.close()
			return nil, err
		}
	}
	begin := make([]int64, w.Partitions)
	if how.from < 0 {
		if begin, err = endOffsets(c, topic, w.Partitions); err != nil {
			c.close()
			return nil, err
		}
	}
	f.req = kmsg.NewPtrFetchRequest()
	f.req.Version = versionFetch
	f.req.MaxWaitMillis, f.req.MinBytes, f.req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchBytes
	f.req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for i := index; i < w.Partitions; i += min(w.Consumers, w.Partitions) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = int32(i), begin[i], fetchPartitionBytes, -1
		f.place[p.Partition] = len(t.Partitions)
		t.Partitions = append(t.Partitions, p)
	}
	f.req.Topics = append(f.req.Topics, t)
	return f, nil
}

// findCoordinator asks for a group's coordinator until there is one: a broker makes the topic of the offsets when it is first asked.
func findCoordinator(ctx context.Context, c *kafkaConn, group string) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = group
		resp, err := as[*kmsg.FindCoordinatorResponse](c.ask(req, versionFindCoordinator))
		if err != nil {
			return fmt.Errorf("find the coordinator of %s: %w", group, err)
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if err == nil {
			return nil
		}
		if !kerr.IsRetriable(err) || !sleepUntil(ctx, time.Now().Add(50*time.Millisecond)) {
			return fmt.Errorf("find the coordinator of %s: %w", group, err)
		}
	}
}

// run fetches until ctx ends, or all is read.
func (f *fetcher) run(ctx context.Context) error {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = versionFetch
	committed := time.Now()
	for ctx.Err() == nil {
		begin := time.Now()
		if err := f.c.send(f.req); err != nil {
			return fmt.Errorf("send a fetch request: %w", err)
		}
		body, err := f.c.receive(true)
		if err != nil {
			return fmt.Errorf("receive the answer to a fetch request: %w", err)
		}
		if err := resp.ReadFrom(body); err != nil {
			return fmt.Errorf("read the answer to a fetch request: %w", err)
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		records, err := f.take(resp)
		if err != nil {
			return err
		}
		f.lane.add(records, records*int64(f.w.RecordBytes), time.Since(begin))
		if f.how.from == 0 && len(f.done) == len(f.asked()) {
			if !f.how.again {
				return nil
			}
			f.rewind()
		}
		if f.how.group != "" && time.Since(committed) >= commitInterval {
			committed = time.Now()
			if err := f.commit(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fetcher) asked() []kmsg.FetchRequestTopicPartition { return f.req.Topics[0].Partitions }

// rewind begins anew.
func (f *fetcher) rewind() {
	clear(f.done)
	for i := range f.asked() {
		f.asked()[i].FetchOffset = 0
	}
}

// take counts an answer's records and moves on. Only the headers of batches are looked at.
func (f *fetcher) take(resp *kmsg.FetchResponse) (int64, error) {
	var all int64
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, fmt.Errorf("fetch %s/%d: %w", resp.Topics[i].Topic, p.Partition, err)
			}
			at := &f.asked()[f.place[p.Partition]]
			records, next := walk(p.RecordBatches)
			all += records
			if next >= 0 {
				at.FetchOffset = next
			}
			if at.FetchOffset >= p.HighWatermark {
				f.done[p.Partition] = true
			}
		}
	}
	return all, nil
}

// commit commits what was read, as a consumer that assigned itself its partitions does.
func (f *fetcher) commit() error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = f.how.group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = f.req.Topics[0].Topic
	for i := range f.asked() {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = f.asked()[i].Partition, f.asked()[i].FetchOffset, -1
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := as[*kmsg.OffsetCommitResponse](f.c.ask(req, versionOffsetCommit))
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !kerr.IsRetriable(err) { // the next commit says more
				return fmt.Errorf("commit %s/%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}
