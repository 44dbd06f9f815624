// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// reader is a member of a group.
func (p *program) reader(group, topic, clientID string) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{p.Bootstrap}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
		HeartbeatInterval: 300 * time.Millisecond, Dialer: &kafka.Dialer{ClientID: clientID, Timeout: 10 * time.Second},
	})
}

// readInGroup reads n records as the only member, commits them and leaves.
func (p *program) readInGroup(ctx context.Context, name string, n int) ([]kafka.Message, error) {
	r := p.reader(name, name, "")
	var messages []kafka.Message
	for len(messages) < n {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w after %d of %d records", err, len(messages), n), r.Close())
		}
		messages = append(messages, m)
	}
	return messages, errors.Join(r.CommitMessages(ctx, messages...), r.Close())
}

func (p *program) commit(ctx context.Context) error {
	name := p.Name("commit")
	if err := p.topic(ctx, name, check.Partitions); err != nil {
		return err
	}
	if err := p.send(ctx, name, check.Data(), nil); err != nil {
		return err
	}
	messages, err := p.readInGroup(ctx, name, check.DataRecords)
	if err == nil {
		err = check.Same(check.Data(), incoming(messages))
	}
	if err == nil {
		err = p.send(ctx, name, check.Data()[:check.More], nil)
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
	var members atomic.Int32
	return check.Rebalance(ctx, func() error { return p.send(ctx, name, check.Spread(), nil) },
		func(ctx context.Context, ledger *check.Ledger, mine func(int)) error {
			id := fmt.Sprintf("member-%d", members.Add(1))
			r := p.reader(name, name, id)
			go p.watch(ctx, name, id, mine)
			for {
				m, err := r.FetchMessage(ctx)
				if ctx.Err() != nil {
					return r.Close()
				}
				if err != nil {
					return errors.Join(err, r.Close())
				}
				partition := int32(m.Partition)
				ledger.Read(partition, m.Offset)
				err = r.CommitMessages(ctx, m)
				// A commit that a rebalance overtakes is sent in the new generation, by a member that may have lost the partition; its new owner
				// may have begun before that. With Kafka it is the same.
				if err == nil && r.Stats().Rebalances == 0 {
					ledger.Committed(partition, m.Offset+1)
				}
			}
		})
}

// watch asks the coordinator how many partitions a member has: the reader does not tell.
func (p *program) watch(ctx context.Context, group, clientID string, mine func(int)) {
	for ctx.Err() == nil {
		resp, err := p.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		if err == nil && len(resp.Groups) == 1 && resp.Groups[0].GroupState == "Stable" {
			for _, m := range resp.Groups[0].Members {
				if m.ClientID == clientID && len(m.MemberAssignments.Topics) == 1 {
					mine(len(m.MemberAssignments.Topics[0].Partitions))
				}
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *program) groups() {
	name := p.Name("commit")
	p.Run(check.GroupNeverSeen, func(ctx context.Context) error {
		topic := p.Name("order")
		resp, err := p.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: p.Name("never"), Topics: map[string][]int{topic: {0}}})
		if err == nil {
			err = resp.Error
		}
		if err != nil {
			return err
		}
		if got := resp.Topics[topic]; len(got) != 1 || got[0].CommittedOffset != -1 || got[0].Error != nil {
			return fmt.Errorf("partition 0: %+v, want offset -1", got)
		}
		return nil
	})
	p.Run(check.GroupCommit, p.commit)
	p.Run(check.GroupRebalance, p.rebalance)
	p.Run(check.GroupDescribe, func(ctx context.Context) error {
		resp, err := p.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{name}})
		if err != nil {
			return err
		}
		if g := resp.Groups[0]; g.Error != nil || g.GroupState != "Empty" {
			return fmt.Errorf("state %q, error %s; want Empty", g.GroupState, check.Why(g.Error))
		}
		return p.listed(ctx, name, true)
	})
	p.Run(check.Lag, func(ctx context.Context) error {
		if err := p.send(ctx, name, check.Data()[:check.More], nil); err != nil {
			return err
		}
		lag, err := p.lag(ctx, name)
		if err == nil && lag != check.More {
			err = fmt.Errorf("lag %d, want %d", lag, check.More)
		}
		return err
	})
	p.Run(check.GroupDelete, func(ctx context.Context) error {
		resp, err := p.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{name}})
		if err == nil {
			err = resp.Errors[name]
		}
		if err != nil {
			return err
		}
		return p.listed(ctx, name, false)
	})
}

