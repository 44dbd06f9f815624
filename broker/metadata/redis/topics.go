// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

const (
	// conflicts is how often a change is begun anew when somebody else changes the same topic in between.
	conflicts = 16
	// partitionBytes is about what a partition takes of a cluster's metadata, and topicBytes what a topic takes besides.
	partitionBytes, topicBytes = 30, 1000
)

// CreateTopic creates a topic. It is in the snapshot soon after CreateTopic returns nil, with leaders a moment later. A Config of zero means
// metadata.DefaultTopicConfig. The errors are metadata's; after ErrUnavailable the topic may have been created.
func (m *Metadata) CreateTopic(ctx context.Context, n metadata.NewTopic) error {
	if n.Partitions == -1 {
		n.Partitions = m.opts.DefaultPartitions
	}
	if n.Config == (metadata.TopicConfig{}) {
		n.Config = metadata.DefaultTopicConfig
	}
	if err := metadata.CheckName(n.Name); err != nil {
		return err
	}
	if err := errors.Join(metadata.CheckPartitions(n.Name, n.Partitions), metadata.CheckConfig(n.Name, n.Config)); err != nil {
		return err
	}
	return m.create(ctx, n.Name, &topic{id: metadata.NewTopicID(), partitions: n.Partitions, config: n.Config})
}

func (m *Metadata) create(ctx context.Context, name string, t *topic) error {
	if err := m.room(name, t.partitions); err != nil {
		return err
	}
	raw, err := t.encode()
	if err != nil {
		return err
	}
	a, err := m.store.call(ctx, put, name, "", raw)
	if err == nil && a.status == statusConflict {
		err = metadata.ErrTopicExists
	}
	return m.result(name, err)
}

// room refuses more partitions than the brokers' reads can hold.
func (m *Metadata) room(name string, partitions int32) error {
	size := topicBytes + partitionBytes*int(partitions)
	for _, t := range m.known().topics {
		size += topicBytes + partitionBytes*int(t.partitions)
	}
	if size > maxState/2 {
		return fmt.Errorf("topic %q: %w: with its %d partitions the cluster would have more than its brokers can read at a time; delete topics", name, metadata.ErrInvalidPartitions, partitions)
	}
	return nil
}

// CreatePartitions makes a topic have count partitions, more than before. The errors are metadata's.
func (m *Metadata) CreatePartitions(ctx context.Context, name string, count int32) error {
	if err := metadata.CheckPartitions(name, count); err != nil {
		return err
	}
	if err := m.room(name, count); err != nil {
		return err
	}
	return m.change(ctx, name, func(t *topic) (answer, error) {
		if count <= t.partitions {
			return answer{}, fmt.Errorf("topic %q: %w: it has %d, and partitions may only grow", name, metadata.ErrInvalidPartitions, t.partitions)
		}
		next := *t
		next.partitions = count
		return m.replace(ctx, name, t, &next)
	})
}

// AlterTopicConfig changes a topic's configuration. It is in the snapshot soon after AlterTopicConfig returns nil. The errors are metadata's, and those of
// change.
func (m *Metadata) AlterTopicConfig(ctx context.Context, name string, change metadata.ConfigChange) error {
	return m.change(ctx, name, func(t *topic) (answer, error) {
		config, err := change(t.config)
		if err == nil {
			err = metadata.CheckConfig(name, config)
		}
		if err != nil {
			return answer{}, err
		}
		next := *t
		next.config = config
		return m.replace(ctx, name, t, &next)
	})
}

// DeleteTopic deletes a topic. Until this broker, or another one should it die, has said by Purged that the records are gone, nobody leads a partition of a
// later topic of the name. The errors are metadata's.
func (m *Metadata) DeleteTopic(ctx context.Context, name string) error {
	return m.change(ctx, name, func(t *topic) (answer, error) {
		raw, err := gone{Incarnation: metadata.Incarnation{Topic: name, ID: t.id}, instance: m.instance}.encode()
		if err != nil {
			return answer{}, err
		}
		return m.store.call(ctx, remove, name, t.raw, metadata.EncodeID(t.id), raw)
	})
}

// Purged says that the records of deleted topics, some of Snapshot's Purge, are gone.
func (m *Metadata) Purged(ctx context.Context, removed []metadata.Incarnation) error {
	var ids []string
	for _, i := range m.Snapshot().Purge {
		if slices.Contains(removed, i) {
			ids = append(ids, metadata.EncodeID(i.ID))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := m.store.call(ctx, purged, ids...)
	if err != nil {
		return fmt.Errorf("note that records are removed: %w", err)
	}
	m.touch()
	return nil
}

// NextPartition returns the partition whose turn it is: one after the other for every broker of the cluster alike, also after restarts. The errors are
// metadata's.
func (m *Metadata) NextPartition(ctx context.Context, name string) (int32, error) {
	a, err := m.store.call(ctx, turn, name)
	if err != nil {
		return 0, fmt.Errorf("topic %q: %w", metadata.Clip(name), err)
	}
	switch {
	case a.status == statusConflict:
		return 0, fmt.Errorf("%w %q", metadata.ErrUnknownTopic, metadata.Clip(name))
	case a.status == statusOK && len(a.values) == 1:
		if n, err := a.values[0].AsInt64(); err == nil && n >= 0 && n < metadata.MaxPartitions {
			return int32(n), nil
		}
	}
	return 0, fmt.Errorf("topic %q: %w: %w: key %s or %s, field %s", name, metadata.ErrUnavailable, errDamaged, m.store.keys.topics, m.store.keys.partitioner, name)
}

// change changes one topic by f, which is called with the topic as it is stored, and again where that was changed in between.
func (m *Metadata) change(ctx context.Context, name string, f func(t *topic) (answer, error)) error {
	for range conflicts {
		t, err := m.changeable(ctx, name)
		if err != nil {
			return err
		}
		a, err := f(t)
		if err != nil || a.status == statusOK {
			return m.result(name, err)
		}
	}
	return fmt.Errorf("topic %q: %w: others change it all the time; try again", name, metadata.ErrUnavailable)
}

// changeable reads a topic that clients may change.
func (m *Metadata) changeable(ctx context.Context, name string) (*topic, error) {
	raw, err := m.store.topicValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", metadata.Clip(name), err)
	}
	if raw == "" {
		return nil, fmt.Errorf("%w %q", metadata.ErrUnknownTopic, metadata.Clip(name))
	}
	t, err := decodeTopic(name, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: key %s, field %s: %w", metadata.ErrUnavailable, errDamaged, m.store.keys.topics, metadata.Clip(name), err)
	}
	if t.internal {
		return nil, fmt.Errorf("topic %q: %w: it is the brokers' own", name, metadata.ErrDenied)
	}
	return t, nil
}

// replace puts next in the place of a topic, if that is still as it was read.
func (m *Metadata) replace(ctx context.Context, name string, t, next *topic) (answer, error) {
	raw, err := next.encode()
	if err != nil {
		return answer{}, err
	}
	return m.store.call(ctx, put, name, t.raw, raw)
}

// result is a change's error with the topic's name. Where there is none, the change is read at once.
func (m *Metadata) result(name string, err error) error {
	if err == nil {
		m.touch()
		return nil
	}
	if slices.ContainsFunc([]error{metadata.ErrTopicExists, metadata.ErrUnavailable, metadata.ErrStorage}, func(e error) bool { return errors.Is(err, e) }) {
		return fmt.Errorf("topic %q: %w", metadata.Clip(name), err)
	}
	return err
}
