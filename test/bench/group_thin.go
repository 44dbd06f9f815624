// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// retryEvery is how long a thin member waits before it asks again what could not be answered.
	retryEvery = 20 * time.Millisecond
	// reconnectEvery is how long it waits before it connects anew, as franz-go does at first.
	reconnectEvery = 250 * time.Millisecond
)

// The error codes that a member of a group has to understand.
const (
	codeLoading             = 14
	codeNotAvailable        = 15
	codeNotCoordinator      = 16
	codeIllegalGeneration   = 22
	codeUnknownMember       = 25
	codeRebalanceInProgress = 27
	codeMemberIDRequired    = 79
	codeFencedMemberEpoch   = 110
)

// thin is a member that follows the protocol of groups as a client does, over a connection of its own, and does nothing else: a thousand whole clients
// would measure themselves.
type thin struct {
	t      *team
	number int
	conn   *kafkaConn
	// undo takes back that the connection closes with its context.
	undo func() bool

	id    string
	epoch int32
	// owned is what it reads, ascending.
	owned  []int
	joined bool

	balancer kgo.GroupBalancer
	leaving  chan struct{}
	done     chan struct{}
}

func newThin(t *team, number int) *thin {
	m := &thin{t: t, number: number, epoch: -1, leaving: make(chan struct{}), done: make(chan struct{})}
	switch t.w.Protocol {
	case protocolRange:
		m.balancer = kgo.RangeBalancer()
	case protocolCooperative:
		m.balancer = kgo.CooperativeStickyBalancer()
	}
	return m
}

func (m *thin) connect(ctx context.Context) error {
	conn, err := dialKafka(ctx, m.t.address)
	if err != nil {
		return err
	}
	m.conn = conn
	return nil
}

func (m *thin) start(ctx context.Context) error {
	m.undo = m.conn.closeWith(ctx)
	go func() {
		defer close(m.done)
		defer m.disconnect()
		run := m.classic
		if m.t.w.Protocol == protocolConsumer {
			run = m.consumer
		}
		if err := run(ctx); err != nil && ctx.Err() == nil {
			m.t.fail(fmt.Errorf("member %d: %w", m.number, err))
		}
	}()
	return nil
}

func (m *thin) leave(ctx context.Context) error {
	close(m.leaving)
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leave the group: %w", ctx.Err())
	}
}

func (m *thin) disconnect() {
	if m.conn != nil {
		m.undo()
		m.conn.close()
		m.conn = nil
	}
}

// isLeaving says whether the member is to leave.
func (m *thin) isLeaving() bool {
	select {
	case <-m.leaving:
		return true
	default:
		return false
	}
}

// pause waits, and says false if the member is to leave.
func (m *thin) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.leaving:
		return false
	case <-ctx.Done():
		return false
	}
}

