// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// partitionsRequest is enough to name all partitions of many topics.
	partitionsRequest = 4 << 20
	// groupRequest is enough for what a group's leader plans for all its members, and for a large commit with metadata.
	groupRequest = 16 << 20
)

// The API keys that the connection and the metrics treat in a way of their own.
const (
	keyProduce     int16 = 0
	keyFetch       int16 = 1
	keyAPIVersions int16 = 18
)

// api is a kind of request that the server answers.
type api struct {
	// key is Kafka's API key.
	key int16
	// min and max are the versions that are offered to clients.
	min, max int16
	// maxBytes is the largest request in bytes, if that is more than smallRequest; a Produce may have Config.MaxRequestBytes. Decoded, a request
	// can take many times its bytes, and none but Produce carries records.
	maxBytes int32
	// waits marks a handler that may wait for long. Its context ends with the connection and when the server stops; the context of others
	// lives on, so that what a client sent before it closed its connection is done (a last produce with acks=0, a last commit).
	waits bool
	// handle answers a request; nil for no answer (a produce with acks=0).
	handle func(s *Server, ctx context.Context, r *request) kmsg.Response
}

// apiTable returns what is offered, by key. Each handler's file tells what its versions are about. As a whole the ranges fit Kafka 4.2, which is what a
// client concludes that guesses the broker's release from them: kafka-python takes ListOffsets 11 for 4.2 and DescribeLogDirs 5 for 4.3. No range may go
// beyond that release's.
func apiTable() []api {
	return []api{
		{key: keyProduce, min: 0, max: 13, handle: (*Server).produce},
		{key: keyFetch, maxBytes: partitionsRequest, min: 4, max: 18, waits: true, handle: (*Server).fetch},
		{key: 2, maxBytes: partitionsRequest, min: 1, max: 11, handle: (*Server).listOffsets},
		{key: 3, maxBytes: partitionsRequest, min: 0, max: 13, handle: (*Server).metadata},
		{key: 8, maxBytes: groupRequest, min: 2, max: 10, handle: (*Server).offsetCommit},
		{key: 9, maxBytes: partitionsRequest, min: 1, max: 10, handle: (*Server).offsetFetch},
		{key: 10, min: 0, max: 6, handle: (*Server).findCoordinator},
		{key: 11, maxBytes: partitionsRequest, min: 0, max: 9, waits: true, handle: (*Server).joinGroup},
		{key: 12, min: 0, max: 4, waits: true, handle: (*Server).heartbeat},
		{key: 13, min: 0, max: 5, handle: (*Server).leaveGroup},
		{key: 14, maxBytes: groupRequest, min: 0, max: 5, waits: true, handle: (*Server).syncGroup},
		{key: 15, min: 0, max: 6, handle: (*Server).describeGroups},
		{key: 16, min: 0, max: 5, handle: (*Server).listGroups},
		{key: keyAPIVersions, min: 0, max: 4, handle: (*Server).apiVersions},
		{key: 19, maxBytes: partitionsRequest, min: 2, max: 7, handle: (*Server).createTopics},
		{key: 20, min: 1, max: 6, handle: (*Server).deleteTopics},
		{key: 21, maxBytes: partitionsRequest, min: 0, max: 2, handle: (*Server).deleteRecords},
		{key: 22, min: 0, max: 5, handle: (*Server).initProducerID},
		{key: 23, maxBytes: partitionsRequest, min: 2, max: 4, handle: (*Server).offsetForLeaderEpoch},
		{key: 32, maxBytes: partitionsRequest, min: 1, max: 4, handle: (*Server).describeConfigs},
		{key: 33, maxBytes: partitionsRequest, min: 0, max: 2, handle: (*Server).alterConfigs},
		{key: 35, maxBytes: partitionsRequest, min: 1, max: 4, handle: (*Server).describeLogDirs},
		{key: 37, min: 0, max: 3, handle: (*Server).createPartitions},
		{key: 42, min: 0, max: 2, handle: (*Server).deleteGroups},
		{key: 44, maxBytes: partitionsRequest, min: 0, max: 1, handle: (*Server).incrementalAlterConfigs},
		{key: 47, min: 0, max: 0, handle: (*Server).offsetDelete},
		{key: 60, min: 0, max: 1, handle: (*Server).describeCluster},
		{key: 68, min: 0, max: 1, waits: true, handle: (*Server).consumerGroupHeartbeat},
		{key: 69, min: 0, max: 1, handle: (*Server).consumerGroupDescribe},
	}
}
