// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// view is the snapshot that the server acts on: the last one that was taken over from the metadata source. Handlers use it and not the
// source's, so that all that the server does goes by the same one.
type view struct {
	mu      sync.RWMutex
	snap    *metadata.Snapshot
	ids     map[metadata.TopicID]*metadata.Topic
	changed chan struct{}
}

func (v *view) init(snap *metadata.Snapshot) {
	v.changed = make(chan struct{})
	v.snap, v.ids = snap, topicsByID(snap)
}

// set puts a snapshot in place and wakes those who wait for a change.
func (v *view) set(snap *metadata.Snapshot) {
	ids := topicsByID(snap)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.snap, v.ids = snap, ids
	close(v.changed)
	v.changed = make(chan struct{})
}

func topicsByID(snap *metadata.Snapshot) map[metadata.TopicID]*metadata.Topic {
	if snap == nil {
		return nil
	}
	ids := make(map[metadata.TopicID]*metadata.Topic, len(snap.Topics))
	for _, t := range snap.Topics {
		ids[t.ID] = t
	}
	return ids
}

// snapshot returns the snapshot that the server acts on; nil before the metadata source has one.
func (s *Server) snapshot() *metadata.Snapshot {
	s.view.mu.RLock()
	defer s.view.mu.RUnlock()
	return s.view.snap
}

// snapshotChanged returns a channel that is closed when the next snapshot is in place. Take it before snapshot, to miss none.
func (s *Server) snapshotChanged() <-chan struct{} {
	s.view.mu.RLock()
	defer s.view.mu.RUnlock()
	return s.view.changed
}

// topic returns a topic by name, nil where there is none.
func (s *Server) topic(name string) *metadata.Topic {
	snap := s.snapshot()
	if snap == nil {
		return nil
	}
	return snap.Topics[name]
}

// topicByID returns a topic by id, nil where there is none.
func (s *Server) topicByID(id metadata.TopicID) *metadata.Topic {
	s.view.mu.RLock()
	defer s.view.mu.RUnlock()
	return s.view.ids[id]
}

// awaitSnapshot waits until a snapshot satisfies cond, and says whether one did before ctx ended, the time was over or the server stopped.
func (s *Server) awaitSnapshot(ctx context.Context, timeout time.Duration, cond func(*metadata.Snapshot) bool) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed := s.snapshotChanged()
		if snap := s.snapshot(); snap != nil && cond(snap) {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		case <-s.stopping:
			return false
		}
	}
}

// The removal of a deleted topic's records is tried again after a time that doubles.
const (
	firstPurgeRetry = 250 * time.Millisecond
	lastPurgeRetry  = 30 * time.Second
)

// watchMetadata takes over the metadata source's snapshots until ctx ends.
func (s *Server) watchMetadata(ctx context.Context) {
	var applied *metadata.Snapshot
	delay := firstPurgeRetry
	for {
		changed := s.cfg.Metadata.Changed()
		var retry <-chan time.Time
		if snap := s.cfg.Metadata.Snapshot(); snap != nil && snap != applied {
			applied = snap
			if err := s.applySnapshot(ctx, snap); err == nil {
				delay = firstPurgeRetry
			} else if ctx.Err() == nil {
				s.log.Error("cannot remove the records of deleted topics; trying again", "error", err, "after", delay)
				applied, retry = nil, time.After(delay)
				delay = min(2*delay, lastPurgeRetry)
			}
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}
