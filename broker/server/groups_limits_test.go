// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
			h.expire(t.Context(), time.Now().Add(-idleGroup))
		}
	}
	if got := groups(); got != "commits:Empty joins:Empty" {
		t.Errorf("groups that were used are forgotten: %s are left", got)
	}
	for _, p := range b.server.groups.led() {
		for _, h := range p.all() {
			h.expire(t.Context(), time.Now())
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
