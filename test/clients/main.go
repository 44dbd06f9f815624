// SPDX-License-Identifier: Apache-2.0

// Command clients is the end-to-end suite's readers and writers: ordinary Kafka clients (sarama and franz-go, as their authors publish them) that
// know nothing of Ringmaster but a bootstrap address. It is a module of its own, so that its dependencies are not the product's.
//
//	clients read BOOTSTRAP GROUP TOPIC        joins the group and prints a line of JSON for each record that it reads (sarama)
//	clients write BOOTSTRAP TOPIC PREFIX RATE writes PREFIX-1, PREFIX-2, ... RATE times a second with acks=all, and prints each value once it is acknowledged (sarama)
//	clients witness BOOTSTRAP GROUP TOPIC PROTOCOL FOLDER
//	                                          joins the group as PROTOCOL (cooperative, eager or consumer) and keeps a journal of what it is given, reads,
//	                                          commits and lets go of (franz-go); CLIENTS (1) of them in one process, with the client id CLIENT_ID;
//	                                          READY_FILE: a readiness probe on port 8080 succeeds once there is that file
//	clients feed BOOTSTRAP TOPIC PARTITIONS EVERY FOLDER
//	                                          writes a record to each partition once EVERY (such as 500ms), and keeps a journal of what was acknowledged (franz-go)
//
// A journal is FOLDER/POD_NAME.TIME.jsonl, a file for each process with an Event a line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 4 && args[0] == "read":
		return read(ctx, args[1], args[2], args[3])
	case len(args) == 5 && args[0] == "write":
		rate, err := strconv.Atoi(args[4])
		if err != nil || rate < 1 {
			return fmt.Errorf("the rate must be a whole number from 1, not %q", args[4])
		}
		return write(ctx, args[1], args[2], args[3], rate)
	case len(args) == 6 && args[0] == "witness":
		return witnesses(ctx, args[1], args[2], args[3], args[4], args[5])
	case len(args) == 6 && args[0] == "feed":
		partitions, err := strconv.Atoi(args[3])
		if err != nil || partitions < 1 || partitions > 10000 {
			return fmt.Errorf("PARTITIONS must be a whole number from 1 to 10000, not %q", args[3])
		}
		every, err := time.ParseDuration(args[4])
		if err != nil || every <= 0 {
			return fmt.Errorf("EVERY must be a duration, such as 500ms, not %q", args[4])
		}
		return feed(ctx, args[1], args[2], partitions, every, args[5])
	}
	return errors.New("usage: clients read BOOTSTRAP GROUP TOPIC | write BOOTSTRAP TOPIC PREFIX RATE | witness BOOTSTRAP GROUP TOPIC PROTOCOL FOLDER | " +
		"feed BOOTSTRAP TOPIC PARTITIONS EVERY FOLDER")
}

// Line is what a reader prints for each record.
type Line struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

func read(ctx context.Context, bootstrap, group, topic string) error {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Heartbeat.Interval = time.Second
	c.Consumer.Return.Errors = true
	g, err := connect(ctx, func() (sarama.ConsumerGroup, error) { return sarama.NewConsumerGroup([]string{bootstrap}, group, c) })
	if err != nil {
		return err
	}
	go func() {
		for err := range g.Errors() {
			fmt.Fprintln(os.Stderr, "clients: read:", err)
		}
	}()
	h := &handler{out: json.NewEncoder(os.Stdout)}
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{topic}, h); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "clients: consume:", err)
			pause(ctx, time.Second)
		}
	}
	return g.Close()
}

// handler prints records and marks them as read.
type handler struct {
	mu  sync.Mutex
	out *json.Encoder
}

// Setup is called when partitions are there.
func (*handler) Setup(s sarama.ConsumerGroupSession) error {
	fmt.Fprintln(os.Stderr, "clients: generation", s.GenerationID(), "claims", s.Claims())
	return nil
}

// Cleanup is called when they go.
func (*handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads one partition.
func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			h.mu.Lock()
			err := h.out.Encode(Line{Partition: m.Partition, Offset: m.Offset, Value: string(m.Value)})
			h.mu.Unlock()
			if err != nil {
				return err
			}
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			return nil
		}
	}
}

func write(ctx context.Context, bootstrap, topic, prefix string, rate int) error {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Retry.Max = 100
	c.Producer.Retry.Backoff = 200 * time.Millisecond
	c.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	p, err := connect(ctx, func() (sarama.SyncProducer, error) { return sarama.NewSyncProducer([]string{bootstrap}, c) })
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return p.Close()
		case <-tick.C:
		}
		value := prefix + "-" + strconv.Itoa(n)
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}); err != nil {
			fmt.Fprintln(os.Stderr, "clients: write:", err)
			continue
		}
		fmt.Println(value)
	}
}

// connect tries until it succeeds or the client is told to stop: the brokers may not be there yet.
func connect[T any](ctx context.Context, dial func() (T, error)) (T, error) {
	for {
		t, err := dial()
		if err == nil {
			return t, nil
		}
		fmt.Fprintln(os.Stderr, "clients: connect:", err)
		if !pause(ctx, time.Second) {
			return t, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
