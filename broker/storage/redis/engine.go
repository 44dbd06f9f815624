// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

const (
	defaultPrefix         = "ringmaster"
	defaultReplicaTimeout = time.Second
	defaultCheckInterval  = 5 * time.Minute
	// compactionInterval is how often compaction looks for what it can do: Kafka's log.cleaner.backoff.ms.
	compactionInterval = 15 * time.Second
	// defaultCompactionMemory is as much as Kafka's log.cleaner.dedupe.buffer.size.
	defaultCompactionMemory = 128 << 20
	// askTimeout is how long one question may take, where whoever asks does not say.
	askTimeout = 10 * time.Second
	// infoTimeout is how long a start waits for what it only asks to warn.
	infoTimeout = 2 * time.Second
	// closers is how many logs are closed at a time.
	closers = 16
	// senders is how many logs are appended to at a time, each over a connection of its own.
	senders = 64
)

// Options tune an engine. The zero value of a field means its default.
type Options struct {
	// Conn says where Redis is.
	Conn redisconn.Options
	// Prefix begins the names of all keys, so that several clusters of brokers can share a Redis: 1 to 100 of the characters a-z A-Z 0-9 . _ -. Default: ringmaster.
	Prefix string
	// Instance names the broker, for who looks at the owner of a log: of the same characters. Default: broker.
	Instance string
	// MinReplicas is how many replicas must have a batch before an append that waits for storage.Synced is acknowledged. Default: 0, none.
	MinReplicas int
	// ReplicaTimeout is how long that may take; then the append is storage.ErrNotReplicated. Default: 1 s.
	ReplicaTimeout time.Duration
	// Logger takes what an operator should know. Default: slog.Default().
	Logger *slog.Logger
	// RetentionCheckInterval is how often retention is enforced. Compaction looks for what it can do every 15 s, or as often where that is less. Default: 5 minutes;
	// negative: neither does so by itself.
	RetentionCheckInterval time.Duration
	// CompactionMemoryBytes is how much memory compaction takes at most for the keys of a log, 28 bytes each; a log with more is gone over more than once. It has it
	// only while it works. Default: 128 MiB.
	CompactionMemoryBytes int64
}

func (o Options) withDefaults() (Options, error) {
	o.Prefix, o.Instance = cmp.Or(o.Prefix, defaultPrefix), cmp.Or(o.Instance, "broker")
	for what, name := range map[string]string{"prefix of the keys": o.Prefix, "broker's name": o.Instance} {
		if !legalName(name, maxPrefix) {
			return o, fmt.Errorf("the %s in Redis, %q, is illegal: use 1 to %d of the characters a-z A-Z 0-9 . _ -", what, name, maxPrefix)
		}
	}
	o.MinReplicas = max(o.MinReplicas, 0)
	o.ReplicaTimeout = cmp.Or(max(o.ReplicaTimeout, 0), defaultReplicaTimeout)
	o.RetentionCheckInterval = cmp.Or(o.RetentionCheckInterval, defaultCheckInterval)
	o.CompactionMemoryBytes = cmp.Or(max(o.CompactionMemoryBytes, 0), defaultCompactionMemory)
	o.Conn.ClientName = cmp.Or(o.Conn.ClientName, "ringmaster-"+o.Instance)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// Engine keeps logs in Redis. It implements storage.Engine.
type Engine struct {
	opts   Options
	logger *slog.Logger
	client rueidis.Client
	now    func() time.Time
	// nonce tells this engine from all others of its name, and openings tell its openings of logs apart.
	nonce    string
	openings atomic.Int64
	senders  chan struct{} // holds something for each append that is on its way

	told atomic.Int64 // when it was last told that a log is in doubt

	// ending is cancelled when Close begins.
	ending context.Context //nolint:containedctx // it is the engine's life
	end    context.CancelFunc
	// tasks are the checks of retention and compaction, and the logs that are being read anew.
	tasks      sync.WaitGroup
	compacting sync.Mutex // held while a log is compacted

	mu     sync.Mutex
	closed bool
	slots  map[storage.Partition]*slot
}

// slot holds a partition's log while it is open. Its mu is held while the log is opened, closed or deleted, so that others are not held up.
type slot struct {
	mu   sync.Mutex
	log  *partitionLog
	dead bool // it is no longer in the map
}

var _ storage.Engine = (*Engine)(nil)

// Open connects to Redis. It fails where none answers; after that the engine connects again by itself.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := redisconn.Open(ctx, opts.Conn)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		opts: opts, logger: opts.Logger, client: client, now: time.Now, nonce: rand.Text(), senders: make(chan struct{}, senders), slots: make(map[storage.Partition]*slot),
	}
	e.ending, e.end = context.WithCancel(context.Background())
	e.checkEviction(ctx)
	if opts.RetentionCheckInterval > 0 {
		e.tasks.Go(func() { e.every(opts.RetentionCheckInterval, e.enforceRetention) })
		e.tasks.Go(func() { e.every(min(opts.RetentionCheckInterval, compactionInterval), e.compactNeedy) })
	}
	return e, nil
}

