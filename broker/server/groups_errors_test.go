// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// loaded waits until the broker coordinates every partition of the offsets topic.
func (b *groupBroker) loaded() {
	b.t.Helper()
	eventually(b.t, func() error {
		if led := b.server.groups.led(); len(led) != 4 || slices.ContainsFunc(led, func(p *groupPartition) bool { return !p.isReady() }) {
			return errors.New("the groups are not loaded")
		}
		return nil
	})
}

func joinRequest(group string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType = group, consumerProtocol
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10000, 10000
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics = []string{"orders"}
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription.AppendTo(nil)}}
	return req
}

func commitRequest(group string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	for _, topic := range []string{"orders", "no-such-topic"} {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = topic
		for _, p := range []int32{0, 99} {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.Metadata = p, 5, kmsg.StringPtr("m")
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// groupCode asks for a group with every kind of request and returns the error codes by name.
func groupCodes(b *groupBroker, group string) map[string]int16 {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = group
	sync, beat, leave := kmsg.NewPtrSyncGroupRequest(), kmsg.NewPtrHeartbeatRequest(), kmsg.NewPtrLeaveGroupRequest()
	sync.Group, sync.MemberID, beat.Group, beat.MemberID, leave.Group, leave.MemberID = group, "m", group, "m", group, "m"
	fetch, describe, del := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewPtrDescribeGroupsRequest(), kmsg.NewPtrDeleteGroupsRequest()
	fetch.Group, describe.Groups, del.Groups = group, []string{group}, []string{group}
	return map[string]int16{
		"find":     ask[*kmsg.FindCoordinatorResponse](b, find, 3).ErrorCode,
		"join":     ask[*kmsg.JoinGroupResponse](b, joinRequest(group), 5).ErrorCode,
		"sync":     ask[*kmsg.SyncGroupResponse](b, sync, 3).ErrorCode,
		"beat":     ask[*kmsg.HeartbeatResponse](b, beat, 3).ErrorCode,
		"leave":    ask[*kmsg.LeaveGroupResponse](b, leave, 2).ErrorCode,
		"commit":   ask[*kmsg.OffsetCommitResponse](b, commitRequest(group), 7).Topics[0].Partitions[0].ErrorCode,
		"fetch":    ask[*kmsg.OffsetFetchResponse](b, fetch, 7).ErrorCode,
		"describe": ask[*kmsg.DescribeGroupsResponse](b, describe, 5).Groups[0].ErrorCode,
		"delete":   ask[*kmsg.DeleteGroupsResponse](b, del, 2).Groups[0].ErrorCode,
	}
}

func TestGroupsAreRefusedWithTheCodeThatSaysWhatToDo(t *testing.T) {
	unavailable := func(m *groupMetadata) {
		m.change(func(s *metadata.Snapshot) { delete(s.Topics, topicConsumerOffsets) })
	}
	all := func(code int16, except map[string]int16) map[string]int16 {
		want := make(map[string]int16)
		for _, api := range []string{"find", "join", "sync", "beat", "leave", "commit", "fetch", "describe", "delete"} {
			want[api] = code
			if c, ok := except[api]; ok {
				want[api] = c
			}
		}
		return want
	}
	unknown := map[string]int16{"find": 0, "join": 79, "commit": 0, "fetch": 0, "describe": 0, "delete": 0}
	cases := map[string]struct {
		group  string
		before func(*groupMetadata)
		want   map[string]int16
	}{
		"a group that nobody knows has no members":   {group: "new", want: all(25, unknown)},
		"a group id that is too long":                {group: strings.Repeat("x", 256), want: all(24, map[string]int16{"describe": 0, "delete": 69})},
		"the offsets topic is not there yet":         {group: "g", before: unavailable, want: all(15, nil)},
		"another broker leads the offsets topic":     {group: "g", before: func(m *groupMetadata) { m.lead(topicConsumerOffsets, 2) }, want: all(16, map[string]int16{"find": 15})},
		"nobody leads the group's offsets partition": {group: "g", before: func(m *groupMetadata) { m.lead(topicConsumerOffsets, -1) }, want: all(15, nil)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startGroupBroker(t)
			b.loaded()
			if tc.before != nil {
				tc.before(b.md)
				eventually(t, func() error {
					if b.server.snapshot() != b.md.Snapshot() || len(b.server.groups.led()) > 0 {
						return errors.New("the broker has not noticed")
					}
					return nil
				})
			}
			got := groupCodes(b, tc.group)
			for api, want := range tc.want {
				if got[api] != want {
					t.Errorf("%s is answered with %d, want %d", api, got[api], want)
				}
			}
		})
	}
}

func TestAnEmptyGroupIDIsRefusedWhereKafkaRefusesIt(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	got := groupCodes(b, "")
	for _, api := range []string{"find", "join", "sync", "beat", "leave"} {
		if got[api] != codeInvalidGroupID {
			t.Errorf("%s is answered with %d, want INVALID_GROUP_ID", api, got[api])
		}
	}
}

func TestOnlyPartitionsThatExistAreCommitted(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	for version := int16(2); version <= 9; version++ {
		resp := ask[*kmsg.OffsetCommitResponse](b, commitRequest(fmt.Sprintf("g%d", version)), version)
		var got []int16
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got = append(got, p.ErrorCode)
			}
		}
		if want := []int16{0, 3, 3, 3}; !slices.Equal(got, want) {
			t.Errorf("v%d: the codes are %v, want %v", version, got, want)
		}
	}
}

