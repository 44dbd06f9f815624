// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franz reads with franz-go.
func (a *asked) franz(ctx context.Context, protocol string) error {
	told := func(event byte) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			a.journal.partitions(event, partitions[a.topic])
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(a.bootstrap), kgo.ConsumerGroup(a.group), kgo.ConsumeTopics(a.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.OnPartitionsAssigned(told('G')), kgo.OnPartitionsRevoked(told('R')), kgo.OnPartitionsLost(told('L')),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}
	switch protocol {
	case "eager":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "848":
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	default:
		return fmt.Errorf("unknown protocol %q", protocol)
	}
	if a.session > 0 && protocol != "848" {
		options = append(options, kgo.SessionTimeout(a.session), kgo.HeartbeatInterval(a.session/3))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(_ string, p int32, err error) { fmt.Fprintf(os.Stderr, "member: partition %d: %v\n", p, err) })
		fetches.EachRecord(func(r *kgo.Record) { a.journal.record(r.Partition, r.Offset) })
	}
}
