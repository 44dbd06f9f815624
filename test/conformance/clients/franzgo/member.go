// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// beMember is a member of a group until it is told to leave.
func beMember(config *member.Config) {
	out := member.NewOutput()
	owned := &member.Owned{}
	c, err := kgo.NewClient(append(memberOptions(config, out, owned), kgo.SeedBrokers(os.Args[1]))...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "franzgo:", err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		member.AwaitLeave()
		cancel()
	}()
	for {
		c.AllowRebalance()
		fetches := poll(ctx, c, config)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			out.Fail(err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if n := len(p.Records); n > 0 {
				out.Print(member.Event{Kind: member.Read, Partition: member.Partition{Topic: p.Topic, Number: p.Partition}, First: p.Records[0].Offset, Last: p.Records[n-1].Offset})
			}
		})
		if offsets := c.UncommittedOffsets(); offsets != nil {
			commitPolled(c, out, offsets)
		}
		if place, ok := owned.Any(); ok && config.CommitMillis > 0 {
			out.Time(func() {
				c.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{place.Topic: {place.Number: {Epoch: -1}}}, nil)
			})
		}
	}
	c.AllowRebalance()
	c.Close()
}

// poll reads once; a member that commits without reading waits for a short time only.
func poll(ctx context.Context, c *kgo.Client, config *member.Config) kgo.Fetches {
	if config.CommitMillis > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(config.CommitMillis)*time.Millisecond)
		defer cancel()
		return c.PollFetches(limited)
	}
	return c.PollFetches(ctx)
}

// memberOptions are the client's options for a member.
func memberOptions(config *member.Config, out *member.Output, owned *member.Owned) []kgo.Opt {
	moved := func(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			owned.Moved(kind, topics)
			out.Moved(kind, topics)
		}
	}
	opts := []kgo.Opt{
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
		kgo.ConsumerGroup(config.Group), kgo.ConsumeTopics(config.Topics...), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(moved(member.Assigned)), kgo.OnPartitionsRevoked(moved(member.Revoked)), kgo.OnPartitionsLost(moved(member.Lost)),
	}
	if config.SessionMillis > 0 {
		opts = append(opts, kgo.SessionTimeout(time.Duration(config.SessionMillis)*time.Millisecond), kgo.HeartbeatInterval(time.Duration(config.HeartbeatMillis)*time.Millisecond),
			kgo.MetadataMinAge(250*time.Millisecond), kgo.MetadataMaxAge(time.Second), kgo.FetchMaxWait(250*time.Millisecond))
	}
	if config.ClientID != "" {
		opts = append(opts, kgo.ClientID(config.ClientID))
	}
	if config.Pattern != "" {
		opts = append(opts, kgo.ConsumeTopics(config.Pattern), kgo.ConsumeRegex())
	}
	if config.Instance != "" {
		opts = append(opts, kgo.InstanceID(config.Instance))
	}
	switch {
	case config.Protocol == member.Eager:
		return append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case config.Protocol == member.Cooperative:
		return append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case config.Assignor == "range":
		return append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	return append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())) // the client asks for uniform
}

// commitPolled commits what was polled, and says what was acknowledged. A commit that a rebalance overtakes is not: the next owner reads again.
func commitPolled(c *kgo.Client, out *member.Output, offsets map[string]map[int32]kgo.EpochOffset) {
	c.CommitOffsetsSync(context.Background(), offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			out.Fail(fmt.Errorf("commit: %w", err))
			return
		}
		id, generation := c.GroupMetadata()
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				switch err := kerr.ErrorForCode(p.ErrorCode); {
				case err == nil:
					out.Print(member.Event{
						Kind: member.Committed, Partition: member.Partition{Topic: t.Topic, Number: p.Partition}, Next: offsets[t.Topic][p.Partition].Offset,
						Member: id, Generation: generation,
					})
				case !errors.Is(err, kerr.RebalanceInProgress) && !errors.Is(err, kerr.IllegalGeneration) && !errors.Is(err, kerr.StaleMemberEpoch):
					out.Fail(fmt.Errorf("commit: %w", err))
				}
			}
		}
	})
}
