// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/runs"
)

// noLeader stands for the leader of a partition that has none. Broker ids start at 1.
const noLeader int32 = 0

// maxPartitions is how many partitions a topic may have: what admission allows.
const maxPartitions = 10000

// maxCompactBytes is the length from which on the compact form names no more brokers: it is for people, in a column.
const maxCompactBytes = 1000

// place gives every partition that has no leader one of the brokers. leaders holds each partition's leader so far; one that is there
// never changes, for the partition's records are on its volume and nowhere else.
//
// A partition goes to a broker that leads fewest of the topic; among those the first in the topic's own order of brokers counts.
// So a topic is spread with a difference of one at most, and placing partitions 0 to 7 at once gives the same as
// placing 0 to 3 first and 4 to 7 later: without leaders to start from, the result is a function of name, number and brokers
// alone. A Topic that is deleted and created anew finds its records again for that reason.
func place(topic string, leaders, brokers []int32) []int32 {
	placed := slices.Clone(leaders)
	if len(brokers) == 0 {
		return placed
	}
	order := preference(topic, brokers)
	load := make(map[int32]int, len(order))
	for _, broker := range placed {
		load[broker]++
	}
	for partition, leader := range placed {
		if leader != noLeader {
			continue
		}
		best := order[0]
		for _, broker := range order[1:] {
			if load[broker] < load[best] {
				best = broker
			}
		}
		placed[partition] = best
		load[best]++
	}
	return placed
}

// preference orders the brokers for a topic: the consistent-hash assigner gives each of them one of as many partitions, and
// their numbers are the order. Topics of few partitions so begin at different brokers.
func preference(topic string, brokers []int32) []int32 {
	in := assigner.Input{Partitions: map[string]int32{topic: int32(len(brokers))}}
	for _, broker := range brokers {
		in.Members = append(in.Members, assigner.Member{ID: strconv.Itoa(int(broker)), Topics: []string{topic}})
	}
	assignment := assigner.ConsistentHash{}.Assign(in)
	order := make([]int32, len(brokers))
	for _, broker := range brokers {
		for _, p := range assignment[strconv.Itoa(int(broker))] {
			order[p.Partition] = broker
		}
	}
	return order
}

// leadersOf lists the leader of each of n partitions, and of those beyond n that have one. What cannot be true is ignored; if two
// brokers are said to lead a partition, the one with the smaller id counts.
func leadersOf(status []v1alpha1.PartitionLeader, n int32) []int32 {
	status = slices.Clone(status)
	slices.SortStableFunc(status, func(a, b v1alpha1.PartitionLeader) int { return int(a.Broker) - int(b.Broker) })
	leaders := make([]int32, min(max(n, 0), maxPartitions))
	for _, l := range status {
		for _, p := range l.Partitions {
			if p < 0 || p >= maxPartitions || l.Broker <= noLeader {
				continue
			}
			for int(p) >= len(leaders) {
				leaders = append(leaders, noLeader)
			}
			if leaders[p] == noLeader {
				leaders[p] = l.Broker
			}
		}
	}
	return leaders
}

// byBroker is the inverse of leadersOf: brokers ascending, each with its partitions ascending.
func byBroker(leaders []int32) []v1alpha1.PartitionLeader {
	partitions := map[int32][]int32{}
	for p, broker := range leaders {
		if broker != noLeader {
			partitions[broker] = append(partitions[broker], int32(p))
		}
	}
	var status []v1alpha1.PartitionLeader
	for broker, list := range partitions {
		status = append(status, v1alpha1.PartitionLeader{Broker: broker, Partitions: list})
	}
	slices.SortFunc(status, func(a, b v1alpha1.PartitionLeader) int { return int(a.Broker) - int(b.Broker) })
	return status
}

// compact writes leaders for people: 1[0-3] 2[4,6-7].
func compact(leaders []v1alpha1.PartitionLeader) string {
	var b strings.Builder
	for i, l := range leaders {
		if b.Len() > maxCompactBytes {
			fmt.Fprintf(&b, " and %d more: see .status.leaders", len(leaders)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d[", l.Broker)
		runs.Write(&b, l.Partitions)
		b.WriteByte(']')
	}
	return b.String()
}
