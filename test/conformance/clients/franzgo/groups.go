// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

func (p *program) groups() {
	p.Run(check.GroupNeverSeen, func(ctx context.Context) error {
		topic := p.Name("order")
		resp, err := p.admin.FetchOffsetsForTopics(ctx, p.Name("never"), topic)
		if err != nil {
			return err
		}
		o, ok := resp.Lookup(topic, 0)
		if !ok || o.Err != nil || o.At != -1 {
			return fmt.Errorf("partition 0: offset %d, error %s; want -1 and none", o.At, check.Why(o.Err))
		}
		return nil
	})
	p.Run(check.GroupCommit, p.commit)
	p.Run(check.GroupRebalance, p.rebalance)
	p.Run(check.GroupDescribe, func(ctx context.Context) error {
		groups, err := p.admin.DescribeGroups(ctx, p.Name("commit"))
		if err != nil {
			return err
		}
		if g := groups[p.Name("commit")]; g.Err != nil || g.State != "Empty" || g.ProtocolType != "consumer" {
			return fmt.Errorf("state %q, type %q, error %s; want Empty and consumer", g.State, g.ProtocolType, check.Why(g.Err))
		}
		listed, err := p.admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		if _, ok := listed[p.Name("commit")]; !ok {
			return errors.New("it is not listed")
		}
		return nil
	})
	p.Run(check.Lag, func(ctx context.Context) error {
		if err := p.send(ctx, outgoing(p.Name("commit"), check.Data()[:check.More])); err != nil {
			return err
		}
		lags, err := p.admin.Lag(ctx, p.Name("commit"))
		if err != nil {
			return err
		}
		if lag := lags[p.Name("commit")]; lag.Error() != nil || lag.Lag.Total() != check.More {
			return fmt.Errorf("lag %d, error %s; want %d", lag.Lag.Total(), check.Why(lag.Error()), check.More)
		}
		return nil
	})
	p.Run(check.GroupDelete, func(ctx context.Context) error {
		if _, err := p.admin.DeleteGroup(ctx, p.Name("commit")); err != nil {
			return err
		}
		listed, err := p.admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		if slices.Contains(listed.Groups(), p.Name("commit")) {
			return errors.New("it is still listed")
		}
		return nil
	})
	p.Run(check.GroupAdminister, p.administer)
}

// administer describes a KIP-848 group with a member, lists it by its type, and resets its offsets and deletes it without one.
func (p *program) administer(ctx context.Context) error {
	name := p.Name("administer")
	if err := p.topic(ctx, name, check.Partitions); err != nil {
		return err
	}
	c, err := p.open(kgo.ConsumerGroup(name), kgo.ConsumeTopics(name), kgo.DisableAutoCommit(), kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	if err != nil {
		return err
	}
	defer c.Close()
	err = check.Await(ctx, func() error {
		described, err := p.admin.DescribeConsumerGroups(ctx, name)
		if err != nil {
			return err
		}
		g := described[name]
		if assigned := g.AssignedPartitions(); g.Err != nil || g.State != "Stable" || g.AssignorName != "range" || len(assigned[name]) != check.Partitions {
			return fmt.Errorf("state %q, by %q, partitions %v, error %s; want Stable, range, %d", g.State, g.AssignorName, assigned, check.Why(g.Err), check.Partitions)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for filter, want := range map[string]bool{"consumer": true, "classic": false} {
		listed, err := p.admin.ListGroupsByType(ctx, []string{filter})
		if err != nil {
			return err
		}
		if _, got := listed[name]; got != want {
			return fmt.Errorf("listed with the filter %s: %t, want %t", filter, got, want)
		}
	}
	if _, err := p.admin.DeleteGroup(ctx, name); !errors.Is(err, kerr.NonEmptyGroup) {
		return fmt.Errorf("delete it with a member: error %s, want NON_EMPTY_GROUP", check.Why(err))
	}
	if err := c.LeaveGroupContext(ctx); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(name, 1, 7, -1)
	if err := p.admin.CommitAllOffsets(ctx, name, offsets); err != nil {
		return fmt.Errorf("reset its offsets: %w", err)
	}
	committed, err := p.admin.FetchOffsets(ctx, name)
	if err != nil {
		return err
	}
	if o, _ := committed.Lookup(name, 1); o.At != 7 {
		return fmt.Errorf("offset %d, want 7", o.At)
	}
	_, err = p.admin.DeleteGroup(ctx, name)
	return err
}

// readInGroup reads n records as the only member, commits them and leaves.
func (p *program) readInGroup(ctx context.Context, group, topic string, n int) ([]*kgo.Record, error) {
	c, err := p.open(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
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
	return records, c.CommitUncommittedOffsets(ctx)
}

func (p *program) commit(ctx context.Context) error {
	topic, group := p.Name("commit"), p.Name("commit")
	if err := p.topic(ctx, topic, check.Partitions); err != nil {
		return err
	}
	if err := p.send(ctx, outgoing(topic, check.Data())); err != nil {
		return err
	}
	records, err := p.readInGroup(ctx, group, topic, check.DataRecords)
	if err != nil {
		return err
	}
	if err := check.Same(check.Data(), incoming(records)); err != nil {
		return err
	}
	if err := p.send(ctx, outgoing(topic, check.Data()[:check.More])); err != nil {
		return err
	}
	if records, err = p.readInGroup(ctx, group, topic, check.More); err != nil {
		return err
	}
	return check.Same(check.After(check.Data()[:check.More]), incoming(records))
}

// rebalance has two members read, and one leave.
func (p *program) rebalance(ctx context.Context) error {
	topic := p.Name("rebalance")
	if err := p.topic(ctx, topic, check.GroupPartitions); err != nil {
		return err
	}
	return check.Rebalance(ctx, func() error { return p.send(ctx, outgoing(topic, check.Spread())) },
		func(reading context.Context, ledger *check.Ledger, mine func(int)) error {
			return p.member(ctx, reading, ledger, mine)
		})
}

// member reads until the context reading ends, and commits after each poll.
func (p *program) member(ctx, reading context.Context, ledger *check.Ledger, mine func(partitions int)) error {
	topic := p.Name("rebalance")
	owned := 0
	assigned := func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
		owned += len(got[topic])
		mine(owned)
	}
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		owned -= len(lost[topic])
		mine(owned)
	}
	c, err := p.open(kgo.ConsumerGroup(p.Name("rebalance")), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(assigned), kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone))
	if err != nil {
		return err
	}
	defer c.Close()
	defer c.AllowRebalance()
	for {
		c.AllowRebalance()
		fetches := c.PollFetches(reading)
		if reading.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) { ledger.Read(r.Partition, r.Offset) })
		offsets := c.UncommittedOffsets()
		c.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil || resp == nil {
				return
			}
			for _, t := range resp.Topics {
				for _, partition := range t.Partitions {
					if partition.ErrorCode == 0 {
						ledger.Committed(partition.Partition, offsets[topic][partition.Partition].Offset)
					}
				}
			}
		})
	}
}

