// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// noneOf says that a broker does not show itself as a leader.
func noneOf(id int32) func(*metadata.Snapshot) bool {
	return func(s *metadata.Snapshot) bool {
		for _, topic := range s.Topics {
			if slices.Contains(topic.Leaders, id) {
				return false
			}
		}
		return true
	}
}

// checkSameLeaders checks that nothing has moved and no epoch has grown.
func checkSameLeaders(t *testing.T, prev, next *metadata.Snapshot) {
	t.Helper()
	if diff := cmp.Diff(prev.Topics, next.Topics); diff != "" {
		t.Errorf("the topics have changed (-before +after):\n%s", diff)
	}
}

func TestASecondBrokerWithAnIDIsRefused(t *testing.T) {
	server := start(t)
	one := openMember(t, server.URL(), node(1))
	create(t, one.Metadata, "orders", 2)
	_, err := tryOpen(t, server.URL(), func(o *Options) { o.NodeID, o.Port = 1, 9555 })
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:9001") || !strings.Contains(err.Error(), "--node-id") {
		t.Errorf("error %v; it is to name the other broker's address and --node-id", err)
	}
	if ledBy(2, 1)(one.Snapshot()) == false {
		t.Errorf("the first broker no longer leads: %v", show(one.Snapshot()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, one.opts); err == nil {
		t.Error("opened after the context had ended")
	}
}

func TestAnIDIsTakenFree(t *testing.T) {
	server := start(t)
	openMember(t, server.URL(), node(2))
	var ids []int32
	for range 3 {
		ids = append(ids, openMember(t, server.URL(), nil).NodeID())
	}
	if want := []int32{1, 3, 4}; !slices.Equal(ids, want) {
		t.Errorf("ids %v, want %v", ids, want)
	}
}

// A broker's process that crashed and that comes back under the same id leads in new epochs: the old process may live on, cut off.
func TestABrokerThatCrashedComesBackInNewEpochs(t *testing.T) {
	server := start(t)
	one := openMember(t, server.URL(), node(1))
	create(t, one.Metadata, "orders", 4)
	before := await(t, one.Metadata, "leaders", ledBy(2, 1))
	one.kill()
	begun := time.Now()
	again := openMember(t, server.URL(), node(1))
	after := await(t, again.Metadata, "leaders again", ledBy(2, 1))
	t.Logf("after a crash the broker leads again in %v, with a lease of %v", time.Since(begun), testLease)
	for name, topic := range after.Topics {
		for p, epoch := range topic.LeaderEpochs {
			if grown := epoch - before.Topics[name].LeaderEpochs[p]; grown != 1 {
				t.Errorf("the epoch of %s/%d grew by %d", name, p, grown)
			}
		}
	}
	await(t, one.Metadata, "the crashed process's view without itself", noneOf(1))
}

func TestRedisIsFrozen(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), node(2))
	create(t, one.Metadata, "orders", 6)
	before := await(t, two.Metadata, "leaders", ledBy(2, 1, 2))
	await(t, one.Metadata, "leaders", ledBy(2, 1, 2))
	server.Freeze()
	begun := time.Now()
	for _, m := range []*member{one, two} {
		await(t, m.Metadata, "a broker that leads nothing", noneOf(m.NodeID()))
		t.Logf("broker %d believes no longer that it leads after %v, with a lease of %v", m.NodeID(), time.Since(begun), testLease)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		mustBe(t, m.CreateTopic(ctx, metadata.NewTopic{Name: "other", Partitions: 1}), metadata.ErrUnavailable)
		cancel()
		if s := m.Snapshot(); s.Topics["orders"] == nil || s.ClusterID != before.ClusterID {
			t.Errorf("broker %d no longer knows its topics", m.NodeID())
		}
	}
	server.Thaw()
	begun = time.Now()
	for _, m := range []*member{one, two} {
		after := await(t, m.Metadata, "leaders again", func(s *metadata.Snapshot) bool {
			return s.Topics["orders"] != nil && !slices.Contains(s.Topics["orders"].Leaders, -1)
		})
		t.Logf("broker %d leads again %v after the thaw", m.NodeID(), time.Since(begun))
		if diff := cmp.Diff(before.Topics["orders"], after.Topics["orders"]); diff != "" {
			t.Errorf("broker %d: the leaders have changed (-before +after):\n%s", m.NodeID(), diff)
		}
	}
}

