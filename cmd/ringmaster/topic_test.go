// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTopicLifecycle(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	topics := func(args ...string) []topicJSON {
		t.Helper()
		return decoded[[]topicJSON](t, must(t, "", at(b.addr, append([]string{"topic", "list", "-o", "json"}, args...)...)...))
	}
	if got := must(t, "", at(b.addr, "topic", "list", "-o", "json")...); got != "[]\n" {
		t.Errorf("no topics are printed as %q, want an empty array", got)
	}
	got := must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "3", "--retention", "90m", "--config", "max.message.bytes=2048")...)
	if want := "created topic orders with 3 partitions\n"; got != want {
		t.Errorf("create printed %q, want %q", got, want)
	}
	created := decoded[topicJSON](t, must(t, "", at(b.addr, "topic", "create", "one", "-o", "json")...))
	if created.Name != "one" || created.Partitions != 1 || len(created.ID) != 22 {
		t.Errorf("create printed %+v", created)
	}
	if got := topics(); len(got) != 2 || got[0] != created || got[1].Name != "orders" || got[1].Partitions != 3 {
		t.Errorf("topics = %+v", got)
	}
	if got := topics("--internal"); len(got) != 3 || !got[0].Internal {
		t.Errorf("topics with internal ones = %+v", got)
	}

	must(t, "a\nb\n", at(b.addr, "produce", "orders", "--partition", "2")...)
	d := decoded[topicDetailJSON](t, must(t, "", at(b.addr, "topic", "describe", "orders", "-o", "json")...))
	if d.Config["retention.ms"] != "5400000" || d.Config["max.message.bytes"] != "2048" {
		t.Errorf("config = %v", d.Config)
	}
	wantPartitions := []partitionJSON{{0, 1, 0, 0}, {1, 1, 0, 0}, {2, 1, 0, 2}}
	if diff := cmp.Diff(wantPartitions, d.Partitions); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	table := must(t, "", at(b.addr, "topic", "describe", "orders")...)
	if !strings.Contains(table, "retention.ms=5400000") || !strings.Contains(table, "2           1        0       2\n") {
		t.Errorf("describe printed\n%s", table)
	}

	if got := must(t, "", at(b.addr, "topic", "add-partitions", "orders", "--to", "5")...); got != "topic orders has 5 partitions\n" {
		t.Errorf("add-partitions printed %q", got)
	}
	if got := must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "9", "--if-not-exists")...); got != "exists already: topic orders with 5 partitions\n" {
		t.Errorf("create --if-not-exists printed %q", got)
	}
	if code := b.stop(); code != exitOK {
		t.Fatalf("the broker ended with %d:\n%s", code, b.log)
	}

	b = startBroker(t, dir)
	if got := topics(); len(got) != 2 || got[1].Partitions != 5 {
		t.Errorf("topics after a restart = %+v", got)
	}
	if got := must(t, "", at(b.addr, "topic", "delete", "orders")...); got != "deleted topic orders\n" {
		t.Errorf("delete printed %q", got)
	}
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "3")...)
	d = decoded[topicDetailJSON](t, must(t, "", at(b.addr, "topic", "describe", "orders", "-o", "json")...))
	if d.Partitions[2].EndOffset != 0 {
		t.Errorf("a new topic has the old one's records: %+v", d.Partitions)
	}
}

func TestATopicIsChangedAndItsRecordsDeleted(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "2", "--flush", "Os", "--tombstone-retention", "1h", "--retention", "-1")...)
	config := func() map[string]string {
		t.Helper()
		return decoded[topicDetailJSON](t, must(t, "", at(b.addr, "topic", "describe", "orders", "-o", "json")...)).Config
	}
	want := map[string]string{
		"cleanup.policy": "delete", "delete.retention.ms": "3600000", "flush.messages": "9223372036854775807", "max.message.bytes": "1048588",
		"message.timestamp.type": "CreateTime", "retention.bytes": "-1", "retention.ms": "-1", "segment.bytes": "134217728", "segment.ms": "604800000",
	}
	if diff := cmp.Diff(want, config()); diff != "" {
		t.Errorf("the configuration of a new topic (-want +got):\n%s", diff)
	}
	if got := must(t, "", at(b.addr, "topic", "alter", "orders", "--flush", "Sync", "--retention", "2h", "--reset", "delete.retention.ms")...); got != "changed topic orders\n" {
		t.Errorf("alter printed %q", got)
	}
	want["flush.messages"], want["retention.ms"], want["delete.retention.ms"] = "1", "7200000", "86400000"
	if diff := cmp.Diff(want, config()); diff != "" {
		t.Errorf("the changed configuration (-want +got):\n%s", diff)
	}

	must(t, "a\nb\nc\n", at(b.addr, "produce", "orders", "--partition", "1")...)
	got := decoded[trimmedJSON](t, must(t, "", at(b.addr, "topic", "delete-records", "orders", "--before", "1:2, 0:0", "-o", "json")...))
	if diff := cmp.Diff(trimmedJSON{Topic: "orders", Partitions: []trimmedPartitionJSON{{0, 0}, {1, 2}}}, got); diff != "" {
		t.Errorf("delete-records (-want +got):\n%s", diff)
	}
	if got := must(t, "", at(b.addr, "topic", "delete-records", "orders", "--before", "end")...); got != "PARTITION   START\n0           0\n1           3\n" {
		t.Errorf("delete-records printed\n%s", got)
	}
	if got := must(t, "", at(b.addr, "consume", "orders", "--from-beginning", "--idle-timeout", "1s")...); got != "" {
		t.Errorf("records that are deleted are read: %q", got)
	}
}

