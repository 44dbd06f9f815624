// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"
)

// The kinds of work.
const (
	kindProduce = "produce"
	kindConsume = "consume"
	kindCold    = "consume-cold"
	kindFanOut  = "fan-out"
	kindHalf    = "half-rate"
	kindClient  = "franz-go"
	kindStart   = "start"
	kindGroup   = "rebalance"
)

// work is what is done with each peer, and how.
type work struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// RecordBytes is a record's value; throughput counts these bytes alone.
	RecordBytes int `json:"recordBytes,omitempty"`
	// BatchBytes is how large a record batch may be, RequestBytes how large the batches of one request together.
	BatchBytes   int   `json:"batchBytes,omitempty"`
	RequestBytes int   `json:"requestBytes,omitempty"`
	Acks         int16 `json:"acks,omitempty"`
	Partitions   int   `json:"partitions,omitempty"`
	// Producers and Consumers are connections.
	Producers int `json:"producers,omitempty"`
	Consumers int `json:"consumers,omitempty"`
	// InFlight is how many requests of a producer may await their answer.
	InFlight int `json:"inFlight,omitempty"`
	Groups   int `json:"groups,omitempty"`
	// LoadBytes is how much is there to be consumed.
	LoadBytes int64 `json:"loadBytes,omitempty"`
	// HalfOf names, by peer, the one at half of whose top rate it produces; its own if there is none.
	HalfOf map[string]string `json:"halfOf,omitempty"`
	// Protocol is a group's, Members how many consumers it has, Topics how many topics its partitions are spread over, Heartbeat how often classic
	// members send one.
	Protocol  string        `json:"protocol,omitempty"`
	Members   int           `json:"members,omitempty"`
	Topics    int           `json:"topics,omitempty"`
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// Thin says that the members do no more than the group's protocol asks for; others are franz-go's clients.
	Thin bool `json:"thin,omitempty"`
	// Rounds is how often it is done, the runner's number if it is 0; after Limit no round begins.
	Rounds int           `json:"rounds,omitempty"`
	Limit  time.Duration `json:"limit,omitempty"`
	// ChangeEvery says that a member joins and another leaves in each so-manieth round; Restart that the broker is killed and started again.
	ChangeEvery int  `json:"changeEvery,omitempty"`
	Restart     bool `json:"restart,omitempty"`
	// Quick marks those of the short run.
	Quick bool `json:"-"`
	// Peers are those that it is done with.
	Peers []string `json:"peers"`

	// Rate is the payload in bytes per second of an open loop, over all producers; 0 for a closed one.
	Rate float64 `json:"-"`
}

