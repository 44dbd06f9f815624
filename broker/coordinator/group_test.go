// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var epoch = time.Unix(1_700_000_000, 0)

func goodJoin() Join {
	return Join{
		Token: 1, NewMemberID: "a", SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer",
		Protocols: []Protocol{{Name: "range", Metadata: []byte("m")}}, Subscription: &Subscription{Topics: []string{"t"}},
	}
}

func TestRefusedRequests(t *testing.T) {
	client := Client{MemberID: "a"}
	join := func(change func(*Join)) Join {
		in := goodJoin()
		in.Token = 9
		change(&in)
		return in
	}
	cases := map[string]struct {
		group string
		// members joins "a" and hands it its plan first.
		members bool
		in      Input
		want    int16
	}{
		"a group without a name has no members": {in: join(func(*Join) {}), want: ErrInvalidGroupID},
		"a session timeout may be too short": {
			group: "g", in: join(func(j *Join) { j.SessionTimeout = 6*time.Second - 1 }), want: ErrInvalidSessionTimeout,
		},
		"a session timeout may be too long": {
			group: "g", in: join(func(j *Join) { j.SessionTimeout = 30*time.Minute + 1 }), want: ErrInvalidSessionTimeout,
		},
		"the shortest session timeout is taken": {group: "g", in: join(func(j *Join) { j.SessionTimeout = 6 * time.Second })},
		"the longest session timeout is taken":  {group: "g", in: join(func(j *Join) { j.SessionTimeout = 30 * time.Minute })},
		"a member has to offer a protocol":      {group: "g", in: join(func(j *Join) { j.Protocols = nil }), want: ErrInconsistentGroupProtocol},
		"a member has to name a protocol type":  {group: "g", in: join(func(j *Join) { j.ProtocolType = "" }), want: ErrInconsistentGroupProtocol},
		"an unknown member id cannot join":      {group: "g", in: join(func(j *Join) { j.Client.MemberID = "x" }), want: ErrUnknownMemberID},
		"an unknown member id with an instance id that nobody has cannot join": {
			group: "g", in: join(func(j *Join) { j.Client = Client{MemberID: "x", InstanceID: "i"} }), want: ErrUnknownMemberID,
		},
		"two members cannot have one id":          {group: "g", members: true, in: join(func(*Join) {}), want: ErrUnknownMemberID},
		"a sync of nobody":                        {group: "g", in: Sync{Token: 9, Client: client}, want: ErrUnknownMemberID},
		"a sync of an older generation":           {group: "g", members: true, in: Sync{Token: 9, Client: client}, want: ErrIllegalGeneration},
		"a sync of another protocol":              {group: "g", members: true, in: Sync{Token: 9, Client: client, Generation: 1, Protocol: "sticky"}, want: ErrInconsistentGroupProtocol},
		"a sync of another protocol type":         {group: "g", members: true, in: Sync{Token: 9, Client: client, Generation: 1, ProtocolType: "connect"}, want: ErrInconsistentGroupProtocol},
		"a heartbeat of nobody":                   {group: "g", in: Heartbeat{Token: 9, Client: client}, want: ErrUnknownMemberID},
		"a heartbeat of a generation to come":     {group: "g", members: true, in: Heartbeat{Token: 9, Client: client, Generation: 2}, want: ErrIllegalGeneration},
		"a heartbeat with an unknown instance":    {group: "g", members: true, in: Heartbeat{Token: 9, Client: Client{MemberID: "a", InstanceID: "i"}, Generation: 1}, want: ErrUnknownMemberID},
		"a heartbeat of a member":                 {group: "g", members: true, in: Heartbeat{Token: 9, Client: client, Generation: 1}},
		"a heartbeat to a group without a name":   {in: Heartbeat{Token: 9, Client: client}, want: ErrInvalidGroupID},
		"a commit to a group without a name":      {in: Commit{Token: 9, Generation: -1}},
		"a commit of a generation, to no members": {group: "g", in: Commit{Token: 9, Client: client, Generation: 4}, want: ErrUnknownMemberID},
		"a commit of a stranger among members":    {group: "g", members: true, in: Commit{Token: 9, Generation: -1}, want: ErrUnknownMemberID},
		"leaving a group without a name":          {in: Leave{Token: 9, Members: []Client{client}}, want: ErrInvalidGroupID},
		"a leave of nobody at all":                {group: "g", in: Leave{Token: 9}},
		"deleting a group with members":           {group: "g", members: true, in: Delete{Token: 9}, want: ErrNonEmptyGroup},
		"deleting a group without members":        {group: "g", in: Delete{Token: 9}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := New(tc.group, Options{})
			if tc.members {
				g.Step(epoch, goodJoin())
				g.Step(epoch, Sync{Token: 2, Client: client, Generation: 1})
			}
			out := g.Step(epoch, tc.in)
			if len(out.Replies) != 1 || out.Replies[0].Token != 9 || out.Replies[0].Err != tc.want {
				t.Errorf("replies %+v, want one of token 9 with %s", out.Replies, codeName(tc.want))
			}
			if taken := tc.want == ErrNone && isJoin(tc.in); taken != (len(out.Records) > 0) {
				t.Errorf("records %+v, want some: %t", out.Records, taken)
			}
		})
	}
}

