// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// reader is a member of a group. It commits each record before it takes the next one.
type reader struct {
	ledger *check.Ledger
	mine   func(partitions int)

	mu       sync.Mutex
	messages []*sarama.ConsumerMessage
}

// Setup is called when partitions are there.
func (m *reader) Setup(s sarama.ConsumerGroupSession) error {
	for _, partitions := range s.Claims() {
		m.mine(len(partitions))
	}
	return nil
}

// Cleanup is called when they go.
func (m *reader) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	m.mine(0)
	return nil
}

// ConsumeClaim reads one partition.
func (m *reader) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			m.ledger.Read(message.Partition, message.Offset)
			s.MarkMessage(message, "")
			m.ledger.Committed(message.Partition, message.Offset+1) // at the latest in Cleanup, before anybody else gets the partition
			m.mu.Lock()
			m.messages = append(m.messages, message)
			m.mu.Unlock()
		case <-s.Context().Done():
			return nil
		}
	}
}

// run is a member of the group until ctx ends.
func (p *program) run(ctx context.Context, group, topic string, m *reader) error {
	g, err := sarama.NewConsumerGroup([]string{p.Bootstrap}, group, config(func(c *sarama.Config) {
		c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
		c.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	}))
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		var errs []error
		for err := range g.Errors() {
			errs = append(errs, err)
		}
		failed <- errors.Join(errs...)
	}()
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
			return errors.Join(err, g.Close())
		}
	}
	return errors.Join(g.Close(), <-failed)
}

// readInGroup reads n records as the only member, commits them and leaves.
func (p *program) readInGroup(ctx context.Context, name string, n int) ([]*sarama.ConsumerMessage, error) {
	m := &reader{ledger: check.NewLedger(), mine: func(int) {}}
	reading, leave := context.WithCancel(ctx)
	defer leave()
	done := make(chan error, 1)
	go func() { done <- p.run(reading, name, name, m) }()
	err := check.Await(ctx, func() error { return m.ledger.Check(n) })
	leave()
	return m.messages, errors.Join(err, <-done)
}

func (p *program) commit(ctx context.Context) error {
	name := p.Name("commit")
	if err := p.topic(ctx, name, check.Partitions); err != nil {
		return err
	}
	if err := p.send(name, check.Data(), nil); err != nil {
		return err
	}
	messages, err := p.readInGroup(ctx, name, check.DataRecords)
	if err == nil {
		err = check.Same(check.Data(), incoming(messages))
	}
	if err == nil {
		err = p.send(name, check.Data()[:check.More], nil)
	}
	if err != nil {
		return err
	}
	if messages, err = p.readInGroup(ctx, name, check.More); err != nil {
		return err
	}
	return check.Same(check.After(check.Data()[:check.More]), incoming(messages))
}

func (p *program) rebalance(ctx context.Context) error {
	name := p.Name("rebalance")
	if err := p.topic(ctx, name, check.GroupPartitions); err != nil {
		return err
	}
	return check.Rebalance(ctx, func() error { return p.send(name, check.Spread(), nil) },
		func(ctx context.Context, ledger *check.Ledger, mine func(int)) error {
			return p.run(ctx, name, name, &reader{ledger: ledger, mine: mine})
		})
}

func (p *program) groups() {
	name := p.Name("commit")
	p.Run(check.GroupNeverSeen, func(context.Context) error {
		topic := p.Name("order")
		resp, err := p.admin.ListConsumerGroupOffsets(p.Name("never"), map[string][]int32{topic: {0}})
		if err != nil {
			return err
		}
		if b := resp.GetBlock(topic, 0); b == nil || b.Offset != -1 || !errors.Is(b.Err, sarama.ErrNoError) {
			return fmt.Errorf("partition 0: %+v, want offset -1", b)
		}
		return nil
	})
	p.Run(check.GroupCommit, p.commit)
	p.Run(check.GroupRebalance, p.rebalance)
	p.Run(check.GroupDescribe, func(context.Context) error {
		groups, err := p.admin.DescribeConsumerGroups([]string{name})
		if err != nil {
			return err
		}
		if g := groups[0]; !errors.Is(g.Err, sarama.ErrNoError) || g.State != "Empty" || g.ProtocolType != "consumer" {
			return fmt.Errorf("state %q, type %q, error %s; want Empty and consumer", g.State, g.ProtocolType, check.Why(g.Err))
		}
		return p.listed(name, true)
	})
	p.Run(check.Lag, func(context.Context) error {
		if err := p.send(name, check.Data()[:check.More], nil); err != nil {
			return err
		}
		resp, err := p.admin.ListConsumerGroupOffsets(name, map[string][]int32{name: {0, 1, 2}})
		if err != nil {
			return err
		}
		if !errors.Is(resp.Err, sarama.ErrNoError) {
			return resp.Err
		}
		var lag int64
		var seen []string
		for partition, b := range resp.Blocks[name] {
			end, err := p.client.GetOffset(name, partition, sarama.OffsetNewest)
			if err != nil {
				return err
			}
			lag += end - b.Offset
			seen = append(seen, fmt.Sprintf("partition %d: committed %d, error %s, end %d", partition, b.Offset, check.Why(b.Err), end))
		}
		if lag != check.More {
			return fmt.Errorf("lag %d, want %d: %v", lag, check.More, seen)
		}
		return nil
	})
	p.Run(check.GroupDelete, func(context.Context) error {
		if err := p.admin.DeleteConsumerGroup(name); err != nil {
			return err
		}
		return p.listed(name, false)
	})
}

