// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// groupPeers are those that groups are measured with.
var groupPeers = []string{ringmasterGroups, kafkaGroups}

// The settings that both brokers have.
const (
	// groupHeartbeat is how often members send a heartbeat. Classic members decide it themselves; those of KIP-848 are told.
	groupHeartbeat = 500 * time.Millisecond
	// groupDelay is how long a new classic group waits for more members, and how long one of KIP-848 waits before it assigns again. Kafka's defaults are 3 seconds
	// and 1.
	groupDelay = 100 * time.Millisecond
)

var ringmasterGroupFlags = []string{
	"--consumer-heartbeat-interval", groupHeartbeat.String(), "--initial-rebalance-delay", groupDelay.String(), "--assignment-interval", groupDelay.String(),
}

// kafkaGroupConfig has a longer queue of connections besides, since a thousand members connect again at once when the broker was killed.
var kafkaGroupConfig = fmt.Sprintf(`group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=%d
group.initial.rebalance.delay.ms=%d
group.consumer.assignment.interval.ms=%[2]d
socket.listen.backlog.size=4096
`, groupHeartbeat.Milliseconds(), groupDelay.Milliseconds())

// quickLimit is the limit of each in the short run.
const quickLimit = 5 * time.Second

// The works that targets of groups are held against.
const (
	smallGroup = "rebalance 900 partitions, 10 franz-go consumers, "
	largeGroup = "rebalance 10,000 partitions, 1,000 members, "
	lostBroker = "rebalance after kill -9 of the broker, 100 partitions, 1,000 members, "
)

// The protocols that groups of each size are measured with.
var (
	smallProtocols = []string{protocolRange, protocolCooperative, protocolConsumer}
	largeProtocols = []string{protocolCooperative, protocolConsumer}
)

// groupWorks are those of groups.
func groupWorks() []work {
	small := work{
		Kind: kindGroup, Partitions: 900, Topics: 1, Members: 10, Heartbeat: groupHeartbeat, Rounds: 100, Limit: 20 * time.Second, ChangeEvery: 5,
		Peers: groupPeers,
	}
	large := work{
		Kind: kindGroup, Partitions: 10000, Topics: 10, Members: 1000, Thin: true, Heartbeat: groupHeartbeat, Rounds: 4, Limit: 40 * time.Second, ChangeEvery: 1,
		Peers: groupPeers,
	}
	var all []work
	for _, protocol := range smallProtocols {
		w := small
		w.Name, w.Protocol, w.Quick = smallGroup+protocol, protocol, protocol != protocolRange
		all = append(all, w)
	}
	for _, protocol := range largeProtocols {
		w := large
		w.Name, w.Protocol = largeGroup+protocol, protocol
		all = append(all, w)
	}
	// With few partitions, since what is to be seen is the coordinator: Kafka looks through the logs of all partitions first.
	for _, protocol := range largeProtocols {
		w := large
		w.Name, w.Protocol, w.Partitions, w.Topics, w.Restart, w.ChangeEvery, w.Rounds = lostBroker+protocol, protocol, 100, 1, true, 0, 3
		all = append(all, w)
	}
	return all
}