func TestOffsetsAreFetchedInEveryVersion(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	ask[*kmsg.OffsetCommitResponse](b, commitRequest("g"), 7)
	for version := int16(1); version <= 9; version++ {
		for _, all := range []bool{false, true} {
			if all && version < 2 {
				continue // v1 cannot ask for all
			}
			want := "orders-0:5m"
			if !all {
				want += " orders-1:-1"
			}
			if got := fetchOffsets(b, version, "g", all); got != want {
				t.Errorf("v%d, all %t: %s, want %s", version, all, got, want)
			}
		}
		if got := fetchOffsets(b, version, "nobody", false); got != "orders-0:-1 orders-1:-1" {
			t.Errorf("v%d: an unknown group has %s", version, got)
		}
	}
}

// fetchOffsets fetches the offsets of partitions 0 and 1 of orders, or all, as a string.
func fetchOffsets(b *groupBroker, version int16, group string, all bool) string {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if !all {
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "orders", Partitions: []int32{0, 1}}}
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "orders", Partitions: []int32{0, 1}}}
	}
	req.Groups = []kmsg.OffsetFetchRequestGroup{g}
	resp := ask[*kmsg.OffsetFetchResponse](b, req, version)
	var out []string
	add := func(topic string, partition int32, offset int64, metadata *string, code int16) {
		if metadata == nil || code != 0 {
			b.t.Errorf("v%d: metadata %v, code %d", version, metadata, code)
			return
		}
		out = append(out, fmt.Sprintf("%s-%d:%d%s", topic, partition, offset, *metadata))
	}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			add(topic.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
		}
	}
	for _, rg := range resp.Groups {
		for _, topic := range rg.Topics {
			for _, p := range topic.Partitions {
				add(topic.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
	}
	return strings.Join(out, " ")
}

func TestMembersOfEveryVersionJoinSyncBeatAndLeave(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	for version := range int16(10) {
		group := fmt.Sprintf("g%d", version)
		req := joinRequest(group)
		joined := ask[*kmsg.JoinGroupResponse](b, req, version)
		if version >= 4 {
			if joined.ErrorCode != 79 || joined.MemberID == "" {
				t.Fatalf("v%d: a first join is answered with %d and member %q", version, joined.ErrorCode, joined.MemberID)
			}
			req.MemberID = joined.MemberID
			joined = ask[*kmsg.JoinGroupResponse](b, req, version)
		}
		if joined.ErrorCode != 0 || joined.LeaderID != joined.MemberID || len(joined.Members) != 1 || *joined.Protocol != "range" {
			t.Fatalf("v%d: joined with %+v", version, joined)
		}
		if version >= 7 && *joined.ProtocolType != consumerProtocol {
			t.Errorf("v%d: the protocol type is %q", version, *joined.ProtocolType)
		}
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.Generation, sync.MemberID = group, joined.Generation, joined.MemberID
		sync.ProtocolType, sync.Protocol = kmsg.StringPtr(consumerProtocol), kmsg.StringPtr("range")
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte("plan")}}
		synced := ask[*kmsg.SyncGroupResponse](b, sync, min(version, 5))
		if synced.ErrorCode != 0 || string(synced.MemberAssignment) != "plan" {
			t.Errorf("v%d: synced with %+v", version, synced)
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.Generation, beat.MemberID = group, joined.Generation, joined.MemberID
		if resp := ask[*kmsg.HeartbeatResponse](b, beat, min(version, 4)); resp.ErrorCode != 0 {
			t.Errorf("v%d: a heartbeat is answered with %d", version, resp.ErrorCode)
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = group, joined.MemberID
		leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: joined.MemberID}, {MemberID: "nobody"}}
		left := ask[*kmsg.LeaveGroupResponse](b, leave, min(version, 5))
		if left.ErrorCode != 0 || version >= 3 && (left.Members[0].ErrorCode != 0 || left.Members[1].ErrorCode != 25) {
			t.Errorf("v%d: left with %+v", version, left)
		}
	}
}

