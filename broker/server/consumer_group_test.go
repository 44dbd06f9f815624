// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// ordersID is the id of the topic orders in newGroupMetadata.
var ordersID = metadata.TopicID{2}

// beatOf is a heartbeat of a member at an epoch that says nothing else.
func beatOf(group, member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, epoch
	return req
}

// joinOf is a first heartbeat, of a member that reads orders.
func joinOf(group, member string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := beatOf(group, member, 0)
	req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 10000, []string{"orders"}
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return req
}

// owning is a full heartbeat of a member that holds partitions of orders.
func owning(group, member string, epoch int32, partitions ...int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := joinOf(group, member)
	req.MemberEpoch = epoch
	req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: ordersID, Partitions: partitions})
	return req
}

// beat sends a heartbeat.
func (b *groupBroker) beat(req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	b.t.Helper()
	return ask[*kmsg.ConsumerGroupHeartbeatResponse](b, req, 1)
}

// assigned returns the partitions of orders that a heartbeat assigns; ok is false where it says nothing of them.
func assigned(t *testing.T, resp *kmsg.ConsumerGroupHeartbeatResponse) (partitions []int32, ok bool) {
	t.Helper()
	if resp.ErrorCode != codeNone {
		t.Fatalf("a heartbeat is answered with %v", kerr.TypedErrorForCode(resp.ErrorCode))
	}
	if resp.Assignment == nil {
		return nil, false
	}
	for _, topic := range resp.Assignment.Topics {
		if topic.TopicID != ordersID {
			t.Errorf("topic %x is assigned", topic.TopicID)
		}
		partitions = append(partitions, topic.Partitions...)
	}
	slices.Sort(partitions)
	return partitions, true
}

// consumer is a member of the consumer protocol that does what it is told.
type consumer struct {
	b             *groupBroker
	group, member string
	epoch         int32
	held          []int32
}

// joinConsumer joins a group.
func (b *groupBroker) joinConsumer(group, member string) *consumer {
	b.t.Helper()
	c := &consumer{b: b, group: group, member: member}
	c.heard(b.beat(joinOf(group, member)))
	return c
}

func (c *consumer) heard(resp *kmsg.ConsumerGroupHeartbeatResponse) {
	c.b.t.Helper()
	if now, ok := assigned(c.b.t, resp); ok {
		c.held = now
	}
	c.epoch = resp.MemberEpoch
}

// settle has members send heartbeats until each holds its part, and the group is stable.
func settle(t *testing.T, members ...*consumer) {
	t.Helper()
	eventually(t, func() error {
		var all []int32
		for _, c := range members {
			c.heard(c.b.beat(owning(c.group, c.member, c.epoch, c.held...)))
			all = append(all, c.held...)
		}
		d, _, _ := members[0].b.server.groups.describe(t.Context(), members[0].group)
		slices.Sort(all)
		if !slices.Equal(all, []int32{0, 1, 2, 3, 4, 5}) || d.State != "Stable" {
			return fmt.Errorf("the members hold %v, and the group is %s", all, d.State)
		}
		return nil
	})
}

func TestAHeartbeatThatContradictsItselfIsRefused(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	empty, long, binary := "", strings.Repeat("x", maxNameBytes+1), "\xff"
	regex := strings.Repeat("x", maxRegexBytes+1)
	cases := map[string]struct {
		epoch  int32
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   string
	}{
		"no group":                        {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }, "GroupId can't be empty."},
		"a long group":                    {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = long }, "GroupId can't be longer than 255 bytes."},
		"no member id":                    {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, "MemberId can't be empty."},
		"a member id that is no text":     {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = binary }, "MemberId must be UTF-8."},
		"an empty instance id":            {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &empty }, "InstanceId can't be empty."},
		"a long instance id":              {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &long }, "InstanceId can't be longer than 255 bytes."},
		"an empty rack":                   {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = &empty }, "RackId can't be empty."},
		"a long rack":                     {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = &long }, "RackId can't be longer than 255 bytes."},
		"a long assignor":                 {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = &long }, "ServerAssignor can't be longer than 255 bytes."},
		"a long expression":               {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = &regex }, "SubscribedTopicRegex can't be longer than 1024 bytes."},
		"a long topic":                    {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = []string{"a", long} }, "A topic's name can't be longer than 255 bytes."},
		"a join without timeout":          {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, "RebalanceTimeoutMs must be provided in first request."},
		"a join without what it holds":    {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, "TopicPartitions must be empty when (re-)joining."},
		"a join that holds something":     {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = owning("g", "m", 0, 1).Topics }, "TopicPartitions must be empty when (re-)joining."},
		"a join that reads nothing":       {0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."},
		"an epoch that means nothing":     {-3, func(*kmsg.ConsumerGroupHeartbeatRequest) {}, "MemberEpoch is invalid."},
		"static leave without instance":   {-2, func(*kmsg.ConsumerGroupHeartbeatRequest) {}, "InstanceId can't be null."},
		"a leave without a member id":     {-1, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, "MemberId can't be empty."},
		"a heartbeat without a member id": {3, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, "MemberId can't be empty."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := joinOf("g", "m")
			req.MemberEpoch = tc.epoch
			tc.change(req)
			resp := b.beat(req)
			if resp.ErrorCode != codeInvalidRequest || resp.ErrorMessage == nil || *resp.ErrorMessage != tc.want {
				t.Errorf("the answer is %d, %v, want INVALID_REQUEST: %s", resp.ErrorCode, resp.ErrorMessage, tc.want)
			}
		})
	}
	if got := ask[*kmsg.ListGroupsResponse](b, kmsg.NewPtrListGroupsRequest(), 5).Groups; len(got) != 0 {
		t.Errorf("what was refused left %+v", got)
	}
	if resp := b.beat(beatOf("nobody", "m", 1)); resp.ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("a heartbeat to a group that nobody knows is answered with %d", resp.ErrorCode)
	}
}

