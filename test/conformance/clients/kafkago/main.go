// SPDX-License-Identifier: Apache-2.0

// Command kafkago checks a broker with segmentio's kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// program is the checks and what they share.
type program struct {
	*check.Program
	client *kafka.Client
}

// option changes a writer.
type option func(*kafka.Writer)

func main() {
	if asked := member.Asked(); asked != nil {
		beMember(asked)
		return
	}
	p := &program{Program: check.Start("segmentio kafka-go", check.ModuleVersion("github.com/segmentio/kafka-go"))}
	p.client = &kafka.Client{Addr: kafka.TCP(p.Bootstrap), Timeout: 30 * time.Second, Transport: &kafka.Transport{MetadataTTL: 200 * time.Millisecond}}
	p.produce()
	p.consume()
	p.groups()
	p.topics()
}

// create creates a topic.
func (p *program) create(ctx context.Context, name string, partitions int) error {
	resp, err := p.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	if err != nil {
		return err
	}
	return resp.Errors[name]
}

// topic creates a topic and waits until the client knows its leaders.
func (p *program) topic(ctx context.Context, name string, partitions int) error {
	if err := p.create(ctx, name, partitions); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return check.Await(ctx, func() error {
		if err := p.partitions(ctx, name, partitions); err != nil {
			return err
		}
		return p.served(ctx, name, partitions)
	})
}

// served says whether a topic's leaders know that they lead: a record with acks=0 that comes before is lost.
func (p *program) served(ctx context.Context, topic string, partitions int) error {
	req := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{}}
	for i := range partitions {
		req.Topics[topic] = append(req.Topics[topic], kafka.LastOffsetOf(i))
	}
	resp, err := p.client.ListOffsets(ctx, req)
	if err != nil {
		return err
	}
	for _, o := range resp.Topics[topic] {
		if o.Error != nil {
			return fmt.Errorf("partition %d: %w", o.Partition, o.Error)
		}
	}
	return nil
}

// partitions says whether a topic has n partitions, each with a leader.
func (p *program) partitions(ctx context.Context, topic string, n int) error {
	resp, err := p.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	t := resp.Topics[0]
	if t.Error != nil || len(t.Partitions) != n {
		return fmt.Errorf("%d partitions, error %s; want %d", len(t.Partitions), check.Why(t.Error), n)
	}
	for _, d := range t.Partitions {
		if d.Error != nil || d.Leader.ID < 1 {
			return fmt.Errorf("partition %d: leader %d, error %s", d.ID, d.Leader.ID, check.Why(d.Error))
		}
	}
	return nil
}

