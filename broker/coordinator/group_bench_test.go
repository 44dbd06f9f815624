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
