// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// feed writes a record to each of a topic's partitions once every period, and writes down which were acknowledged. A partition whose last record is not yet
// acknowledged is left out, so that one that is away gets no heap of records when it is back.
func feed(ctx context.Context, bootstrap, topic string, partitions int, every time.Duration, folder string) error {
	j, err := openJournal(folder)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	j.write(Event{What: eventStart})
	var all sync.WaitGroup
	for p := range int32(partitions) {
		all.Go(func() { feedOne(ctx, client, j, topic, p, every) })
	}
	all.Wait()
	j.write(Event{What: eventStop})
	return nil
}

func feedOne(ctx context.Context, client *kgo.Client, j *journal, topic string, p int32, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		value := strconv.Itoa(int(p)) + "-" + strconv.Itoa(n)
		// A record that was sent is waited for, also when ctx ends: it may be acknowledged.
		r, err := client.ProduceSync(context.WithoutCancel(ctx), &kgo.Record{Topic: topic, Partition: p, Value: []byte(value)}).First()
		if err != nil {
			fmt.Fprintf(os.Stderr, "clients: write to partition %d: %v\n", p, err)
		} else {
			j.write(Event{What: eventAcked, Partition: p, Offset: r.Offset, Value: value})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
