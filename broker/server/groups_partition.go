// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// groupPartition is a partition of the offsets topic that this broker leads, with the groups that hash to it.
type groupPartition struct {
	groups *groups
	topic  *metadata.Topic
	number int32
	// cancel ends the loading.
	cancel context.CancelFunc

	mu sync.Mutex
	// ready says that the log was read and the groups may be used; it is never set once closed is.
	ready  bool
	closed bool
	// since is when ready was set.
	since  time.Time
	log    storage.Log
	hosted map[string]*hosted
}

// load reads the log until that succeeds or ctx ends, and then lets requests in.
func (p *groupPartition) load(ctx context.Context) {
	for {
		err := p.loadOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.groups.log.ErrorContext(ctx, "cannot load consumer groups; trying again", "partition", p.number, "after", loadRetry, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(loadRetry):
		}
	}
}

func (p *groupPartition) loadOnce(ctx context.Context) error {
	log, code := p.groups.s.openLog(ctx, p.topic, p.number)
	if code != codeNone {
		return fmt.Errorf("open partition %d of %s: error code %d", p.number, p.topic.Name, code)
	}
	p.mu.Lock()
	p.log = log
	p.mu.Unlock()

	loaded := make(map[string]*hosted)
	_, err := p.read(ctx, func(r groupRecord) {
		h := loaded[r.group]
		if h == nil {
			h = newHosted(p, r.group)
			h.planned = false // it may have been a managed one when it was stored
			loaded[r.group] = h
		}
		h.group.Load(r.Record)
	})
	if err != nil {
		return fmt.Errorf("read partition %d of %s: %w", p.number, p.topic.Name, err)
	}
	for id, h := range loaded {
		if len(h.group.Records()) == 0 { // nothing but tombstones
			delete(loaded, id)
		}
	}
	p.open(ctx, loaded)
	return nil
}

// open lets requests in. Topics and plans come first, so that nobody joins a managed group as if it were an ordinary one.
func (p *groupPartition) open(ctx context.Context, loaded map[string]*hosted) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.hosted = loaded
	n := len(loaded)
	p.mu.Unlock()

	p.feed(ctx)
	p.mu.Lock()
	p.ready, p.since = !p.closed, p.groups.now()
	p.mu.Unlock()
	p.feed(ctx) // what changed in the meantime was not fed, as the partition was not ready
	p.groups.log.DebugContext(ctx, "coordinating consumer groups", "partition", p.number, "groups", n)
}

// close answers what waits with NOT_COORDINATOR and forgets the groups.
func (p *groupPartition) close() {
	p.cancel()
	p.mu.Lock()
	p.ready, p.closed = false, true
	p.mu.Unlock()
	all := p.all()
	written := make([]<-chan struct{}, len(all))
	for i, h := range all {
		written[i] = h.leave()
	}
	// Whoever leads the partition next, which may be this broker, is to find all of it in the log.
	for _, done := range written {
		<-done
	}
}

func (p *groupPartition) isReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// coordinatesSince returns since when the groups may be used; zero while they may not.
func (p *groupPartition) coordinatesSince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		return time.Time{}
	}
	return p.since
}

// all returns the groups, by id.
func (p *groupPartition) all() []*hosted {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*hosted, 0, len(p.hosted))
	for _, h := range p.hosted {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *hosted) int { return strings.Compare(a.id, b.id) })
	return all
}

// get returns a group, made if there is none and create says so; nil where there is none. The code says why there can be none.
func (p *groupPartition) get(id string, create bool) (*hosted, int16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch h := p.hosted[id]; {
	case p.closed:
		return nil, codeNotCoordinator
	case h != nil || !create:
		return h, codeNone
	case len(p.hosted) >= maxGroups:
		return nil, codeCoordinatorMissing
	}
	h := newHosted(p, id)
	p.hosted[id] = h
	return h, codeNone
}

// remove takes a group out of the map.
func (p *groupPartition) remove(h *hosted) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosted[h.id] == h {
		delete(p.hosted, h.id)
	}
}

// follow passes on what changed in the metadata, once the partition is loaded.
func (p *groupPartition) follow(ctx context.Context, deleted []string) {
	if !p.isReady() {
		return
	}
	p.feed(ctx)
	if len(deleted) == 0 {
		return
	}
	for _, h := range p.all() {
		h.forgetTopics(ctx, deleted)
	}
}

// feed brings every group in line with the topics and the operator's plans of now: managed groups are there even before a client joins, so that they
// can be described.
func (p *groupPartition) feed(ctx context.Context) {
	snap := p.groups.s.snapshot()
	for _, h := range p.all() {
		if snap.Groups[h.id] == nil {
			h.follow(ctx, nil)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(snap.Groups)) {
		if _, number, code := coordinatorOf(snap, id); code != codeNone || number != p.number {
			continue
		}
		h, code := p.get(id, true)
		if code == codeNotCoordinator {
			return
		}
		if code != codeNone {
			p.groups.log.ErrorContext(ctx, "too many consumer groups; a managed group is not served", "group", id)
			continue
		}
		h.follow(ctx, snap.Groups[id])
	}
}

// read reads the whole log.
func (p *groupPartition) read(ctx context.Context, each func(groupRecord)) (end int64, err error) {
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	end, err = readRecords(ctx, log, each, func(offset int64, why error) {
		p.groups.log.WarnContext(ctx, "passed over what cannot be decoded in the offsets topic", "partition", p.number, "offset", offset, "reason", why)
	})
	p.renew(ctx, log, err)
	return end, err
}

// renew opens the log anew where what it answered says that it must be.
func (p *groupPartition) renew(ctx context.Context, log storage.Log, err error) {
	if !p.groups.s.lost(p.topic, p.number, err) {
		return
	}
	if log = p.groups.s.reopen(ctx, p.topic, p.number, log); log != nil {
		p.mu.Lock()
		p.log = log
		p.mu.Unlock()
	}
}

// append stores the records of a group's steps; when it returns they are on disk. A client that goes away does not cut it short: then nobody would know
// what is stored.
func (p *groupPartition) append(ctx context.Context, group string, steps [][]coordinator.Record) error {
	stored := make([][]groupRecord, len(steps))
	for i, records := range steps {
		for _, r := range records {
			stored[i] = append(stored[i], groupRecord{group: group, Record: r})
		}
	}
	batches, err := encodeSteps(p.groups.now(), stored)
	if err != nil {
		return err
	}
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	if log == nil {
		return errors.New("the partition's log is not open")
	}
	if _, err := log.Append(context.WithoutCancel(ctx), batches, storage.Synced); err != nil {
		p.renew(ctx, log, err)
		return fmt.Errorf("append the records of %d steps: %w", len(steps), err)
	}
	return nil
}