// send writes records with a writer and waits for their acknowledgements.
func (p *program) send(ctx context.Context, topic string, data []check.Record, at func(i int) time.Time, opts ...option) error {
	w := &kafka.Writer{
		Addr: kafka.TCP(p.Bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll, BatchTimeout: 20 * time.Millisecond, BatchBytes: 1048588,
		Balancer:  kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return int(m.WriterData.(int32)) }),
		Transport: &kafka.Transport{MetadataTTL: 200 * time.Millisecond},
	}
	for _, o := range opts {
		o(w)
	}
	messages := make([]kafka.Message, len(data))
	for i, d := range data {
		messages[i] = kafka.Message{Key: d.Key, Value: d.Value, WriterData: d.Partition}
		for _, h := range d.Headers {
			messages[i].Headers = append(messages[i].Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		if at != nil {
			messages[i].Time = at(i)
		}
	}
	return errors.Join(w.WriteMessages(ctx, messages...), w.Close())
}

// read reads n records of one partition from where position puts the reader.
func (p *program) read(ctx context.Context, topic string, partition, n int, position func(r *kafka.Reader) error) ([]kafka.Message, error) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{p.Bootstrap}, Topic: topic, Partition: partition, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	if err := position(r); err != nil {
		return nil, err
	}
	var messages []kafka.Message
	for len(messages) < n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w after %d of %d records", err, len(messages), n)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// at puts a reader to an offset.
func at(offset int64) func(*kafka.Reader) error {
	return func(r *kafka.Reader) error { return r.SetOffset(offset) }
}

// compare reads a topic's partitions from the start on and compares.
func (p *program) compare(ctx context.Context, topic string, partitions int, want []check.Record) error {
	var got []kafka.Message
	for partition := range partitions {
		messages, err := p.read(ctx, topic, partition, len(want)/partitions, at(kafka.FirstOffset))
		if err != nil {
			return err
		}
		got = append(got, messages...)
	}
	return check.Same(want, incoming(got))
}

func incoming(messages []kafka.Message) []check.Record {
	data := make([]check.Record, len(messages))
	for i, m := range messages {
		data[i] = check.Record{Partition: int32(m.Partition), Offset: m.Offset, Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			data[i].Headers = append(data[i].Headers, check.Header{Key: h.Key, Value: h.Value})
		}
	}
	return data
}

func (p *program) roundTrip(name string, opts ...option) func(context.Context) error {
	return func(ctx context.Context) error {
		topic := p.Name(name)
		if err := p.topic(ctx, topic, check.Partitions); err != nil {
			return err
		}
		if err := p.send(ctx, topic, check.Data(), nil, opts...); err != nil {
			return err
		}
		return p.compare(ctx, topic, check.Partitions, check.Data())
	}
}

func acks(a kafka.RequiredAcks) option { return func(w *kafka.Writer) { w.RequiredAcks = a } }

func compression(c kafka.Compression) option { return func(w *kafka.Writer) { w.Compression = c } }

func (p *program) produce() {
	p.Run(check.AcksNone, p.roundTrip("acks-0", acks(kafka.RequireNone)))
	p.Run(check.AcksLeader, p.roundTrip("acks-1", acks(kafka.RequireOne)))
	p.Run(check.AcksAll, p.roundTrip("acks-all", acks(kafka.RequireAll)))
	p.Run(check.CompressionNone, p.roundTrip("none"))
	p.Run(check.CompressionGzip, p.roundTrip("gzip", compression(kafka.Gzip)))
	p.Run(check.CompressionSnappy, p.roundTrip("snappy", compression(kafka.Snappy)))
	p.Run(check.CompressionLz4, p.roundTrip("lz4", compression(kafka.Lz4)))
	p.Run(check.CompressionZstd, p.roundTrip("zstd", compression(kafka.Zstd)))
	p.Skip(check.Idempotent, "the client has none")
	p.Run(check.LargeRecord, func(ctx context.Context) error {
		topic := p.Name("large")
		want := []check.Record{{Value: slices.Repeat([]byte("ring"), check.LargeBytes/4)}}
		err := p.topic(ctx, topic, 1)
		if err == nil {
			err = p.send(ctx, topic, want, nil)
		}
		if err != nil {
			return err
		}
		return p.compare(ctx, topic, 1, want)
	})
	p.Run(check.Transactional, func(ctx context.Context) error {
		resp, err := p.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{TransactionalID: p.Name("txn"), TransactionTimeoutMs: 10000})
		if err == nil {
			err = resp.Error
		}
		return check.Refused(err)
	})
	p.Run(check.AutoCreate, func(ctx context.Context) error {
		topic, want := p.Name("auto"), []check.Record{{Key: []byte("k"), Value: []byte("v")}}
		err := check.Await(ctx, func() error { // the first call asks for the topic and fails, as with Kafka
			err := p.send(ctx, topic, want, nil, func(w *kafka.Writer) { w.AllowAutoTopicCreation = true })
			if errors.Is(err, kafka.UnknownTopicOrPartition) || errors.Is(err, kafka.LeaderNotAvailable) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		return p.compare(ctx, topic, 1, want)
	})
	p.Run(check.UnknownTopic, func(ctx context.Context) error {
		resp, err := p.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{p.Name("nowhere")}})
		if err != nil {
			return err
		}
		if got := resp.Topics[0].Error; !errors.Is(got, kafka.UnknownTopicOrPartition) {
			return fmt.Errorf("error = %w, want %w", got, kafka.UnknownTopicOrPartition)
		}
		return nil
	})
}

func (p *program) consume() {
	topic := p.Name("order")
	p.Run(check.Order, func(ctx context.Context) error {
		if err := p.topic(ctx, topic, 1); err != nil {
			return err
		}
		if err := p.send(ctx, topic, check.Ordered(), check.Time); err != nil {
			return err
		}
		got, err := p.read(ctx, topic, 0, check.OrderRecords, at(kafka.FirstOffset))
		if err != nil {
			return err
		}
		for i, m := range got {
			if m.Offset != int64(i) || !m.Time.Equal(check.Time(i)) {
				return fmt.Errorf("record %d has offset %d and time %s, want %s", i, m.Offset, m.Time, check.Time(i))
			}
		}
		return check.Same(check.Ordered(), incoming(got))
	})
	p.Run(check.SeekOffset, func(ctx context.Context) error {
		got, err := p.read(ctx, topic, 0, check.OrderRecords-check.Middle, at(check.Middle))
		if err != nil {
			return err
		}
		return check.Same(check.Ordered()[check.Middle:], incoming(got))
	})
	p.Run(check.SeekTime, func(ctx context.Context) error {
		got, err := p.read(ctx, topic, 0, check.OrderRecords-check.Middle, func(r *kafka.Reader) error {
			return r.SetOffsetAt(ctx, check.Time(check.Middle).Add(-time.Millisecond))
		})
		if err != nil {
			return err
		}
		return check.Same(check.Ordered()[check.Middle:], incoming(got))
	})
}
