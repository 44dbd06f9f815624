// SPDX-License-Identifier: Apache-2.0

// Command franzgo checks a broker with franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// program is the checks and what they share.
type program struct {
	*check.Program
	client *kgo.Client
	admin  *kadm.Client
}

func main() {
	if config := member.Asked(); config != nil {
		beMember(config)
		return
	}
	p := &program{Program: check.Start("franz-go", check.ModuleVersion("github.com/twmb/franz-go"))}
	var err error
	if p.client, err = kgo.NewClient(kgo.SeedBrokers(p.Bootstrap)); err != nil {
		fmt.Fprintln(os.Stderr, "franzgo:", err)
		os.Exit(1)
	}
	defer p.client.Close()
	p.admin = kadm.NewClient(p.client)
	p.produce()
	p.consume()
	p.groups()
	p.topics()
}

// open makes a client with the options.
func (p *program) open(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.Bootstrap)}, opts...)...)
}

// topic creates a topic.
func (p *program) topic(ctx context.Context, name string, partitions int32) error {
	_, err := p.admin.CreateTopic(ctx, partitions, 1, nil, name)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return check.Served(ctx, p.admin, name)
}

// send writes records with the options' producer and waits for their acknowledgements.
func (p *program) send(ctx context.Context, records []*kgo.Record, opts ...kgo.Opt) error {
	c, err := p.open(append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}

// read reads n records from the given offsets.
func (p *program) read(ctx context.Context, topic string, n int, from map[int32]kgo.Offset) ([]*kgo.Record, error) {
	c, err := p.open(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var records []*kgo.Record
	for len(records) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return records, fmt.Errorf("consume: %w after %d of %d records", err, len(records), n)
		}
		records = append(records, fetches.Records()...)
	}
	return records, nil
}

// outgoing turns data into records of a topic.
func outgoing(topic string, data []check.Record) []*kgo.Record {
	records := make([]*kgo.Record, len(data))
	for i, d := range data {
		records[i] = &kgo.Record{Topic: topic, Partition: d.Partition, Key: d.Key, Value: d.Value}
		for _, h := range d.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	return records
}

// incoming is the inverse of outgoing.
func incoming(records []*kgo.Record) []check.Record {
	data := make([]check.Record, len(records))
	for i, r := range records {
		data[i] = check.Record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			data[i].Headers = append(data[i].Headers, check.Header{Key: h.Key, Value: h.Value})
		}
	}
	return data
}

// start is the earliest offset of partitions 0 to n-1.
func start(n int32) map[int32]kgo.Offset {
	from := map[int32]kgo.Offset{}
	for i := range n {
		from[i] = kgo.NewOffset().AtStart()
	}
	return from
}

// roundTrip writes data with the options' producer, reads them back and compares.
func (p *program) roundTrip(name string, opts ...kgo.Opt) func(context.Context) error {
	return func(ctx context.Context) error {
		topic := p.Name(name)
		if err := p.topic(ctx, topic, check.Partitions); err != nil {
			return err
		}
		if err := p.send(ctx, outgoing(topic, check.Data()), opts...); err != nil {
			return err
		}
		records, err := p.read(ctx, topic, check.DataRecords, start(check.Partitions))
		if err != nil {
			return err
		}
		return check.Same(check.Data(), incoming(records))
	}
}

