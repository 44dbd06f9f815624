// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// knownTopics are the topics as all groups are told of them. They are never changed.
type knownTopics struct{ byName map[string]coordinator.Topic }

// follow returns what groups are to be told of a snapshot's topics: the same as before, where nothing has changed that is of interest to them.
func (k *knownTopics) follow(topics map[string]*metadata.Topic) *knownTopics {
	byName := make(map[string]coordinator.Topic, len(topics))
	for name, t := range topics {
		byName[name] = coordinator.Topic{
			ID: coordinator.TopicID(t.ID), Partitions: int32(len(t.Leaders)), Internal: t.Internal || name == topicConsumerOffsets,
		}
	}
	if k != nil && maps.Equal(k.byName, byName) {
		return k
	}
	return &knownTopics{byName: byName}
}

// deletedTopics are the topics that were there before and have gone for good, or have another id by now, by name.
func deletedTopics(before, now map[string]*metadata.Topic) []string {
	var deleted []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if t := now[name]; before[name].DeleteData && (t == nil || t.ID != before[name].ID) {
			deleted = append(deleted, name)
		}
	}
	return deleted
}
