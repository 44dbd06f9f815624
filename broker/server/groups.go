// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

const (
	// topicConsumerOffsets is the topic that holds committed offsets. The leader of one of its partitions coordinates the groups that hash
	// to that partition, as in Kafka.
	topicConsumerOffsets = "__consumer_offsets"
	// maxGroupID is the longest group id that is taken, in bytes; Kafka takes what fits in a string of the wire, which no tool shows well.
	maxGroupID = 255
	// maxGroups is how many groups a partition of the offsets topic holds at most, so that invented group ids cannot take all memory.
	maxGroups = 20000
	// maxGroupMembers is how many members a group has at most; the next one is told GROUP_MAX_SIZE_REACHED.
	maxGroupMembers = 10000
	// idleGroup is how long a group without members and offsets is remembered after its last request.
	idleGroup = 10 * time.Minute
	// sweepInterval is how often groups that are idle are looked for.
	sweepInterval = time.Minute
	// loadRetry is how long a partition whose log could not be read waits before it is tried again.
	loadRetry = time.Second
)

// Kafka's error codes that groups alone answer with.
const (
	codeCoordinatorLoading int16 = 14
	codeCoordinatorMissing int16 = 15
	codeNotCoordinator     int16 = 16
	codeInvalidGroupID     int16 = 24
	codeGroupIDNotFound    int16 = 69
)

// groups hosts the consumer groups that this broker coordinates: it keeps a coordinator.Group for each, feeds it requests, time and the
// operator's plans, and makes what it decides durable before anyone hears of it. It knows no rule of a group itself.
//
// Locks are taken in the order hosted.mu, groupPartition.mu, groups.mu, groupTimers.mu.
type groups struct {
	s    *Server
	self int32
	now  func() time.Time
	log  *slog.Logger
	// options are the settings of every group.
	options coordinator.Options

	timers groupTimers
	// connections are those that members were last heard of by.
	connections memberConnections
	tokens      atomic.Uint64
	work        sync.WaitGroup

	mu sync.Mutex
	// parts holds the partitions of the offsets topic that this broker leads, by number.
	parts map[int32]*groupPartition

	// topics are those that every group is told before its next request; nil before there is a snapshot.
	topics atomic.Pointer[knownTopics]
	// before are the topics of the snapshot before, to see which are deleted. It belongs to run's goroutine.
	before map[string]*metadata.Topic
}

// newGroups makes the groups of a server; run does their work.
func newGroups(s *Server) *groups {
	return &groups{
		s: s, self: s.cfg.NodeID, now: time.Now, log: s.log, options: s.cfg.Groups.options(),
		timers: groupTimers{wake: make(chan struct{}, 1)},
		parts:  make(map[int32]*groupPartition),
	}
}

// run follows the metadata and the clock until ctx ends. Then every waiting request is answered with NOT_COORDINATOR.
func (g *groups) run(ctx context.Context) {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()

	changed := g.s.snapshotChanged()
	g.follow(ctx)
	for {
		timer.Reset(g.timers.wait(g.now()))
		select {
		case <-ctx.Done():
			g.stop(ctx)
			return
		case <-changed:
			changed = g.s.snapshotChanged()
			g.follow(ctx)
		case <-sweep.C:
			g.sweep(ctx)
		case <-g.timers.wake:
		case <-timer.C:
			for _, h := range g.timers.due(g.now()) {
				g.work.Go(func() { h.tick(ctx) })
			}
		}
	}
}

// stop drops every partition and waits for the goroutines that run started.
func (g *groups) stop(ctx context.Context) {
	for _, p := range g.led() {
		g.drop(ctx, p)
	}
	g.work.Wait()
}

// follow takes on the partitions of the offsets topic that this broker leads by now, drops those that it does not, and passes the topics and the
// operator's plans on. The offsets of a deleted topic go, so that a later topic of its name is read from the start.
func (g *groups) follow(ctx context.Context) {
	snap := g.s.snapshot()
	if snap == nil {
		return
	}
	g.topics.Store(g.topics.Load().follow(snap.Topics))
	deleted := deletedTopics(g.before, snap.Topics)
	g.before = snap.Topics
	topic := snap.Topics[topicConsumerOffsets]
	have := make(map[int32]bool)
	for _, p := range g.led() {
		if topic == nil || topic.ID != p.topic.ID || g.s.leads(topic, p.number) != codeNone {
			g.drop(ctx, p)
			continue
		}
		have[p.number] = true
		p.follow(ctx, deleted)
	}
	if topic == nil {
		return
	}
	for i, leader := range topic.Leaders {
		if number := int32(i); leader == g.self && !have[number] {
			g.take(ctx, topic, number)
		}
	}
}

// take begins to load a partition.
func (g *groups) take(ctx context.Context, topic *metadata.Topic, number int32) {
	ctx, cancel := context.WithCancel(ctx)
	p := &groupPartition{groups: g, topic: topic, number: number, cancel: cancel, hosted: make(map[string]*hosted)}
	g.mu.Lock()
	g.parts[number] = p
	g.mu.Unlock()
	g.work.Go(func() { p.load(ctx) })
}

// drop forgets a partition: requests that wait in its groups are answered with NOT_COORDINATOR.
func (g *groups) drop(ctx context.Context, p *groupPartition) {
	g.mu.Lock()
	delete(g.parts, p.number)
	g.mu.Unlock()
	p.close()
	g.log.DebugContext(ctx, "no longer coordinating groups", "partition", p.number)
}

