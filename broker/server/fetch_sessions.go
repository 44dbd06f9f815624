// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// Fetch sessions (KIP-227): the broker keeps what a consumer reads, so that its next fetches name only what has changed, and are answered with
// only what has. A session is an id and an epoch that grows with every fetch; a fetch with another epoch than the next one was sent by a client
// that missed an answer, and is told to begin anew.

const (
	// maxFetchSessions is how many sessions are kept at once; Kafka's default of max.incremental.fetch.session.cache.slots.
	maxFetchSessions = 1000
	// maxSessionPartitions is how many partitions they have all together, at some 150 bytes each.
	maxSessionPartitions = 200_000
	// keepFetchSession is how long a session that is not used is kept where another one wants its place; Kafka's
	// min.incremental.fetch.session.eviction.ms.
	keepFetchSession = 2 * time.Minute

	// The epochs of a fetch that is not the next of a session: one that asks for a session, and one that wants none.
	fetchEpochInitial int32 = 0
	fetchEpochFinal   int32 = -1
)

// fetchTarget is a partition that a client fetches, and from where.
type fetchTarget struct {
	fetchKey
	offset int64
	// maxBytes is the most that the client wants of it.
	maxBytes int
	// leaderEpoch is the one that the client knows; -1 for none.
	leaderEpoch int32
	// told says that highWatermark and start are what the client was told last.
	told                 bool
	highWatermark, start int64
}

// fetchKey names a partition as the client does: by the topic's name, or by its id from v13 on.
type fetchKey struct {
	topic     string
	id        metadata.TopicID
	partition int32
}

// fetchSession is a session. While a fetch uses it, it belongs to that one.
type fetchSession struct {
	id int32
	// epoch is the one that the next fetch must have.
	epoch int32
	// byID says that topics are named by their ids.
	byID bool
	busy bool
	used time.Time
	// targets are the partitions, those first whose turn it is.
	targets []*fetchTarget
	byKey   map[fetchKey]*fetchTarget
}

// fetchSessions are the sessions of all clients.
type fetchSessions struct {
	mu         sync.Mutex
	now        func() time.Time
	sessions   map[int32]*fetchSession
	partitions int
}

func newFetchSessions() *fetchSessions {
	return &fetchSessions{now: time.Now, sessions: make(map[int32]*fetchSession)}
}

// targetsOf returns the partitions that a request names, each once, in its order.
func targetsOf(req *kmsg.FetchRequest, byKey map[fetchKey]*fetchTarget) []*fetchTarget {
	var targets []*fetchTarget
	for i := range req.Topics {
		topic := &req.Topics[i]
		for j := range topic.Partitions {
			p := &topic.Partitions[j]
			key := keyOf(req.Version, topic.Topic, topic.TopicID, p.Partition)
			t := byKey[key]
			if t == nil {
				t = &fetchTarget{fetchKey: key}
				byKey[key] = t
				targets = append(targets, t)
			}
			t.offset, t.maxBytes, t.leaderEpoch = p.FetchOffset, int(p.PartitionMaxBytes), p.CurrentLeaderEpoch
			t.told = false
		}
	}
	return targets
}

func keyOf(version int16, topic string, id metadata.TopicID, partition int32) fetchKey {
	if version >= 13 {
		return fetchKey{id: id, partition: partition}
	}
	return fetchKey{topic: topic, partition: partition}
}

// begin returns the partitions that a request is about, and its session, which the caller gives back with end; nil where it has none. The code
// says why the request has no answer.
func (ss *fetchSessions) begin(req *kmsg.FetchRequest) (*fetchSession, []*fetchTarget, int16) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if req.SessionEpoch != fetchEpochInitial && req.SessionEpoch != fetchEpochFinal {
		return ss.resume(req)
	}
	ss.drop(ss.sessions[req.SessionID])
	byKey := make(map[fetchKey]*fetchTarget)
	targets := targetsOf(req, byKey)
	if req.SessionEpoch == fetchEpochFinal || req.Version < 7 || len(targets) == 0 || !ss.makeRoom(len(targets)) {
		return nil, targets, codeNone
	}
	s := &fetchSession{id: ss.newID(), epoch: 1, byID: req.Version >= 13, busy: true, targets: targets, byKey: byKey}
	ss.sessions[s.id] = s
	ss.partitions += len(targets)
	return s, targets, codeNone
}

