// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// staticReturn has a member with an instance id leave and come back, as another member.
func (p *program) staticReturn(ctx context.Context) error {
	g, err := p.consumers(ctx, "static-return")
	if err != nil {
		return err
	}
	a, b, again := g.member("a"), g.member("b"), g.member("a-again")
	a.instance, again.instance = kmsg.StringPtr("i-a"), kmsg.StringPtr("i-a")
	b.instance = kmsg.StringPtr("i-b")
	if err := errors.Join(a.settle(ctx, 4), b.settle(ctx, 2, a)); err != nil {
		return err
	}
	had, epoch, others := a.owned, a.epoch, b.epoch
	resp, err := a.beat(ctx, epochLeaveStatic, nil)
	if err != nil || resp.MemberEpoch != epochLeaveStatic {
		return fmt.Errorf("it leaves: epoch %d, error %s", resp.MemberEpoch, check.Why(err))
	}
	if _, err := b.beat(ctx, b.epoch, nil); err != nil || b.epoch != others || len(b.owned) != 2 {
		return fmt.Errorf("meanwhile the other one is in epoch %d with %v, error %s; want %d and as before", b.epoch, b.owned, check.Why(err), others)
	}
	if _, err := again.beat(ctx, epochJoin, nil); err != nil || !slices.Equal(again.owned, had) || again.epoch != epoch {
		return fmt.Errorf("it returns in epoch %d with %v, error %s; want %d and %v", again.epoch, again.owned, check.Why(err), epoch, had)
	}
	if _, err := a.beat(ctx, epoch, nil); refused(err, kerr.FencedInstanceID) != nil && refused(err, kerr.UnknownMemberID) != nil {
		return fmt.Errorf("its old self: %w", refused(err, kerr.UnknownMemberID))
	}
	return g.has(ctx, 2)
}

// usedInstance joins with an instance id that is in use.
func (p *program) usedInstance(ctx context.Context) error {
	g, err := p.consumers(ctx, "used-instance")
	if err != nil {
		return err
	}
	a, twin := g.member("a"), g.member("twin")
	a.instance, twin.instance = kmsg.StringPtr("i-a"), kmsg.StringPtr("i-a")
	if a.conn, err = dial(ctx, g.address); err != nil { // a broker may know by it that the member lives
		return err
	}
	defer a.conn.Close()
	if err := a.settle(ctx, 4); err != nil {
		return err
	}
	_, err = twin.beat(ctx, epochJoin, nil)
	if err := refused(err, kerr.UnreleasedInstanceID); err != nil {
		return err
	}
	if _, err := a.beat(ctx, a.epoch, nil); err != nil {
		return fmt.Errorf("the first one: %w", err)
	}
	return g.has(ctx, 1)
}

// join is a JoinGroup of the classic protocol.
func (g *consumers) join(ctx context.Context, id, protocolType string, metadata []byte, instance *string) (*kmsg.JoinGroupResponse, error) {
	resp, err := once[*kmsg.JoinGroupResponse](ctx, g.address, g.joining(id, protocolType, metadata, instance))
	if err != nil {
		return nil, err
	}
	return resp, code(resp.ErrorCode)
}

func (g *consumers) joining(id, protocolType string, metadata []byte, instance *string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.SetVersion(7)
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = g.group, id, instance, protocolType
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10000, 10000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", metadata
	req.Protocols = append(req.Protocols, protocol)
	return req
}

// subscription is a classic member's metadata.
func (g *consumers) subscription() []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = []string{g.topic}
	return m.AppendTo(nil)
}

// notMigratable has classic members join a KIP-848 group that cannot be a part of it.
func (p *program) notMigratable(ctx context.Context) error {
	g, err := p.consumers(ctx, "not-migratable")
	if err != nil {
		return err
	}
	if err := g.member("a").settle(ctx, 4); err != nil {
		return err
	}
	_, err = g.join(ctx, "", "connect", g.subscription(), nil)
	if err := refused(err, kerr.InconsistentGroupProtocol); err != nil {
		return fmt.Errorf("of another protocol type: %w", err)
	}
	first, err := g.join(ctx, "", "consumer", []byte{1}, nil)
	if errors.Is(err, kerr.MemberIDRequired) {
		_, err = g.join(ctx, first.MemberID, "consumer", []byte{1}, nil)
	}
	if err == nil || kerr.IsRetriable(err) { // Kafka says UNKNOWN_SERVER_ERROR
		return fmt.Errorf("with a subscription that is none: error %s", check.Why(err))
	}
	return g.has(ctx, 1)
}

