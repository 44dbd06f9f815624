// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"

	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// claims is what a member of a group does with its partitions.
type claims struct {
	asked *member.Config
	out   *member.Output
	owned member.Owned
	marks member.Marks
}

// beMember is a member of a group until it is told to leave.
func beMember(asked *member.Config) {
	g, err := sarama.NewConsumerGroup([]string{os.Args[1]}, asked.Group, config(func(c *sarama.Config) {
		c.Consumer.Offsets.AutoCommit.Enable = false
		c.Consumer.Group.InstanceId = asked.Instance
		if asked.SessionMillis > 0 {
			c.Consumer.MaxWaitTime = 200 * time.Millisecond
			c.Consumer.Group.Session.Timeout = time.Duration(asked.SessionMillis) * time.Millisecond
			c.Consumer.Group.Heartbeat.Interval = time.Duration(asked.HeartbeatMillis) * time.Millisecond
		}
		if asked.ClientID != "" {
			c.ClientID = asked.ClientID
		}
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
		if asked.Protocol == member.Cooperative {
			c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
		}
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, "sarama:", err)
		os.Exit(1)
	}
	out := member.NewOutput()
	go func() {
		for err := range g.Errors() {
			out.Fail(err)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		member.AwaitLeave()
		cancel()
	}()
	for ctx.Err() == nil {
		err := g.Consume(ctx, asked.Topics, &claims{asked: asked, out: out})
		if err != nil && ctx.Err() == nil {
			out.Fail(err)
		}
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			break
		}
	}
	if err := g.Close(); err != nil {
		out.Fail(err)
	}
}

// Setup is called when a session begins.
func (c *claims) Setup(s sarama.ConsumerGroupSession) error {
	go c.marks.Commit(s.Context(), c.out, func(next map[member.Partition]int64) (string, int32, error) {
		for p, offset := range next {
			s.MarkOffset(p.Topic, p.Number, offset, "")
		}
		s.Commit()
		return s.MemberID(), s.GenerationID(), nil
	})
	if c.asked.CommitMillis > 0 {
		go c.owned.Commit(s.Context(), c.out, c.asked, func(p member.Partition, n int64) error {
			s.MarkOffset(p.Topic, p.Number, n, "") // the client commits what is new alone
			s.Commit()
			return nil
		})
	}
	return nil
}

// Cleanup is called when it ends.
func (*claims) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads one partition.
func (c *claims) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	p := member.Partition{Topic: claim.Topic(), Number: claim.Partition()}
	one := map[string][]int32{p.Topic: {p.Number}}
	c.owned.Moved(member.Assigned, one)
	c.out.Moved(member.Assigned, one)
	defer func() {
		c.marks.Forget(p)
		c.owned.Moved(member.Revoked, one)
		c.out.Moved(member.Revoked, one)
	}()
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			c.marks.Read(c.out, p, message.Offset)
		case <-s.Context().Done():
			return nil
		}
	}
}
