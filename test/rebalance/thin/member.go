// SPDX-License-Identifier: Apache-2.0

package thin

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions of requests that are used; every broker measured here offers them.
const (
	versionJoin, versionSync, versionHeartbeat, versionLeave = 9, 5, 4, 5
	versionConsumer                                          = 1
)

const (
	// retryEvery is how long a member waits before it asks again what could not be answered.
	retryEvery = 20 * time.Millisecond
	// heartbeatEvery, session and rebalance are franz-go's defaults.
	heartbeatEvery = 3 * time.Second
	session        = 45 * time.Second
	rebalance      = time.Minute
)

// member is one.
type member struct {
	t     *Team
	conn  *conn
	id    string
	epoch int32
	// owned are the partitions that it reads, ascending.
	owned []int32
}

func (m *member) run(ctx context.Context) error {
	if m.t.Consumer {
		return m.consumer(ctx)
	}
	return m.classic(ctx)
}

// set makes the member read other partitions, and says whether they are others.
func (m *member) set(assigned []int32) bool {
	slices.Sort(assigned)
	if slices.Equal(assigned, m.owned) {
		return false
	}
	m.t.change(m.owned, assigned)
	m.owned = assigned
	return true
}

// pause waits, and says false if the member is to leave.
func (m *member) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.t.leaving:
		return false
	case <-ctx.Done():
		return false
	}
}

func (m *member) leaving() bool {
	select {
	case <-m.t.leaving:
		return true
	default:
		return false
	}
}

// refused does what an error code asks for before the member joins again; it returns those that a client does not get over.
func (m *member) refused(ctx context.Context, code int16) error {
	err := kerr.ErrorForCode(code)
	switch {
	case errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration):
	case errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedMemberEpoch):
		m.set(nil)
		m.epoch = 0
		if !m.t.Consumer {
			m.id, m.epoch = "", -1
		}
	case errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.NotCoordinator):
		m.pause(ctx, retryEvery)
	default:
		return err
	}
	return nil
}

// classic is a member of the classic protocol with the eager range assignor.
func (m *member) classic(ctx context.Context) error {
	for !m.leaving() && ctx.Err() == nil {
		code, err := m.joinAndSync()
		if err != nil {
			return err
		}
		if code == 0 {
			if code, err = m.heartbeats(ctx); err != nil {
				return err
			}
		}
		if err := m.refused(ctx, code); err != nil {
			return err
		}
	}
	m.set(nil)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.t.Group
	leaver := kmsg.NewLeaveGroupRequestMember()
	leaver.MemberID = m.id
	req.Members = append(req.Members, leaver)
	_, err := ask[*kmsg.LeaveGroupResponse](m.conn, req, versionLeave)
	return err
}

func (m *member) joinAndSync() (int16, error) {
	m.set(nil)
	balancer := kgo.RangeBalancer()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType, req.MemberID = m.t.Group, "consumer", m.id
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(session.Milliseconds()), int32(rebalance.Milliseconds())
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = balancer.ProtocolName(), balancer.JoinGroupMetadata([]string{m.t.Topic}, nil, m.epoch)
	req.Protocols = append(req.Protocols, p)
	joined, err := ask[*kmsg.JoinGroupResponse](m.conn, req, versionJoin)
	if err == nil && errors.Is(kerr.ErrorForCode(joined.ErrorCode), kerr.MemberIDRequired) {
		m.id, req.MemberID = joined.MemberID, joined.MemberID
		joined, err = ask[*kmsg.JoinGroupResponse](m.conn, req, versionJoin)
	}
	if err != nil || joined.ErrorCode != 0 {
		return codeOf(joined, err)
	}
	m.id, m.epoch = joined.MemberID, joined.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = m.t.Group, m.epoch, m.id
	sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), joined.Protocol
	if joined.LeaderID == m.id {
		if sync.GroupAssignment, err = m.plan(balancer, joined.Members); err != nil {
			return 0, err
		}
	}
	resp, err := ask[*kmsg.SyncGroupResponse](m.conn, sync, versionSync)
	if err != nil || resp.ErrorCode != 0 {
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	}
	assigned, err := balancer.ParseSyncAssignment(resp.MemberAssignment)
	if err != nil {
		return 0, fmt.Errorf("read an assignment: %w", err)
	}
	m.set(assigned[m.t.Topic])
	return 0, nil
}

func codeOf(joined *kmsg.JoinGroupResponse, err error) (int16, error) {
	if err != nil {
		return 0, err
	}
	return joined.ErrorCode, nil
}

// plan is the leader's.
func (m *member) plan(balancer kgo.GroupBalancer, members []kmsg.JoinGroupResponseMember) ([]kmsg.SyncGroupRequestGroupAssignment, error) {
	b, _, err := balancer.MemberBalancer(members)
	if err != nil {
		return nil, fmt.Errorf("read the members' subscriptions: %w", err)
	}
	whole, ok := b.(kgo.GroupMemberBalancerOrError)
	if !ok {
		return nil, fmt.Errorf("the range balancer is a %T", b)
	}
	plan, err := whole.BalanceOrError(map[string]int32{m.t.Topic: int32(m.t.Partitions)})
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return plan.IntoSyncAssignment(), nil
}

// heartbeats keeps the member in the group until an error code says otherwise, which it returns.
func (m *member) heartbeats(ctx context.Context) (int16, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.t.Group, m.epoch, m.id
	for m.pause(ctx, heartbeatEvery) {
		resp, err := ask[*kmsg.HeartbeatResponse](m.conn, req, versionHeartbeat)
		if err != nil {
			return 0, err
		}
		if resp.ErrorCode != 0 {
			return resp.ErrorCode, nil
		}
	}
	return 0, nil
}

// consumer is a member of KIP-848's protocol: it gives up what it is told to, says so at once, and takes what it is then given.
func (m *member) consumer(ctx context.Context) error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	m.id, m.epoch = base64.RawURLEncoding.EncodeToString(id[:]), 0
	report := true
	for !m.leaving() && ctx.Err() == nil {
		resp, err := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.conn, m.beat(report), versionConsumer)
		if err != nil {
			return err
		}
		if resp.ErrorCode != 0 {
			if err := m.refused(ctx, resp.ErrorCode); err != nil {
				return err
			}
			report = true
			continue
		}
		m.epoch, report = resp.MemberEpoch, false
		if resp.Assignment != nil {
			var assigned []int32
			for _, topic := range resp.Assignment.Topics {
				assigned = append(assigned, topic.Partitions...)
			}
			report = m.set(assigned)
		}
		if !report {
			m.pause(ctx, time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond)
		}
	}
	m.set(nil)
	m.epoch = -1
	_, err := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.conn, m.beat(false), versionConsumer)
	return err
}

// beat is the next heartbeat; without a report it says no more than that the member lives.
func (m *member) beat(report bool) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.t.Group, m.id, m.epoch
	if !report {
		return req
	}
	req.RebalanceTimeoutMillis = int32(rebalance.Milliseconds())
	req.SubscribedTopicNames = []string{m.t.Topic}
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if len(m.owned) > 0 {
		topic := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		topic.TopicID, topic.Partitions = m.t.topicID, m.owned
		req.Topics = append(req.Topics, topic)
	}
	return req
}