// The peers' names.
const (
	ringmasterFlush = "ringmaster-flush"
	ringmasterOS    = "ringmaster-os"
	kafkaFlush      = "kafka-flush"
	kafkaOS         = "kafka-os"
	kfakeMemory     = "kfake-memory"
	kfakeFlush      = "kfake-flush"
	redisAlways     = "redis-always"
	redisEverysec   = "redis-everysec"
	natsAlways      = "nats-always"
	natsDefault     = "nats-default"
	diskFlush       = "disk-flush"
	diskOS          = "disk-os"

	ringmasterGroups = "ringmaster-groups"
	kafkaGroups      = "kafka-groups"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// brokers are the two that the targets compare, and the disk under them.
var brokers = []string{ringmasterFlush, ringmasterOS, kafkaFlush, kafkaOS, diskFlush, diskOS}

// everyone is all peers that can produce.
var everyone = append(append([]string{}, brokers...), kfakeMemory, kfakeFlush, redisAlways, redisEverysec, natsAlways, natsDefault)

// baseWork is the produce that the other works vary, and the one that targets are held against.
const baseWork = "produce 1 KB, acks=all, 16 partitions, 8 producers"

// rateWork is the one at half of whose rate latency is measured: with one batch a request there are enough requests for a p99.
const rateWork = baseWork + ", 16 KB requests"

// allWorks is the full list.
func allWorks() []work {
	base := work{
		Kind: kindProduce, RecordBytes: kib, BatchBytes: 16 * kib, RequestBytes: 256 * kib, Acks: -1,
		Partitions: 16, Producers: 8, InFlight: 5, Consumers: 4, Peers: brokers,
	}
	vary := func(change func(w *work)) work {
		w := base
		change(&w)
		if w.Name == "" {
			w.Name = w.title()
		}
		return w
	}
	readers := []string{ringmasterOS, kafkaOS, kfakeMemory, redisEverysec, natsDefault, diskOS}
	kafkas := []string{ringmasterFlush, ringmasterOS, kafkaFlush, kafkaOS, kfakeMemory}
	halves := []string{ringmasterFlush, kafkaFlush, ringmasterOS, kafkaOS}
	return append([]work{
		{Name: startWork, Kind: kindStart, Quick: true, Peers: []string{ringmasterOS, kafkaOS, kfakeMemory, redisEverysec, natsDefault}},
		vary(func(w *work) { w.Peers, w.Quick = everyone, true }),
		vary(func(w *work) { w.Partitions, w.Producers, w.Peers, w.Quick = 1, 1, everyone, true }),
		vary(func(w *work) { w.Partitions = 1 }),
		vary(func(w *work) { w.Producers = 1 }),
		vary(func(w *work) { w.Partitions = 256 }),
		vary(func(w *work) { w.RecordBytes, w.Peers = 100, everyone }),
		vary(func(w *work) { w.Acks = 1 }),
		vary(func(w *work) { w.Acks, w.Partitions, w.Producers = 1, 1, 1 }),
		vary(func(w *work) { w.BatchBytes, w.RequestBytes = 1000*kib, mib }),
		vary(func(w *work) { w.BatchBytes, w.RequestBytes, w.Partitions, w.Producers = 1000*kib, mib, 1, 1 }),
		vary(func(w *work) { w.Kind, w.LoadBytes, w.Peers, w.Quick = kindConsume, 512*mib, readers, true }),
		vary(func(w *work) {
			w.Kind, w.LoadBytes, w.Peers, w.Partitions, w.Consumers = kindConsume, 512*mib, readers, 1, 1
		}),
		vary(func(w *work) { w.Kind, w.LoadBytes, w.Peers, w.RecordBytes = kindConsume, 512*mib, readers, 100 }),
		vary(func(w *work) {
			w.Kind, w.LoadBytes, w.Peers = kindCold, 1024*mib, []string{ringmasterOS, kafkaOS, diskOS}
		}),
		vary(func(w *work) { w.Kind, w.Groups, w.Consumers, w.Peers = kindFanOut, 3, 1, kafkas }),
		vary(func(w *work) { w.RequestBytes, w.Peers, w.Quick = 16*kib, halves, true }),
		vary(func(w *work) {
			w.Kind, w.Name, w.RequestBytes, w.Peers, w.Quick = kindHalf, halfOfKafka, 16*kib, halves, true
			w.HalfOf = map[string]string{ringmasterFlush: kafkaFlush, kafkaFlush: kafkaFlush, ringmasterOS: kafkaOS, kafkaOS: kafkaOS}
		}),
		vary(func(w *work) {
			w.Kind, w.Name, w.RequestBytes, w.Peers = kindHalf, halfOfOwn, 16*kib, halves
		}),
		vary(func(w *work) { w.Kind, w.Producers, w.Consumers, w.Peers = kindClient, 1, 1, kafkas }),
	}, groupWorks()...)
}

// title names a work by what it does.
func (w *work) title() string {
	size := fmt.Sprintf("%d B", w.RecordBytes)
	if w.RecordBytes >= kib {
		size = fmt.Sprintf("%d KB", w.RecordBytes/kib)
	}
	partitions := plural(w.Partitions, "partition")
	switch w.Kind {
	case kindConsume:
		return fmt.Sprintf("consume %s from memory, %s, %s", size, partitions, plural(w.Consumers, "consumer"))
	case kindCold:
		return fmt.Sprintf("consume %s from cold files, %s, %s", size, partitions, plural(w.Consumers, "consumer"))
	case kindFanOut:
		return fmt.Sprintf("produce %s with %s reading along, %s, %s", size, plural(w.Groups, "group"), partitions, plural(w.Producers, "producer"))
	case kindClient:
		return fmt.Sprintf("franz-go produces and consumes %s, %s", size, partitions)
	}
	acks := "all"
	if w.Acks != -1 {
		acks = fmt.Sprint(w.Acks)
	}
	name := fmt.Sprintf("produce %s, acks=%s, %s, %s", size, acks, partitions, plural(w.Producers, "producer"))
	switch w.RequestBytes {
	case mib:
		name += ", 1 MB requests"
	case 16 * kib:
		name += ", 16 KB requests"
	}
	return name
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// slug is a work's name as a topic may be called.
func (w *work) slug() string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(w.Name)), "-")
}