// isJoin says whether an input makes a member, which is stored, where it is taken.
func isJoin(in Input) bool {
	_, joins := in.(Join)
	return joins
}

func TestOffsets(t *testing.T) {
	g := New("g", Options{MaxMetadataBytes: 2})
	out := g.Step(epoch, Commit{Token: 1, Generation: -1, Offsets: []OffsetCommit{
		{Topic: "b", Partition: 1, Offset: 5, LeaderEpoch: 3, Metadata: "mm"},
		{Topic: "a", Partition: 10, Offset: 6, LeaderEpoch: -1},
		{Topic: "a", Partition: 2, Offset: 7, LeaderEpoch: -1},
		{Topic: "a", Partition: 3, Offset: 8, Metadata: "mmm"},
	}})
	want := []Record{
		{Topic: "a", Partition: 2, Offset: Offset{Offset: 7, LeaderEpoch: -1, CommitTime: epoch}},
		{Topic: "a", Partition: 10, Offset: Offset{Offset: 6, LeaderEpoch: -1, CommitTime: epoch}},
		{Topic: "b", Partition: 1, Offset: Offset{Offset: 5, LeaderEpoch: 3, Metadata: "mm", CommitTime: epoch}},
	}
	if diff := cmp.Diff(want, g.Offsets()); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(CommitReply{Errs: []int16{0, 0, 0, ErrOffsetMetadataTooLarge}}, out.Replies[0].Body); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}

	// Recovered from its records, in the order of the log, the group is as it was; tombstones count.
	tombstones := g.Step(epoch, DeleteOffsets{Token: 2, Partitions: []TopicPartitions{{Topic: "a", Partitions: []int32{10, 11}}}}).Records
	records := slices.Concat(out.Records, tombstones)
	recovered := New("g", Options{})
	for _, r := range records {
		recovered.Load(r)
	}
	if diff := cmp.Diff(g.Offsets(), recovered.Offsets()); diff != "" {
		t.Errorf("recovered offsets (-want +got):\n%s", diff)
	}
	if _, ok := recovered.Offset("a", 10); ok {
		t.Error("a deleted offset is there")
	}
	if o, ok := recovered.Offset("b", 1); !ok || o.Offset != 5 {
		t.Errorf("offset of b:1 is %+v, %t", o, ok)
	}
	deleted := g.Step(epoch, Delete{Token: 3}).Records
	if len(deleted) != 2 || !deleted[0].Deleted || g.State() != StateDead || len(g.Offsets()) > 0 {
		t.Errorf("deleting wrote %+v and left %s with %+v", deleted, g.State(), g.Offsets())
	}
}

