// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// reader returns a member that reads these partitions of a topic, and the topic.
func reader(id, topic string, partitions ...int32) planMember {
	m := planMember{Member: assigner.Member{ID: id}}
	m.hold(topic, partitions)
	return m
}

// moved returns a move of partitions of one topic.
func moved(from, to, topic string, partitions ...int32) moveJSON {
	return moveJSON{From: from, To: to, Assignments: []assignmentJSON{{Topic: topic, Partitions: partitions}}}
}

func TestPlanOfAGroup(t *testing.T) {
	two := []planMember{reader("b", "t", 2, 3), reader("a", "t", 0, 1)}
	cases := map[string]struct {
		members    []planMember
		partitions int32
		then       int
		want       []moveJSON
		wantMoved  int
	}{
		"nothing moves while the members stay":        {members: two, partitions: 4, then: 2, want: []moveJSON{}},
		"those that come have names of their own":     {members: two, partitions: 4, then: 4, want: []moveJSON{moved("a", "new-1", "t", 1), moved("b", "new-2", "t", 3)}, wantMoved: 2},
		"the last by id leaves":                       {members: two, partitions: 4, then: 1, want: []moveJSON{moved("b", "a", "t", 2, 3)}, wantMoved: 2},
		"all leave, and nobody takes over":            {members: two, partitions: 4, then: 0, want: []moveJSON{}},
		"what nobody reads comes from nobody":         {members: two[:1], partitions: 4, then: 1, want: []moveJSON{moved("", "b", "t", 0, 1)}, wantMoved: 2},
		"a partition that is gone does not move":      {members: two, partitions: 2, then: 2, want: []moveJSON{moved("a", "b", "t", 1)}, wantMoved: 1},
		"a member may be called like one that comes":  {members: []planMember{reader("new-1", "t", 0, 1)}, partitions: 2, then: 2, want: []moveJSON{moved("new-1", "new-2", "t", 1)}, wantMoved: 1},
		"a group whose topics are gone has no plan":   {members: two, partitions: 0, then: 3, want: []moveJSON{}},
		"one that stays keeps what two say they read": {members: []planMember{reader("a", "t", 0), reader("b", "t", 0, 1)}, partitions: 2, then: 2, want: []moveJSON{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := planGroup(assigner.Sticky{}, tc.members, map[string]int32{"t": tc.partitions}, tc.then)
			if diff := cmp.Diff(tc.want, got.Moves); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
			if got.Moved != tc.wantMoved || got.Minimum != tc.wantMoved || got.Members != len(tc.members) || got.Then != tc.then {
				t.Errorf("plan = %+v", got)
			}
		})
	}
}

// A member of the consumer protocol of KIP-848 counts with what it is to have, and reads what that names if it subscribes by a pattern.
func TestPlanOfAConsumerProtocolMember(t *testing.T) {
	instance, pattern := "web-1", "ord.*"
	set := func(topic string, partitions ...int32) kadm.TopicsSet {
		s := kadm.TopicsSet{}
		s.Add(topic, partitions...)
		return s
	}
	cases := map[string]struct {
		member kadm.ConsumerGroupMember
		want   string
	}{
		"a subscription by names":               {kadm.ConsumerGroupMember{MemberID: "m", SubscribedTopics: []string{"a", "b"}, TargetAssignment: set("a", 1, 0)}, "m [a b a] [{a 0} {a 1}]"},
		"a subscription by a pattern":           {kadm.ConsumerGroupMember{MemberID: "m", InstanceID: &instance, SubscribedTopicRegex: &pattern, TargetAssignment: set("orders", 2)}, "web-1 [orders] [{orders 2}]"},
		"a broker that tells no target":         {kadm.ConsumerGroupMember{MemberID: "m", Assignment: set("a", 1)}, "m [a] [{a 1}]"},
		"a member on its way to another target": {kadm.ConsumerGroupMember{MemberID: "m", Assignment: set("a", 1), TargetAssignment: set("a", 2)}, "m [a] [{a 2}]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := consumerMember(&tc.member)
			if s := fmt.Sprint(got.ID, " ", got.Topics, " ", got.share); s != tc.want {
				t.Errorf("member %s, want %s", s, tc.want)
			}
		})
	}
}

