// SPDX-License-Identifier: Apache-2.0

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// Options are what Open needs besides the directory. The zero value of a field means its default.
type Options struct {
	// NodeID is the broker's Kafka node id, from 1. Default 1.
	NodeID int32
	// Host and Port are where clients reach the broker.
	Host string
	Port int32
	// AutoCreateTopics says that a client that names an unknown topic creates it.
	AutoCreateTopics bool
	// DefaultPartitions is the number of partitions of a topic that is created without saying how many, from 1 to 10000.
	// Default 1.
	DefaultPartitions int32
	// OffsetsPartitions is the number of partitions of the topic that holds committed offsets, when it is first created.
	// Default 16. It is never changed later: a group's coordinator partition is a hash modulo that number.
	OffsetsPartitions int32
}

// Metadata is the metadata of one standalone broker. Its methods may be called from several goroutines.
type Metadata struct {
	opts     Options
	store    store
	snapshot atomic.Pointer[metadata.Snapshot]

	// mu serialises changes. It guards state and changed.
	mu sync.Mutex
	// state is what the file holds: a change that could not be saved is not in it.
	state   *state
	changed chan struct{}
}

// Open reads the metadata in dir, and makes both where there are none. An error names the file and what to do.
func Open(dir string, opts Options) (*Metadata, error) {
	return open(store{dir: dir, rename: os.Rename, write: writeSynced}, opts)
}

func open(s store, opts Options) (*Metadata, error) {
	opts.NodeID = defaulted(opts.NodeID, 1)
	opts.DefaultPartitions = defaulted(opts.DefaultPartitions, 1)
	opts.OffsetsPartitions = defaulted(opts.OffsetsPartitions, metadata.DefaultOffsetsPartitions)
	for what, n := range map[string]int32{"of default size": opts.DefaultPartitions, v1alpha1.TopicConsumerOffsets: opts.OffsetsPartitions} {
		if err := metadata.CheckPartitions(what, n); err != nil {
			return nil, err
		}
	}
	if err := makeDir(s.dir); err != nil {
		return nil, fmt.Errorf("make the metadata's directory: %w", err)
	}
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	m := &Metadata{opts: opts, store: s, state: st, changed: make(chan struct{})}
	if err := m.start(); err != nil {
		return nil, err
	}
	m.snapshot.Store(m.build(m.state))
	return m, nil
}

func defaulted(v, otherwise int32) int32 {
	if v == 0 {
		return otherwise
	}
	return v
}

// start makes what every start needs and the file lacks: the file itself, with a cluster id, and the internal topic.
func (m *Metadata) start() error {
	next := &state{clusterID: metadata.EncodeID(metadata.NewTopicID())}
	if m.state != nil {
		next = m.state.clone()
	}
	i, found := next.find(v1alpha1.TopicConsumerOffsets)
	if found {
		return nil
	}
	next.topics = slices.Insert(next.topics, i, topic{
		name: v1alpha1.TopicConsumerOffsets, id: metadata.NewTopicID(), partitions: m.opts.OffsetsPartitions, config: metadata.OffsetsConfig(), internal: true,
	})
	if err := m.store.save(next); err != nil {
		return err
	}
	m.state = next
	return nil
}

// Snapshot returns what is known now. Nobody may change it.
func (m *Metadata) Snapshot() *metadata.Snapshot { return m.snapshot.Load() }

// Changed returns a channel that is closed at the next change. Take the channel first and the snapshot second, and no change is
// missed.
func (m *Metadata) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// CreateTopic creates a topic. It is on disk and in the snapshot when CreateTopic returns nil. A Config of zero means
// metadata.DefaultTopicConfig. The errors are metadata's.
func (m *Metadata) CreateTopic(ctx context.Context, t metadata.NewTopic) error {
	if t.Partitions == -1 {
		t.Partitions = m.opts.DefaultPartitions
	}
	if t.Config == (metadata.TopicConfig{}) {
		t.Config = metadata.DefaultTopicConfig
	}
	if err := metadata.CheckName(t.Name); err != nil {
		return err
	}
	if err := errors.Join(metadata.CheckPartitions(t.Name, t.Partitions), metadata.CheckConfig(t.Name, t.Config)); err != nil {
		return err
	}
	return m.change(ctx, func(next *state) error {
		i, found := next.find(t.Name)
		if found {
			return fmt.Errorf("topic %q: %w", t.Name, metadata.ErrTopicExists)
		}
		next.topics = slices.Insert(next.topics, i, topic{name: t.Name, id: metadata.NewTopicID(), partitions: t.Partitions, config: t.Config})
		return nil
	})
}

