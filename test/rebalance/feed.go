// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// topicName is the topic that everybody reads.
const topicName = "orders"

// recordBytes is how long a record's value is.
const recordBytes = 100

// feed writes a record to each partition once every period until ctx ends.
func feed(ctx context.Context, bootstrap string, partitions int, every time.Duration) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return fmt.Errorf("make a producer: %w", err)
	}
	value := make([]byte, recordBytes)
	all := func() []*kgo.Record {
		records := make([]*kgo.Record, partitions)
		for p := range records {
			records[p] = &kgo.Record{Topic: topicName, Partition: int32(p), Value: value}
		}
		return records
	}
	if err := client.ProduceSync(ctx, all()...).FirstErr(); err != nil {
		client.Close()
		return fmt.Errorf("write the first records: %w", err)
	}
	go func() {
		defer client.Close()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for _, r := range all() {
					client.TryProduce(ctx, r, nil)
				}
			}
		}
	}()
	return nil
}
