// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// The epochs of a member of a KIP-848 group that are not epochs: it joins, leaves for good, or leaves and will be back (with an instance id alone).
const (
	epochJoin        = 0
	epochLeave       = -1
	epochLeaveStatic = -2
)

// consumers is a KIP-848 group, and members of it that do what they are told.
type consumers struct {
	p       *program
	group   string
	topic   string
	id      kadm.TopicID
	address string
}

// consumer is a member of it.
type consumer struct {
	g        *consumers
	id       string
	instance *string
	epoch    int32
	owned    []int32
	// conn is a connection of its own, which stays open; nil where each heartbeat has one.
	conn *conn
}

// consumers makes a topic of four partitions and a group that reads it.
func (p *program) consumers(ctx context.Context, of string) (*consumers, error) {
	name := p.Name(of)
	created, err := p.admin.CreateTopic(ctx, 4, 1, nil, name)
	if err != nil {
		return nil, err
	}
	address, err := p.coordinator(ctx, name)
	return &consumers{p: p, group: name, topic: name, id: created.ID, address: address}, err
}

// coordinator asks where a group's coordinator is.
func (p *program) coordinator(ctx context.Context, group string) (string, error) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.SetVersion(3)
	find.CoordinatorKey = group
	var address string
	return address, check.Await(ctx, func() error {
		found, err := once[*kmsg.FindCoordinatorResponse](ctx, p.Bootstrap, find)
		if err == nil {
			err = code(found.ErrorCode)
		}
		if err == nil {
			address = net.JoinHostPort(found.Host, strconv.Itoa(int(found.Port)))
		}
		return err
	})
}

func (g *consumers) member(id string) *consumer { return &consumer{g: g, id: id} }

// beat sends a heartbeat. A member that joins says all; later it says what it owns.
func (m *consumer) beat(ctx context.Context, epoch int32, change func(r *kmsg.ConsumerGroupHeartbeatRequest)) (*kmsg.ConsumerGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.SetVersion(1)
	req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = m.g.group, m.id, epoch, m.instance
	switch {
	case epoch == epochJoin:
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60000, []string{m.g.topic}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	case epoch > 0:
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: m.g.id, Partitions: m.owned}}
	}
	if change != nil {
		change(req)
	}
	resp, err := m.send(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := code(resp.ErrorCode); err != nil {
		return resp, err
	}
	if epoch >= 0 {
		m.epoch = resp.MemberEpoch
	}
	if resp.Assignment != nil {
		m.owned = nil
		for _, t := range resp.Assignment.Topics {
			m.owned = append(m.owned, t.Partitions...)
		}
		slices.Sort(m.owned)
	}
	return resp, nil
}

func (m *consumer) send(ctx context.Context, req *kmsg.ConsumerGroupHeartbeatRequest) (*kmsg.ConsumerGroupHeartbeatResponse, error) {
	if m.conn == nil {
		return once[*kmsg.ConsumerGroupHeartbeatResponse](ctx, m.g.address, req)
	}
	resp, err := m.conn.ask(req)
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	if !ok {
		return nil, fmt.Errorf("a response %T", resp)
	}
	return r, nil
}

// settle has a member join, and beat until it has n partitions in an epoch that stays.
func (m *consumer) settle(ctx context.Context, n int, others ...*consumer) error {
	if m.epoch == epochJoin {
		if _, err := m.beat(ctx, epochJoin, nil); err != nil {
			return fmt.Errorf("join: %w", err)
		}
	}
	return check.Await(ctx, func() error {
		for _, x := range append(others, m) {
			if _, err := x.beat(ctx, x.epoch, nil); err != nil {
				return fmt.Errorf("beat of %s: %w", x.id, err)
			}
		}
		if len(m.owned) != n {
			return fmt.Errorf("%s has partitions %v, want %d of them", m.id, m.owned, n)
		}
		return nil
	})
}

// refused says whether an error is the one that is wanted.
func refused(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("error %s, want %w", check.Why(err), want)
	}
	return nil
}

