// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// The types of key that FindCoordinator is asked for.
const (
	coordinatorGroup       = 0
	coordinatorTransaction = 1
)

// findCoordinator answers FindCoordinator: which broker coordinates a group.
func (s *Server) findCoordinator(_ context.Context, r *request) kmsg.Response {
	req, _ := r.body.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = r.version
	snap := s.snapshot()
	if r.version >= 4 {
		for _, key := range req.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, findGroupCoordinator(snap, req.CoordinatorType, key))
		}
		return resp
	}
	c := findGroupCoordinator(snap, req.CoordinatorType, req.CoordinatorKey)
	resp.NodeID, resp.Host, resp.Port, resp.ErrorCode, resp.ErrorMessage = c.NodeID, c.Host, c.Port, c.ErrorCode, c.ErrorMessage
	return resp
}

// findGroupCoordinator finds the coordinator for one key.
func findGroupCoordinator(snap *metadata.Snapshot, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	refuse := func(code int16, message string) kmsg.FindCoordinatorResponseCoordinator {
		c.ErrorCode, c.ErrorMessage = code, &message
		return c
	}
	switch kind {
	case coordinatorGroup:
	case coordinatorTransaction:
		// Every client takes this one for final; after most others they look for the coordinator again until their time is over.
		return refuse(codeTransactionalIDDenied, "there are no transactions; remove transactional.id from the producer")
	default:
		return refuse(codeInvalidRequest, fmt.Sprintf("there is no coordinator of type %d: share groups are not supported", kind))
	}
	if code := checkGroupID(key); code != codeNone {
		return refuse(code, fmt.Sprintf("a group id has 1 to %d bytes", maxGroupID))
	}
	leader, partition, code := coordinatorOf(snap, key)
	if code != codeNone {
		return refuse(code, fmt.Sprintf("no broker leads the group's partition of %s yet", topicConsumerOffsets))
	}
	i := slices.IndexFunc(snap.Brokers, func(b metadata.Broker) bool { return b.ID == leader })
	if i < 0 {
		return refuse(codeCoordinatorMissing, fmt.Sprintf("broker %d, which leads %s-%d, is not up", leader, topicConsumerOffsets, partition))
	}
	c.NodeID, c.Host, c.Port = leader, snap.Brokers[i].Host, snap.Brokers[i].Port
	return c
}