// resume takes the changes of an incremental fetch into its session; mu is held.
func (ss *fetchSessions) resume(req *kmsg.FetchRequest) (*fetchSession, []*fetchTarget, int16) {
	s := ss.sessions[req.SessionID]
	switch {
	case s == nil:
		return nil, nil, codeFetchSessionIDNotFound
	case s.busy, s.epoch != req.SessionEpoch:
		return nil, nil, codeInvalidFetchSessionEpoch
	case s.byID != (req.Version >= 13):
		return nil, nil, codeFetchSessionTopicID
	}
	ss.partitions -= len(s.targets)
	s.forget(req)
	added := targetsOf(req, s.byKey)
	s.targets = append(s.targets, added...)
	ss.partitions += len(s.targets)
	if len(s.targets) == 0 || ss.partitions > maxSessionPartitions {
		ss.drop(s) // the answer says session 0: the client asks for everything next time
		return nil, s.targets, codeNone
	}
	s.epoch = nextFetchEpoch(s.epoch)
	s.busy = true
	return s, s.targets, codeNone
}

// forget takes out what the client no longer reads.
func (s *fetchSession) forget(req *kmsg.FetchRequest) {
	if len(req.ForgottenTopics) == 0 {
		return
	}
	for i := range req.ForgottenTopics {
		topic := &req.ForgottenTopics[i]
		for _, p := range topic.Partitions {
			delete(s.byKey, keyOf(req.Version, topic.Topic, topic.TopicID, p))
		}
	}
	s.targets = slices.DeleteFunc(s.targets, func(t *fetchTarget) bool { return s.byKey[t.fetchKey] != t })
}

func nextFetchEpoch(epoch int32) int32 {
	if epoch == math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

// end gives a session back. Those in front had records this time: others come first the next time, so that a small limit on bytes starves none.
func (ss *fetchSessions) end(s *fetchSession, served map[*fetchTarget]bool) {
	if s == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.busy, s.used = false, ss.now()
	if len(served) == 0 {
		return
	}
	slices.SortStableFunc(s.targets, func(a, b *fetchTarget) int {
		return cmp.Compare(turn(served[a]), turn(served[b]))
	})
}

func turn(served bool) int {
	if served {
		return 1
	}
	return 0
}

// drop forgets a session, which may be nil; mu is held.
func (ss *fetchSessions) drop(s *fetchSession) {
	if s == nil || ss.sessions[s.id] != s {
		return
	}
	delete(ss.sessions, s.id)
	ss.partitions -= len(s.targets)
}

// makeRoom says whether there is room for a session of n partitions, for which it drops those that were not used for long; mu is held.
func (ss *fetchSessions) makeRoom(n int) bool {
	for len(ss.sessions) >= maxFetchSessions || ss.partitions+n > maxSessionPartitions {
		var oldest *fetchSession
		for _, s := range ss.sessions {
			if !s.busy && (oldest == nil || s.used.Before(oldest.used)) {
				oldest = s
			}
		}
		if oldest == nil || ss.now().Sub(oldest.used) < keepFetchSession {
			return false
		}
		ss.drop(oldest)
	}
	return true
}

// newID returns an id that no session has; mu is held. It cannot be guessed from another one.
func (ss *fetchSessions) newID() int32 {
	for {
		if id := rand.Int32N(math.MaxInt32) + 1; ss.sessions[id] == nil { //nolint:gosec // it guards nothing: who has it can read what all can read
			return id
		}
	}
}

// count is how many sessions there are.
func (ss *fetchSessions) count() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.sessions)
}
