// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

// sarama reads with sarama.
func (a *asked) sarama(ctx context.Context) error {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Consumer.Return.Errors = true
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if a.session > 0 {
		c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = a.session, a.session/3
	}
	g, err := sarama.NewConsumerGroup([]string{a.bootstrap}, a.group, c)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	go func() {
		for err := range g.Errors() {
			fmt.Fprintln(os.Stderr, "member:", err)
		}
	}()
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{a.topic}, handler{a}); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "member: consume:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	return g.Close()
}

// handler writes down what sarama tells it.
type handler struct{ a *asked }

func (h handler) Setup(s sarama.ConsumerGroupSession) error {
	h.a.journal.partitions('G', s.Claims()[h.a.topic])
	return nil
}

func (h handler) Cleanup(s sarama.ConsumerGroupSession) error {
	h.a.journal.partitions('R', s.Claims()[h.a.topic])
	return nil
}

func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.a.journal.record(m.Partition, m.Offset)
		s.MarkMessage(m, "")
	}
	return nil
}
