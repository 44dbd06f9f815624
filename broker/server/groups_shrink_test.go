// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// manyPartitions is the number of partitions of the topic many.
const manyPartitions = 3000

// commitMany commits an offset for every partition of the topic many.
func commitMany(b *groupBroker, group string, offset int64) {
	b.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "many"
	for i := range int32(manyPartitions) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = i, offset
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	resp := ask[*kmsg.OffsetCommitResponse](b, req, 8)
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 {
			b.t.Fatalf("the commit of partition %d is answered with %d", p.Partition, p.ErrorCode)
		}
	}
}

func TestALogOfSupersededOffsetsIsShrunk(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	b.md.change(func(s *metadata.Snapshot) {
		s.Topics["many"] = &metadata.Topic{Name: "many", ID: metadata.TopicID{9}, Leaders: slices.Repeat([]int32{1}, manyPartitions)}
	})
	eventually(t, func() error {
		if b.server.topic("many") == nil {
			return errors.New("the broker has not noticed the topic")
		}
		return nil
	})
	// g, k and o share a partition of the offsets topic, whose number of partitions is 4.
	for i := range 5 {
		commitMany(b, "g", int64(i))
	}
	ask[*kmsg.OffsetCommitResponse](b, commitRequest("k"), 7)
	ask[*kmsg.OffsetCommitResponse](b, commitRequest("o"), 7)
	if _, err := b.admin().DeleteGroup(t.Context(), "o"); err != nil {
		t.Fatalf("delete a group: %v", err)
	}
	p, code := b.server.groups.partition("g")
	if code != codeNone {
		t.Fatalf("the group's partition: error code %d", code)
	}
	end := p.log.EndOffset()
	if err := p.shrink(t.Context()); err != nil {
		t.Fatalf("shrink: %v", err)
	}
	if start, now := p.log.StartOffset(), p.log.EndOffset(); start != end || now != end+manyPartitions+1 {
		t.Errorf("the log goes from %d to %d, want it to begin at %d and to hold %d offsets", start, now, end, manyPartitions+1)
	}
	if err := p.shrink(t.Context()); err != nil || p.log.StartOffset() != end {
		t.Errorf("a log that is small is shrunk again: %v", err)
	}

	b.stop()
	b.start()
	b.loaded()
	committed(t, b, "g", 4*manyPartitions)
	committed(t, b, "k", 5)
	committed(t, b, "o", 0)
}

func TestGroupsThatAreIdleAndEmptyAreForgotten(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	ask[*kmsg.OffsetCommitResponse](b, commitRequest("commits"), 7)
	ask[*kmsg.JoinGroupResponse](b, joinRequest("joins"), 5) // gets a member id, and is not heard of again
	groups := func() string {
		resp := ask[*kmsg.ListGroupsResponse](b, kmsg.NewPtrListGroupsRequest(), 4)
		var ids []string
		for _, g := range resp.Groups {
			ids = append(ids, fmt.Sprint(g.Group, ":", g.GroupState))
		}
		return strings.Join(ids, " ")
	}
	if got := groups(); got != "commits:Empty joins:Empty" {
		t.Errorf("the groups are %s", got)
	}
	for _, p := range b.server.groups.led() {
		for _, h := range p.all() {
			h.expire(time.Now().Add(-idleGroup))
		}
	}
	if got := groups(); got != "commits:Empty joins:Empty" {
		t.Errorf("groups that were used are forgotten: %s are left", got)
	}
	for _, p := range b.server.groups.led() {
		for _, h := range p.all() {
			h.expire(time.Now())
		}
	}
	if got := groups(); got != "commits:Empty" {
		t.Errorf("the groups are %s, want the one with offsets", got)
	}
}

func TestWhatAMemberSaysOfItselfIsLimited(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	long := strings.Repeat("x", maxNameBytes+1)
	cases := map[string]func(*kmsg.JoinGroupRequest){
		"a long instance id":   func(r *kmsg.JoinGroupRequest) { r.InstanceID = &long },
		"a long protocol type": func(r *kmsg.JoinGroupRequest) { r.ProtocolType = long },
		"a long protocol name": func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = long },
		"too much metadata":    func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Metadata = make([]byte, maxMemberMetadata+1) },
		"too many protocols":   func(r *kmsg.JoinGroupRequest) { r.Protocols = slices.Repeat(r.Protocols, maxProtocols+1) },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			req := joinRequest("g")
			change(req)
			if resp := ask[*kmsg.JoinGroupResponse](b, req, 6); resp.ErrorCode != codeInvalidRequest {
				t.Errorf("the join is answered with %d, want INVALID_REQUEST", resp.ErrorCode)
			}
		})
	}
	if id := newMemberID(strings.Repeat("x", 32000)); len(id) > 300 {
		t.Errorf("a member id has %d bytes", len(id))
	}
}

func TestOffsetsOfSingleTopicsAreDeleted(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	admin := b.admin()
	ask[*kmsg.OffsetCommitResponse](b, commitRequest("g"), 7)
	var topics kadm.TopicsSet
	topics.Add("orders", 0)
	responses, err := admin.DeleteOffsets(t.Context(), "g", topics)
	if err = firstOf(err, responses.Error()); err != nil {
		t.Fatalf("delete an offset: %v", err)
	}
	committed(t, b, "g", 0)

	a := b.join("a", "g")
	share(t, a)
	readBy(t, b.produce("x", 6), a)
	committed(t, b, "g", 6)
	responses, err = admin.DeleteOffsets(t.Context(), "g", topics)
	if err = firstOf(err, responses.Error()); err == nil {
		t.Error("the offset of a topic that a member reads is deleted")
	}
	if _, err = admin.DeleteOffsets(t.Context(), "nobody", topics); err == nil {
		t.Error("an offset of a group that nobody knows is deleted")
	}
	committed(t, b, "g", 6)
}