// commit commits an offset of a partition in the name of a member and an epoch.
func (m *consumer) commit(ctx context.Context, epoch, partition int32) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(9)
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.g.group, m.id, epoch, m.instance
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = m.g.topic
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = partition, 0
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	resp, err := once[*kmsg.OffsetCommitResponse](ctx, m.g.address, req)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the partition is not in the response")
	}
	return code(resp.Topics[0].Partitions[0].ErrorCode)
}

// unknownMember beats as a member that nobody knows.
func (p *program) unknownMember(ctx context.Context) error {
	g, err := p.consumers(ctx, "unknown-member")
	if err != nil {
		return err
	}
	if _, err = g.member("a").beat(ctx, 1, nil); !errors.Is(err, kerr.UnknownMemberID) && !errors.Is(err, kerr.GroupIDNotFound) { // Kafka says the latter
		return fmt.Errorf("with no group: error %s, want UNKNOWN_MEMBER_ID or GROUP_ID_NOT_FOUND", check.Why(err))
	}
	if err := g.member("a").settle(ctx, 4); err != nil {
		return err
	}
	_, err = g.member("b").beat(ctx, 1, nil)
	return refused(err, kerr.UnknownMemberID)
}

// wrongEpoch beats in an epoch that is not the member's.
func (p *program) wrongEpoch(ctx context.Context) error {
	g, err := p.consumers(ctx, "wrong-epoch")
	if err != nil {
		return err
	}
	a, b := g.member("a"), g.member("b")
	if err := errors.Join(a.settle(ctx, 4), b.settle(ctx, 2, a)); err != nil {
		return err
	}
	_, err = a.beat(ctx, a.epoch+1, nil)
	if err := refused(err, kerr.FencedMemberEpoch); err != nil {
		return fmt.Errorf("the next epoch: %w", err)
	}
	// The epoch before is taken only with a part of what the member has: the answer that took it to its epoch was lost.
	_, err = a.beat(ctx, a.epoch-1, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics[0].Partitions = []int32{0, 1, 2, 3} })
	if err := refused(err, kerr.FencedMemberEpoch); err != nil {
		return fmt.Errorf("the epoch before, with partitions that the member has not: %w", err)
	}
	return nil
}

// lostAnswer repeats heartbeats whose answers were lost.
func (p *program) lostAnswer(ctx context.Context) error {
	g, err := p.consumers(ctx, "lost-answer")
	if err != nil {
		return err
	}
	a, b := g.member("a"), g.member("b")
	if err := a.settle(ctx, 4); err != nil {
		return err
	}
	first, have := a.epoch, a.owned
	if _, err := a.beat(ctx, epochJoin, nil); err != nil || a.epoch != first || !slices.Equal(a.owned, have) {
		return fmt.Errorf("joined again with epoch %d and partitions %v, error %s; want %d and %v", a.epoch, a.owned, check.Why(err), first, have)
	}
	if _, err := b.beat(ctx, epochJoin, nil); err != nil {
		return err
	}
	// a is told to give up half. Its answer that it has done so takes it to the next epoch; that is answered once more.
	err = check.Await(ctx, func() error {
		if _, err := a.beat(ctx, a.epoch, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics[0].Partitions = have }); err != nil {
			return err
		}
		if len(a.owned) != 2 {
			return fmt.Errorf("a has %v", a.owned)
		}
		return nil
	})
	if err != nil {
		return err
	}
	before, half := a.epoch, a.owned
	for _, what := range []string{"the answer", "its repetition"} {
		resp, err := a.beat(ctx, before, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics[0].Partitions = half })
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if resp.MemberEpoch <= before || !slices.Equal(a.owned, half) {
			return fmt.Errorf("%s: epoch %d, partitions %v; want more than %d, and %v", what, resp.MemberEpoch, a.owned, before, half)
		}
	}
	return g.has(ctx, 2)
}

// has says whether the group has n members.
func (g *consumers) has(ctx context.Context, n int) error {
	got, err := g.describe(ctx, g.group)
	if err != nil {
		return err
	}
	if len(got.Members) != n {
		return fmt.Errorf("%d members, want %d", len(got.Members), n)
	}
	return nil
}

