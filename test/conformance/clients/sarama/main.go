// SPDX-License-Identifier: Apache-2.0

// Command sarama checks a broker with sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// program is the checks and what they share.
type program struct {
	*check.Program
	client sarama.Client
	admin  sarama.ClusterAdmin
}

// option changes a configuration.
type option func(*sarama.Config)

func main() {
	if asked := member.Asked(); asked != nil {
		beMember(asked)
		return
	}
	p := &program{Program: check.Start("sarama", check.ModuleVersion("github.com/IBM/sarama"))}
	if err := p.connect(); err != nil {
		fmt.Fprintln(os.Stderr, "sarama:", err)
		os.Exit(1)
	}
	p.produce()
	p.consume()
	p.groups()
	p.topics()
	if err := p.admin.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "sarama:", err)
		os.Exit(1)
	}
}

// config is the newest protocol that the client knows, and the options.
func config(opts ...option) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Metadata.AllowAutoTopicCreation = false
	for _, o := range opts {
		o(c)
	}
	return c
}

func (p *program) connect() error {
	var err error
	if p.client, err = sarama.NewClient([]string{p.Bootstrap}, config()); err != nil {
		return err
	}
	p.admin, err = sarama.NewClusterAdminFromClient(p.client)
	return err
}

// topic creates a topic and waits until the client knows its leaders.
func (p *program) topic(ctx context.Context, name string, partitions int32) error {
	if err := p.admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return check.Await(ctx, func() error {
		if err := p.client.RefreshMetadata(name); err != nil {
			return err
		}
		got, err := p.client.WritablePartitions(name)
		if err == nil && len(got) != int(partitions) {
			err = fmt.Errorf("partitions %v have leaders, want %d", got, partitions)
		}
		for i := range partitions { // a leader that does not know yet that it leads loses records with acks=0
			if err == nil {
				_, err = p.client.GetOffset(name, i, sarama.OffsetNewest)
			}
		}
		return err
	})
}

// send writes records with the options' producer and waits for their acknowledgements.
func (p *program) send(topic string, data []check.Record, at func(i int) time.Time, opts ...option) error {
	producer, err := sarama.NewSyncProducer([]string{p.Bootstrap}, config(opts...))
	if err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, len(data))
	for i, d := range data {
		m := &sarama.ProducerMessage{Topic: topic, Partition: d.Partition}
		if d.Key != nil {
			m.Key = sarama.ByteEncoder(d.Key)
		}
		if d.Value != nil {
			m.Value = sarama.ByteEncoder(d.Value)
		}
		for _, h := range d.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		if at != nil {
			m.Timestamp = at(i)
		}
		messages[i] = m
	}
	return errors.Join(producer.SendMessages(messages), producer.Close())
}

// read reads n records from partitions, each from an offset on.
func (p *program) read(ctx context.Context, topic string, n int, from map[int32]int64) ([]*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumerFromClient(p.client)
	if err != nil {
		return nil, err
	}
	merged := make(chan *sarama.ConsumerMessage)
	failed := make(chan error, len(from))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for partition, offset := range from {
		pc, err := consumer.ConsumePartition(topic, partition, offset)
		if err != nil {
			return nil, err
		}
		go merge(ctx, pc, merged, failed)
	}
	var messages []*sarama.ConsumerMessage
	for len(messages) < n {
		select {
		case m := <-merged:
			messages = append(messages, m)
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w after %d of %d records", ctx.Err(), len(messages), n)
		}
	}
	return messages, nil
}

// merge passes a partition's messages on until the context ends.
func merge(ctx context.Context, pc sarama.PartitionConsumer, merged chan<- *sarama.ConsumerMessage, failed chan<- error) {
	defer pc.AsyncClose()
	for {
		select {
		case m := <-pc.Messages():
			select {
			case merged <- m:
			case <-ctx.Done():
				return
			}
		case err := <-pc.Errors():
			failed <- err
			return
		case <-ctx.Done():
			return
		}
	}
}

func incoming(messages []*sarama.ConsumerMessage) []check.Record {
	data := make([]check.Record, len(messages))
	for i, m := range messages {
		data[i] = check.Record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			data[i].Headers = append(data[i].Headers, check.Header{Key: string(h.Key), Value: h.Value})
		}
	}
	return data
}

// start is the first offset of partitions 0 to n-1.
func start(n int32) map[int32]int64 {
	from := map[int32]int64{}
	for i := range n {
		from[i] = sarama.OffsetOldest
	}
	return from
}

func (p *program) roundTrip(name string, opts ...option) func(context.Context) error {
	return func(ctx context.Context) error {
		topic := p.Name(name)
		if err := p.topic(ctx, topic, check.Partitions); err != nil {
			return err
		}
		if err := p.send(topic, check.Data(), nil, opts...); err != nil {
			return err
		}
		messages, err := p.read(ctx, topic, check.DataRecords, start(check.Partitions))
		if err != nil {
			return err
		}
		return check.Same(check.Data(), incoming(messages))
	}
}

