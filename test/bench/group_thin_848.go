// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumer is a member of KIP-848's protocol: it gives up what it is told to, says so at once, and takes what it is then given.
func (m *thin) consumer(ctx context.Context) error {
	m.id, m.epoch = newUUID(), 0
	report := true // what it owns is told when it joins and whenever that has changed
	for !m.isLeaving() && ctx.Err() == nil {
		sent := time.Now()
		resp, err := as[*kmsg.ConsumerGroupHeartbeatResponse](m.ask(ctx, m.heartbeat848(report), versionConsumerGroupHeartbeat))
		if err != nil {
			return err
		}
		if resp.ErrorCode != 0 {
			if err := m.refused848(ctx, resp); err != nil {
				return err
			}
			report = true
			continue
		}
		m.t.owners.hear(m.number, sent)
		m.epoch, report = resp.MemberEpoch, false
		if resp.Assignment != nil {
			assigned, err := m.assigned848(resp.Assignment)
			if err != nil {
				return err
			}
			lost, gained := m.set(assigned)
			report = len(lost)+len(gained) > 0
		}
		if !report {
			m.pause(ctx, time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond)
		}
	}
	m.set(nil)
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.t.group, m.id, -1
	_, err := m.ask(ctx, req, versionConsumerGroupHeartbeat)
	return err
}

// heartbeat848 is the next heartbeat; without a report it says no more than that the member lives.
func (m *thin) heartbeat848(report bool) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.t.group, m.id, m.epoch
	if !report {
		return req
	}
	req.RebalanceTimeoutMillis = int32(rebalanceTimeout.Milliseconds())
	req.SubscribedTopicNames = m.t.topics.names
	req.ServerAssignor = kmsg.StringPtr("uniform")
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, n := range m.owned { // ascending, so each topic's are together
		id := m.t.topics.byPlace[n/m.t.topics.partitions]
		if last := len(req.Topics) - 1; last < 0 || req.Topics[last].TopicID != id {
			topic := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			topic.TopicID = id
			req.Topics = append(req.Topics, topic)
		}
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, int32(n%m.t.topics.partitions))
	}
	return req
}

// assigned848 is what an answer assigns.
func (m *thin) assigned848(a *kmsg.ConsumerGroupHeartbeatResponseAssignment) ([]int, error) {
	var all []int
	for _, t := range a.Topics {
		place, ok := m.t.topics.ids[t.TopicID]
		if !ok {
			return nil, fmt.Errorf("the assignment names an unknown topic id %x", t.TopicID)
		}
		for _, p := range t.Partitions {
			all = append(all, m.t.topics.number(place, p))
		}
	}
	slices.Sort(all)
	return all, nil
}

// refused848 does what an error asks for; it returns those that a client does not get over.
func (m *thin) refused848(ctx context.Context, resp *kmsg.ConsumerGroupHeartbeatResponse) error {
	switch code := resp.ErrorCode; {
	case transient(code):
		m.pause(ctx, retryEvery)
	case code == codeUnknownMember || code == codeFencedMemberEpoch:
		m.set(nil)
		m.epoch = 0
		m.t.owners.rejoin(m.number)
	default:
		return fmt.Errorf("ConsumerGroupHeartbeat: error code %d: %s", code, deref(resp.ErrorMessage))
	}
	return nil
}

// newUUID is a member id as KIP-848's clients make it.
func newUUID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}