func TestGroupsAreDescribedAndListedInEveryVersion(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	ask[*kmsg.OffsetCommitResponse](b, commitRequest("g"), 7)
	for version := range int16(7) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g", "nobody"}
		resp := ask[*kmsg.DescribeGroupsResponse](b, req, version)
		var wantCode int16
		if version >= 6 {
			wantCode = codeGroupIDNotFound
		}
		if g := resp.Groups[0]; g.State != "Empty" || g.ErrorCode != 0 {
			t.Errorf("v%d: %+v", version, g)
		}
		if g := resp.Groups[1]; g.State != "Dead" || g.ErrorCode != wantCode {
			t.Errorf("v%d: %+v", version, g)
		}
	}
	cases := map[string]struct {
		version       int16
		states, types []string
		want          int
	}{
		"v0":                       {version: 0, want: 1},
		"v3":                       {version: 3, want: 1},
		"v4 without a filter":      {version: 4, want: 1},
		"v4, a state in any case":  {version: 4, states: []string{"Stable", "EMPTY"}, want: 1},
		"v4, another state":        {version: 4, states: []string{"Stable"}, want: 0},
		"v5, classic groups":       {version: 5, types: []string{"Classic"}, want: 1},
		"v5, groups of other kind": {version: 5, types: []string{"consumer", "share"}, want: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := kmsg.NewPtrListGroupsRequest()
			req.StatesFilter, req.TypesFilter = tc.states, tc.types
			if resp := ask[*kmsg.ListGroupsResponse](b, req, tc.version); resp.ErrorCode != 0 || len(resp.Groups) != tc.want {
				t.Errorf("%+v, want %d groups", resp, tc.want)
			}
		})
	}
}

func TestCoordinatorsAreFoundInEveryVersion(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	for version := range int16(7) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", ""}
		resp := ask[*kmsg.FindCoordinatorResponse](b, req, version)
		if version < 4 {
			resp.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port, ErrorCode: resp.ErrorCode}}
		} else if len(resp.Coordinators) != 2 || resp.Coordinators[1].ErrorCode != codeInvalidGroupID {
			t.Errorf("v%d: an empty group id is answered with %+v", version, resp.Coordinators)
		}
		if c := resp.Coordinators[0]; c.ErrorCode != 0 || c.NodeID != 1 || fmt.Sprintf("%s:%d", c.Host, c.Port) != b.address {
			t.Errorf("v%d: %+v, want broker 1 at %s", version, c, b.address)
		}
		if req.CoordinatorType = 1; version >= 1 {
			resp := ask[*kmsg.FindCoordinatorResponse](b, req, version)
			if code := max(resp.ErrorCode, append(resp.Coordinators, kmsg.NewFindCoordinatorResponseCoordinator())[0].ErrorCode); code != codeTransactionalIDDenied {
				t.Errorf("v%d: a transaction's coordinator is answered with %d", version, code)
			}
		}
	}
}

func TestABrokerThatLosesAGroupAnswersWhatWaits(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	a := b.join("a", "g", kgo.HeartbeatInterval(groupDeadline), kgo.SessionTimeout(2*groupDeadline), kgo.Balancers(kgo.RangeBalancer()))
	share(t, a)
	waiting := waitingJoin(b)
	b.md.lead(topicConsumerOffsets, 2)
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = 3
	if err := waiting.receive(resp); err != nil || resp.ErrorCode != codeNotCoordinator {
		t.Errorf("the join that waits is answered with %d, %v; want NOT_COORDINATOR", resp.ErrorCode, err)
	}
	b.md.lead(topicConsumerOffsets, 1)
	share(t, a)
}

// waitingJoin joins g, which has a member that does not come to the rebalance, and returns the connection once the join waits.
func waitingJoin(b *groupBroker) *rawConn {
	c := b.raw()
	c.send(joinRequest("g"), 3)
	eventually(b.t, func() error {
		p, code := b.server.groups.partition("g")
		if code != codeNone {
			return fmt.Errorf("error code %d", code)
		}
		h, _ := p.get("g", false)
		if h == nil {
			return errors.New("no group")
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.waiting) != 1 {
			return fmt.Errorf("%d requests wait", len(h.waiting))
		}
		return nil
	})
	return c
}

func TestAClientThatGoesAwayWhileItWaitsIsForgotten(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	a := b.join("a", "g", kgo.HeartbeatInterval(groupDeadline), kgo.SessionTimeout(2*groupDeadline), kgo.Balancers(kgo.RangeBalancer()))
	share(t, a)
	if err := waitingJoin(b).conn.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	p, _ := b.server.groups.partition("g")
	h, _ := p.get("g", false)
	eventually(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.waiting) > 0 {
			return errors.New("the request still waits")
		}
		return nil
	})
}

func TestAServerThatStopsAnswersWhatWaits(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	a := b.join("a", "g", kgo.HeartbeatInterval(groupDeadline), kgo.SessionTimeout(2*groupDeadline), kgo.Balancers(kgo.RangeBalancer()))
	share(t, a)
	waiting := waitingJoin(b)
	b.stop()
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = 3
	if err := waiting.receive(resp); err == nil && resp.ErrorCode == 0 || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("the join that waits is answered with %d, %v", resp.ErrorCode, err)
	}
}