func TestTopicCommandsThatTheBrokerRefuses(t *testing.T) {
	b := startBroker(t, t.TempDir(), "--auto-create-topics=false")
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "2")...)
	noTopic := "ringmaster: topic \"nope\" does not exist; create it with `ringmaster topic create nope`, or see `ringmaster topic list`\n"
	tests := map[string]struct {
		args []string
		want string
	}{
		"creating a topic twice": {[]string{"topic", "create", "orders"},
			"ringmaster: topic \"orders\" exists already; see `ringmaster topic describe orders`, or give --if-not-exists\n"},
		"an illegal name":             {[]string{"topic", "create", "a/b"}, "ringmaster: create topic a/b: invalid topic name "},
		"an unknown config entry":     {[]string{"topic", "create", "x", "--config", "colour=red"}, "ringmaster: create topic x: invalid configuration: "},
		"describing an unknown topic": {[]string{"topic", "describe", "nope"}, noTopic},
		"growing an unknown topic":    {[]string{"topic", "add-partitions", "nope", "--to", "3"}, noTopic},
		"deleting an unknown topic":   {[]string{"topic", "delete", "nope"}, noTopic},
		"shrinking a topic": {[]string{"topic", "add-partitions", "orders", "--to", "1"},
			"ringmaster: topic \"orders\" has 2 partitions already, and partitions may only grow; give --to more than 2\n"},
		"changing an unknown topic":              {[]string{"topic", "alter", "nope", "--flush", "Os"}, noTopic},
		"changing what is not there":             {[]string{"topic", "alter", "orders", "--reset", "colour"}, "ringmaster: change topic orders: invalid configuration: \"colour\" is not "},
		"changing the brokers' own topic":        {[]string{"topic", "alter", "__consumer_offsets", "--flush", "Os"}, "ringmaster: change topic __consumer_offsets: topic __consumer_offsets holds "},
		"deleting records of an unknown topic":   {[]string{"topic", "delete-records", "nope", "--before", "end"}, noTopic},
		"deleting records of what is not there":  {[]string{"topic", "delete-records", "orders", "--before", "2:0"}, "ringmaster: topic \"orders\" has no partition 2: it has 2 partitions, from 0\n"},
		"deleting records that are not there":    {[]string{"topic", "delete-records", "orders", "--before", "0:9"}, "ringmaster: delete records of topic orders, partition 0: there is no such offset: "},
		"deleting records of the brokers' topic": {[]string{"topic", "delete-records", "__consumer_offsets", "--before", "end"}, "ringmaster: delete records of topic __consumer_offsets, partition 0: the topic holds "},
		"deleting the brokers' own topic":        {[]string{"topic", "delete", "__consumer_offsets"}, "ringmaster: delete topic __consumer_offsets: "},
		"producing to an unknown topic":          {[]string{"produce", "nope"}, noTopic},
		"producing to an unknown partition":      {[]string{"produce", "orders", "--partition", "2"}, "ringmaster: topic \"orders\" has no partition 2: it has 2 partitions, from 0\n"},
		"consuming an unknown topic":             {[]string{"consume", "nope"}, noTopic},
		"describing an unknown group":            {[]string{"group", "describe", "nope"}, "ringmaster: group \"nope\" does not exist; see `ringmaster group list`\n"},
		"deleting an unknown group":              {[]string{"group", "delete", "nope"}, "ringmaster: group \"nope\" does not exist; see `ringmaster group list`\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := cli(t, "x\n", at(b.addr, tc.args...)...)
			if r.code != exitFailed || r.out != "" || !strings.HasPrefix(r.err, tc.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("exit code %d, output %q, error\n%s\nwant\n%s", r.code, r.out, r.err, tc.want)
			}
		})
	}
}
