// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/test/rebalance/thin"
)

// burst is a group that comes from nothing.
type burst struct {
	System              string
	Consumer            bool
	Members, Partitions int
	// Times are from when the pods began to become Ready and the clients to join, to the last client's share, ascending.
	Times []time.Duration
	// LastReady are from when the API server had taken in that the last pod is Ready, ascending.
	LastReady []time.Duration
	// Generations is the most that a round took; 0 for Kafka.
	Generations int32
}

// shape is the size of a group, and how often it is made.
type shape struct{ members, partitions, rounds int }

func (o *options) shapes() []shape {
	all := []shape{{members: 10, partitions: 900, rounds: 20}, {members: 1000, partitions: 10_000, rounds: 5}}
	if o.quick {
		all[0].rounds, all[1].rounds = 5, 1
	}
	return all
}

const (
	// burstCalm is how long a group must not have changed.
	burstCalm = 700 * time.Millisecond
	// burstLimit is how long a group may take.
	burstLimit = 2 * time.Minute
)

// bursts measures groups that come from nothing, on an API server without nodes and on Kafka.
func (o *options) bursts(ctx context.Context, r *figures) error {
	for _, s := range o.shapes() {
		if slices.Contains(o.systems, "ringmaster") {
			if err := o.managedBursts(ctx, s, r); err != nil {
				r.failed("ringmaster", s, err)
			}
		}
		if slices.Contains(o.systems, "kafka") {
			if err := o.kafkaBursts(ctx, s, r); err != nil {
				r.failed("kafka", s, err)
			}
		}
		if err := o.save(r); err != nil {
			return err
		}
	}
	return nil
}

// failed notes that the groups of a size could not all be made: what else there is to measure goes on.
func (f *figures) failed(system string, s shape, err error) {
	fmt.Println("rebalance:", system, "failed:", err)
	f.Failures = append(f.Failures, fmt.Sprintf("%s with %d members: %s", system, s.members, err))
}

func (o *options) managedBursts(ctx context.Context, s shape, r *figures) (err error) {
	w, err := startWorld(ctx, o, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	for _, consumer := range []bool{false, true} {
		b := &burst{System: "ringmaster", Consumer: consumer, Members: s.members, Partitions: s.partitions}
		r.Bursts = append(r.Bursts, b)
		for n := range s.rounds {
			if err := w.round(ctx, b, n); err != nil {
				return err
			}
		}
		b.print()
	}
	return nil
}

func (b *burst) print() {
	slices.Sort(b.Times)
	slices.Sort(b.LastReady)
	fmt.Printf("rebalance: %s, %d partitions and %d members, KIP-848 %t: median %s, slowest %s of %d (since the last pod was ready: %s, %s); %d generations at most\n",
		b.System, b.Partitions, b.Members, b.Consumer, short(middle(b.Times)), short(last(b.Times)), len(b.Times), short(middle(b.LastReady)), short(last(b.LastReady)), b.Generations)
}

func (o *options) kafkaBursts(ctx context.Context, s shape, r *figures) error {
	k, err := startKafka(ctx, o, "127.0.0.1:19092", s.partitions)
	if err != nil {
		return err
	}
	defer k.stop()
	for _, consumer := range []bool{false, true} {
		b := &burst{System: "kafka", Consumer: consumer, Members: s.members, Partitions: s.partitions}
		r.Bursts = append(r.Bursts, b)
		for n := range min(s.rounds, 5) {
			limited, cancel := context.WithTimeout(ctx, burstLimit)
			team := &thin.Team{Address: k.bootstrap, Group: fmt.Sprintf("burst-%t-%d", consumer, n), Topic: topicName, Partitions: s.partitions, Consumer: consumer}
			if err := team.Connect(limited, names(s.members)); err != nil {
				cancel()
				return err
			}
			begin := team.Join(ctx)
			at, err := team.Stable(limited, burstCalm)
			cancel()
			team.Leave()
			if err != nil {
				return fmt.Errorf("a group of Kafka with %d members: %w", s.members, err)
			}
			b.Times = append(b.Times, at.Sub(begin))
		}
		b.print()
	}
	return nil
}

// names are those of pods.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("pod-%04d", i)
	}
	return all
}