// ask asks until there is an answer, over new connections if need be.
func (m *thin) ask(ctx context.Context, req kmsg.Request, version int16) (kmsg.Response, error) {
	for {
		if m.conn == nil {
			if conn, err := dialKafka(ctx, m.t.address); err == nil {
				m.conn, m.undo = conn, conn.closeWith(ctx)
			}
		}
		if m.conn != nil {
			resp, err := m.conn.ask(req, version)
			if err == nil {
				return resp, nil
			}
			m.disconnect()
		}
		select {
		case <-time.After(reconnectEvery):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// set makes the member read what it is told, and returns what it reads no more.
func (m *thin) set(assigned []int) (lost, gained []int) {
	lost, gained = without(m.owned, assigned), without(assigned, m.owned)
	m.owned = assigned
	m.t.owners.change(m.number, lost, gained)
	return lost, gained
}

// without returns those of some numbers that are not among others; both ascend.
func without(some, others []int) []int {
	var left []int
	for _, n := range some {
		if _, found := slices.BinarySearch(others, n); !found {
			left = append(left, n)
		}
	}
	return left
}

// forget makes the member join as a new one.
func (m *thin) forget() {
	m.id, m.epoch = "", -1
	m.set(nil)
}

// transient says whether a request is to be sent again as it is.
func transient(code int16) bool {
	return code == codeLoading || code == codeNotAvailable || code == codeNotCoordinator
}

// classic is a member of the classic protocol.
func (m *thin) classic(ctx context.Context) error {
	for !m.isLeaving() && ctx.Err() == nil {
		synced, err := m.joinAndSync(ctx)
		if err != nil {
			return err
		}
		if !synced {
			continue
		}
		if err := m.heartbeats(ctx); err != nil {
			return err
		}
	}
	m.set(nil)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.t.group
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = m.id
	req.Members = append(req.Members, member)
	_, err := m.ask(ctx, req, versionLeaveGroup)
	return err
}

// joinAndSync takes part in a rebalance; it says false if another follows at once.
func (m *thin) joinAndSync(ctx context.Context) (bool, error) {
	if !m.balancer.IsCooperative() {
		m.set(nil)
	}
	joined, err := m.join(ctx)
	if joined == nil || err != nil {
		return false, err
	}
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID = m.t.group, m.epoch, m.id
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), joined.Protocol
	if joined.LeaderID == m.id {
		if req.GroupAssignment, err = m.plan(joined.Members); err != nil {
			return false, err
		}
	}
	resp, err := as[*kmsg.SyncGroupResponse](m.ask(ctx, req, versionSyncGroup))
	if err != nil {
		return false, err
	}
	if resp.ErrorCode != 0 {
		return false, m.refused(ctx, "SyncGroup", resp.ErrorCode)
	}
	assigned, err := m.balancer.ParseSyncAssignment(resp.MemberAssignment)
	if err != nil {
		return false, fmt.Errorf("the assignment: %w", err)
	}
	numbers := m.t.topics.numbers(assigned)
	slices.Sort(numbers)
	lost, _ := m.set(numbers)
	return len(lost) == 0, nil // a cooperative member that lost partitions joins again without them
}

// join joins; nil without an error if it is to be tried again.
func (m *thin) join(ctx context.Context) (*kmsg.JoinGroupResponse, error) {
	if m.joined {
		m.t.owners.rejoin(m.number)
	}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType, req.MemberID = m.t.group, "consumer", m.id
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(sessionTimeout.Milliseconds()), int32(rebalanceTimeout.Milliseconds())
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = m.balancer.ProtocolName(), m.balancer.JoinGroupMetadata(m.t.topics.names, m.t.topics.byName(m.owned), m.epoch)
	req.Protocols = append(req.Protocols, p)
	resp, err := as[*kmsg.JoinGroupResponse](m.ask(ctx, req, versionJoinGroup))
	if err == nil && resp.ErrorCode == codeMemberIDRequired {
		m.id, req.MemberID = resp.MemberID, resp.MemberID
		resp, err = as[*kmsg.JoinGroupResponse](m.ask(ctx, req, versionJoinGroup))
	}
	if err != nil {
		return nil, err
	}
	if resp.ErrorCode != 0 {
		return nil, m.refused(ctx, "JoinGroup", resp.ErrorCode)
	}
	m.id, m.epoch, m.joined = resp.MemberID, resp.Generation, true
	return resp, nil
}

// refused does what an error asks for before the member joins again; it returns the errors that a client does not get over.
func (m *thin) refused(ctx context.Context, what string, code int16) error {
	switch {
	case code == codeRebalanceInProgress || code == codeIllegalGeneration:
	case code == codeUnknownMember:
		m.forget()
	case transient(code):
		m.pause(ctx, retryEvery)
	default:
		return fmt.Errorf("%s: error code %d", what, code)
	}
	return nil
}

// plan is the leader's, made by franz-go's balancer whatever the broker.
func (m *thin) plan(members []kmsg.JoinGroupResponseMember) ([]kmsg.SyncGroupRequestGroupAssignment, error) {
	begin := time.Now()
	slices.SortFunc(members, func(a, b kmsg.JoinGroupResponseMember) int { return strings.Compare(a.MemberID, b.MemberID) })
	b, _, err := m.balancer.MemberBalancer(members)
	if err != nil {
		return nil, fmt.Errorf("read the members' subscriptions: %w", err)
	}
	balancer, ok := b.(kgo.GroupMemberBalancerOrError)
	if !ok {
		return nil, fmt.Errorf("%s's balancer is a %T", m.balancer.ProtocolName(), b)
	}
	plan, err := balancer.BalanceOrError(m.t.topics.counts())
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	assignments := plan.IntoSyncAssignment()
	m.t.owners.planned(time.Since(begin))
	return assignments, nil
}

// heartbeats keeps the member in the group until it has to join again or is to leave.
func (m *thin) heartbeats(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.t.group, m.epoch, m.id
	wait := m.t.w.Heartbeat
	for m.pause(ctx, wait) {
		sent := time.Now()
		resp, err := as[*kmsg.HeartbeatResponse](m.ask(ctx, req, versionHeartbeat))
		switch {
		case err != nil:
			return err
		case resp.ErrorCode == 0:
			m.t.owners.hear(m.number, sent)
			wait = m.t.w.Heartbeat
		case transient(resp.ErrorCode):
			wait = retryEvery
		default:
			return m.refused(ctx, "Heartbeat", resp.ErrorCode)
		}
	}
	return nil
}
