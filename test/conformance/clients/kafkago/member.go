// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// beMember is a member of a group until it is told to leave.
func beMember(asked *member.Config) {
	dialer := &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true, ClientID: asked.ClientID} // but for the id it is the client's default one
	wait := time.Duration(0)
	if asked.SessionMillis > 0 {
		wait = 200 * time.Millisecond
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		Dialer: dialer,
		ID:     asked.Group, Brokers: []string{os.Args[1]}, Topics: asked.Topics, StartOffset: kafka.FirstOffset, GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		SessionTimeout: time.Duration(asked.SessionMillis) * time.Millisecond, HeartbeatInterval: time.Duration(asked.HeartbeatMillis) * time.Millisecond,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafkago:", err)
		os.Exit(1)
	}
	out := member.NewOutput()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		member.AwaitLeave()
		cancel()
	}()
	for {
		generation, err := group.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			out.Fail(err)
			continue
		}
		live(generation, out, asked, func(topic string, partition int) *kafka.Reader {
			return kafka.NewReader(kafka.ReaderConfig{Brokers: []string{os.Args[1]}, Topic: topic, Partition: partition, MaxWait: wait, Dialer: dialer})
		})
	}
	if err := group.Close(); err != nil {
		out.Fail(err)
	}
}

// live starts what reads and commits in a generation; the client ends it with the generation.
func live(g *kafka.Generation, out *member.Output, asked *member.Config, reader func(topic string, partition int) *kafka.Reader) {
	topics, marks := map[string][]int32{}, &member.Marks{}
	for topic, assigned := range g.Assignments {
		for _, a := range assigned {
			topics[topic] = append(topics[topic], int32(a.ID))
		}
	}
	out.Moved(member.Assigned, topics)
	g.Start(func(ctx context.Context) {
		<-ctx.Done()
		out.Moved(member.Revoked, topics)
	})
	for topic, assigned := range g.Assignments {
		for _, a := range assigned {
			g.Start(func(ctx context.Context) { readPartition(ctx, out, marks, reader(topic, a.ID), a) })
		}
	}
	if asked.CommitMillis > 0 {
		owned := &member.Owned{}
		owned.Moved(member.Assigned, topics)
		g.Start(func(ctx context.Context) {
			owned.Commit(ctx, out, asked, func(p member.Partition, _ int64) error {
				return g.CommitOffsets(map[string]map[int]int64{p.Topic: {int(p.Number): 0}})
			})
		})
	}
	g.Start(func(ctx context.Context) {
		marks.Commit(ctx, out, func(next map[member.Partition]int64) (string, int32, error) {
			offsets := map[string]map[int]int64{}
			for p, offset := range next {
				if offsets[p.Topic] == nil {
					offsets[p.Topic] = map[int]int64{}
				}
				offsets[p.Topic][int(p.Number)] = offset
			}
			return g.MemberID, g.ID, g.CommitOffsets(offsets)
		})
	})
}

// readPartition reads one partition until the generation ends.
func readPartition(ctx context.Context, out *member.Output, marks *member.Marks, r *kafka.Reader, a kafka.PartitionAssignment) {
	defer r.Close()
	if err := r.SetOffset(a.Offset); err != nil {
		out.Fail(err)
	}
	for {
		m, err := r.FetchMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			out.Fail(err)
			continue
		}
		marks.Read(out, member.Partition{Topic: m.Topic, Number: int32(a.ID)}, m.Offset)
	}
}
