// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestABrokerTellsItsLimitsAndItsVolume(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir, "--max-connections", "77", "--max-connections-per-ip", "55", "--max-request-bytes", "2000000", "--idle-timeout", "90s",
		"--offsets-retention", "2h", "--initial-rebalance-delay", "100ms", "--min-session-timeout", "1s", "--max-session-timeout", "1h",
		"--consumer-session-timeout", "10s", "--consumer-heartbeat-interval", "700ms", "--assignment-interval", "0")
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	described, err := admin.DescribeBrokerConfigs(t.Context(), 1)
	if err != nil || len(described) != 1 {
		t.Fatalf("%v: %+v", err, described)
	}
	got := map[string]string{}
	for _, c := range described[0].Configs {
		got[c.Key] = c.MaybeValue()
	}
	for key, want := range map[string]string{
		"max.connections": "77", "max.connections.per.ip": "55", "socket.request.max.bytes": "2000000", "connections.max.idle.ms": "90000",
		"offsets.retention.minutes": "120", "group.initial.rebalance.delay.ms": "100", "group.min.session.timeout.ms": "1000",
		"group.max.session.timeout.ms": "3600000", "group.consumer.session.timeout.ms": "10000", "group.consumer.heartbeat.interval.ms": "700",
		"group.consumer.assignment.interval.ms": "0",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	dirs, err := admin.DescribeBrokerLogDirs(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Abs(filepath.Join(dir, logsDir))
	if err != nil {
		t.Fatal(err)
	}
	if d := dirs[logs]; d.TotalBytes <= 0 || d.UsableBytes <= 0 || d.UsableBytes > d.TotalBytes {
		t.Errorf("the volume of %s is %+v, of %+v", logs, d, dirs)
	}
}