// lostJoin repeats a classic member's requests whose answers were lost.
func (p *program) lostJoin(ctx context.Context) error {
	g, err := p.consumers(ctx, "lost-join")
	if err != nil {
		return err
	}
	first, err := g.join(ctx, "", "consumer", g.subscription(), nil)
	if err := refused(err, kerr.MemberIDRequired); err != nil {
		return err
	}
	id := first.MemberID
	var generation int32
	for range 2 {
		resp, err := g.join(ctx, id, "consumer", g.subscription(), nil)
		if err != nil || resp.MemberID != id || len(resp.Members) != 1 {
			return fmt.Errorf("%+v, error %s; want member %s alone", resp, check.Why(err), id)
		}
		generation = resp.Generation
	}
	for range 2 {
		plan, err := g.sync(ctx, id, generation, nil, []byte("plan"))
		if err != nil || string(plan) != "plan" {
			return fmt.Errorf("sync: %q, error %s; want the plan", plan, check.Why(err))
		}
	}
	return nil
}

// sync is a SyncGroup of a classic leader that is alone in its group.
func (g *consumers) sync(ctx context.Context, id string, generation int32, instance *string, plan []byte) ([]byte, error) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.SetVersion(5)
	req.Group, req.MemberID, req.Generation, req.InstanceID = g.group, id, generation, instance
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: id, MemberAssignment: plan}}
	resp, err := once[*kmsg.SyncGroupResponse](ctx, g.address, req)
	if err != nil {
		return nil, err
	}
	return resp.MemberAssignment, code(resp.ErrorCode)
}

// returningLeader has the leader of a classic group, a static member, be started again. It must not plan anew, for the others see no rebalance: up to version 8
// it is not told that it leads, from version 9 on it is told that it need not plan (KIP-814).
func (p *program) returningLeader(ctx context.Context) error {
	g, err := p.consumers(ctx, "returning-leader")
	if err != nil {
		return err
	}
	instance := kmsg.StringPtr("i-a")
	first, err := g.join(ctx, "", "consumer", g.subscription(), instance)
	if err != nil || first.LeaderID != first.MemberID {
		return fmt.Errorf("leader %q, error %s; want %q", first.LeaderID, check.Why(err), first.MemberID)
	}
	if _, err := g.sync(ctx, first.MemberID, first.Generation, instance, []byte("plan")); err != nil {
		return err
	}
	for _, version := range []int16{8, 9} {
		req := g.joining("", "consumer", g.subscription(), instance)
		req.SetVersion(version)
		resp, err := once[*kmsg.JoinGroupResponse](ctx, g.address, req)
		if err == nil {
			err = code(resp.ErrorCode)
		}
		if err != nil {
			return fmt.Errorf("version %d: %w", version, err)
		}
		leads := resp.LeaderID == resp.MemberID
		if resp.Generation != first.Generation || leads != (version == 9) || resp.SkipAssignment != (version == 9) {
			return fmt.Errorf("version %d: generation %d, told to lead %t, and not to plan %t", version, resp.Generation, leads, resp.SkipAssignment)
		}
		plan, err := g.sync(ctx, resp.MemberID, resp.Generation, instance, nil)
		if err != nil || string(plan) != "plan" {
			return fmt.Errorf("version %d: sync: %q, error %s; want the plan that was", version, plan, check.Why(err))
		}
	}
	return nil
}

// lostStaticJoin repeats a static member's first join, whose answer was lost: it is one member still.
func (p *program) lostStaticJoin(ctx context.Context) error {
	g, err := p.consumers(ctx, "lost-static-join")
	if err != nil {
		return err
	}
	instance := kmsg.StringPtr("i-a")
	for range 2 {
		resp, err := g.join(ctx, "", "consumer", g.subscription(), instance)
		if err != nil || len(resp.Members) != 1 {
			return fmt.Errorf("%d members, error %s; want 1", len(resp.Members), check.Why(err))
		}
	}
	return nil
}

