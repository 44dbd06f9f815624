// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// restart stops the broker and starts it where it was.
func (b *groupBroker) restart() {
	b.t.Helper()
	b.stop()
	b.start()
	b.loaded()
}

// joinClassic joins a group with JoinGroup, as an only member, and syncs with a plan that gives it orders-0. It returns the member id and the generation.
func (b *groupBroker) joinClassic(group string, instance *string) (member string, generation int32) {
	b.t.Helper()
	req := joinRequest(group)
	req.InstanceID = instance
	joined := ask[*kmsg.JoinGroupResponse](b, req, 5)
	if joined.ErrorCode == kerr.MemberIDRequired.Code {
		req.MemberID = joined.MemberID
		joined = ask[*kmsg.JoinGroupResponse](b, req, 5)
	}
	if joined.ErrorCode != codeNone {
		b.t.Fatalf("the join is answered with %d", joined.ErrorCode)
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation, sync.InstanceID = group, joined.MemberID, joined.Generation, instance
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: encodeShare(ordersShare(0))}}
	if synced := ask[*kmsg.SyncGroupResponse](b, sync, 3); synced.ErrorCode != codeNone {
		b.t.Fatalf("the sync is answered with %d", synced.ErrorCode)
	}
	return joined.MemberID, joined.Generation
}

func ordersShare(partitions ...int32) []coordinator.TopicPartitions {
	return []coordinator.TopicPartitions{{Topic: "orders", Partitions: partitions}}
}

// alive sends a member's Heartbeat and returns what it is answered with.
func (b *groupBroker) alive(group, member string, generation int32) int16 {
	b.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	return ask[*kmsg.HeartbeatResponse](b, req, 3).ErrorCode
}

func TestAClassicGroupGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	member, generation := b.joinClassic("g", nil)
	for range 2 {
		b.restart()
		if code := b.alive("g", member, generation); code != codeNone {
			t.Fatalf("the member's heartbeat is answered with %d", code)
		}
		if code := b.alive("g", "other", generation); code != kerr.UnknownMemberID.Code {
			t.Errorf("another member's heartbeat is answered with %d", code)
		}
		d, _, _ := b.server.groups.describe(t.Context(), "g")
		if d.State != coordinator.StateStable || d.Generation != generation || len(d.Members) != 1 || d.Leader != member {
			t.Errorf("the group is %+v", d)
		}
	}
	// Its plan is still there: a member whose answer was lost asks again.
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = "g", member, generation
	resp := ask[*kmsg.SyncGroupResponse](b, sync, 3)
	if shares := decodeShares(map[string][]byte{"m": resp.MemberAssignment}); resp.ErrorCode != 0 || fmt.Sprint(shares["m"]) != fmt.Sprint(ordersShare(0)) {
		t.Errorf("the member syncs to %d, %v", resp.ErrorCode, shares)
	}
}

func TestAStaticMembersNewIDSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	instance := "one"
	old, _ := b.joinClassic("g", &instance)
	again := joinRequest("g")
	again.InstanceID = &instance
	joined := ask[*kmsg.JoinGroupResponse](b, again, 5)
	if joined.ErrorCode != codeNone || joined.MemberID == old {
		t.Fatalf("the member comes back with %+v", joined)
	}
	b.restart()
	if code := b.alive("g", joined.MemberID, joined.Generation); code != codeNone {
		t.Errorf("a heartbeat with the new id is answered with %d", code)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation, beat.InstanceID = "g", old, joined.Generation, &instance
	if code := ask[*kmsg.HeartbeatResponse](b, beat, 3).ErrorCode; code != kerr.FencedInstanceID.Code {
		t.Errorf("a heartbeat with the old id is answered with %d, want FENCED_INSTANCE_ID", code)
	}
}

func TestAConsumerGroupGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	a := b.joinConsumer("g", "a")
	c := b.joinConsumer("g", "c")
	settle(t, a, c)
	for range 2 {
		b.restart()
		for _, m := range []*consumer{a, c} {
			resp := b.beat(beatOf("g", m.member, m.epoch))
			if held, told := assigned(t, resp); resp.MemberEpoch != m.epoch || told && !slices.Equal(held, m.held) {
				t.Errorf("%s, at epoch %d with %v, is told %+v", m.member, m.epoch, m.held, resp)
			}
			full := b.beat(owning("g", m.member, m.epoch, m.held...))
			if held, told := assigned(t, full); !told || !slices.Equal(held, m.held) {
				t.Errorf("%s holds %v, and is told %v", m.member, m.held, held)
			}
		}
		if d, _, _ := b.server.groups.describe(t.Context(), "g"); d.State != coordinator.StateStable || d.Type != coordinator.TypeConsumer || d.Generation != a.epoch {
			t.Errorf("the group is %+v", d)
		}
	}
}

