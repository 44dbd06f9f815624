// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// DescribeCluster, v0 to v1.
//
//   - v1 says whether brokers or controllers are asked for (KIP-919). There are no controllers of their own: UNSUPPORTED_ENDPOINT_TYPE.

const endpointBrokers = 1

// describeCluster tells the cluster's id and brokers.
func (s *Server) describeCluster(_ context.Context, r *request) kmsg.Response {
	req := bodyOf[*kmsg.DescribeClusterRequest](r)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = r.version
	resp.EndpointType = endpointBrokers
	snap := s.snapshot()
	if snap == nil {
		snap = &metadata.Snapshot{}
	}
	resp.ClusterID, resp.ControllerID = snap.ClusterID, controllerID(snap)
	if r.version >= 1 && req.EndpointType != endpointBrokers {
		resp.ErrorCode = r.code(codeUnsupportedEndpointType)
		resp.ErrorMessage = optional("there are no controllers beside the brokers; ask for brokers")
		return resp
	}
	for _, b := range snap.Brokers {
		node := kmsg.NewDescribeClusterResponseBroker()
		node.NodeID, node.Host, node.Port = b.ID, b.Host, b.Port
		resp.Brokers = append(resp.Brokers, node)
	}
	return resp
}
