// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// commitOne is a commit of an offset of orders-0 by a client that is no member.
func commitOne(group string, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "orders"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = 0, offset
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// committing sends a commit over a connection of its own; answered returns its code.
func (b *groupBroker) committing(req *kmsg.OffsetCommitRequest) (answered func() int16) {
	b.t.Helper()
	c := b.raw()
	c.send(req, 8)
	return func() int16 {
		b.t.Helper()
		resp := kmsg.NewPtrOffsetCommitResponse()
		resp.Version = 8
		if err := c.receive(resp); err != nil {
			b.t.Fatalf("a commit has no answer: %v", err)
		}
		return resp.Topics[0].Partitions[0].ErrorCode
	}
}

// offsetOf is the committed offset of orders-0, -1 for none.
func (b *groupBroker) offsetOf(group string) int64 {
	b.t.Helper()
	g := ask[*kmsg.OffsetFetchResponse](b, fetchOne(group), 8).Groups[0]
	if g.ErrorCode != codeNone {
		b.t.Fatalf("the offsets of group %q are answered with error code %d", group, g.ErrorCode)
	}
	return g.Topics[0].Partitions[0].Offset
}

func fetchOne(group string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "orders", Partitions: []int32{0}}}
	req.Groups = append(req.Groups, g)
	return req
}

func TestStepsThatWaitShareAnAppend(t *testing.T) {
	t.Parallel()
	const n = 50
	b := startGroupBroker(t)
	b.loaded()
	ask[*kmsg.OffsetCommitResponse](b, commitOne("g", 0), 8)
	h := b.hosted("g")
	release := b.engine.hold()
	answers := make([]func() int16, n)
	for i := range answers {
		answers[i] = b.committing(commitOne("g", int64(i+1)))
		h.undelivered(t, i+1) // so that the last one is known
	}
	release()
	for i, answered := range answers {
		if code := answered(); code != codeNone {
			t.Errorf("commit %d is answered with %d", i, code)
		}
	}
	if begun := b.engine.begun(); begun != 2 {
		t.Errorf("%d commits took %d appends, want the one that was held and one for all others", n, begun)
	}
	if got := b.offsetOf("g"); got != n {
		t.Errorf("the offset is %d, want that of the last commit, %d", got, n)
	}
	b.stop()
	b.start()
	b.loaded()
	if got := b.offsetOf("g"); got != n {
		t.Errorf("after a restart the offset is %d, want %d", got, n)
	}
}

func TestNothingIsToldBeforeItIsOnDisk(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	ask[*kmsg.OffsetCommitResponse](b, commitOne("g", 1), 8)
	h := b.hosted("g")
	release := b.engine.hold()
	commit := b.committing(commitOne("g", 2))
	h.undelivered(t, 1)
	fetch := b.raw()
	fetch.send(fetchOne("g"), 8)
	h.undelivered(t, 2)
	list := b.raw()
	list.send(kmsg.NewPtrListGroupsRequest(), 4)
	h.undelivered(t, 3)
	release()
	if code := commit(); code != codeNone {
		t.Errorf("the commit is answered with %d", code)
	}
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = 8
	if err := fetch.receive(resp); err != nil || resp.Groups[0].Topics[0].Partitions[0].Offset != 2 {
		t.Errorf("the offset is %+v, want 2: %v", resp.Groups, err)
	}
	listed := kmsg.NewPtrListGroupsResponse()
	listed.Version = 4
	if err := list.receive(listed); err != nil || len(listed.Groups) == 0 {
		t.Errorf("the groups are %+v: %v", listed.Groups, err)
	}
}

func TestWhatIsInFlightWhenAnAppendFailsCountsForNothing(t *testing.T) {
	cases := map[string]struct {
		err  error
		want int16
	}{
		"the disk fails":                  {errTest, codeCoordinatorMissing},
		"the disk is full":                {storage.ErrFull, codeCoordinatorMissing},
		"another broker has taken over":   {storage.ErrFenced, codeNotCoordinator},
		"the log is closed, but ours yet": {storage.ErrClosed, codeNotCoordinator},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startGroupBroker(t)
			b.loaded()
			ask[*kmsg.OffsetCommitResponse](b, commitOne("g", 1), 8)
			h := b.hosted("g")
			release := b.engine.hold()
			var commits []func() int16
			for i := range 5 {
				commits = append(commits, b.committing(commitOne("g", int64(i+2))))
				h.undelivered(t, i+1)
			}
			fetch := b.raw()
			fetch.send(fetchOne("g"), 8)
			h.undelivered(t, 6)
			b.engine.setBroken(tc.err)
			release()
			for i, answered := range commits {
				if code := answered(); code != tc.want {
					t.Errorf("commit %d is answered with %d, want %d", i, code, tc.want)
				}
			}
			resp := kmsg.NewPtrOffsetFetchResponse()
			resp.Version = 8
			if err := fetch.receive(resp); err != nil || resp.Groups[0].ErrorCode != tc.want || resp.Groups[0].Topics[0].Partitions[0].Offset != -1 {
				t.Errorf("who asked for the offset is told %+v, %v, want error code %d", resp.Groups, err, tc.want)
			}
			b.engine.setBroken(nil)
			eventually(t, func() error { // a log that has failed is opened anew, at most once in a while
				if got := b.offsetOf("g"); got != 1 {
					return fmt.Errorf("the offset is %d, want 1 as before", got)
				}
				return nil
			})
			ask[*kmsg.OffsetCommitResponse](b, commitOne("g", 9), 8)
			b.stop()
			b.start()
			b.loaded()
			if got := b.offsetOf("g"); got != 9 {
				t.Errorf("after a restart the offset is %d, want 9", got)
			}
		})
	}
}