// describeOther asks for groups of either protocol with the request that is for the other one.
func (p *program) describeOther(ctx context.Context) error {
	g, err := p.consumers(ctx, "describe-other")
	if err != nil {
		return err
	}
	if err := g.member("a").settle(ctx, 4); err != nil {
		return err
	}
	got, err := g.describe(ctx, g.group)
	if err != nil || got.State != "Stable" || got.Epoch < 1 || got.AssignorName != "uniform" || len(got.Members) != 1 {
		return fmt.Errorf("%+v, error %s; want one member, Stable, by uniform", got, check.Why(err))
	}
	if m := got.Members[0]; len(m.Assignment.TopicPartitions) != 1 || len(m.TargetAssignment.TopicPartitions) != 1 || m.MemberEpoch != got.Epoch || m.MemberType != 1 {
		return fmt.Errorf("its member is %+v, want an assignment, the group's epoch %d and type 1", m, got.Epoch)
	}
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.SetVersion(6)
	old.Groups = []string{g.group}
	resp, err := once[*kmsg.DescribeGroupsResponse](ctx, g.address, old)
	if err != nil {
		return err
	}
	if err := refused(code(resp.Groups[0].ErrorCode), kerr.GroupIDNotFound); err != nil {
		return fmt.Errorf("DescribeGroups of a KIP-848 group: %w", err)
	}
	classic, err := p.consumers(ctx, "describe-classic")
	if err == nil {
		_, err = classic.join(ctx, "", "consumer", classic.subscription(), kmsg.StringPtr("i"))
	}
	if err != nil {
		return err
	}
	_, err = classic.describe(ctx, classic.group)
	if err := refused(err, kerr.GroupIDNotFound); err != nil {
		return fmt.Errorf("ConsumerGroupDescribe of a classic group: %w", err)
	}
	return classic.listedAs(ctx, map[string]string{classic.group: "classic", g.group: "consumer"})
}

// listedAs says whether the groups are listed with their types, and with the filter of their type alone. They may have other coordinators.
func (g *consumers) listedAs(ctx context.Context, types map[string]string) error {
	for group, want := range types {
		address, err := g.p.coordinator(ctx, group)
		if err != nil {
			return err
		}
		for _, filter := range []string{"classic", "consumer"} {
			req := kmsg.NewPtrListGroupsRequest()
			req.SetVersion(5)
			req.TypesFilter = []string{filter}
			resp, err := once[*kmsg.ListGroupsResponse](ctx, address, req)
			if err == nil {
				err = code(resp.ErrorCode)
			}
			if err != nil {
				return err
			}
			listed := slices.ContainsFunc(resp.Groups, func(x kmsg.ListGroupsResponseGroup) bool { return x.Group == group && x.GroupType == want })
			if listed != (filter == want) {
				return fmt.Errorf("%s, of type %s, with the filter %s: listed %t", group, want, filter, listed)
			}
		}
	}
	return nil
}

// deleteUsed deletes a KIP-848 group, and offsets of it, that are in use.
func (p *program) deleteUsed(ctx context.Context) error {
	g, err := p.consumers(ctx, "delete-used")
	if err != nil {
		return err
	}
	a := g.member("a")
	if err := errors.Join(a.settle(ctx, 4), a.commit(ctx, a.epoch, 0)); err != nil {
		return err
	}
	drop := func() error {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.SetVersion(2)
		req.Groups = []string{g.group}
		resp, err := once[*kmsg.DeleteGroupsResponse](ctx, g.address, req)
		if err != nil {
			return err
		}
		return code(resp.Groups[0].ErrorCode)
	}
	if err := refused(drop(), kerr.NonEmptyGroup); err != nil {
		return err
	}
	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group = g.group
	offsets.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: g.topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	resp, err := once[*kmsg.OffsetDeleteResponse](ctx, g.address, offsets)
	if err != nil {
		return err
	}
	if err := refused(code(resp.Topics[0].Partitions[0].ErrorCode), kerr.GroupSubscribedToTopic); err != nil {
		return fmt.Errorf("OffsetDelete: %w", err)
	}
	if _, err := a.beat(ctx, epochLeave, nil); err != nil {
		return err
	}
	return drop()
}