// describe describes a group.
func (g *consumers) describe(ctx context.Context, group string) (*kmsg.ConsumerGroupDescribeResponseGroup, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.SetVersion(1)
	req.Groups = []string{group}
	resp, err := once[*kmsg.ConsumerGroupDescribeResponse](ctx, g.address, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("%d groups in the response", len(resp.Groups))
	}
	return &resp.Groups[0], code(resp.Groups[0].ErrorCode)
}

// staleCommit commits in epochs that are not, or no longer, the member's.
func (p *program) staleCommit(ctx context.Context) error {
	g, err := p.consumers(ctx, "stale-commit")
	if err != nil {
		return err
	}
	a, b := g.member("a"), g.member("b")
	if err := a.settle(ctx, 4); err != nil {
		return err
	}
	old, had := a.epoch, a.owned
	if err := a.commit(ctx, old, had[0]); err != nil {
		return fmt.Errorf("in its epoch: %w", err)
	}
	if err := b.settle(ctx, 2, a); err != nil {
		return err
	}
	lost := slices.DeleteFunc(slices.Clone(had), func(p int32) bool { return slices.Contains(a.owned, p) })
	if err := refused(a.commit(ctx, old, lost[0]), kerr.StaleMemberEpoch); err != nil {
		return fmt.Errorf("in an old epoch, of a partition that it has lost: %w", err)
	}
	if err := refused(a.commit(ctx, a.epoch+1, a.owned[0]), kerr.StaleMemberEpoch); err != nil {
		return fmt.Errorf("in an epoch that is not there yet: %w", err)
	}
	if err := refused(g.member("c").commit(ctx, a.epoch, 0), kerr.UnknownMemberID); err != nil {
		return fmt.Errorf("of an unknown member: %w", err)
	}
	return nil
}

// keptCommit commits, in the epoch before, a partition that the member has kept (KIP-1251).
func (p *program) keptCommit(ctx context.Context) error {
	g, err := p.consumers(ctx, "kept-commit")
	if err != nil {
		return err
	}
	a, b := g.member("a"), g.member("b")
	if err := a.settle(ctx, 4); err != nil {
		return err
	}
	old := a.epoch
	if err := b.settle(ctx, 2, a); err != nil {
		return err
	}
	if a.epoch == old {
		return fmt.Errorf("the epoch is still %d", old)
	}
	return a.commit(ctx, old, a.owned[0])
}

// badPattern subscribes to what is no pattern.
func (p *program) badPattern(ctx context.Context) error {
	g, err := p.consumers(ctx, "bad-pattern")
	if err != nil {
		return err
	}
	_, err = g.member("a").beat(ctx, epochJoin, func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, kmsg.StringPtr("[a-")
	})
	return refused(err, kerr.InvalidRegularExpression)
}

// badAssignor asks for an assigner that there is not.
func (p *program) badAssignor(ctx context.Context) error {
	g, err := p.consumers(ctx, "bad-assignor")
	if err != nil {
		return err
	}
	_, err = g.member("a").beat(ctx, epochJoin, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("by-lot") })
	return refused(err, kerr.UnsupportedAssignor)
}

// badHeartbeat leaves out what a heartbeat must have.
func (p *program) badHeartbeat(ctx context.Context) error {
	g, err := p.consumers(ctx, "bad-heartbeat")
	if err != nil {
		return err
	}
	type request = kmsg.ConsumerGroupHeartbeatRequest
	for what, change := range map[string]func(r *request){
		"no group":             func(r *request) { r.Group = "" },
		"no member id":         func(r *request) { r.MemberID = "" },
		"no rebalance timeout": func(r *request) { r.RebalanceTimeoutMillis = -1 },
		"no subscription":      func(r *request) { r.SubscribedTopicNames = nil },
		"no owned partitions":  func(r *request) { r.Topics = nil },
		"an epoch of -3":       func(r *request) { r.MemberEpoch = -3 },
		"an empty instance id": func(r *request) { r.InstanceID = kmsg.StringPtr("") },
		"a return with no instance id": func(r *request) {
			r.MemberEpoch, r.InstanceID = epochLeaveStatic, nil
		},
	} {
		_, err := g.member("a").beat(ctx, epochJoin, change)
		if err := refused(err, kerr.InvalidRequest); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}