// checkEviction warns of servers that throw keys away when their memory is full. The log would be among them.
func (e *Engine) checkEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	for address, node := range e.client.Nodes() {
		info, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
		_, policy, _ := strings.Cut(info, "maxmemory_policy:")
		policy, _, _ = strings.Cut(policy, "\r\n")
		if err == nil && strings.HasPrefix(policy, "allkeys") {
			e.logger.Error("Redis may throw records away when its memory is full: set maxmemory-policy to noeviction", "server", address, "policy", policy)
		}
	}
}

// Open opens a partition's log, and takes it from whoever had it, unless that was in a newer leader epoch. See storage.Engine. A log that was fenced or deleted by
// another since is closed and opened again: the result is then another Log than before.
func (e *Engine) Open(ctx context.Context, p storage.Partition, leaderEpoch int32, c storage.Config) (storage.Log, error) {
	l, err := e.open(ctx, p, leaderEpoch, c)
	if err != nil {
		return nil, fmt.Errorf("open log %s-%d: %w", p.Topic, p.Partition, err)
	}
	return l, nil
}

func (e *Engine) open(ctx context.Context, p storage.Partition, epoch int32, c storage.Config) (*partitionLog, error) {
	k, err := keysOf(e.opts.Prefix, p)
	if err != nil {
		return nil, err
	}
	if epoch < 0 {
		return nil, fmt.Errorf("leader epoch %d is negative", epoch)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := e.lockSlot(p)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if s.log != nil && s.log.isLost() {
		s.log.close()
		s.log = nil
	}
	if s.log != nil {
		return s.log, s.log.setLeader(ctx, epoch, c)
	}
	l := &partitionLog{engine: e, partition: p, keys: k, config: c}
	if err := l.create(ctx, epoch); err != nil {
		return nil, err
	}
	s.log = l
	return l, nil
}

// lockSlot returns a partition's slot with its mu held.
func (e *Engine) lockSlot(p storage.Partition) (*slot, error) {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return nil, storage.ErrClosed
		}
		s := e.slots[p]
		if s == nil {
			s = &slot{}
			e.slots[p] = s
		}
		e.mu.Unlock()
		s.mu.Lock()
		if !s.dead {
			return s, nil
		}
		s.mu.Unlock()
	}
}

// List returns the partitions that have a log, sorted by topic, then number.
func (e *Engine) List(ctx context.Context) ([]storage.Partition, error) {
	list, err := e.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	return list, nil
}

func (e *Engine) list(ctx context.Context) ([]storage.Partition, error) {
	if err := e.usable(ctx); err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	key := registryKey(e.opts.Prefix)
	members, err := e.client.Do(asking, e.client.B().Smembers().Key(key).Build()).AsStrSlice()
	if err != nil {
		return nil, translate(ctx, err)
	}
	named := make([]storage.Partition, 0, len(members))
	ask := make(rueidis.Commands, 0, len(members))
	for _, member := range members {
		p, ok := parseMember(member)
		if !ok {
			e.logger.Warn("Redis names a log of no partition", "key", key, "member", member)
			continue
		}
		k, err := keysOf(e.opts.Prefix, p)
		if err != nil {
			return nil, err
		}
		named = append(named, p)
		ask = append(ask, e.client.B().Exists().Key(k.meta).Build())
	}
	var list []storage.Partition
	for i, r := range e.client.DoMulti(asking, ask...) {
		n, err := r.AsInt64()
		if err != nil {
			return nil, translate(ctx, err)
		}
		if n > 0 {
			list = append(list, named[i])
		}
	}
	sortPartitions(list)
	return list, nil
}

