// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Kafka's error codes, as far as the server answers with them.
const (
	codeUnknownServerError        int16 = -1
	codeNone                      int16 = 0
	codeOffsetOutOfRange          int16 = 1
	codeCorruptMessage            int16 = 2
	codeUnknownTopicOrPartition   int16 = 3
	codeLeaderNotAvailable        int16 = 5
	codeNotLeaderOrFollower       int16 = 6
	codeRequestTimedOut           int16 = 7
	codeMessageTooLarge           int16 = 10
	codeInvalidTopic              int16 = 17
	codeNotEnoughReplicasAfter    int16 = 20
	codeInvalidRequiredAcks       int16 = 21
	codeUnsupportedVersion        int16 = 35
	codeTopicAlreadyExists        int16 = 36
	codeInvalidPartitions         int16 = 37
	codeInvalidReplicationFactor  int16 = 38
	codeInvalidReplicaAssignment  int16 = 39
	codeInvalidConfig             int16 = 40
	codeInvalidRequest            int16 = 42
	codeUnsupportedForFormat      int16 = 43
	codePolicyViolation           int16 = 44
	codeOutOfOrderSequence        int16 = 45
	codeInvalidProducerEpoch      int16 = 47
	codeTransactionalIDDenied     int16 = 53
	codeKafkaStorageError         int16 = 56
	codeFetchSessionIDNotFound    int16 = 70
	codeInvalidFetchSessionEpoch  int16 = 71
	codeFetchSessionTopicID       int16 = 106
	codeFencedLeaderEpoch         int16 = 74
	codeUnknownLeaderEpoch        int16 = 75
	codeUnsupportedCompression    int16 = 76
	codeInvalidRecord             int16 = 87
	codeUnknownTopicID            int16 = 100
	codeUnsupportedEndpointType   int16 = 115
	codeInconsistentTopicID       int16 = 103
	codeTopicDeletionDisabled     int16 = 73
	codeTopicAuthorizationFailed  int16 = 29
	codeClusterAuthorizationError int16 = 31
)

// storageCode translates an error of a log or engine.
func storageCode(err error) int16 {
	switch {
	case err == nil:
		return codeNone
	case errors.Is(err, storage.ErrOffsetOutOfRange):
		return codeOffsetOutOfRange
	case errors.Is(err, storage.ErrInvalidBatch):
		return codeCorruptMessage
	case errors.Is(err, storage.ErrInvalidRecord):
		return codeInvalidRecord
	case errors.Is(err, storage.ErrBatchTooLarge):
		return codeMessageTooLarge
	case errors.Is(err, storage.ErrOutOfOrderSequence):
		return codeOutOfOrderSequence
	case errors.Is(err, storage.ErrStaleProducerEpoch):
		return codeInvalidProducerEpoch
	case errors.Is(err, storage.ErrFenced), errors.Is(err, storage.ErrClosed):
		return codeNotLeaderOrFollower
	case errors.Is(err, storage.ErrNotReplicated):
		return codeNotEnoughReplicasAfter
	default: // ErrFull, ErrUnavailable, ErrDamaged and what the file system says
		return codeKafkaStorageError
	}
}

// metadataFailed translates an error of a change to topics, and logs what is for the operator to know.
func (s *Server) metadataFailed(topic string, err error) int16 {
	if errors.Is(err, metadata.ErrStorage) {
		if ok, _ := s.unstored.allow(time.Now()); ok {
			s.log.Error("cannot store a change to a topic", "topic", topic, "error", err)
		}
	}
	return metadataCode(err)
}

// metadataCode translates an error of a change to topics.
func metadataCode(err error) int16 {
	switch {
	case err == nil:
		return codeNone
	case errors.Is(err, metadata.ErrTopicExists):
		return codeTopicAlreadyExists
	case errors.Is(err, metadata.ErrUnknownTopic):
		return codeUnknownTopicOrPartition
	case errors.Is(err, metadata.ErrInvalidTopic):
		return codeInvalidTopic
	case errors.Is(err, metadata.ErrInvalidPartitions):
		return codeInvalidPartitions
	case errors.Is(err, metadata.ErrInvalidReplication):
		return codeInvalidReplicationFactor
	case errors.Is(err, metadata.ErrInvalidConfig):
		return codeInvalidConfig
	case errors.Is(err, metadata.ErrDenied):
		return codePolicyViolation
	case errors.Is(err, metadata.ErrStorage):
		return codeKafkaStorageError
	case errors.Is(err, metadata.ErrUnavailable):
		return codeRequestTimedOut
	default:
		return codeUnknownServerError
	}
}
