// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitByID is a commit of offset 5 for partitions of a topic that is named by its id.
func commitByID(group string, id [16]byte, partitions ...int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	t := kmsg.NewOffsetCommitRequestTopic()
	t.TopicID = id
	for _, n := range partitions {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = n, 5
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// fetchByID asks for offsets of a group by topic id; of all where there are no ids.
func fetchByID(group string, partitions []int32, ids ...[16]byte) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for _, id := range ids {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.TopicID, t.Partitions = id, partitions
		g.Topics = append(g.Topics, t)
	}
	return g
}

// offsetLines writes a group's offsets as id-partition:offset:error, an id by its first byte.
func offsetLines(g kmsg.OffsetFetchResponseGroup, ids map[[16]byte]string) []string {
	out := []string{}
	for _, t := range g.Topics {
		name, known := ids[t.TopicID]
		if !known {
			name = "?"
		}
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d:%d:%d", name, p.Partition, p.Offset, p.ErrorCode))
		}
	}
	slices.Sort(out)
	return out
}

func TestOffsetsAreCommittedAndFetchedByTopicID(t *testing.T) {
	b := start(t)
	a, other := b.create("a", 3), b.create("b", 1)
	names := map[[16]byte]string{a: "a", other: "b"}
	nobody := [16]byte{1, 2, 3}
	w := b.dial()
	var commit *kmsg.OffsetCommitResponse
	eventually(t, func() error { // the group's coordinator may still load
		req := commitByID("g", a, 0, 2, 7)
		req.Topics = append(req.Topics, commitByID("g", other, 0).Topics[0], commitByID("g", nobody, 0, 1).Topics[0])
		commit = call[*kmsg.OffsetCommitResponse](w, req, 10)
		if code := commit.Topics[0].Partitions[0].ErrorCode; code != 0 {
			return fmt.Errorf("a commit is answered with %d", code)
		}
		return nil
	})
	var got []string
	for _, topic := range commit.Topics {
		for _, p := range topic.Partitions {
			got = append(got, fmt.Sprintf("%s-%d:%d", names[topic.TopicID], p.Partition, p.ErrorCode))
		}
	}
	if diff := cmp.Diff([]string{"a-0:0", "a-2:0", "a-7:3", "b-0:0", "-0:100", "-1:100"}, got); diff != "" {
		t.Errorf("commits (-want +got):\n%s", diff)
	}

	req := kmsg.NewPtrOffsetFetchRequest()
	everything := fetchByID("g", nil)
	req.Groups = []kmsg.OffsetFetchRequestGroup{
		fetchByID("g", []int32{0, 0, 1, 9}, a, nobody, [16]byte{9}), everything, fetchByID("unknown", []int32{0}, a), fetchByID("", []int32{0}, nobody),
	}
	req.Groups[1].Group = "g2"
	var resp *kmsg.OffsetFetchResponse
	eventually(t, func() error { // the other groups' coordinators may still load
		resp = call[*kmsg.OffsetFetchResponse](w, req, 10)
		for _, g := range resp.Groups {
			if g.ErrorCode == kerr.CoordinatorLoadInProgress.Code {
				return fmt.Errorf("group %q loads", g.Group)
			}
		}
		return nil
	})
	want := [][]string{
		{"?-0:-1:100", "?-0:-1:100", "?-1:-1:100", "?-1:-1:100", "?-9:-1:100", "?-9:-1:100", "a-0:5:0", "a-1:-1:0", "a-9:-1:0"},
		{}, {"a-0:-1:0"}, {"?-0:-1:100"},
	}
	for i, g := range resp.Groups {
		if g.Group != req.Groups[i].Group || g.ErrorCode != 0 {
			t.Errorf("group %d is %q with error %d", i, g.Group, g.ErrorCode)
		}
		if diff := cmp.Diff(want[i], offsetLines(g, names)); diff != "" {
			t.Errorf("offsets of group %q (-want +got):\n%s", g.Group, diff)
		}
	}

	req.Groups = []kmsg.OffsetFetchRequestGroup{fetchByID("g", nil)}
	all := call[*kmsg.OffsetFetchResponse](w, req, 10).Groups[0]
	if diff := cmp.Diff([]string{"a-0:5:0", "a-2:5:0", "b-0:5:0"}, offsetLines(all, names)); diff != "" {
		t.Errorf("all offsets (-want +got):\n%s", diff)
	}
	if _, err := b.admin().DeleteTopic(b.ctx(), "b"); err != nil {
		t.Fatal(err)
	}
	all = call[*kmsg.OffsetFetchResponse](w, req, 10).Groups[0]
	if diff := cmp.Diff([]string{"a-0:5:0", "a-2:5:0"}, offsetLines(all, names)); diff != "" {
		t.Errorf("all offsets after a topic has gone (-want +got):\n%s", diff)
	}
}

func TestManyGroupsOffsetsAreFetchedAtOnce(t *testing.T) {
	b := start(t)
	b.create("topic", 1)
	admin := b.admin()
	var groups []string
	for i := range 20 {
		group := fmt.Sprintf("group-%d", i)
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "topic", At: int64(i), LeaderEpoch: -1})
		if rs, err := admin.CommitOffsets(b.ctx(), group, offsets); err != nil || rs.Error() != nil {
			t.Fatalf("commit of %s: %v, %v", group, err, rs.Error())
		}
		groups = append(groups, group)
	}
	fetched := admin.FetchManyOffsets(b.ctx(), append(groups, "unknown")...)
	for i, group := range groups {
		o, ok := fetched[group].Fetched.Lookup("topic", 0)
		if fetched[group].Err != nil || !ok || o.At != int64(i) {
			t.Errorf("%s: %+v", group, fetched[group])
		}
	}
	if f := fetched["unknown"]; f.Err != nil || len(f.Fetched) > 0 {
		t.Errorf("a group never seen has %+v", f)
	}
}

func TestATransactionalProducerIsRefused(t *testing.T) {
	b := start(t)
	for v := range int16(6) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = kmsg.StringPtr("payments")
		resp := call[*kmsg.InitProducerIDResponse](b.dial(), req, v)
		if resp.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code || resp.ProducerID != -1 || resp.ProducerEpoch != -1 {
			t.Errorf("v%d: %+v", v, resp)
		}
	}
	if b.logs.count("remove transactional.id") != 6 {
		t.Errorf("the log does not say what to do:\n%s", b.logs)
	}
}
