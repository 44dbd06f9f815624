// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmaster-dev/ringmaster/broker/server"
)

// groupFlags are the flags about consumer groups. A BrokerCluster's spec.config has the same ranges.
type groupFlags struct{ server.GroupConfig }

func (g *groupFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&g.OffsetsRetention, "offsets-retention", server.DefaultOffsetsRetention,
		"how long committed offsets are kept once their group is empty, or nobody in it reads their topic")
	flags.DurationVar(&g.InitialRebalanceDelay, "initial-rebalance-delay", server.DefaultInitialRebalanceDelay,
		"how long the first rebalance of an empty group waits for more members")
	flags.DurationVar(&g.MinSessionTimeout, "min-session-timeout", server.DefaultMinSessionTimeout,
		"the shortest session timeout that a member of a classic group may ask for")
	flags.DurationVar(&g.MaxSessionTimeout, "max-session-timeout", server.DefaultMaxSessionTimeout,
		"the longest session timeout that a member of a classic group may ask for")
	flags.DurationVar(&g.ConsumerSessionTimeout, "consumer-session-timeout", server.DefaultConsumerSessionTimeout,
		"the session timeout of members of the consumer protocol (KIP-848)")
	flags.DurationVar(&g.ConsumerHeartbeatInterval, "consumer-heartbeat-interval", server.DefaultConsumerHeartbeatInterval,
		"how often members of the consumer protocol are told to send a heartbeat")
	flags.DurationVar(&g.AssignmentInterval, "assignment-interval", server.DefaultAssignmentInterval,
		"how long a group of the consumer protocol waits for more members to come before it assigns anew")
	flags.DurationVar(&g.HeartbeatHold, "heartbeat-hold", server.DefaultHeartbeatHold,
		"how long the heartbeat of a classic member of a managed group may be held, so that it hears of a change at once; 0 for not at all")
	noFiles(cmd, "offsets-retention", "initial-rebalance-delay", "min-session-timeout", "max-session-timeout", "consumer-session-timeout",
		"consumer-heartbeat-interval", "assignment-interval", "heartbeat-hold")
}

// config is what the server is told.
func (g *groupFlags) config() server.GroupConfig {
	c := g.GroupConfig
	if c.AssignmentInterval == 0 {
		c.AssignmentInterval = -1 // not at all; a zero would be the default
	}
	if c.HeartbeatHold == 0 {
		c.HeartbeatHold = -1
	}
	return c
}

// check checks the flags' ranges.
func (g *groupFlags) check() error {
	for _, f := range []struct {
		flag              string
		value, least, max time.Duration
		allowed           string
	}{
		{"offsets-retention", g.OffsetsRetention, time.Minute, 87600 * time.Hour, "1m to 87600h"},
		{"initial-rebalance-delay", g.InitialRebalanceDelay, 0, 10 * time.Minute, "0s to 10m"},
		{"min-session-timeout", g.MinSessionTimeout, 100 * time.Millisecond, 24 * time.Hour, "100ms to 24h"},
		{"max-session-timeout", g.MaxSessionTimeout, 100 * time.Millisecond, 24 * time.Hour, "100ms to 24h"},
		{"consumer-session-timeout", g.ConsumerSessionTimeout, time.Second, 24 * time.Hour, "1s to 24h"},
		{"assignment-interval", g.AssignmentInterval, 0, 10 * time.Second, "0s to 10s"},
		{"heartbeat-hold", g.HeartbeatHold, 0, 10 * time.Second, "0s to 10s"},
		{"consumer-heartbeat-interval", g.ConsumerHeartbeatInterval, 100 * time.Millisecond, time.Hour, "100ms to 1h"},
	} {
		if f.value < f.least || f.value > f.max {
			return usagef("--%s must be from %s, not %s", f.flag, f.allowed, f.value)
		}
	}
	if g.MinSessionTimeout > g.MaxSessionTimeout {
		return usagef("--min-session-timeout, %s, must not be longer than --max-session-timeout, %s", g.MinSessionTimeout, g.MaxSessionTimeout)
	}
	if g.ConsumerHeartbeatInterval >= g.ConsumerSessionTimeout {
		return usagef("--consumer-heartbeat-interval, %s, must be shorter than --consumer-session-timeout, %s",
			g.ConsumerHeartbeatInterval, g.ConsumerSessionTimeout)
	}
	return nil
}
