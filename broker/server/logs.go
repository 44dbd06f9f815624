// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// openLogs holds the logs of the partitions that this broker leads, opened one after the other from the start on, and at once when asked for.
type openLogs struct {
	s  *Server
	mu sync.Mutex
	// entries holds an entry for each partition whose log is open, or being opened or deleted.
	entries map[storage.Partition]*logEntry
	// reported is when a partition's trouble was last told.
	reported map[storage.Partition]time.Time
	// reopened is when a partition's log was last opened anew.
	reopened map[storage.Partition]time.Time
}

// logEntry is the log of one partition.
type logEntry struct {
	// mu is held while the log is opened or deleted; who wants the log waits.
	mu sync.Mutex
	// log is nil while it is not open.
	log storage.Log
	// topicID is the topic that the log was opened for.
	topicID metadata.TopicID
	// epoch is the leader epoch that it was opened in.
	epoch  int32
	config storage.Config
	// gone says that the entry is no longer in the map.
	gone bool
}

func newOpenLogs(s *Server) *openLogs {
	return &openLogs{s: s, entries: make(map[storage.Partition]*logEntry), reported: make(map[storage.Partition]time.Time), reopened: make(map[storage.Partition]time.Time)}
}

// entry returns a partition's entry, made if there is none.
func (o *openLogs) entry(p storage.Partition) *logEntry {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entries[p]
	if e == nil {
		e = &logEntry{}
		o.entries[p] = e
	}
	return e
}

// forget takes an entry out of the map. Its lock is held.
func (o *openLogs) forget(p storage.Partition, e *logEntry) {
	e.log, e.gone = nil, true
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.entries[p] == e {
		delete(o.entries, p)
	}
}

// leads says whether this broker leads a partition of the topic as it is now, as an error code: UNKNOWN_TOPIC_OR_PARTITION where there is
// no such topic or partition, NOT_LEADER_OR_FOLLOWER where another broker leads it, or this one cannot serve it yet.
func (s *Server) leads(topic *metadata.Topic, partition int32) int16 {
	snap := s.snapshot()
	if topic == nil || snap == nil {
		return codeUnknownTopicOrPartition
	}
	now := snap.Topics[topic.Name]
	if now == nil || now.ID != topic.ID || partition < 0 || int(partition) >= len(now.Leaders) {
		return codeUnknownTopicOrPartition
	}
	if now.Leaders[partition] != s.cfg.NodeID || len(snap.Purge) > 0 && purging(snap, now) {
		return codeNotLeaderOrFollower
	}
	return codeNone
}

// openLog returns the log of a partition that this broker leads, or a Kafka error code: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER
// or, where it cannot be opened, KAFKA_STORAGE_ERROR. It is cheap once the log is open. The log is open until the topic goes; then its
// methods return storage.ErrClosed.
func (s *Server) openLog(ctx context.Context, topic *metadata.Topic, partition int32) (storage.Log, int16) {
	if code := s.leads(topic, partition); code != codeNone {
		return nil, code
	}
	p := storage.Partition{Topic: topic.Name, Partition: partition}
	e := s.lockEntry(p)
	defer e.mu.Unlock()
	return s.openEntry(ctx, e, p, topic)
}

// openers is how many logs are opened at a time that nobody has asked for yet.
const openers = 4