// listed says whether a group is listed or not.
func (p *program) listed(name string, want bool) error {
	groups, err := p.admin.ListConsumerGroups()
	if err != nil {
		return err
	}
	if _, got := groups[name]; got != want {
		return fmt.Errorf("listed: %t, want %t", got, want)
	}
	return nil
}

func (p *program) topics() {
	p.Skip(check.GroupAdminister, check.NoConsumerProtocol)
	topic := p.Name("topic")
	p.Run(check.TopicCreate, func(ctx context.Context) error { return p.topic(ctx, topic, 2) })
	p.Run(check.TopicCreateAgain, func(context.Context) error {
		return check.Exists(p.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
	})
	p.Run(check.TopicDescribe, func(context.Context) error { return p.partitions(topic, 2) })
	p.Run(check.PartitionsAdd, func(ctx context.Context) error {
		if err := p.admin.CreatePartitions(topic, 5, nil, false); err != nil {
			return err
		}
		return check.Await(ctx, func() error { return p.partitions(topic, 5) })
	})
	p.Run(check.ConfigsDescribe, func(context.Context) error { return p.retention(topic, "604800000") })
	p.Run(check.ConfigsAlter, func(ctx context.Context) error {
		value := "3600000"
		err := p.admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}, false)
		if err != nil {
			return err
		}
		if err := check.Await(ctx, func() error { return p.retention(topic, value) }); err != nil {
			return err
		}
		value = "7200000" // with the older request, which replaces all that was set
		if err := p.admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &value}, false); err != nil {
			return fmt.Errorf("AlterConfigs: %w", err)
		}
		return check.Await(ctx, func() error { return p.retention(topic, value) })
	})
	p.Run(check.RecordsDelete, func(context.Context) error {
		order := p.Name("order")
		if err := p.admin.DeleteRecords(order, map[int32]int64{0: check.Middle}); err != nil {
			return err
		}
		first, err := p.client.GetOffset(order, 0, sarama.OffsetOldest)
		if err == nil && first != check.Middle {
			err = fmt.Errorf("the first offset is %d, want %d", first, check.Middle)
		}
		return err
	})
	p.Run(check.TopicDelete, func(ctx context.Context) error {
		if err := p.admin.DeleteTopic(topic); err != nil {
			return err
		}
		return check.Await(ctx, func() error {
			topics, err := p.admin.ListTopics()
			if _, got := topics[topic]; err == nil && got {
				err = errors.New("it is still listed")
			}
			return err
		})
	})
}

// partitions says whether a topic has n partitions, each with a leader.
func (p *program) partitions(topic string, n int) error {
	topics, err := p.admin.DescribeTopics([]string{topic})
	if err != nil {
		return err
	}
	if got := topics[0]; !errors.Is(got.Err, sarama.ErrNoError) || len(got.Partitions) != n {
		return fmt.Errorf("%d partitions, error %s; want %d", len(got.Partitions), check.Why(got.Err), n)
	}
	for _, d := range topics[0].Partitions {
		if d.Leader < 1 {
			return fmt.Errorf("partition %d: leader %d", d.ID, d.Leader)
		}
	}
	return nil
}

// retention says whether a topic's retention.ms has a value.
func (p *program) retention(topic, want string) error {
	resources, err := p.admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}},
		sarama.DescribeConfigsOptions{})
	if err != nil {
		return err
	}
	if got := resources[0]; !errors.Is(got.ErrorCode, sarama.ErrNoError) || len(got.Configs) != 1 || got.Configs[0].Value != want {
		return fmt.Errorf("configs %v, error %s; want retention.ms=%s", got.Configs, check.Why(got.ErrorCode), want)
	}
	return nil
}
