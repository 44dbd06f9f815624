// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// franz produces with an unmodified client library while another client of it reads along: end to end, as an application would.
func (r *runner) franz(ctx context.Context, w *work, p peer, round int) (*sample, error) {
	if _, ok := p.(*kafkaPeer); !ok {
		return nil, errors.New("only what speaks Kafka's protocol has such clients")
	}
	return r.withTopic(ctx, w, p, round, func(topic string) (*sample, error) {
		return measure(ctx, pidOf(p), r.window, func(ctx context.Context, m *meter) error {
			return franzLoad(ctx, p.server().address, topic, w, m)
		})
	})
}

func franzLoad(ctx context.Context, address, topic string, w *work, m *meter) error {
	g, ctx := errgroup.WithContext(ctx)
	writer, reader := m.lane(), m.lane()
	reader.reader = true
	g.Go(func() error { return franzProduce(ctx, address, topic, w, writer) })
	g.Go(func() error { return franzConsume(ctx, address, topic, reader) })
	return g.Wait()
}

// franzProduce produces as fast as the client takes records. A record's latency is from when the client took it to its acknowledgement.
func franzProduce(ctx context.Context, address, topic string, w *work, l *lane) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	failed := make(chan error, 1)
	v := newValues(1, w.RecordBytes)
	some := make([][]byte, 64)
	for i := range some {
		some[i] = v.next()
	}
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now()
		// The promises of a client run one after the other, so the lane has one owner.
		client.Produce(ctx, &kgo.Record{Value: some[n%len(some)]}, func(_ *kgo.Record, err error) {
			if err == nil {
				l.add(1, int64(w.RecordBytes), time.Since(begin))
				return
			}
			select {
			case failed <- err:
			default:
			}
		})
		select {
		case err := <-failed:
			if ctx.Err() == nil {
				return fmt.Errorf("produce: %w", err)
			}
		default:
		}
	}
	return nil
}

func franzConsume(ctx context.Context, address, topic string, l *lane) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("consume: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) { l.add(1, int64(len(r.Value)), 0) })
	}
	return nil
}
