// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// benchmarkRecord is the size of a benchmark's records in bytes.
const benchmarkRecord = 100

func BenchmarkProduce(b *testing.B) {
	for name, opts := range map[string][]kgo.Opt{
		"acks of all":        nil,
		"acks of the leader": {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
	} {
		b.Run(name, func(b *testing.B) {
			broker := start(b)
			broker.create("bench", 6)
			produceN(b, broker, b.N, append(opts, kgo.ProducerBatchCompression(kgo.NoCompression()))...)
		})
	}
}

func produceN(b *testing.B, broker *broker, n int, opts ...kgo.Opt) {
	b.Helper()
	producer := broker.client(append(opts, kgo.MaxBufferedRecords(100_000))...)
	value := make([]byte, benchmarkRecord)
	b.SetBytes(benchmarkRecord)
	b.ResetTimer()
	for range n {
		producer.Produce(b.Context(), &kgo.Record{Topic: "bench", Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Errorf("produce: %v", err)
			}
		})
	}
	if err := producer.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
}

func BenchmarkConsume(b *testing.B) {
	broker := start(b)
	broker.create("bench", 6)
	produceN(b, broker, b.N, kgo.ProducerBatchCompression(kgo.NoCompression()))
	consumer := broker.client(kgo.ConsumeTopics("bench"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	b.ResetTimer()
	b.StartTimer()
	for got := 0; got < b.N; {
		fetches := consumer.PollFetches(b.Context())
		if err := fetches.Err(); err != nil {
			b.Fatal(err)
		}
		got += fetches.NumRecords()
	}
}