func (p *program) produce() {
	plain := []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1)}
	p.Run(check.AcksNone, p.roundTrip("acks-0", append(plain, kgo.RequiredAcks(kgo.NoAck()))...))
	p.Run(check.AcksLeader, p.roundTrip("acks-1", append(plain, kgo.RequiredAcks(kgo.LeaderAck()))...))
	p.Run(check.AcksAll, p.roundTrip("acks-all", append(plain, kgo.RequiredAcks(kgo.AllISRAcks()))...))
	p.Run(check.CompressionNone, p.roundTrip("none", kgo.ProducerBatchCompression(kgo.NoCompression())))
	p.Run(check.CompressionGzip, p.roundTrip("gzip", kgo.ProducerBatchCompression(kgo.GzipCompression())))
	p.Run(check.CompressionSnappy, p.roundTrip("snappy", kgo.ProducerBatchCompression(kgo.SnappyCompression())))
	p.Run(check.CompressionLz4, p.roundTrip("lz4", kgo.ProducerBatchCompression(kgo.Lz4Compression())))
	p.Run(check.CompressionZstd, p.roundTrip("zstd", kgo.ProducerBatchCompression(kgo.ZstdCompression())))
	p.Run(check.Idempotent, p.roundTrip("idempotent", kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(20)))
	p.Run(check.LargeRecord, p.large)
	p.Run(check.AutoCreate, p.autoCreate)
	p.Run(check.UnknownTopic, p.unknownTopic)
	p.Run(check.Transactional, p.transactional)
}

func (p *program) large(ctx context.Context) error {
	topic := p.Name("large")
	if err := p.topic(ctx, topic, 1); err != nil {
		return err
	}
	want := []check.Record{{Value: slices.Repeat([]byte("ring"), check.LargeBytes/4)}}
	if err := p.send(ctx, outgoing(topic, want), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1048588)); err != nil {
		return err
	}
	records, err := p.read(ctx, topic, 1, start(1))
	if err != nil {
		return err
	}
	return check.Same(want, incoming(records))
}

func (p *program) autoCreate(ctx context.Context) error {
	topic, want := p.Name("auto"), []check.Record{{Key: []byte("k"), Value: []byte("v")}}
	if err := p.send(ctx, outgoing(topic, want), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(20)); err != nil {
		return err
	}
	records, err := p.read(ctx, topic, 1, start(1))
	if err != nil {
		return err
	}
	return check.Same(want, incoming(records))
}

func (p *program) unknownTopic(ctx context.Context) error {
	topics, err := p.admin.ListTopics(ctx, p.Name("nowhere"))
	if err != nil {
		return err
	}
	if err := topics[p.Name("nowhere")].Err; !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("error = %w, want UNKNOWN_TOPIC_OR_PARTITION", err)
	}
	return nil
}

func (p *program) transactional(ctx context.Context) error {
	c, err := p.open(kgo.TransactionalID(p.Name("txn")), kgo.RequestRetries(2))
	if err != nil {
		return err
	}
	defer c.Close()
	_, _, err = c.ProducerID(ctx)
	return check.Refused(err)
}

func (p *program) consume() {
	topic := p.Name("order")
	p.Run(check.Order, func(ctx context.Context) error {
		if err := p.topic(ctx, topic, 1); err != nil {
			return err
		}
		records := outgoing(topic, check.Ordered())
		for i, r := range records {
			r.Timestamp = check.Time(i)
		}
		if err := p.send(ctx, records, kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
			return err
		}
		got, err := p.read(ctx, topic, check.OrderRecords, start(1))
		if err != nil {
			return err
		}
		for i, r := range got {
			if !r.Timestamp.Equal(check.Time(int(r.Offset))) {
				return fmt.Errorf("record %d has time %s, want %s", i, r.Timestamp, check.Time(i))
			}
		}
		return check.Same(check.Ordered(), incoming(got))
	})
	p.Run(check.SeekOffset, func(ctx context.Context) error {
		got, err := p.read(ctx, topic, check.OrderRecords-check.Middle, map[int32]kgo.Offset{0: kgo.NewOffset().At(check.Middle)})
		if err != nil {
			return err
		}
		return check.Same(check.Ordered()[check.Middle:], incoming(got))
	})
	p.Run(check.SeekTime, func(ctx context.Context) error {
		at := check.Time(check.Middle).UnixMilli() - 1
		got, err := p.read(ctx, topic, check.OrderRecords-check.Middle, map[int32]kgo.Offset{0: kgo.NewOffset().AfterMilli(at)})
		if err != nil {
			return err
		}
		return check.Same(check.Ordered()[check.Middle:], incoming(got))
	})
}