// led returns the partitions that this broker coordinates or loads, by number.
func (g *groups) led() []*groupPartition {
	g.mu.Lock()
	defer g.mu.Unlock()
	parts := make([]*groupPartition, 0, len(g.parts))
	for _, p := range g.parts {
		parts = append(parts, p)
	}
	sort.Slice(parts, func(i, j int) bool { return parts[i].number < parts[j].number })
	return parts
}

// sweep forgets groups that nobody has used for a while and that hold nothing.
func (g *groups) sweep(ctx context.Context) {
	before := g.now().Add(-idleGroup)
	for _, p := range g.led() {
		if !p.isReady() {
			continue
		}
		for _, h := range p.all() {
			h.expire(ctx, before)
		}
	}
}

// coordinatorOf returns the broker that coordinates a group, or an error code.
func coordinatorOf(snap *metadata.Snapshot, group string) (broker, partition int32, code int16) {
	if snap == nil {
		return -1, -1, codeCoordinatorMissing
	}
	t := snap.Topics[topicConsumerOffsets]
	if t == nil || len(t.Leaders) == 0 {
		return -1, -1, codeCoordinatorMissing
	}
	partition = offsetsPartition(group, len(t.Leaders))
	if broker = t.Leaders[partition]; broker < 0 {
		return -1, partition, codeCoordinatorMissing
	}
	return broker, partition, codeNone
}

// partition returns the loaded partition that a group belongs to, or an error code.
func (g *groups) partition(group string) (*groupPartition, int16) {
	broker, number, code := coordinatorOf(g.s.snapshot(), group)
	if code != codeNone {
		return nil, code
	}
	if broker != g.self {
		return nil, codeNotCoordinator
	}
	g.mu.Lock()
	p := g.parts[number]
	g.mu.Unlock()
	if p == nil || !p.isReady() {
		return nil, codeCoordinatorLoading
	}
	return p, codeNone
}

// checkGroupID refuses group ids that no group can have.
func checkGroupID(id string) int16 {
	if id == "" || len(id) > maxGroupID {
		return codeInvalidGroupID
	}
	return codeNone
}

// call passes a request on to its group and returns the answer, which may take as long as a rebalance. Where ctx ends before, the answer is
// dropped. create is as for pass.
func (g *groups) call(ctx context.Context, group string, create bool, input func(coordinator.Token) coordinator.Input) coordinator.Reply {
	o, code := g.pass(ctx, group, create, input)
	if code != codeNone {
		return coordinator.Reply{Err: code}
	}
	select {
	case r := <-o.answer:
		return r
	case <-ctx.Done():
		o.by.abandon(o.token)
		return coordinator.Reply{Token: o.token, Err: codeCoordinatorMissing}
	}
}

// owed is an answer that a group owes, or has given.
type owed struct {
	by     *hosted
	token  coordinator.Token
	answer <-chan coordinator.Reply
}

// pass passes a request on to its group, or says why not. A request with create false does not bring a group into being.
func (g *groups) pass(ctx context.Context, group string, create bool, input func(coordinator.Token) coordinator.Input) (owed, int16) {
	for {
		p, code := g.partition(group)
		if code != codeNone {
			return owed{}, code
		}
		h, code := p.get(group, create)
		if code != codeNone {
			return owed{}, code
		}
		if h == nil { // nobody knows the group: a new one answers, and is forgotten
			h = newHosted(p, group)
			h.fleeting = true
		}
		token := coordinator.Token(g.tokens.Add(1))
		answer := make(chan coordinator.Reply, 1)
		if h.step(ctx, input(token), token, answer) {
			return owed{by: h, token: token, answer: answer}, codeNone
		} // else it was forgotten in the meantime
	}
}

// view calls f with a group, and returns when what f has seen is on disk; known is false where there is no such group. Where there is an error code, what f has
// seen does not count.
func (g *groups) view(ctx context.Context, group string, f func(*coordinator.Group)) (known bool, code int16) {
	p, code := g.partition(group)
	if code != codeNone {
		return false, code
	}
	h, code := p.get(group, false)
	if h == nil || code != codeNone {
		return false, code
	}
	return h.view(ctx, f)
}

// since returns since when this broker coordinates a group; zero where it does not.
func (g *groups) since(group string) time.Time {
	p, code := g.partition(group)
	if code != codeNone {
		return time.Time{}
	}
	return p.coordinatesSince()
}

// describe describes a group; known is false where there is no such group.
func (g *groups) describe(ctx context.Context, group string) (d coordinator.Description, known bool, code int16) {
	known, code = g.view(ctx, group, func(g *coordinator.Group) { d = g.Describe() })
	return d, known, code
}

// offsetsPartition is the partition of the offsets topic that a group belongs to, computed as Kafka does: Java's String.hashCode without
// its sign.
func offsetsPartition(group string, partitions int) int32 {
	return int32(int(javaHash(group)&0x7fffffff) % partitions)
}

// javaHash is Java's String.hashCode: over UTF-16 code units.
func javaHash(s string) uint32 {
	var h uint32
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + uint32(0xd800+r>>10)
			r = 0xdc00 + r&0x3ff
		}
		h = 31*h + uint32(r)
	}
	return h
}
