// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/partitioner"
)

// produceFlags are the flags of "produce".
type produceFlags struct {
	separator   string
	key         string
	hasKey      bool
	partition   int32
	acks        *enum
	compression *enum
	partitioner *enum
	generate    int
}

// produceJSON is what "produce -o json" prints.
type produceJSON struct {
	Topic   string `json:"topic"`
	Records int    `json:"records"`
}

func newProduceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Send the lines of standard input as records",
		Long: `Send the lines of standard input to a topic: each line, without its newline, is the value of a record. A line may hold any other
bytes, and may be as long as the topic's max.message.bytes allows. The last line needs no newline.

The partition is chosen by --partitioner: KeyHash (records of a key go where Kafka's own clients put them, records without one fill a
partition at a time), RoundRobin, Sticky or ConsistentHash (as KeyHash, but few keys move when partitions are added).

--generate makes up records instead, that many a second until the command is told to stop: something to watch a new topic or group with.

The command ends with the number of records that the brokers acknowledged; if that is not all, with an error and exit code 1. --timeout is
also how long a record may take to be acknowledged.`,
		Example: `  echo "hello" | ringmaster produce orders
  printf 'k1:one\nk2:two\n' | ringmaster produce orders --key-separator :
  ringmaster produce orders --acks 1 --compression zstd < orders.txt
  ringmaster produce orders --generate 10`,
		Args:              named("the name of a TOPIC"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output, f := addClientFlags(cmd), addOutput(cmd), &produceFlags{}
	cmd.Flags().StringVar(&f.separator, "key-separator", "", "a line is a key, this `TEXT`, and a value")
	cmd.Flags().StringVar(&f.key, "key", "", "the key of every record (may be empty)")
	cmd.Flags().Int32Var(&f.partition, "partition", -1, "send every record to this partition")
	cmd.Flags().IntVar(&f.generate, "generate", 0, "do not read standard input, but make up this `NUMBER` of records a second until SIGINT or SIGTERM")
	f.acks = newEnum("all", "all", "1", "0")
	f.compression = newEnum("none", "none", "gzip", "snappy", "lz4", "zstd")
	f.partitioner = newEnum("KeyHash", partitioner.Names...)
	addEnum(cmd, f.acks, "acks", "", "wait until a record is on disk (all), is written (1), or not at all (0)")
	addEnum(cmd, f.compression, "compression", "", "compress the batches")
	addEnum(cmd, f.partitioner, "partitioner", "", "how a record's partition is chosen")
	noFiles(cmd, "key-separator", "key", "partition", "generate")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		f.hasKey = cmd.Flags().Changed("key")
		if err := f.check(cmd); err != nil {
			return err
		}
		n, err := f.produce(cmd, flags, args[0])
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), produceJSON{Topic: args[0], Records: n})
		}
		return printf(cmd.ErrOrStderr(), "%s to %s\n", count(n, "record"), args[0])
	})
	return cmd
}

func (f *produceFlags) check(cmd *cobra.Command) error {
	separated, partition := cmd.Flags().Changed("key-separator"), cmd.Flags().Changed("partition")
	switch {
	case separated && f.separator == "":
		return usagef("--key-separator must not be empty")
	case separated && f.hasKey:
		return usagef("give --key or --key-separator, not both")
	case partition && f.partition < 0:
		return usagef("--partition must be at least 0, not %d", f.partition)
	case cmd.Flags().Changed("generate") && (f.generate < 1 || f.generate > largestRate):
		return usagef("--generate must be from 1 to %d records a second, not %d", largestRate, f.generate)
	case cmd.Flags().Changed("generate") && separated:
		return usagef("give --generate or --key-separator, not both")
	case partition && cmd.Flags().Changed("partitioner"):
		return usagef("give --partition or --partitioner, not both")
	}
	return nil
}

// produce sends standard input to a topic and returns how many records were acknowledged.
func (f *produceFlags) produce(cmd *cobra.Command, flags *clientFlags, topic string) (int, error) {
	maxBytes, err := f.prepare(cmd, flags, topic)
	if err != nil {
		return 0, err
	}
	c, err := flags.connect(cmd, f.options(flags, maxBytes)...)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	s := &sender{c: c, topic: topic, failed: cancel}
	var lines <-chan line
	// What was read is sent even if the command was interrupted; each record's own timeout ends this.
	end := context.WithoutCancel(cmd.Context())
	if f.generate > 0 {
		lines = makeLines(ctx, f.generate)
	} else {
		lines = readLines(ctx, cmd.InOrStdin(), int(maxBytes))
	}
	readErr := s.send(ctx, lines, f.record)
	flushErr := c.Flush(end)
	interrupted := cmd.Context().Err() != nil && f.generate == 0
	return s.result(interrupted, errors.Join(readErr, flushErr), f.acks.value)
}

// prepare makes sure that the topic and partition exist, and returns the size of the largest batch that the topic takes.
func (f *produceFlags) prepare(cmd *cobra.Command, flags *clientFlags, topic string) (int32, error) {
	ctx, c, done, err := flags.dial(cmd)
	if err != nil {
		return 0, err
	}
	defer done()
	partitions, err := c.ensureTopic(ctx, topic)
	if err != nil {
		return 0, err
	}
	if partitions > 0 && int(f.partition) >= partitions {
		return 0, fmt.Errorf("topic %q has no partition %d: it has %s, from 0", topic, f.partition, count(partitions, "partition"))
	}
	return c.maxMessageBytes(ctx, topic), nil
}

