// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

func TestTheFirstBrokerMakesTheCluster(t *testing.T) {
	server := start(t)
	m := openMember(t, server.URL(), func(o *Options) { o.AutoCreateTopics = true })
	s := await(t, m.Metadata, "the topic of committed offsets", ledBy(1, 1))
	offsets := s.Topics[v1alpha1.TopicConsumerOffsets]
	if len(offsets.Leaders) != 4 || !offsets.Internal || offsets.Config.CleanupPolicy != "compact" || offsets.Config.RetentionTime >= 0 {
		t.Errorf("the topic of committed offsets is %+v", offsets)
	}
	if m.NodeID() != 1 || s.ClusterID == "" || !s.AutoCreateTopics || s.DefaultPartitions != 3 {
		t.Errorf("node %d, snapshot %+v", m.NodeID(), s)
	}
	if want := []metadata.Broker{{ID: 1, Host: "127.0.0.1", Port: 9092}}; !slices.Equal(s.Brokers, want) {
		t.Errorf("brokers %v, want %v", s.Brokers, want)
	}
	for p, since := range offsets.LeadersSince {
		if age := time.Since(time.UnixMilli(since)); age < -time.Minute || age > time.Hour {
			t.Errorf("partition %d has its leader since %d", p, since)
		}
	}
}

func TestBrokersThatComeAndGoMoveTheMinimum(t *testing.T) {
	server := start(t)
	one := openMember(t, server.URL(), node(1))
	create(t, one.Metadata, "orders", 12)
	create(t, one.Metadata, "clicks", 5)
	before := await(t, one.Metadata, "leaders", ledBy(3, 1))

	two := openMember(t, server.URL(), node(2))
	with2 := await(t, one.Metadata, "a second leader", ledBy(3, 1, 2))
	checkMoves(t, before, with2)
	three := openMember(t, server.URL(), node(3))
	with3 := await(t, one.Metadata, "a third leader", ledBy(3, 1, 2, 3))
	checkMoves(t, with2, with3)

	begun := time.Now()
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	without2 := await(t, three.Metadata, "the second broker's partitions with others", ledBy(3, 1, 3))
	t.Logf("after a broker left, others led its partitions in %v", time.Since(begun))
	checkMoves(t, with3, without2)
	if ledBy(3, 1, 2, 3)(two.Snapshot()) {
		t.Error("a broker that has left still shows itself as a leader")
	}

	begun = time.Now()
	three.kill()
	alone := await(t, one.Metadata, "the third broker's partitions with the first", ledBy(3, 1))
	t.Logf("after a broker died, others led its partitions in %v, with a lease of %v", time.Since(begun), testLease)
	checkMoves(t, without2, alone)
}

// checkMoves checks that no more moved than had to, and that the epoch of what moved grew by one, and of nothing else.
func checkMoves(t *testing.T, prev, next *metadata.Snapshot) {
	t.Helper()
	moves, fewest := assigner.Moves(assignmentOf(prev), assignmentOf(next)), minimum(prev, next)
	t.Logf("%d partitions moved, the fewest are %d", moves, fewest)
	if moves != fewest {
		t.Errorf("%d partitions moved, want %d", moves, fewest)
	}
	for name, topic := range next.Topics {
		for p, leader := range topic.Leaders {
			before, want := prev.Topics[name], int32(0)
			if before.Leaders[p] != leader {
				want = 1
			}
			if grown := topic.LeaderEpochs[p] - before.LeaderEpochs[p]; grown != want {
				t.Errorf("%s/%d went from broker %d to %d and its epoch grew by %d", name, p, before.Leaders[p], leader, grown)
			}
		}
	}
}

func TestTheControllerDies(t *testing.T) {
	server := start(t)
	members := map[int32]*member{}
	for id := int32(1); id <= 3; id++ {
		members[id] = openMember(t, server.URL(), node(id))
	}
	create(t, members[1].Metadata, "orders", 9)
	await(t, members[3].Metadata, "three leaders", ledBy(2, 1, 2, 3))
	members[3].mu.Lock()
	controller := members[3].state.controller.broker
	members[3].mu.Unlock()
	var others []int32
	for id := range members {
		if id != controller {
			others = append(others, id)
		}
	}
	slices.Sort(others)
	begun := time.Now()
	members[controller].kill()
	for _, id := range others {
		await(t, members[id].Metadata, "the controller's partitions with others", ledBy(2, others...))
	}
	t.Logf("after the controller died, others led its partitions in %v, with a lease of %v", time.Since(begun), testLease)
	if ledBy(2, 1, 2, 3)(await(t, members[controller].Metadata, "the dead broker's own view without itself", func(s *metadata.Snapshot) bool {
		return !slices.Contains(s.Topics["orders"].Leaders, controller)
	})) {
		t.Error("a dead broker still leads")
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"a prefix with a hash tag":   func(o *Options) { o.Prefix = "a{}" },
		"a prefix that is too long":  func(o *Options) { o.Prefix = strings.Repeat("x", 300) },
		"a lease that is too short":  func(o *Options) { o.Lease = time.Millisecond },
		"a lease that is negative":   func(o *Options) { o.Lease = -time.Second },
		"a node id below 0":          func(o *Options) { o.NodeID = -1 },
		"no host":                    func(o *Options) { o.Host = "" },
		"no port":                    func(o *Options) { o.Port = 0 },
		"too many partitions":        func(o *Options) { o.DefaultPartitions = 10001 },
		"too many offset partitions": func(o *Options) { o.OffsetsPartitions = 10001 },
		"a Redis that is not there":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tryOpen(t, "redis://127.0.0.1:1", change); err == nil || (change != nil) == strings.Contains(err.Error(), "127.0.0.1:1") {
				t.Errorf("error %v", err)
			}
		})
	}
}
