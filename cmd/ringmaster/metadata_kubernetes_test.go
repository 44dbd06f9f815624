// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// growing is metadata that learn of a broker after the first look at them.
type growing struct {
	changed chan struct{}
	before  *metadata.Snapshot
	after   *metadata.Snapshot
}

func (g *growing) Changed() <-chan struct{} { return g.changed }

func (g *growing) Snapshot() *metadata.Snapshot {
	select {
	case <-g.changed:
		return g.after
	default:
		close(g.changed)
		return g.before
	}
}

func TestABrokerWaitsUntilItsClusterNamesIt(t *testing.T) {
	others := &metadata.Snapshot{Brokers: []metadata.Broker{{ID: 1}, {ID: 3}}}
	all := &metadata.Snapshot{Brokers: []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 3}}}
	log := slog.New(slog.DiscardHandler)
	if err := awaitBroker(t.Context(), log, &growing{changed: make(chan struct{}), before: others, after: all}, 2); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	never := &growing{changed: make(chan struct{}), before: others, after: others}
	if err := awaitBroker(ended, log, snapshots{never}, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that the context ended", err)
	}
}

// snapshots are metadata that never change.
type snapshots struct{ *growing }

func (snapshots) Changed() <-chan struct{} { return nil }

func TestTheNodeIDIsAtTheEndOfThePodsName(t *testing.T) {
	for pod, want := range map[string]int32{"main-broker-1": 1, "a-b-c-42": 42, "7": 7} {
		k := kubernetesFlags{podName: pod}
		if got, err := k.nodeID(newBrokerCommand(), 1); err != nil || got != want {
			t.Errorf("%s: node id %d, error %v; want %d", pod, got, err, want)
		}
	}
	for _, pod := range []string{"", "main", "main-broker-0", "main-broker--1x", "main-broker-99999999999"} {
		k := kubernetesFlags{podName: pod}
		if got, err := k.nodeID(newBrokerCommand(), 1); err == nil {
			t.Errorf("%q: node id %d, want an error", pod, got)
		}
	}
}