// usable says why the engine cannot be asked.
func (e *Engine) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return storage.ErrClosed
	}
	return nil
}

// Delete closes a partition's log and removes its records, whichever engine has it open: another's appends then fail, and make no log anew. See storage.Engine.
func (e *Engine) Delete(ctx context.Context, p storage.Partition) error {
	if err := e.remove(ctx, p); err != nil {
		return fmt.Errorf("delete log %s-%d: %w", p.Topic, p.Partition, err)
	}
	return nil
}

func (e *Engine) remove(ctx context.Context, p storage.Partition) error {
	k, err := keysOf(e.opts.Prefix, p)
	if err != nil {
		return err
	}
	if err := e.usable(ctx); err != nil {
		return err
	}
	s, err := e.lockSlot(p)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.log != nil {
		s.log.close()
		s.log = nil
	}
	if err := e.unlink(ctx, k); err != nil {
		return err
	}
	s.dead = true
	e.mu.Lock()
	delete(e.slots, p)
	e.mu.Unlock()
	return e.register(ctx, p, k)
}

// unlink removes a partition's keys.
func (e *Engine) unlink(ctx context.Context, k keys) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all := []string{k.log, k.meta, k.times, k.producers, k.clean, k.cleanTimes, k.open}
	return translate(ctx, deleteScript.run(asking, e.client, all, nil).Error())
}

// register makes the set of all partitions say whether a partition has a log. In a cluster the set is elsewhere than the log, so that the two cannot change at once:
// whoever has changed the log comes here after that, and the last of them sees what all have done.
func (e *Engine) register(ctx context.Context, p storage.Partition, k keys) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	key, member, b := registryKey(e.opts.Prefix), memberOf(p), e.client.B
	exists := func() (bool, error) {
		n, err := e.client.Do(asking, b().Exists().Key(k.meta).Build()).AsInt64()
		return n > 0, err
	}
	there, err := exists()
	if err == nil && !there {
		if err = e.client.Do(asking, b().Srem().Key(key).Member(member).Build()).Error(); err == nil {
			there, err = exists()
		}
	}
	if err == nil && there {
		err = e.client.Do(asking, b().Sadd().Key(key).Member(member).Build()).Error()
	}
	return translate(ctx, err)
}

// openLogs returns the logs that are open, sorted by partition.
func (e *Engine) openLogs() []*partitionLog {
	e.mu.Lock()
	slots := make(map[storage.Partition]*slot, len(e.slots))
	partitions := make([]storage.Partition, 0, len(e.slots))
	for p, s := range e.slots {
		slots[p] = s
		partitions = append(partitions, p)
	}
	e.mu.Unlock()
	sortPartitions(partitions)
	logs := make([]*partitionLog, 0, len(slots))
	for _, p := range partitions {
		s := slots[p]
		s.mu.Lock()
		if s.log != nil {
			logs = append(logs, s.log)
		}
		s.mu.Unlock()
	}
	return logs
}

// every calls fn again and again until the engine is closed.
func (e *Engine) every(interval time.Duration, fn func(now time.Time)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-e.ending.Done():
			return
		case <-ticker.C:
			fn(e.now())
		}
	}
}

// Close closes every log, once what is being appended is answered. A second Close does nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	e.end()
	logs := make(chan *partitionLog)
	var closing sync.WaitGroup
	for range closers {
		closing.Go(func() {
			for l := range logs {
				l.close()
			}
		})
	}
	for _, l := range e.openLogs() {
		logs <- l
	}
	close(logs)
	closing.Wait()
	e.tasks.Wait()
	e.client.Close()
	return nil
}

// isQuiet says whether an error of a background task needs no word, as the engine or the log is being closed.
func isQuiet(err error) bool {
	return err == nil || errors.Is(err, storage.ErrClosed) || errors.Is(err, storage.ErrFenced) || errors.Is(err, context.Canceled)
}