// dialPatiently dials until somebody listens: this client takes a refused connection for a reason to begin its session anew.
func dialPatiently(ctx context.Context, network, address string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestNoConsumerRejoinsWhenTheBrokerRestarts(t *testing.T) {
	cases := map[string][]kgo.Opt{
		"classic":            {kgo.Balancers(kgo.RangeBalancer())},
		"cooperative":        {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"the new protocol":   {kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())},
		"the new one, range": {kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())},
	}
	for name, opts := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startGroupBroker(t)
			opts := append(opts, kgo.Dialer(dialPatiently))
			a := b.join("a", "g", opts...)
			share(t, a)
			c := b.join("b", "g", opts...)
			share(t, a, c)
			values := b.produce("first", 60)
			readBy(t, values, a, c)
			generation := b.generation("g")
			_, takenA := a.counts()
			_, takenC := c.counts()
			b.restart()
			readBy(t, b.produce("second", 60), a, c)
			eventually(t, func() error {
				return errors.Join(a.cl.CommitUncommittedOffsets(t.Context()), c.cl.CommitUncommittedOffsets(t.Context()))
			})
			committed(t, b, "g", 120)
			if now := b.generation("g"); now != generation {
				t.Errorf("the generation is %d, want %d as before", now, generation)
			}
			if _, now := a.counts(); now != takenA {
				t.Errorf("a lost partitions %d times, want %d", now, takenA)
			}
			if _, now := c.counts(); now != takenC {
				t.Errorf("b lost partitions %d times, want %d", now, takenC)
			}
		})
	}
}

func TestOffsetsAreKeptForAWhileAfterTheirGroupIsEmpty(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	a := b.joinConsumer("g", "a")
	settle(t, a)
	commit := commitOne("g", 5)
	commit.MemberID, commit.Generation = "a", a.epoch
	if code := ask[*kmsg.OffsetCommitResponse](b, commit, 9).Topics[0].Partitions[0].ErrorCode; code != codeNone {
		t.Fatalf("the commit is answered with %d", code)
	}
	for range 20 { // a member that is there keeps its group's offsets
		b.pass(DefaultConsumerSessionTimeout * 2 / 3)
		a.heard(b.beat(beatOf("g", "a", a.epoch)))
	}
	b.pass(DefaultConsumerSessionTimeout * 2) // the member's session ends
	eventually(t, func() error {
		if d, known, _ := b.server.groups.describe(t.Context(), "g"); !known || d.State != coordinator.StateEmpty {
			return fmt.Errorf("the group is %+v", d)
		}
		return nil
	})
	b.pass(DefaultOffsetsRetention / 2)
	b.restart()
	if got := b.offsetOf("g"); got != 5 {
		t.Fatalf("before its time is over the offset is %d", got)
	}
	h := b.hosted("g")
	b.pass(DefaultOffsetsRetention)
	eventually(t, func() error {
		if got := b.offsetOf("g"); got != -1 {
			return fmt.Errorf("the offset is still %d", got)
		}
		return nil
	})
	b.pass(2 * idleGroup)
	b.server.groups.sweep(t.Context())
	eventually(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.gone {
			return errors.New("the group is still there")
		}
		return nil
	})
	b.restart()
	b.listed(t, map[string]string{"": ""})
}

func TestALogThatCompactionLeftWithTombstonesFirstIsLoaded(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	gone := b.joinConsumer("gone", "m")
	b.beat(beatOf("gone", "m", -1))
	if _, err := b.admin().DeleteGroup(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		ask[*kmsg.OffsetCommitResponse](b, commitOne("g", int64(i)), 8)
	}
	a := b.joinConsumer("h", "a")
	settle(t, a)
	member, generation := b.joinClassic("k", nil)
	records := func() (n int64) {
		for _, p := range b.server.groups.led() {
			if _, err := p.read(t.Context(), func(groupRecord) { n++ }); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	before := records()
	if err := b.compact(time.Now()); err != nil {
		t.Fatalf("compact: %v", err)
	}
	if after := records(); after >= before-40 {
		t.Errorf("%d records are left of %d", after, before)
	}
	b.restart()
	if got := b.offsetOf("g"); got != 49 {
		t.Errorf("the offset is %d, want 49", got)
	}
	if resp := b.beat(beatOf("h", "a", a.epoch)); resp.ErrorCode != codeNone {
		t.Errorf("the consumer's heartbeat is answered with %d", resp.ErrorCode)
	}
	if code := b.alive("k", member, generation); code != codeNone {
		t.Errorf("the classic member's heartbeat is answered with %d", code)
	}
	if resp := b.beat(beatOf("gone", "m", gone.epoch)); resp.ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("a member of the group that was deleted is answered with %d", resp.ErrorCode)
	}
}

func TestTopicsThatComeAreReadByThoseWhoseExpressionMatches(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	join := joinOf("g", "a")
	regex := "or.*|new.*|__.*"
	join.SubscribedTopicNames, join.SubscribedTopicRegex = nil, &regex
	resp := b.beat(join)
	if all, _ := assigned(t, resp); len(all) != 6 {
		t.Fatalf("joined with %+v", resp)
	}
	b.md.change(func(s *metadata.Snapshot) {
		s.Topics["new"] = &metadata.Topic{Name: "new", ID: metadata.TopicID{7}, Leaders: []int32{1, 1}, Config: metadata.DefaultTopicConfig}
	})
	epoch := resp.MemberEpoch
	eventually(t, func() error {
		resp := b.beat(beatOf("g", "a", epoch))
		if resp.ErrorCode != codeNone {
			t.Fatalf("a heartbeat is answered with %d", resp.ErrorCode)
		}
		epoch = resp.MemberEpoch
		if resp.Assignment == nil || len(resp.Assignment.Topics) != 2 {
			return fmt.Errorf("the member is told %+v", resp.Assignment)
		}
		return nil
	})
}