// openLed opens the logs of all partitions that this broker leads, until ctx ends: what nobody reads or writes is to be retained and compacted too,
// and its first client is not to wait.
func (s *Server) openLed(ctx context.Context) {
	for {
		changed := s.snapshotChanged()
		if snap := s.snapshot(); snap != nil {
			s.openAll(ctx, snap, changed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// openAll opens the logs that a snapshot gives to this broker and that are not open. It ends early when the snapshot changes.
func (s *Server) openAll(ctx context.Context, snap *metadata.Snapshot, changed <-chan struct{}) {
	var opening errgroup.Group
	opening.SetLimit(openers)
	for _, name := range slices.Sorted(maps.Keys(snap.Topics)) {
		topic := snap.Topics[name]
		for partition, leader := range topic.Leaders {
			if leader != s.cfg.NodeID || s.logs.has(storage.Partition{Topic: name, Partition: int32(partition)}) {
				continue
			}
			select {
			case <-changed:
				_ = opening.Wait() // there are no errors
				return
			default:
			}
			opening.Go(func() error {
				s.openLog(ctx, topic, int32(partition)) // what is wrong is told in the log
				return nil
			})
		}
	}
	_ = opening.Wait() // there are no errors
}

// has says whether a partition's log is open, or being opened or deleted.
func (o *openLogs) has(p storage.Partition) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entries[p] != nil
}

// openEntry opens an entry's log if it is not open. The entry's lock is held, so that the log cannot be deleted meanwhile.
func (s *Server) openEntry(ctx context.Context, e *logEntry, p storage.Partition, topic *metadata.Topic) (storage.Log, int16) {
	epoch := topic.LeaderEpoch(p.Partition)
	if e.log != nil && e.topicID == topic.ID && e.epoch >= epoch {
		return e.log, codeNone
	}
	if code := s.leads(topic, p.Partition); code != codeNone { // it went while we waited for the lock
		s.logs.forget(p, e)
		return nil, code
	}
	config := storageConfig(topic)
	// A log that is half open when its first client goes is of use to the next one.
	l, err := s.engine.Open(context.WithoutCancel(ctx), p, epoch, config)
	if err != nil {
		s.logs.report(p, "cannot open a partition's log", err)
		s.logs.forget(p, e)
		return nil, openCode(err)
	}
	e.log, e.topicID, e.epoch, e.config = l, topic.ID, epoch, config
	return l, codeNone
}

// reopenEvery is how often a log that has failed is opened anew; each time its last segment is read.
const reopenEvery = time.Second

// lost says whether a log that answered with err takes no more records until it is opened anew. A full disk mends itself, and so does storage that is unavailable.
func (s *Server) lost(topic *metadata.Topic, partition int32, err error) bool {
	switch {
	case err == nil, errors.Is(err, storage.ErrFull), errors.Is(err, storage.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, storage.ErrClosed):
		return s.leads(topic, partition) == codeNone
	}
	return storageCode(err) == codeKafkaStorageError
}

// reopen opens a log anew that has failed (see lost), so that a disk that works again is used again without a restart of the broker, and returns
// the log that is to be used from now on; nil where there is none now. Whoever reads from the old one is told that it is closed.
func (s *Server) reopen(ctx context.Context, topic *metadata.Topic, partition int32, failed storage.Log) storage.Log {
	p := storage.Partition{Topic: topic.Name, Partition: partition}
	e := s.lockEntry(p)
	defer e.mu.Unlock()
	if e.log != nil && e.log != failed {
		return e.log // somebody has opened it
	}
	s.logs.mu.Lock()
	now := time.Now()
	early := now.Sub(s.logs.reopened[p]) < reopenEvery
	if !early {
		s.logs.reopened[p] = now
	}
	s.logs.mu.Unlock()
	if early {
		return nil
	}
	e.log = nil
	log, code := s.openEntry(ctx, e, p, topic)
	if code != codeNone {
		return nil
	}
	s.log.Info("opened a partition's log anew after its storage had failed", "topic", p.Topic, "partition", p.Partition, "offset", log.EndOffset())
	return log
}

// openCode translates an error of Engine.Open.
func openCode(err error) int16 {
	if errors.Is(err, storage.ErrFenced) {
		return codeNotLeaderOrFollower
	}
	return codeKafkaStorageError
}

// storageConfig is what a topic's configuration means for its logs.
func storageConfig(topic *metadata.Topic) storage.Config {
	c := topic.Config
	sc := storage.Config{
		MaxBatchBytes: c.MaxMessageBytes, Compact: strings.Contains(c.CleanupPolicy, "compact"),
		// Zero means "at once" to Kafka and the default, or "never", to the engine. So it is below.
		TombstoneRetention: max(c.TombstoneRetention, time.Millisecond),
		SegmentBytes:       int64(c.SegmentBytes), SegmentTime: c.SegmentTime, LogAppendTime: c.LogAppendTime,
	}
	if topic.Name == topicConsumerOffsets {
		sc.MaxBatchBytes = maxOffsetsBatch
	}
	if c.FlushOS {
		sc.Flush = storage.FlushOS
	}
	if sc.Compact && !strings.Contains(c.CleanupPolicy, "delete") {
		return sc
	}
	if c.RetentionTime >= 0 {
		sc.RetentionTime = max(c.RetentionTime, time.Millisecond)
	}
	if c.RetentionBytes >= 0 {
		sc.RetentionBytes = max(c.RetentionBytes, 1)
	}
	return sc
}

// applySnapshot puts a snapshot in place. The records of deleted topics that it lists are removed; until that is done and the metadata source
// has noted it, nobody can use the topic's name (see purging). The logs of topics that have gone without that, and of partitions that another
// broker leads now, are let go and keep their records. Changed configurations reach the open logs. An error says that records could not be
// removed; apply the same snapshot again later.
func (s *Server) applySnapshot(ctx context.Context, next *metadata.Snapshot) error {
	s.view.set(next)
	s.refreshLogs(ctx, next)
	return s.purge(ctx, next)
}

// purging says whether the records of an earlier topic of this name are still to be removed. Nobody may write until then, or what was
// written would go too when the broker dies and starts again in between.
func purging(snap *metadata.Snapshot, topic *metadata.Topic) bool {
	return slices.ContainsFunc(snap.Purge, func(gone metadata.Incarnation) bool {
		return gone.Topic == topic.Name && gone.ID != topic.ID
	})
}

// purge removes the records of deleted topics and tells the metadata source so.
func (s *Server) purge(ctx context.Context, snap *metadata.Snapshot) error {
	var gone []metadata.Incarnation
	names := make(map[string]metadata.Incarnation)
	for _, i := range snap.Purge {
		if now := snap.Topics[i.Topic]; now == nil || now.ID != i.ID {
			gone = append(gone, i)
			names[i.Topic] = i
		}
	}
	if len(gone) == 0 {
		return nil
	}
	partitions, err := s.engine.List(ctx)
	if err != nil {
		return fmt.Errorf("list the partitions of deleted topics: %w", err)
	}
	for _, p := range partitions {
		i, listed := names[p.Topic]
		if !listed || !slices.Contains(s.cfg.Metadata.Snapshot().Purge, i) { // another broker may have done it, and a later topic of the name has records by now
			continue
		}
		// Who is opening the log now is done once the lock is ours, and who comes later finds the topic gone.
		e := s.lockEntry(p)
		err := s.engine.Delete(ctx, p)
		s.logs.forget(p, e)
		e.mu.Unlock()
		if err != nil {
			return fmt.Errorf("remove the records of deleted topic %s, partition %d: %w", p.Topic, p.Partition, err)
		}
	}
	if err := s.cfg.Metadata.Purged(ctx, gone); err != nil {
		return fmt.Errorf("note that the records of deleted topics are removed: %w", err)
	}
	for _, i := range gone {
		s.log.Info("removed the records of a deleted topic", "topic", i.Topic)
	}
	return nil
}

// lockEntry returns a partition's entry with its lock held.
func (s *Server) lockEntry(p storage.Partition) *logEntry {
	for {
		e := s.logs.entry(p)
		e.mu.Lock()
		if !e.gone {
			return e
		}
		e.mu.Unlock()
	}
}

func comparePartitions(a, b storage.Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// refreshLogs brings the open logs in line with a snapshot.
func (s *Server) refreshLogs(ctx context.Context, snap *metadata.Snapshot) {
	for _, p := range s.logs.partitions() {
		e := s.lockEntry(p)
		topic := snap.Topics[p.Topic]
		switch {
		case e.log == nil, topic == nil, topic.ID != e.topicID, topic.LeaderEpoch(p.Partition) != e.epoch, s.leads(topic, p.Partition) != codeNone:
			s.logs.forget(p, e)
		case e.config != storageConfig(topic):
			s.reconfigure(ctx, e, p, storageConfig(topic))
		}
		e.mu.Unlock()
	}
}

// reconfigure gives an open log a new configuration. The entry's lock is held.
func (s *Server) reconfigure(ctx context.Context, e *logEntry, p storage.Partition, config storage.Config) {
	l, err := s.engine.Open(ctx, p, e.epoch, config)
	if err != nil {
		s.log.Error("cannot change the configuration of a partition's log", "topic", p.Topic, "partition", p.Partition, "error", err)
		return
	}
	e.log, e.config = l, config
}

// partitions returns the partitions with an entry, sorted.
func (o *openLogs) partitions() []storage.Partition {
	o.mu.Lock()
	defer o.mu.Unlock()
	ps := make([]storage.Partition, 0, len(o.entries))
	for p := range o.entries {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, comparePartitions)
	return ps
}

// logCode translates an error of a partition's log.
func (s *Server) logCode(topic *metadata.Topic, partition int32, err error) int16 {
	if errors.Is(err, storage.ErrClosed) {
		if code := s.leads(topic, partition); code != codeNone {
			return code // the topic was deleted, or the partition has another leader
		}
	}
	return storageCode(err)
}

// reportEvery is how often the same partition's trouble is told; clients try again many times a second.
const reportEvery = 10 * time.Second

// report logs an error of a partition's storage, once in a while.
func (o *openLogs) report(p storage.Partition, what string, err error) {
	o.mu.Lock()
	now := time.Now()
	quiet := now.Sub(o.reported[p]) < reportEvery
	if !quiet {
		o.reported[p] = now
	}
	o.mu.Unlock()
	if !quiet {
		o.s.log.Error(what, "topic", p.Topic, "partition", p.Partition, "error", err)
	}
}
