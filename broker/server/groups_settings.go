// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// Defaults of GroupConfig: Kafka's, but for DefaultInitialRebalanceDelay, which is 3 s there, and
// DefaultAssignmentInterval, which is 1 s.
const (
	DefaultOffsetsRetention          = 7 * 24 * time.Hour
	DefaultInitialRebalanceDelay     = time.Duration(0)
	DefaultMinSessionTimeout         = 6 * time.Second
	DefaultMaxSessionTimeout         = 30 * time.Minute
	DefaultConsumerSessionTimeout    = 45 * time.Second
	DefaultConsumerHeartbeatInterval = 5 * time.Second
	DefaultAssignmentInterval        = 100 * time.Millisecond
)

// DefaultHeartbeatHold is a little less than Kafka's default heartbeat.interval.ms, 3 s.
const DefaultHeartbeatHold = 2900 * time.Millisecond

// GroupConfig are the settings of consumer groups. The zero value of a field means its default.
type GroupConfig struct {
	// OffsetsRetention is how long committed offsets are kept once their group is empty, or nobody in it reads their topic (Kafka's
	// offsets.retention.minutes). Default DefaultOffsetsRetention.
	OffsetsRetention time.Duration
	// InitialRebalanceDelay is how long the first rebalance of an empty group waits for more members (group.initial.rebalance.delay.ms). Default
	// DefaultInitialRebalanceDelay.
	InitialRebalanceDelay time.Duration
	// MinSessionTimeout and MaxSessionTimeout limit the session timeout that a member of a classic group asks for (group.min.session.timeout.ms and
	// group.max.session.timeout.ms). Default DefaultMinSessionTimeout and DefaultMaxSessionTimeout.
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// ConsumerSessionTimeout and ConsumerHeartbeatInterval are told to members of the consumer protocol, KIP-848 (group.consumer.session.timeout.ms and
	// group.consumer.heartbeat.interval.ms). Default DefaultConsumerSessionTimeout and DefaultConsumerHeartbeatInterval.
	ConsumerSessionTimeout, ConsumerHeartbeatInterval time.Duration
	// AssignmentInterval is how long a group of the consumer protocol waits for more members to come, or to change what they read, before it assigns
	// anew (group.consumer.assignment.interval.ms). Default DefaultAssignmentInterval; negative for not at all.
	AssignmentInterval time.Duration
	// HeartbeatHold is how long the heartbeat of a classic member of a managed group may be held at most, so that it hears of a change at once. Default
	// DefaultHeartbeatHold; negative for not at all.
	HeartbeatHold time.Duration
}

// withDefaults fills in what is missing.
func (c GroupConfig) withDefaults() GroupConfig {
	setDefault(&c.OffsetsRetention, DefaultOffsetsRetention)
	setDefault(&c.InitialRebalanceDelay, DefaultInitialRebalanceDelay)
	setDefault(&c.MinSessionTimeout, DefaultMinSessionTimeout)
	setDefault(&c.MaxSessionTimeout, DefaultMaxSessionTimeout)
	setDefault(&c.ConsumerSessionTimeout, DefaultConsumerSessionTimeout)
	setDefault(&c.ConsumerHeartbeatInterval, DefaultConsumerHeartbeatInterval)
	if c.AssignmentInterval == 0 {
		c.AssignmentInterval = DefaultAssignmentInterval
	}
	c.AssignmentInterval = max(c.AssignmentInterval, 0)
	if c.HeartbeatHold == 0 {
		c.HeartbeatHold = DefaultHeartbeatHold
	}
	c.HeartbeatHold = max(c.HeartbeatHold, 0)
	return c
}

// options are the settings as every group has them.
func (c GroupConfig) options() coordinator.Options {
	return coordinator.Options{
		MaxMembers:       maxGroupMembers,
		OffsetsRetention: c.OffsetsRetention, InitialRebalanceDelay: c.InitialRebalanceDelay,
		MinSessionTimeout: c.MinSessionTimeout, MaxSessionTimeout: c.MaxSessionTimeout,
		ConsumerSessionTimeout: c.ConsumerSessionTimeout, ConsumerHeartbeatInterval: c.ConsumerHeartbeatInterval,
		AssignmentInterval: c.AssignmentInterval,
	}
}