// lag is how many records of the topic of the same name a group has not committed.
func (p *program) lag(ctx context.Context, name string) (int64, error) {
	committed, err := p.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: name, Topics: map[string][]int{name: {0, 1, 2}}})
	if err != nil {
		return 0, err
	}
	ends, err := p.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		name: {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1), kafka.LastOffsetOf(2)},
	}})
	if err != nil {
		return 0, err
	}
	var lag int64
	for _, o := range ends.Topics[name] {
		lag += o.LastOffset
	}
	for _, o := range committed.Topics[name] {
		lag -= o.CommittedOffset
	}
	return lag, nil
}

// listed says whether a group is listed or not.
func (p *program) listed(ctx context.Context, name string, want bool) error {
	var names []string
	brokers, err := p.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return err
	}
	for _, b := range brokers.Brokers {
		resp, err := p.client.ListGroups(ctx, &kafka.ListGroupsRequest{Addr: kafka.TCP(fmt.Sprintf("%s:%d", b.Host, b.Port))})
		if err == nil {
			err = resp.Error
		}
		if err != nil {
			return err
		}
		for _, g := range resp.Groups {
			names = append(names, g.GroupID)
		}
	}
	if got := slices.Contains(names, name); got != want {
		return fmt.Errorf("listed: %t, want %t", got, want)
	}
	return nil
}

func (p *program) topics() {
	p.Skip(check.GroupAdminister, check.NoConsumerProtocol)
	topic := p.Name("topic")
	p.Run(check.TopicCreate, func(ctx context.Context) error { return p.topic(ctx, topic, 2) })
	p.Run(check.TopicCreateAgain, func(ctx context.Context) error { return check.Exists(p.create(ctx, topic, 2)) })
	p.Run(check.TopicDescribe, func(ctx context.Context) error { return p.partitions(ctx, topic, 2) })
	p.Run(check.PartitionsAdd, func(ctx context.Context) error {
		resp, err := p.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 5}}})
		if err == nil {
			err = resp.Errors[topic]
		}
		if err != nil {
			return err
		}
		return check.Await(ctx, func() error { return p.partitions(ctx, topic, 5) })
	})
	p.Run(check.ConfigsDescribe, func(ctx context.Context) error { return p.retention(ctx, topic, "604800000") })
	p.Run(check.ConfigsAlter, func(ctx context.Context) error {
		resp, err := p.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "3600000", ConfigOperation: kafka.ConfigOperationSet}},
		}}})
		if err == nil {
			err = resp.Resources[0].Error
		}
		if err != nil {
			return err
		}
		return check.Await(ctx, func() error { return p.retention(ctx, topic, "3600000") })
	})
	p.Skip(check.RecordsDelete, "the client has no DeleteRecords")
	p.Run(check.TopicDelete, func(ctx context.Context) error {
		resp, err := p.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		if err == nil {
			err = resp.Errors[topic]
		}
		if err != nil {
			return err
		}
		return check.Await(ctx, func() error {
			resp, err := p.client.Metadata(ctx, &kafka.MetadataRequest{})
			if err == nil && slices.ContainsFunc(resp.Topics, func(t kafka.Topic) bool { return t.Name == topic }) {
				err = errors.New("it is still listed")
			}
			return err
		})
	})
}

// retention says whether a topic's retention.ms has a value.
func (p *program) retention(ctx context.Context, topic, want string) error {
	resp, err := p.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}},
	})
	if err == nil {
		err = resp.Resources[0].Error
	}
	if err != nil {
		return err
	}
	if got := resp.Resources[0].ConfigEntries; len(got) != 1 || got[0].ConfigValue != want {
		return fmt.Errorf("configs %+v, want retention.ms=%s", got, want)
	}
	return nil
}