// CreatePartitions makes a topic have count partitions, more than before. The errors are metadata's.
func (m *Metadata) CreatePartitions(ctx context.Context, name string, count int32) error {
	if err := metadata.CheckPartitions(name, count); err != nil {
		return err
	}
	return m.change(ctx, func(next *state) error {
		i, err := next.changeable(name)
		if err != nil {
			return err
		}
		if has := next.topics[i].partitions; count <= has {
			return fmt.Errorf("topic %q: %w: it has %d, and partitions may only grow", name, metadata.ErrInvalidPartitions, has)
		}
		next.topics[i].partitions = count
		return nil
	})
}

// AlterTopicConfig changes a topic's configuration. It is on disk and in the snapshot when AlterTopicConfig returns nil. The errors are metadata's,
// and those of change.
func (m *Metadata) AlterTopicConfig(ctx context.Context, name string, change metadata.ConfigChange) error {
	return m.change(ctx, func(next *state) error {
		i, err := next.changeable(name)
		if err != nil {
			return err
		}
		config, err := change(next.topics[i].config)
		if err != nil {
			return err
		}
		next.topics[i].config = config
		return metadata.CheckConfig(name, config)
	})
}

// DeleteTopic deletes a topic. It is listed in Snapshot.Purge, also after a restart, until Purged says that its records are gone. The errors are
// metadata's.
func (m *Metadata) DeleteTopic(ctx context.Context, name string) error {
	return m.change(ctx, func(next *state) error {
		i, err := next.changeable(name)
		if err != nil {
			return err
		}
		next.deleted = append(next.deleted, metadata.Incarnation{Topic: name, ID: next.topics[i].id})
		next.sortDeleted()
		next.topics = slices.Delete(next.topics, i, i+1)
		return nil
	})
}

// Purged says that the records of deleted topics, some of Snapshot's Purge, are gone. It is on disk when Purged returns nil.
func (m *Metadata) Purged(ctx context.Context, gone []metadata.Incarnation) error {
	if !slices.ContainsFunc(m.Snapshot().Purge, func(i metadata.Incarnation) bool { return slices.Contains(gone, i) }) {
		return nil
	}
	return m.change(ctx, func(next *state) error {
		next.deleted = slices.DeleteFunc(next.deleted, func(i metadata.Incarnation) bool { return slices.Contains(gone, i) })
		return nil
	})
}

// changeable returns the place of a topic that clients may change.
func (s *state) changeable(name string) (int, error) {
	i, found := s.find(name)
	if !found {
		return 0, fmt.Errorf("%w %q", metadata.ErrUnknownTopic, metadata.Clip(name))
	}
	if s.topics[i].internal {
		return 0, fmt.Errorf("topic %q: %w: it is the brokers' own", name, metadata.ErrDenied)
	}
	return i, nil
}

// change makes one change: on disk first, then in memory, then for everybody who waits.
func (m *Metadata) change(ctx context.Context, f func(next *state) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", metadata.ErrUnavailable, err)
	}
	next := m.state.clone()
	if err := f(next); err != nil {
		return err
	}
	if err := m.store.save(next); err != nil {
		return fmt.Errorf("%w: %w", metadata.ErrStorage, err)
	}
	m.state = next
	m.snapshot.Store(m.build(next))
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// build makes the snapshot of a state. This broker leads every partition.
func (m *Metadata) build(st *state) *metadata.Snapshot {
	s := &metadata.Snapshot{
		ClusterID:         st.clusterID,
		Brokers:           []metadata.Broker{{ID: m.opts.NodeID, Host: m.opts.Host, Port: m.opts.Port}},
		Topics:            make(map[string]*metadata.Topic, len(st.topics)),
		Groups:            map[string]*metadata.Group{},
		Purge:             slices.Clone(st.deleted),
		AutoCreateTopics:  m.opts.AutoCreateTopics,
		DefaultPartitions: m.opts.DefaultPartitions,
	}
	for _, t := range st.topics {
		leaders := slices.Repeat([]int32{m.opts.NodeID}, int(t.partitions))
		s.Topics[t.name] = &metadata.Topic{Name: t.name, ID: t.id, Leaders: leaders, Config: t.config, DeleteData: true, Internal: t.internal}
	}
	return s
}
