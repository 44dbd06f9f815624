// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAGroupOfTheConsumerProtocolIsDescribedAndListed(t *testing.T) {
	b := startBroker(t, t.TempDir(), "--consumer-heartbeat-interval", "100ms")
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "3")...)
	must(t, "a\nb\nc\n", at(b.addr, "produce", "orders", "--partitioner", "RoundRobin")...)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.ClientID("reader"), kgo.InstanceID("one"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for read := 0; read < 3; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		read += fetches.NumRecords()
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	g := group(t, b.addr, "g")
	if g.State != "Stable" || g.Type != "consumer" || g.Assigner == "" || g.Coordinator != 1 || g.Lag != 0 || len(g.Members) != 1 || len(g.Partitions) != 3 {
		t.Fatalf("the group is %+v", g)
	}
	m := g.Members[0]
	if m.InstanceID != "one" || m.ClientID != "reader" || m.Host != "127.0.0.1" || fmt.Sprint(m.Assignments) != "[{orders [0 1 2]}]" {
		t.Errorf("the member is %+v", m)
	}
	for _, p := range g.Partitions {
		if p.MemberID != m.MemberID || p.Lag == nil || *p.Lag != 0 {
			t.Errorf("a partition is %+v", p)
		}
	}
	if table := must(t, "", at(b.addr, "group", "describe", "g")...); !strings.Contains(table, "orders[0-2]") {
		t.Errorf("describe printed\n%s", table)
	}
	list := decoded[[]groupJSON](t, must(t, "", at(b.addr, "group", "list", "-o", "json")...))
	if len(list) != 1 || list[0] != (groupJSON{Group: "g", State: "Stable", Type: "consumer", Coordinator: 1}) {
		t.Errorf("the groups are %+v", list)
	}
	if r := cli(t, "", at(b.addr, "group", "delete", "g")...); r.code != exitFailed || !strings.Contains(r.err, "has members") {
		t.Errorf("deleting a group with members: %+v", r)
	}
}
