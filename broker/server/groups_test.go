// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestConsumersShareATopicAsTheyComeAndGo(t *testing.T) {
	cases := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"round robin":        kgo.RoundRobinBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"cooperative sticky": kgo.CooperativeStickyBalancer(),
	}
	for name, balancer := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startGroupBroker(t)
			values := b.produce("first", 300)
			a := b.join("a", "g", kgo.Balancers(balancer))
			share(t, a)
			c := b.join("b", "g", kgo.Balancers(balancer))
			share(t, a, c)
			readBy(t, values, a, c)

			d := b.join("c", "g", kgo.Balancers(balancer))
			share(t, a, c, d)
			values = append(values, b.produce("second", 300)...)
			readBy(t, values, a, c, d)

			a.leave(t)
			share(t, c, d)
			values = append(values, b.produce("third", 300)...)
			readBy(t, values, a, c, d)
			c.leave(t)
			d.leave(t)
			committed(t, b, "g", 900)
		})
	}
}

// committed waits until a group's offsets add up to total.
func committed(t *testing.T, b *groupBroker, group string, total int64) {
	t.Helper()
	admin := b.admin()
	eventually(t, func() error {
		offsets, err := admin.FetchOffsets(t.Context(), group)
		if err != nil {
			return err
		}
		var sum int64
		offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
		if sum != total {
			return fmt.Errorf("the committed offsets add up to %d, want %d", sum, total)
		}
		return nil
	})
}

func TestCommitsSurviveARestart(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	values := b.produce("before", 60)
	stays := b.join("stays", "g")
	readBy(t, values, stays)
	if err := stays.cl.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatalf("commit: %v", err)
	}
	committed(t, b, "g", 60)

	b.stop()
	b.start()
	committed(t, b, "g", 60)
	after := b.produce("after", 60)
	readBy(t, after, stays)
	eventually(t, func() error { return stays.cl.CommitUncommittedOffsets(t.Context()) }) // until it has joined the new server
	committed(t, b, "g", 120)
	stays.leave(t)

	b.stop()
	b.start()
	next := b.join("next", "g")
	share(t, next)
	last := b.produce("last", 6)
	readBy(t, last, next)
	for _, v := range append(values, after...) {
		if next.values[v] > 0 {
			t.Errorf("%s was committed and is read again", v)
		}
	}
}

func TestAStaticMemberThatRestartsDisturbsNobody(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	a := b.join("a", "g", kgo.InstanceID("a")) // the leader, which may ask for a rebalance when it likes
	share(t, a)
	c := b.join("b", "g", kgo.InstanceID("b"))
	share(t, a, c)
	held := c.partitions()
	generation := b.generation("g")
	_, taken := a.counts()

	c.stop()
	c.cl.Close() // a static member does not leave
	again := b.join("b", "g", kgo.InstanceID("b"))
	again.holds(t, held...)
	values := b.produce("x", 60)
	readBy(t, values, a, again)
	if now := b.generation("g"); now != generation {
		t.Errorf("the generation is %d, want %d as before", now, generation)
	}
	if _, now := a.counts(); now != taken {
		t.Errorf("the other member lost partitions %d times, want %d", now, taken)
	}
}

func TestAMemberThatFallsSilentIsReplaced(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	silent := b.join("silent", "g", kgo.SessionTimeout(6*time.Second), kgo.InstanceID("one"))
	share(t, silent)
	silent.stop()
	silent.cl.Close() // as a static member it does not say that it leaves
	other := b.join("other", "g", kgo.InstanceID("two"))
	share(t, other)
}

func TestAdminToolsSeeAndDeleteGroups(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	admin := b.admin()
	values := b.produce("x", 60)
	a, c := b.join("a", "g"), b.join("b", "g")
	share(t, a, c)
	readBy(t, values, a, c)
	for _, m := range []*groupMember{a, c} {
		if err := m.cl.CommitUncommittedOffsets(t.Context()); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	b.produce("y", 6)
	for _, m := range []*groupMember{a, c} {
		m.stop()
	}
	describeStable(t, admin, 2)
	lags, err := admin.Lag(t.Context(), "g")
	group := lags["g"]
	if err != nil || group.Error() != nil {
		t.Fatalf("lag: %v, %v", err, group.Error())
	}
	if lag := group.Lag.Total(); lag < 0 || lag > 6 {
		t.Errorf("the lag is %d, want at most 6", lag)
	}

	listed, err := admin.ListGroups(t.Context(), "stable")
	if err != nil || listed["g"].State != "Stable" || listed["g"].ProtocolType != "consumer" {
		t.Errorf("stable groups: %v, %v", listed, err)
	}
	if listed, err = admin.ListGroups(t.Context(), "Empty"); err != nil || len(listed) != 0 {
		t.Errorf("empty groups: %v, %v", listed, err)
	}
	if r, err := admin.DeleteGroup(t.Context(), "g"); !errors.Is(firstOf(err, r.Err), kerr.NonEmptyGroup) {
		t.Errorf("delete a group with members: %v, %v", err, r.Err)
	}
	a.cl.Close()
	c.cl.Close()
	eventually(t, func() error {
		r, err := admin.DeleteGroup(t.Context(), "g")
		return firstOf(err, r.Err)
	})
	b.stop()
	b.start()
	if described, err := admin.DescribeGroups(t.Context(), "g"); err == nil && described["g"].State != "Dead" {
		t.Errorf("after its deletion and a restart the group is %s", described["g"].State)
	}
	committed(t, b, "g", 0)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func describeStable(t *testing.T, admin *kadm.Client, members int) {
	t.Helper()
	described, err := admin.DescribeGroups(t.Context(), "g")
	if err != nil {
		t.Fatalf("describe: %v", err)
	}
	g := described["g"]
	if g.State != "Stable" || len(g.Members) != members {
		t.Errorf("the group is %s with %d members, want Stable with %d", g.State, len(g.Members), members)
	}
	if got := g.AssignedPartitions()["orders"]; len(got) != 6 {
		t.Errorf("the assigned partitions are %v, want all 6", got)
	}
	for _, m := range g.Members {
		if !strings.HasPrefix(m.ClientHost, "/127.0.0.") || !strings.HasPrefix(m.MemberID, m.ClientID+"-") {
			t.Errorf("member %s of client %s at %s", m.MemberID, m.ClientID, m.ClientHost)
		}
	}
}

func TestACommitThatCannotBeStoredIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	admin := b.admin()
	commit := func(offset int64) error {
		var offsets kadm.Offsets
		offsets.AddOffset("orders", 0, offset, -1)
		return admin.CommitAllOffsets(t.Context(), "g", offsets)
	}
	eventually(t, func() error { return commit(10) })
	b.engine.setBroken(errTest)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var offsets kadm.Offsets
	offsets.AddOffset("orders", 0, 20, -1)
	if err := admin.CommitAllOffsets(ctx, "g", offsets); err == nil {
		t.Error("a commit is acknowledged that is not stored")
	}
	committed(t, b, "g", 10)
	b.engine.setBroken(nil)
	eventually(t, func() error { return commit(30) })
	committed(t, b, "g", 30)
}