func TestTheBrokerMakesAMemberIDForClientsOfVersion0(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](b, joinOf("g", ""), 0)
	if all, _ := assigned(t, resp); len(all) != 6 || resp.MemberID == nil || *resp.MemberID == "" || resp.HeartbeatIntervalMillis != 50 {
		t.Fatalf("joined with %+v", resp)
	}
	if next := ask[*kmsg.ConsumerGroupHeartbeatResponse](b, beatOf("g", *resp.MemberID, resp.MemberEpoch), 0); next.ErrorCode != codeNone {
		t.Errorf("the member's next heartbeat is answered with %d", next.ErrorCode)
	}
}

func TestAConsumerGroupIsToldDescribedAndDeleted(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	a := b.joinConsumer("g", "a")
	c := b.joinConsumer("g", "c")
	settle(t, a, c)
	if len(a.held) != 3 || len(c.held) != 3 {
		t.Errorf("the members hold %v and %v", a.held, c.held)
	}
	if resp := b.beat(beatOf("g", "a", a.epoch)); resp.Assignment != nil {
		t.Errorf("a heartbeat that asks for nothing is told %+v again", resp.Assignment)
	}
	describe := func(version int16) kmsg.ConsumerGroupDescribeResponseGroup {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = []string{"g", "g"}
		groups := ask[*kmsg.ConsumerGroupDescribeResponse](b, req, version).Groups
		if len(groups) != 1 {
			t.Fatalf("v%d: a group that is named twice is described as %+v", version, groups)
		}
		return groups[0]
	}
	for version := range int16(2) {
		d := describe(version)
		if d.ErrorCode != 0 || d.State != "Stable" || d.Epoch != a.epoch || d.AssignmentEpoch != a.epoch || d.AssignorName == "" || len(d.Members) != 2 {
			t.Fatalf("v%d: %+v", version, d)
		}
		m := d.Members[0]
		if version >= 1 && m.MemberType != memberConsumer || m.MemberID != "a" || m.ClientHost != "/127.0.0.1" || m.MemberEpoch != a.epoch {
			t.Errorf("v%d: a member is %+v", version, m)
		}
		want := []kmsg.AssignmentTopicPartition{{TopicID: ordersID, Topic: "orders", Partitions: a.held}}
		if diff := cmp.Diff(want, m.Assignment.TopicPartitions, cmp.AllowUnexported(kmsg.Tags{})); diff != "" {
			t.Errorf("v%d: a member's share (-want +got):\n%s", version, diff)
		}
	}
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.Groups = []string{"g"}
	if g := ask[*kmsg.DescribeGroupsResponse](b, old, 5).Groups[0]; g.State != "Dead" || g.ErrorCode != 0 {
		t.Errorf("DescribeGroups v5 describes %+v", g)
	}
	if g := ask[*kmsg.DescribeGroupsResponse](b, old, 6).Groups[0]; g.ErrorCode != codeGroupIDNotFound || !strings.Contains(*g.ErrorMessage, "not a classic group") {
		t.Errorf("DescribeGroups v6 describes %+v", g)
	}
	b.listed(t, map[string]string{"": "g:consumer:Stable", "consumer": "g:consumer:Stable", "classic": ""})

	if _, err := b.admin().DeleteGroup(t.Context(), "g"); err == nil {
		t.Error("a group with members is deleted")
	}
	for _, m := range []*consumer{a, c} {
		if resp := b.beat(beatOf("g", m.member, -1)); resp.ErrorCode != codeNone || resp.MemberEpoch != -1 {
			t.Errorf("leaving is answered with %+v", resp)
		}
	}
	if d := describe(1); d.State != "Empty" || len(d.Members) != 0 {
		t.Errorf("an empty group is %+v", d)
	}
	if _, err := b.admin().DeleteGroup(t.Context(), "g"); err != nil {
		t.Errorf("delete the group: %v", err)
	}
	b.stop()
	b.start()
	b.loaded()
	if d := describe(1); d.ErrorCode != codeGroupIDNotFound {
		t.Errorf("a group that was deleted is %+v after a restart", d)
	}
}

