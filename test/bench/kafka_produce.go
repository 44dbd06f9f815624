// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// frameCorrelationAt is where a request's correlation id lies: after its size, key and version.
const frameCorrelationAt = 8

// placedBatch is where a record batch lies in a frame.
type placedBatch struct {
	at, end   int
	partition int
	records   int32
	sum       checksum
}

// frame is a Produce request, encoded once; what changes from one send to the next is written over.
type frame struct {
	request
	batches []placedBatch
}

// makeFrames returns requests that together name every partition of a topic.
func makeFrames(w *work, topic string, seed uint64) []frame {
	v := newValues(seed, w.RecordBytes)
	now := time.Now().UnixMilli()
	spread := newSpread(w)
	frames := make([]frame, spread.count)
	for i := range frames {
		first, end := spread.of(i)
		frames[i] = makeFrame(w, topic, v, now, first, end)
	}
	return frames
}

// makeFrame returns a request with one batch for each of the partitions first to end-1.
func makeFrame(w *work, topic string, v *values, timestamp int64, first, end int) frame {
	req := kmsg.NewPtrProduceRequest()
	req.Version = versionProduce
	req.Acks, req.TimeoutMillis = w.Acks, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	counts := make([]int, 0, end-first)
	for partition := first; partition < end; partition++ {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition = int32(partition)
		var count int
		p.Records, count = recordBatch(v, w.BatchBytes, timestamp)
		counts = append(counts, count)
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	f := frame{}
	f.b = kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 0)
	from := 0
	for i, p := range t.Partitions {
		at := from + bytes.Index(f.b[from:], p.Records[:batchHeader])
		from = at + len(p.Records)
		f.batches = append(f.batches, placedBatch{at: at, end: from, partition: int(p.Partition), records: int32(counts[i]), sum: newChecksum(p.Records)})
		f.records += int64(counts[i])
	}
	f.bytes = f.records * int64(w.RecordBytes)
	return f
}

// producer sends over one connection.
type producer struct {
	w      *work
	c      *kafkaConn
	lane   *lane
	frames []frame
	// id and epoch are what InitProducerId gave; -1 for a producer that is not idempotent.
	id    int64
	epoch int16
	// sequence is the next one of each partition.
	sequence []int32
	// answer is reused.
	answer *kmsg.ProduceResponse
}

// kafkaProduce sends with w.Producers connections until ctx ends or limit bytes were sent (0 for no limit).
func kafkaProduce(ctx context.Context, address, topic string, w *work, m *meter, limit int64) error {
	budget := newBudget(limit)
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range w.Producers {
		lane := m.lane()
		g.Go(func() error {
			p, err := newProducer(ctx, address, topic, w, uint64(i+1))
			if err != nil {
				return err
			}
			p.lane = lane
			pipe := &pipeline{nc: p.c.nc, inFlight: w.InFlight, budget: budget, interval: p.interval()}
			// The producers of an open loop take turns.
			pipe.begin = begin.Add(time.Duration(i) * pipe.interval / time.Duration(w.Producers))
			return pipe.run(ctx, p.next, p.receive)
		})
	}
	return g.Wait()
}

func newProducer(ctx context.Context, address, topic string, w *work, seed uint64) (*producer, error) {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return nil, err
	}
	p := &producer{
		w: w, c: c, frames: makeFrames(w, topic, seed), id: -1, epoch: -1,
		sequence: make([]int32, w.Partitions), answer: kmsg.NewPtrProduceResponse(),
	}
	p.answer.Version = versionProduce
	if w.Acks == -1 { // producers are idempotent by default, and only with acks=all
		resp, err := producerID(ctx, c)
		if err != nil {
			c.close()
			return nil, fmt.Errorf("get a producer id: %w", err)
		}
		p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
	}
	return p, nil
}

// producerID asks for a producer id. A broker that has just started may not be ready for that, so it is asked again.
func producerID(ctx context.Context, c *kafkaConn) (*kmsg.InitProducerIDResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		resp, err := as[*kmsg.InitProducerIDResponse](c.ask(kmsg.NewPtrInitProducerIDRequest(), versionInitProducer))
		if err != nil {
			return nil, err
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if err == nil || !kerr.IsRetriable(err) || !sleepUntil(ctx, time.Now().Add(50*time.Millisecond)) {
			return resp, err
		}
	}
}

// interval is the time between two requests of an open loop; 0 for a closed one.
func (p *producer) interval() time.Duration {
	if p.w.Rate == 0 {
		return 0
	}
	return time.Duration(float64(p.frames[0].bytes) * float64(p.w.Producers) / p.w.Rate * float64(time.Second))
}

// next returns the n-th request.
func (p *producer) next(n int) *request {
	f := &p.frames[n%len(p.frames)]
	p.patch(f, int32(n))
	return &f.request
}

// patch gives a frame its correlation id, producer id and sequence numbers.
func (p *producer) patch(f *frame, correlation int32) {
	binary.BigEndian.PutUint32(f.b[frameCorrelationAt:], uint32(correlation))
	if p.id < 0 {
		return
	}
	for i := range f.batches {
		at := &f.batches[i]
		b := f.b[at.at:at.end]
		binary.BigEndian.PutUint64(b[batchProducerIDAt:], uint64(p.id))
		binary.BigEndian.PutUint16(b[batchEpochAt:], uint16(p.epoch))
		binary.BigEndian.PutUint32(b[batchSequenceAt:], uint32(p.sequence[at.partition]))
		p.sequence[at.partition] += at.records
		at.sum.put(b)
	}
}

// receive reads the answer to a request.
func (p *producer) receive(s sent) error {
	body, err := p.c.receive(true)
	if err != nil {
		return fmt.Errorf("receive the answer to a produce request: %w", err)
	}
	took := time.Since(s.at)
	if err := p.answer.ReadFrom(body); err != nil {
		return fmt.Errorf("read the answer to a produce request: %w", err)
	}
	if err := produceError(p.answer); err != nil {
		return err
	}
	p.lane.add(s.records, s.bytes, took)
	return nil
}

func produceError(resp *kmsg.ProduceResponse) error {
	if len(resp.Topics) == 0 {
		return errors.New("the answer to a produce request is empty")
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if p.ErrorCode != 0 {
				return fmt.Errorf("produce to %s/%d: %w: %s", resp.Topics[i].Topic, p.Partition, kerr.ErrorForCode(p.ErrorCode), deref(p.ErrorMessage))
			}
		}
	}
	return nil
}