func TestPlanOfALiveGroup(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "6")...)
	var children []*child
	for _, id := range []string{"one", "two"} {
		children = append(children, startChild(t, at(b.addr, "consume", "orders", "--group", "g", "--instance-id", id)...))
	}
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool {
		shares := 0
		for _, m := range g.Members {
			for _, a := range m.Assignments {
				if len(a.Partitions) == 3 {
					shares++
				}
			}
		}
		return g.State == "Stable" && shares == 2
	})

	plan := decoded[planJSON](t, must(t, "", at(b.addr, "group", "plan", "--group", "g", "--then", "3", "-o", "json")...))
	if plan.Group != "g" || plan.Assigner != "ConsistentHash" || plan.Members != 2 || plan.Moved != 2 || plan.Minimum != 2 || plan.MaxLoad != 2 || plan.MinLoad != 2 {
		t.Errorf("plan = %+v", plan)
	}
	if len(plan.Moves) != 2 || plan.Moves[0].From != "one" || plan.Moves[1].From != "two" || plan.Moves[0].To != "new-1" || plan.Moves[1].To != "new-1" {
		t.Errorf("moves = %+v", plan.Moves)
	}
	table := must(t, "", at(b.addr, "group", "plan", "--group", "g", "--then", "1", "--assigner", "Sticky")...)
	const want = "ASSIGNER   MEMBERS   THEN   MOVED   MINIMUM   MAX LOAD   MIN LOAD\nSticky     2         1      3       3         6          6\n\nFROM   TO    PARTITIONS\ntwo    one   orders["
	if !strings.HasPrefix(table, want) {
		t.Errorf("plan printed\n%s\nwant\n%s…", table, want)
	}

	for _, c := range children {
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		c.wait(t)
	}
	// Static members stay until their sessions end, so the group without members is another one.
	must(t, "", at(b.addr, "consume", "orders", "--group", "gone", "--idle-timeout", "1s")...)
	for args, want := range map[string]string{
		"--group gone --then 2":    "group \"gone\" has no members, so nothing says what they read; start them, or plan with --partitions and --members instead",
		"--group unknown --then 2": "group \"unknown\" does not exist; see `ringmaster group list`",
	} {
		r := cli(t, "", at(b.addr, strings.Fields("group plan "+args)...)...)
		if r.code != exitFailed || r.out != "" || r.err != "ringmaster: "+want+"\n" {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// A group of KIP-848, whose members join through ConsumerGroupHeartbeat, is planned as any other.
func TestPlanOfAConsumerProtocolGroup(t *testing.T) {
	b := startBroker(t, t.TempDir(), "--consumer-heartbeat-interval", "100ms")
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "6")...)
	for range 2 {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumerGroup("next"), kgo.ConsumeTopics("orders"),
			kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
	}
	var last result
	planned := func() bool {
		last = cli(t, "", at(b.addr, "group", "plan", "--group", "next", "--then", "3", "-o", "json")...)
		if last.code != exitOK {
			return false
		}
		plan := decoded[planJSON](t, last.out)
		return plan.Members == 2 && plan.Moved == 2 && plan.Minimum == 2 && len(plan.Moves) == 2 && plan.Moves[0].To == "new-1"
	}
	for start := time.Now(); !planned(); {
		if time.Since(start) > patience {
			t.Fatalf("the plan is not as wanted: %+v", last)
		}
	}
	if g := group(t, b.addr, "next"); g.Assigner != "uniform" {
		t.Errorf("the group's assigner is %s: its members speak the classic protocol", g.Assigner)
	}
}