func acks(a sarama.RequiredAcks) option {
	return func(c *sarama.Config) { c.Producer.RequiredAcks = a }
}

func compression(codec sarama.CompressionCodec) option {
	return func(c *sarama.Config) { c.Producer.Compression = codec }
}

func idempotent(c *sarama.Config) {
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Net.MaxOpenRequests = 1
	c.Producer.Flush.MaxMessages = 10
}

func (p *program) produce() {
	p.Run(check.AcksNone, p.roundTrip("acks-0", acks(sarama.NoResponse)))
	p.Run(check.AcksLeader, p.roundTrip("acks-1", acks(sarama.WaitForLocal)))
	p.Run(check.AcksAll, p.roundTrip("acks-all", acks(sarama.WaitForAll)))
	p.Run(check.CompressionNone, p.roundTrip("none", compression(sarama.CompressionNone)))
	p.Run(check.CompressionGzip, p.roundTrip("gzip", compression(sarama.CompressionGZIP)))
	p.Run(check.CompressionSnappy, p.roundTrip("snappy", compression(sarama.CompressionSnappy)))
	p.Run(check.CompressionLz4, p.roundTrip("lz4", compression(sarama.CompressionLZ4)))
	p.Run(check.CompressionZstd, p.roundTrip("zstd", compression(sarama.CompressionZSTD)))
	p.Run(check.Idempotent, p.roundTrip("idempotent", idempotent))
	p.Run(check.LargeRecord, func(ctx context.Context) error {
		topic := p.Name("large")
		want := []check.Record{{Value: slices.Repeat([]byte("ring"), check.LargeBytes/4)}}
		err := p.topic(ctx, topic, 1)
		if err == nil {
			err = p.send(topic, want, nil, func(c *sarama.Config) { c.Producer.MaxMessageBytes = 1048588 })
		}
		if err != nil {
			return err
		}
		return p.compare(ctx, topic, want)
	})
	p.Run(check.Transactional, func(context.Context) error {
		producer, err := sarama.NewAsyncProducer([]string{p.Bootstrap}, config(idempotent, func(c *sarama.Config) { c.Producer.Transaction.ID = p.Name("txn") }))
		if err == nil {
			producer.AsyncClose()
		}
		return check.Refused(err)
	})
	p.Run(check.AutoCreate, func(ctx context.Context) error {
		topic, want := p.Name("auto"), []check.Record{{Key: []byte("k"), Value: []byte("v")}}
		if err := p.send(topic, want, nil, func(c *sarama.Config) { c.Metadata.AllowAutoTopicCreation = true }); err != nil {
			return err
		}
		return p.compare(ctx, topic, want)
	})
	p.Run(check.UnknownTopic, func(context.Context) error {
		topics, err := p.admin.DescribeTopics([]string{p.Name("nowhere")})
		if err != nil {
			return err
		}
		if got := topics[0].Err; !errors.Is(got, sarama.ErrUnknownTopicOrPartition) {
			return fmt.Errorf("error = %w, want %w", got, sarama.ErrUnknownTopicOrPartition)
		}
		return nil
	})
}

// compare reads a topic of one partition and compares.
func (p *program) compare(ctx context.Context, topic string, want []check.Record) error {
	messages, err := p.read(ctx, topic, len(want), start(1))
	if err != nil {
		return err
	}
	return check.Same(want, incoming(messages))
}

func (p *program) consume() {
	topic := p.Name("order")
	p.Run(check.Order, func(ctx context.Context) error {
		if err := p.topic(ctx, topic, 1); err != nil {
			return err
		}
		if err := p.send(topic, check.Ordered(), check.Time); err != nil {
			return err
		}
		got, err := p.read(ctx, topic, check.OrderRecords, start(1))
		if err != nil {
			return err
		}
		for i, m := range got {
			if m.Offset != int64(i) || !m.Timestamp.Equal(check.Time(i)) {
				return fmt.Errorf("record %d has offset %d and time %s, want %s", i, m.Offset, m.Timestamp, check.Time(i))
			}
		}
		return check.Same(check.Ordered(), incoming(got))
	})
	p.Run(check.SeekOffset, func(ctx context.Context) error {
		got, err := p.read(ctx, topic, check.OrderRecords-check.Middle, map[int32]int64{0: check.Middle})
		if err != nil {
			return err
		}
		return check.Same(check.Ordered()[check.Middle:], incoming(got))
	})
	p.Run(check.SeekTime, func(context.Context) error {
		offset, err := p.client.GetOffset(topic, 0, check.Time(check.Middle).UnixMilli()-1)
		if err == nil && offset != check.Middle {
			err = fmt.Errorf("offset %d, want %d", offset, check.Middle)
		}
		return err
	})
}