// maxMessageBytes is the largest batch that a topic takes, as far as the broker tells; else Kafka's default.
func (c *client) maxMessageBytes(ctx context.Context, topic string) int32 {
	config, err := c.topicConfig(ctx, topic)
	if err != nil {
		return metadata.DefaultTopicConfig.MaxMessageBytes
	}
	n, err := strconv.ParseInt(config["max.message.bytes"], 10, 32)
	if err != nil || n < 1 {
		return metadata.DefaultTopicConfig.MaxMessageBytes
	}
	return min(int32(n), largestMessage)
}

// largestMessage bounds what a line may take in memory, whatever a broker says: 100 MiB, the largest that a topic can ask for.
const largestMessage = 100 << 20

// ensureTopic asks for a topic as producers do, so that a broker that creates topics by itself creates it, and returns its number of
// partitions, 0 where that is not known yet.
func (c *client) ensureTopic(ctx context.Context, topic string) (int, error) {
	what := "look up topic " + topic
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	req.AllowAutoTopicCreation = true
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return 0, c.explain(what, err, "")
	}
	if len(resp.Topics) != 1 {
		return 0, fmt.Errorf("%s: the broker answered for %d topics", what, len(resp.Topics))
	}
	switch err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return 0, errNoTopic(topic)
	case errors.Is(err, kerr.LeaderNotAvailable):
		return len(resp.Topics[0].Partitions), nil // it has just been made
	case err != nil:
		return 0, c.explain(what, err, "")
	}
	return len(resp.Topics[0].Partitions), nil
}

// options are the producer's.
func (f *produceFlags) options(flags *clientFlags, maxBytes int32) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ProducerBatchMaxBytes(maxBytes),
		kgo.BrokerMaxWriteBytes(largestMessage + 1<<20),
		kgo.RecordDeliveryTimeout(max(flags.timeout, kgoShortest)),
		kgo.ProduceRequestTimeout(max(flags.timeout, kgoShortest)),
		kgo.RecordPartitioner(f.chooser()),
	}
	switch f.acks.value {
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		// A record whose answer never comes must end the command one day; its fate is then unknown, and reported as failed.
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AllowIdempotentProduceCancellation())
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	return append(opts, kgo.ProducerBatchCompression(codecs[f.compression.value]))
}

// record makes the record of a line.
func (f *produceFlags) record(l line) (*kgo.Record, error) {
	r := &kgo.Record{Value: l.text, Partition: f.partition}
	switch {
	case f.hasKey:
		r.Key = []byte(f.key)
	case f.separator != "":
		key, value, ok := bytes.Cut(l.text, []byte(f.separator))
		if !ok {
			return nil, fmt.Errorf("line %d has no key: %q is not in it", l.number, f.separator)
		}
		r.Key, r.Value = key, value
	}
	return r, nil
}

// sender sends records and counts what becomes of them.
type sender struct {
	c      *client
	topic  string
	failed context.CancelFunc

	mu    sync.Mutex
	acked int
	lost  int
	// err is the first error, of the line with the number at.
	err error
	at  int
}

// send sends lines until they end or something fails. The error is one of reading.
func (s *sender) send(ctx context.Context, lines <-chan line, record func(line) (*kgo.Record, error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l, ok := <-lines:
			if !ok || l.err != nil {
				return l.err
			}
			r, err := record(l)
			if err != nil {
				return err
			}
			r.Topic = s.topic
			s.c.Produce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) { s.done(l.number, err) })
		}
	}
}

// done counts a record.
func (s *sender) done(number int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.acked++
		return
	}
	s.lost++
	if s.err == nil {
		s.err, s.at = err, number
		s.failed()
	}
}

// result is the number of acknowledged records and, if that is not all, an error that names it.
func (s *sender) result(interrupted bool, readErr error, acks string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := count(s.acked, "record") + " acknowledged"
	if acks == "0" {
		sent = count(s.acked, "record") + " sent"
	}
	switch {
	case s.err != nil:
		err := s.c.explain(fmt.Sprintf("line %d", s.at), s.c.produceError(s.err), "")
		return s.acked, fmt.Errorf("cannot produce to %s: %w; %s, %d failed", s.topic, err, sent, s.lost)
	case readErr != nil:
		return s.acked, fmt.Errorf("cannot produce to %s: %w; %s", s.topic, readErr, sent)
	case interrupted:
		return s.acked, fmt.Errorf("interrupted before the end of the input; %s", sent)
	}
	return s.acked, nil
}

// chooser adapts our partitioners to the client's interface.
func (f *produceFlags) chooser() kgo.Partitioner {
	if f.partition >= 0 {
		return kgo.ManualPartitioner()
	}
	return chooser(f.partitioner.value)
}

// chooser is a partitioner's name.
type chooser string

// ForTopic implements kgo.Partitioner.
func (c chooser) ForTopic(string) kgo.TopicPartitioner {
	p, err := partitioner.ByName(string(c))
	if err != nil {
		panic(err) // the flag takes none but the names there are
	}
	return topicChooser{p}
}

type topicChooser struct{ partitioner.Partitioner }

// RequiresConsistency implements kgo.TopicPartitioner.
func (t topicChooser) RequiresConsistency(r *kgo.Record) bool { return t.Consistent(r.Key) }

// Partition implements kgo.TopicPartitioner.
func (t topicChooser) Partition(r *kgo.Record, n int) int {
	return int(t.Partitioner.Partition(r.Key, int32(n)))
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (t topicChooser) OnNewBatch() { t.NewBatch() }