func TestRedisIsKilledAndComesBack(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), node(2))
	create(t, one.Metadata, "orders", 6)
	before := await(t, two.Metadata, "leaders", ledBy(2, 1, 2))
	server.Kill()
	for _, m := range []*member{one, two} {
		await(t, m.Metadata, "a broker that leads nothing", noneOf(m.NodeID()))
		mustBe(t, m.DeleteTopic(t.Context(), "orders"), metadata.ErrUnavailable)
		_, err := m.NextPartition(t.Context(), "orders")
		mustBe(t, err, metadata.ErrUnavailable)
	}
	server.Run()
	begun := time.Now()
	for _, m := range []*member{one, two} {
		checkSameLeaders(t, before, await(t, m.Metadata, "leaders again", ledBy(2, 1, 2)))
		t.Logf("broker %d leads again %v after Redis was there", m.NodeID(), time.Since(begun))
	}
	create(t, one.Metadata, "clicks", 1)
	await(t, two.Metadata, "a topic made since", func(s *metadata.Snapshot) bool { return s.Topics["clicks"] != nil })
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), node(2))
	for _, name := range []string{"a", "b"} {
		if out, err := server.CLI("script", "flush"); err != nil || out != "OK" {
			t.Fatal(out, err)
		}
		create(t, one.Metadata, name, 4)
		await(t, two.Metadata, "the topic", func(s *metadata.Snapshot) bool { return s.Topics[name] != nil })
	}
}

func TestALostSubscriptionIsMadeAgain(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), func(o *Options) {
		node(2)(o)
		o.Lease = time.Minute // so that it is not by its lease that it hears of anything
	})
	for _, name := range []string{"a", "b", "c"} {
		create(t, one.Metadata, name, 4)
		await(t, two.Metadata, "the topic", func(s *metadata.Snapshot) bool { return s.Topics[name] != nil })
		if out, err := server.CLI("client", "kill", "type", "pubsub"); err != nil || out == "0" {
			t.Fatalf("killed %s, %v", out, err)
		}
	}
	create(t, one.Metadata, "d", 1)
	await(t, two.Metadata, "the last topic", func(s *metadata.Snapshot) bool { return s.Topics["d"] != nil })
}

func TestAnotherClusterIsNotJoinedByTheSameProcess(t *testing.T) {
	server := start(t)
	one := openMember(t, server.URL(), node(1))
	create(t, one.Metadata, "orders", 2)
	before := await(t, one.Metadata, "leaders", ledBy(2, 1))
	if out, err := server.CLI("flushall"); err != nil || out != "OK" {
		t.Fatal(out, err)
	}
	await(t, one.Metadata, "a broker that leads nothing", noneOf(1))
	mustBe(t, one.CreateTopic(t.Context(), metadata.NewTopic{Name: "other", Partitions: 1}), metadata.ErrUnavailable)
	if out, err := server.CLI("keys", "*"); err != nil || out != "" {
		t.Errorf("the empty Redis has the keys %q, %v", out, err)
	}
	two := openMember(t, server.URL(), node(2)) // a process that starts makes a new cluster
	if two.Snapshot().ClusterID == before.ClusterID {
		t.Error("two clusters have the same id")
	}
	err := one.CreateTopic(t.Context(), metadata.NewTopic{Name: "other", Partitions: 1})
	mustBe(t, err, metadata.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), two.Snapshot().ClusterID) || !strings.Contains(err.Error(), "test:{cluster}:id") {
		t.Errorf("the error names neither key nor cluster: %v", err)
	}
	if s := await(t, two.Metadata, "a cluster of its own", ledBy(1, 2)); len(s.Brokers) != 1 {
		t.Errorf("the new cluster has the brokers %v", s.Brokers)
	}
}

