// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkManaged measures a group of 1000 pods and 10,000 partitions: all clients joining one after another, and a heartbeat.
func BenchmarkManaged(b *testing.B) {
	plan := Plan{Managed: true, Generation: 1, HandoffTimeout: time.Minute}
	for i := range 1000 {
		share := TopicPartitions{Topic: "t"}
		for p := range 10 {
			share.Partitions = append(share.Partitions, int32(i*10+p))
		}
		plan.Members = append(plan.Members, PlanMember{Pod: fmt.Sprintf("p-%d", i), UID: "u", IP: fmt.Sprintf("ip-%d", i), Share: []TopicPartitions{share}})
	}
	fill := func() *Group {
		g := New("g", Options{})
		g.Step(epoch, plan)
		for i := range 1000 {
			in := goodJoin()
			in.NewMemberID, in.Client.Host = fmt.Sprintf("m-%d", i), fmt.Sprintf("ip-%d", i)
			g.Step(epoch, in)
			g.Step(epoch, Sync{Client: Client{MemberID: in.NewMemberID}, Generation: 1})
		}
		return g
	}
	b.Run("fill", func(b *testing.B) {
		for b.Loop() {
			fill()
		}
	})
	b.Run("heartbeat", func(b *testing.B) {
		g := fill()
		for b.Loop() {
			g.Step(epoch, Heartbeat{Client: Client{MemberID: "m-500"}, Generation: 1})
		}
	})
}

// manyTopics is ten topics of 1000 partitions.
func manyTopics() Topics {
	topics := map[string]Topic{}
	for i := range 10 {
		topics[fmt.Sprintf("t%d", i)] = Topic{ID: TopicID{byte(i + 1)}, Partitions: 1000}
	}
	return Topics{Topics: topics}
}

var manyNames = []string{"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"}

// consumerBeat is a heartbeat of a KIP-848 member that says nothing new.
func consumerBeat(i int, epoch int32) ConsumerHeartbeat {
	return ConsumerHeartbeat{Client: Client{MemberID: fmt.Sprintf("m-%04d", i)}, Epoch: epoch}
}

func consumerJoin(i int) ConsumerHeartbeat {
	in := consumerBeat(i, EpochJoin)
	in.RebalanceTimeout, in.Topics, in.Owned, in.Full = time.Minute, manyNames, []TopicPartitions{}, true
	return in
}

// settleConsumers lets all members take what they are told, and say so, until nobody is told anything.
func settleConsumers(g *Group, epochs []int32) (rounds int) {
	for told := true; told; rounds++ {
		told = false
		for i, epoch := range epochs {
			r := beat(g, consumerBeat(i, epoch))
			if r.Assigned {
				told = true
				in := consumerBeat(i, r.Epoch)
				in.Owned = r.Share
				if in.Owned == nil {
					in.Owned = []TopicPartitions{}
				}
				r = beat(g, in)
			}
			epochs[i] = r.Epoch
		}
	}
	return rounds
}

func beat(g *Group, in ConsumerHeartbeat) ConsumerHeartbeatReply {
	body, _ := g.Step(epoch, in).Replies[0].Body.(ConsumerHeartbeatReply)
	return body
}

// BenchmarkConsumer measures a consumer group (KIP-848) of 1000 members and 10,000 partitions: all joining one after another, all joining and
// taking what they get, and a heartbeat at rest.
func BenchmarkConsumer(b *testing.B) {
	fill := func() (*Group, []int32) {
		g, epochs := New("g", Options{}), make([]int32, 1000)
		g.Step(epoch, manyTopics())
		for i := range epochs {
			epochs[i] = beat(g, consumerJoin(i)).Epoch
		}
		return g, epochs
	}
	b.Run("join", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fill()
		}
	})
	b.Run("settle", func(b *testing.B) {
		b.ReportAllocs()
		rounds := 0
		for b.Loop() {
			g, epochs := fill()
			rounds += settleConsumers(g, epochs)
		}
		b.ReportMetric(float64(rounds)/float64(b.N), "rounds/op")
	})
	b.Run("heartbeat", func(b *testing.B) {
		b.ReportAllocs()
		g, epochs := fill()
		settleConsumers(g, epochs)
		in := consumerBeat(500, epochs[500])
		for b.Loop() {
			g.Step(epoch, in)
		}
	})
}

// BenchmarkClassic measures a rebalance of 1000 members of the classic protocol and 10,000 partitions, whose leader leaves the plan to the group.
func BenchmarkClassic(b *testing.B) {
	g := New("g", Options{})
	g.Step(epoch, manyTopics())
	ids := make([]string, 1000)
	join := func(i int) {
		in := goodJoin()
		in.Client.MemberID, in.NewMemberID, in.Subscription = ids[i], fmt.Sprintf("m-%04d", i), &Subscription{Topics: manyNames}
		in.Protocols = []Protocol{{Name: "ConsistentHash", Metadata: []byte("m")}}
		ids[i] = in.NewMemberID
		g.Step(epoch, in)
	}
	rebalance := func() {
		for i := range ids {
			join(i)
		}
		for i := range ids {
			g.Step(epoch, Sync{Client: Client{MemberID: ids[i]}, Generation: g.Generation()})
		}
	}
	rebalance()
	rebalance()
	if g.State() != StateStable || len(g.members) != len(ids) {
		b.Fatalf("%s with %d members", g.State(), len(g.members))
	}
	b.Run("rebalance", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			rebalance()
		}
	})
	b.Run("heartbeat", func(b *testing.B) {
		b.ReportAllocs()
		in := Heartbeat{Client: Client{MemberID: ids[500]}, Generation: g.Generation()}
		for b.Loop() {
			g.Step(epoch, in)
		}
	})
}