// listed checks what ListGroups lists, as group:type:state, by the type that is asked for.
func (b *groupBroker) listed(t *testing.T, want map[string]string) {
	t.Helper()
	for kind, want := range want {
		req := kmsg.NewPtrListGroupsRequest()
		if kind != "" {
			req.TypesFilter = []string{kind}
		}
		var got []string
		for _, g := range ask[*kmsg.ListGroupsResponse](b, req, 5).Groups {
			got = append(got, fmt.Sprintf("%s:%s:%s", g.Group, g.GroupType, g.GroupState))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("of type %q there are %q, want %q", kind, got, want)
		}
	}
}

func TestOnlyAMemberAtItsEpochCommitsAndIsToldOffsets(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	a := b.joinConsumer("g", "a")
	settle(t, a)
	cases := map[string]struct {
		member        string
		epoch         int32
		commit, fetch int16
	}{
		"the member":                 {"a", a.epoch, 0, 0},
		"an older epoch":             {"a", a.epoch - 1, kerr.StaleMemberEpoch.Code, kerr.StaleMemberEpoch.Code},
		"a newer epoch":              {"a", a.epoch + 1, kerr.StaleMemberEpoch.Code, kerr.StaleMemberEpoch.Code},
		"a member that nobody knows": {"b", a.epoch, kerr.UnknownMemberID.Code, kerr.UnknownMemberID.Code},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			commit := commitOne("g", 5)
			commit.MemberID, commit.Generation = tc.member, tc.epoch
			if got := ask[*kmsg.OffsetCommitResponse](b, commit, 9).Topics[0].Partitions[0].ErrorCode; got != tc.commit {
				t.Errorf("the commit is answered with %d, want %d", got, tc.commit)
			}
			fetch := fetchOne("g")
			fetch.Groups[0].MemberID, fetch.Groups[0].MemberEpoch = &tc.member, tc.epoch
			if got := ask[*kmsg.OffsetFetchResponse](b, fetch, 9).Groups[0].ErrorCode; got != tc.fetch {
				t.Errorf("the fetch is answered with %d, want %d", got, tc.fetch)
			}
		})
	}
	if got := b.offsetOf("g"); got != 5 { // an admin client says nothing of itself
		t.Errorf("the offset is %d, want 5", got)
	}
}

func TestWhatAMemberSaysThatItHoldsIsWhatThereIs(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	eventually(t, func() error {
		if b.server.topic("orders") == nil {
			return fmt.Errorf("no topics")
		}
		return nil
	})
	got := b.server.ownedPartitions([]kmsg.ConsumerGroupHeartbeatRequestTopic{
		{TopicID: ordersID, Partitions: []int32{5, 3, -1, 6, 3}},
		{TopicID: metadata.TopicID{99}, Partitions: []int32{0}},
		{TopicID: ordersID, Partitions: []int32{0}},
	})
	if len(got) != 1 || got[0].Topic != "orders" || !slices.Equal(got[0].Partitions, []int32{0, 3, 5}) {
		t.Errorf("the member holds %+v", got)
	}
	if got := b.server.ownedPartitions(nil); got != nil {
		t.Errorf("who says nothing holds %+v", got)
	}
	if got := b.server.ownedPartitions([]kmsg.ConsumerGroupHeartbeatRequestTopic{}); got == nil || len(got) != 0 {
		t.Errorf("who holds nothing holds %#v", got)
	}
}

func TestConsumersOfTheNewProtocolShareATopicAsTheyComeAndGo(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	opts := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	values := b.produce("first", 300)
	a := b.join("a", "g", opts...)
	share(t, a)
	c := b.join("b", "g", opts...)
	share(t, a, c)
	readBy(t, values, a, c)
	described, err := b.admin().DescribeConsumerGroups(t.Context(), "g")
	if err != nil || len(described["g"].Members) != 2 {
		t.Fatalf("an admin client describes %+v, %v", described, err)
	}
	d := b.join("c", "g", opts...)
	share(t, a, c, d)
	values = append(values, b.produce("second", 300)...)
	readBy(t, values, a, c, d)
	a.leave(t)
	share(t, c, d)
	values = append(values, b.produce("third", 300)...)
	readBy(t, values, c, d, a)
	c.leave(t)
	d.leave(t)
	committed(t, b, "g", 900)
	var topics kadm.TopicsSet
	topics.Add("orders", 0, 1, 2, 3, 4, 5)
	responses, err := b.admin().DeleteOffsets(t.Context(), "g", topics)
	if err = firstOf(err, responses.Error()); err != nil {
		t.Errorf("delete offsets: %v", err)
	}
	committed(t, b, "g", 0)
}