func TestRedisIsOutOfMemory(t *testing.T) {
	server := start(t)
	one := openMember(t, server.URL(), node(1))
	create(t, one.Metadata, "orders", 2)
	if out, err := server.CLI("config", "set", "maxmemory", "1"); err != nil || out != "OK" {
		t.Fatal(out, err)
	}
	mustBe(t, one.CreateTopic(t.Context(), metadata.NewTopic{Name: "other", Partitions: 1}), metadata.ErrStorage)
	one.mu.Lock()
	first := one.deadline
	one.mu.Unlock()
	for end := time.Now().Add(patience); ; {
		one.mu.Lock()
		renewed := one.deadline.After(first.Add(testLease))
		one.mu.Unlock()
		if renewed {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the lease is not renewed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !ledBy(2, 1)(one.Snapshot()) {
		t.Errorf("leaders %v", show(one.Snapshot()))
	}
}

func TestEpochsThatRedisHasLostAreNotUsedAgain(t *testing.T) {
	server := start(t)
	one := openMember(t, server.URL(), node(1))
	create(t, one.Metadata, "orders", 4)
	const leadersKey = "test:{cluster}:leaders"
	old, err := server.CLI("hget", leadersKey, "orders")
	if err != nil {
		t.Fatal(err)
	}
	openMember(t, server.URL(), node(2))
	known := await(t, one.Metadata, "two leaders", ledBy(2, 1, 2)).Topics["orders"]
	if slices.Max(known.LeaderEpochs) == 0 {
		t.Fatal("no epoch has grown")
	}
	// As after a failover to a replica that had not heard of the change.
	for _, command := range [][]string{{"hset", leadersKey, "orders", old}, {"hincrby", "test:{cluster}:counters", "version", "1"}} {
		if _, err := server.CLI(command...); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.CreateTopic(t.Context(), metadata.NewTopic{Name: "clicks", Partitions: 1}); err != nil { // so that all is read again
		t.Fatal(err)
	}
	after := await(t, one.Metadata, "the new topic", func(s *metadata.Snapshot) bool { return s.Topics["clicks"] != nil && ledBy(3, 1, 2)(s) }).Topics["orders"]
	for p, epoch := range after.LeaderEpochs {
		before := known.LeaderEpochs[p]
		if epoch < before || epoch == before && after.Leaders[p] != known.Leaders[p] {
			t.Errorf("partition %d: broker %d led in epoch %d, and now broker %d in epoch %d", p, known.Leaders[p], before, after.Leaders[p], epoch)
		}
	}
}

func TestALateDecisionOfAControllerIsRefused(t *testing.T) {
	server := start(t)
	m := openMember(t, server.URL(), func(o *Options) {
		node(1)(o)
		o.Lease = time.Minute // so that nothing but this test writes
	})
	create(t, m.Metadata, "orders", 2)
	s := m.known()
	p := plan{led: map[string]leaders{"orders": {Leaders: []int32{1, 1}, Epochs: []int32{5, 5}, Since: []int64{1, 1}}}}
	list, err := p.args(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, instance string
		epoch, members int64
		want           string
	}{
		{"of another broker", "another", s.controller.epoch, s.members, statusDeposed},
		{"of an earlier time as the controller", m.instance, s.controller.epoch - 1, s.members, statusDeposed},
		{"from before a broker came", m.instance, s.controller.epoch, s.members - 1, statusConflict},
		{"that comes in time", m.instance, s.controller.epoch, s.members, statusOK},
		{"that comes a second time", m.instance, s.controller.epoch, s.members, statusConflict},
	} {
		fence := []string{c.instance, strconv.FormatInt(c.epoch, 10), strconv.FormatInt(c.members, 10)}
		a, err := m.store.call(t.Context(), assign, append(fence, list...)...)
		if err != nil || a.status != c.want {
			t.Errorf("a decision %s: %q, %v; want %q", c.name, a.status, err, c.want)
		}
	}
	await(t, m.Metadata, "the decision that came in time", func(s *metadata.Snapshot) bool { return s.Topics["orders"].LeaderEpochs[0] == 5 })
}