func TestAGroupIsListedWhoseLastStepIsNotStored(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	a := b.joinConsumer("g", "a")
	settle(t, a)
	h := b.hosted("g")
	release := b.engine.hold()
	join, list := b.raw(), b.raw()
	join.send(joinOf("g", "b"), 1)
	h.undelivered(t, 1)
	list.send(kmsg.NewPtrListGroupsRequest(), 4)
	h.undelivered(t, 2)
	b.engine.setBroken(storage.ErrFull)
	release()
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = 4
	if err := list.receive(resp); err != nil || resp.ErrorCode != codeNone || len(resp.Groups) != 1 {
		t.Errorf("the groups are %+v, %v, want g", resp, err)
	}
}

func TestMembersStayWhenTheirCommitsFindNoRoom(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	a := b.join("a", "g", kgo.DisableAutoCommit())
	share(t, a)
	generation := b.generation("g")
	group := b.hosted("g").group
	b.engine.setBroken(storage.ErrFull)
	readBy(t, b.produce("x", 6), a)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := a.cl.CommitUncommittedOffsets(ctx); err == nil {
		t.Error("a commit is acknowledged that could not be stored")
	}
	b.engine.setBroken(nil)
	eventually(t, func() error { return a.cl.CommitUncommittedOffsets(t.Context()) })
	committed(t, b, "g", 6)
	if now := b.generation("g"); now != generation || b.hosted("g").group != group {
		t.Errorf("the generation is %d, want %d as before, and the group was built anew: %t", now, generation, b.hosted("g").group != group)
	}
	if _, taken := a.counts(); taken != 0 {
		t.Errorf("the member lost its partitions %d times", taken)
	}
}

func TestMembersAreThereAgainAfterAnAppendFailed(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	a := b.joinConsumer("g", "a")
	settle(t, a)
	member, generation := b.joinClassic("k", nil)
	b.engine.setBroken(errTest)
	commit := commitOne("g", 5)
	commit.MemberID, commit.Generation = "a", a.epoch
	if code := ask[*kmsg.OffsetCommitResponse](b, commit, 9).Topics[0].Partitions[0].ErrorCode; code != codeCoordinatorMissing {
		t.Errorf("the commit is answered with %d", code)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = "k", member
	if code := ask[*kmsg.LeaveGroupResponse](b, leave, 2).ErrorCode; code != codeCoordinatorMissing {
		t.Errorf("leaving is answered with %d", code)
	}
	if resp := b.beat(joinOf("g", "b")); resp.ErrorCode != codeCoordinatorMissing {
		t.Errorf("a join is answered with %d", resp.ErrorCode)
	}
	b.engine.setBroken(nil)
	if resp := b.beat(beatOf("g", "a", a.epoch)); resp.ErrorCode != codeNone || resp.MemberEpoch != a.epoch {
		t.Errorf("the member, at epoch %d, is told %+v", a.epoch, resp)
	}
	if code := b.alive("k", member, generation); code != codeNone {
		t.Errorf("the classic member's heartbeat is answered with %d", code)
	}
	if d, _, _ := b.server.groups.describe(t.Context(), "g"); len(d.Members) != 1 || d.Generation != a.epoch {
		t.Errorf("the group is %+v", d)
	}
}

func TestABrokerThatLosesAGroupStoresWhatItHasDecided(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	b.loaded()
	ask[*kmsg.OffsetCommitResponse](b, commitOne("g", 1), 8)
	h := b.hosted("g")
	release := b.engine.hold()
	first := b.committing(commitOne("g", 2))
	h.undelivered(t, 1)
	second := b.committing(commitOne("g", 3))
	h.undelivered(t, 2)
	b.md.lead(topicConsumerOffsets, 2)
	eventually(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.gone {
			return errors.New("the group is still there")
		}
		return nil
	})
	release()
	if a, c := first(), second(); a != codeNone || c != codeNone {
		t.Errorf("the commits are answered with %d and %d, want 0: both are stored", a, c)
	}
	b.md.lead(topicConsumerOffsets, 1)
	b.loaded()
	if got := b.offsetOf("g"); got != 3 {
		t.Errorf("who leads next finds the offset %d, want 3", got)
	}
}