func (p *program) topics() {
	topic := p.Name("topic")
	p.Run(check.TopicCreate, func(ctx context.Context) error { return p.topic(ctx, topic, 2) })
	p.Run(check.TopicCreateAgain, func(ctx context.Context) error {
		_, err := p.admin.CreateTopic(ctx, 2, 1, nil, topic)
		return check.Exists(err)
	})
	p.Run(check.TopicDescribe, func(ctx context.Context) error {
		return check.Await(ctx, func() error { return p.partitions(ctx, topic, 2) })
	})
	p.Run(check.PartitionsAdd, func(ctx context.Context) error {
		resp, err := p.admin.UpdatePartitions(ctx, 5, topic)
		if err := errors.Join(err, resp.Error()); err != nil {
			return err
		}
		return check.Await(ctx, func() error { return p.partitions(ctx, topic, 5) })
	})
	p.Run(check.ConfigsDescribe, func(ctx context.Context) error { return p.retention(ctx, topic, "604800000") })
	p.Run(check.ConfigsAlter, func(ctx context.Context) error {
		value := "3600000"
		resp, err := p.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, topic)
		if err != nil {
			return err
		}
		if _, err := resp.On(topic, nil); err != nil {
			return err
		}
		return check.Await(ctx, func() error { return p.retention(ctx, topic, value) })
	})
	p.Run(check.RecordsDelete, func(ctx context.Context) error {
		order := p.Name("order")
		offsets := kadm.Offsets{}
		offsets.AddOffset(order, 0, check.Middle, -1)
		resp, err := p.admin.DeleteRecords(ctx, offsets)
		if err := errors.Join(err, resp.Error()); err != nil {
			return err
		}
		starts, err := p.admin.ListStartOffsets(ctx, order)
		if err != nil {
			return err
		}
		if o, _ := starts.Lookup(order, 0); o.Err != nil || o.Offset != check.Middle {
			return fmt.Errorf("the first offset is %d, error %s; want %d", o.Offset, check.Why(o.Err), check.Middle)
		}
		return nil
	})
	p.Run(check.TopicDelete, func(ctx context.Context) error {
		if _, err := p.admin.DeleteTopic(ctx, topic); err != nil {
			return err
		}
		return check.Await(ctx, func() error {
			topics, err := p.admin.ListTopics(ctx)
			if err == nil && topics.Has(topic) {
				err = errors.New("it is still listed")
			}
			return err
		})
	})
}

// partitions says whether a topic has n partitions, each with a leader.
func (p *program) partitions(ctx context.Context, topic string, n int) error {
	topics, err := p.admin.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	got := topics[topic]
	if got.Err != nil || len(got.Partitions) != n {
		return fmt.Errorf("partitions %v, error %s; want %d", slices.Sorted(maps.Keys(got.Partitions)), check.Why(got.Err), n)
	}
	for _, d := range got.Partitions {
		if d.Err != nil || d.Leader < 1 {
			return fmt.Errorf("partition %d: leader %d, error %s", d.Partition, d.Leader, check.Why(d.Err))
		}
	}
	return nil
}

// retention says whether a topic's retention.ms has a value.
func (p *program) retention(ctx context.Context, topic, want string) error {
	resp, err := p.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	configs, err := resp.On(topic, nil)
	if err != nil {
		return err
	}
	for _, c := range configs.Configs {
		if c.Key == "retention.ms" && c.MaybeValue() == want {
			return nil
		}
	}
	return fmt.Errorf("retention.ms is not %s in %v", want, configs.Configs)
}