// A caller that holds back a heartbeat's answer asks whether it is due.
func TestNeedsRejoin(t *testing.T) {
	g := New("g", Options{})
	plan := func(generation int32, partitions ...int32) Plan {
		return Plan{Managed: true, Generation: generation, HandoffTimeout: time.Minute, Members: []PlanMember{
			{Pod: "p", UID: "u", IP: "10.0.0.1", Share: []TopicPartitions{{Topic: "t", Partitions: partitions}}},
		}}
	}
	if !g.NeedsRejoin("a") {
		t.Error("one that is no member has to join")
	}
	g.Step(epoch, plan(1, 0, 1))
	in := goodJoin()
	in.Client.Host = "10.0.0.1"
	g.Step(epoch, in)
	g.Step(epoch, Sync{Token: 2, Client: Client{MemberID: "a"}, Generation: 1})
	if g.NeedsRejoin("a") {
		t.Error("a has what the plan gives it")
	}
	g.Step(epoch, plan(2, 0, 1))
	if g.NeedsRejoin("a") {
		t.Error("a plan that changes nothing for a concerns it")
	}
	g.Step(epoch, plan(3, 1))
	if !g.NeedsRejoin("a") {
		t.Error("a is not told that it lost a partition")
	}
	if got, want := g.State(), StatePreparingRebalance; got != want {
		t.Errorf("state %s, want %s", got, want)
	}
}

// A plan that is wrong in itself does no harm: a partition has one owner, and so has a pod's name.
func TestContradictoryPlan(t *testing.T) {
	g := New("g", Options{})
	share := []TopicPartitions{{Topic: "t", Partitions: []int32{1, 0, 1}}, {Topic: "t", Partitions: []int32{0}}}
	g.Step(epoch, Plan{Managed: true, Members: []PlanMember{
		{Pod: "q", UID: "2", IP: "10.0.0.2", Share: share}, {Pod: "p", UID: "1", IP: "10.0.0.1", Share: share}, {Pod: "p", UID: "3", IP: "10.0.0.1", Share: share},
	}})
	got := map[string][]TopicPartitions{}
	for i, host := range []string{"10.0.0.2", "10.0.0.1"} {
		in := goodJoin()
		in.NewMemberID, in.Client.Host, in.Token = host, host, Token(10+i)
		g.Step(epoch, in)
		out := g.Step(epoch, Sync{Token: Token(20 + i), Client: Client{MemberID: host}})
		body, _ := out.Replies[0].Body.(SyncReply)
		got[host] = body.Share
	}
	want := map[string][]TopicPartitions{"10.0.0.1": {{Topic: "t", Partitions: []int32{0, 1}}}, "10.0.0.2": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}

// A group that has not been told of the topics yet gives nothing away, and does not ask to be looked at again and again for that.
func TestJoinBeforeTopics(t *testing.T) {
	for name, interval := range map[string]time.Duration{"at once": 0, "after a while": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			g := New("g", Options{AssignmentInterval: interval})
			in := ConsumerHeartbeat{Token: 1, Client: Client{MemberID: "a"}, RebalanceTimeout: time.Minute, Topics: []string{"t"}, Owned: []TopicPartitions{}}
			g.Step(epoch, in)
			if out := g.Step(epoch.Add(time.Second), Tick{}); !out.Deadline.After(epoch.Add(time.Second)) {
				t.Errorf("the deadline is %s after %s", out.Deadline.Sub(epoch), time.Second)
			}
			g.Step(epoch.Add(time.Second), Topics{Topics: map[string]Topic{"t": {ID: TopicID{1}, Partitions: 2}}})
			in.Token, in.Epoch, in.Full = 2, 1, true
			out := g.Step(epoch.Add(2*time.Second), in)
			body, _ := out.Replies[len(out.Replies)-1].Body.(ConsumerHeartbeatReply)
			if diff := cmp.Diff([]TopicPartitions{{Topic: "t", Partitions: []int32{0, 1}}}, body.Share); diff != "" {
				t.Errorf("share (-want +got):\n%s\n%+v", diff, out)
			}
		})
	}
}
