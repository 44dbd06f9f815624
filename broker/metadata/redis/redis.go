// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
)

const (
	// DefaultLease is the lease of a broker's registration. With it another broker leads a dead one's partitions after at most 9 seconds: the lease, and
	// half of it where the controller has just come back itself.
	DefaultLease = 6 * time.Second
	// DefaultPrefix is the prefix of all keys.
	DefaultPrefix = "ringmaster"

	minLease = 100 * time.Millisecond
	maxLease = time.Hour
	// minTimeout is how long a script may take, where a third of the lease is less.
	minTimeout = time.Second
)

// legalPrefix is the rule for prefixes, which storage/redis has too. Braces would give the keys another hash tag.
var legalPrefix = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// Options are what Open needs. The zero value of a field means its default.
type Options struct {
	// Conn is how to reach Redis.
	Conn redisconn.Options
	// Prefix is what all keys begin with: brokers with the same Redis and prefix are one cluster. 1 to 100 of the characters a-z A-Z 0-9 . _ -. Default
	// DefaultPrefix.
	Prefix string
	// NodeID is the broker's Kafka node id, from 1; 0 takes the lowest that no broker has.
	NodeID int32
	// Host and Port are where clients reach the broker.
	Host string
	Port int32
	// Lease is how long the broker's registration lasts without being renewed, which happens three times as often. Brokers of a cluster should have the same.
	// Default DefaultLease.
	Lease time.Duration
	// AutoCreateTopics says that a client that names an unknown topic creates it.
	AutoCreateTopics bool
	// DefaultPartitions is the number of partitions of a topic that is created without saying how many, from 1 to 10000. Default 1.
	DefaultPartitions int32
	// OffsetsPartitions is the number of partitions of the topic that holds committed offsets, when the cluster's first broker makes it.
	// Default 16. It is never changed later: a group's coordinator partition is a hash modulo that number.
	OffsetsPartitions int32
	// Logger takes what operators are to know. Default: slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.DefaultPartitions == 0 {
		o.DefaultPartitions = 1
	}
	if o.OffsetsPartitions == 0 {
		o.OffsetsPartitions = metadata.DefaultOffsetsPartitions
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case !legalPrefix.MatchString(o.Prefix):
		return o, fmt.Errorf("the prefix of the keys in Redis, %q, is illegal: use 1 to 100 of the characters a-z A-Z 0-9 . _ -", metadata.Clip(o.Prefix))
	case o.Lease < minLease || o.Lease > maxLease:
		return o, fmt.Errorf("the lease must be from %v to %v, not %v", minLease, maxLease, o.Lease)
	case o.NodeID < 0:
		return o, fmt.Errorf("the node id must be at least 1, not %d", o.NodeID)
	case o.Host == "" || o.Port < 1 || o.Port > 65535:
		return o, fmt.Errorf("clients cannot be told to reach the broker at %q, port %d", o.Host, o.Port)
	}
	return o, errors.Join(metadata.CheckPartitions("of default size", o.DefaultPartitions), metadata.CheckPartitions(v1alpha1.TopicConsumerOffsets, o.OffsetsPartitions))
}

// Metadata is a broker's part of a cluster that is in Redis. Its methods may be called from several goroutines.
type Metadata struct {
	opts  Options
	log   *slog.Logger
	store store
	// id is the broker's node id, instance its process', and registration what stands in Redis.
	id           int32
	instance     string
	registration string

	// dirty wakes run.
	dirty chan struct{}
	// stop ends run and listen, and done waits for them.
	stop      context.CancelFunc
	done      sync.WaitGroup
	closeOnce sync.Once
	closeErr  error

	mu sync.Mutex
	// state is what was last read; nil before.
	state *state
	// deadline is until when the broker may believe that it leads; expiry withdraws it then.
	deadline time.Time
	expiry   *time.Timer
	leading  bool
	current  *metadata.Snapshot
	changed  chan struct{}
}

// Open makes the broker a member of the cluster, the first one making the cluster, and returns when the cluster's metadata are read. It keeps the
// broker a member until ctx ends or Close is called; after ctx alone, the other brokers hear of it only when its lease is over.
//
// Where another process is registered under the node id, Open waits until that has renewed its lease, and then fails and says where it is, or until its lease is over.
func Open(ctx context.Context, opts Options) (*Metadata, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := redisconn.Open(ctx, opts.Conn)
	if err != nil {
		return nil, err
	}
	m := &Metadata{
		opts: opts, log: opts.Logger, dirty: make(chan struct{}, 1), changed: make(chan struct{}), current: &metadata.Snapshot{},
		instance: metadata.EncodeID(metadata.NewTopicID()),
		store:    store{client: client, keys: newKeys(opts.Prefix), timeout: max(opts.Lease/3, minTimeout), cluster: metadata.EncodeID(metadata.NewTopicID())},
	}
	if err := m.start(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return m, nil
}

// start joins the cluster and starts what keeps the broker in it.
func (m *Metadata) start(ctx context.Context) error {
	raw, err := json.Marshal(registration{Host: m.opts.Host, Port: m.opts.Port, Instance: m.instance, Since: time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	m.registration = string(raw)
	if err := m.join(ctx); err != nil {
		return err
	}
	m.expiry = time.AfterFunc(m.opts.Lease, m.expire)
	r := &rounds{m: m, steadyFrom: time.Now()}
	if err := r.first(ctx); err != nil {
		m.expiry.Stop()
		return errors.Join(err, m.deregister())
	}
	ctx, m.stop = context.WithCancel(ctx)
	m.done.Go(func() { r.run(ctx) })
	m.done.Go(func() { m.listen(ctx) })
	return nil
}

// join registers the broker. Where another process is registered under its id, it waits until that registration is over, or is renewed.
func (m *Metadata) join(ctx context.Context) error {
	lease := m.opts.Lease
	for over := (time.Time{}); ; {
		a, err := m.store.call(ctx, join, strconv.Itoa(int(m.opts.NodeID)), m.registration, strconv.FormatInt(lease.Milliseconds(), 10))
		if err != nil {
			return fmt.Errorf("join the cluster: %w", err)
		}
		if a.status == statusOK && len(a.values) == 2 {
			return m.joined(a)
		}
		if a.status != statusTaken || len(a.values) != 3 {
			return fmt.Errorf("join the cluster: %w: Redis answered a script with nonsense", metadata.ErrUnavailable)
		}
		other, left := m.other(a)
		end := time.Now().Add(left)
		if !over.IsZero() && end.After(over.Add(lease/12)) {
			return fmt.Errorf("node id %d belongs to the broker at %s; give this one another --node-id, or stop that one", m.opts.NodeID, other)
		}
		m.log.Info("another process is registered under this broker's id; waiting to see whether it lives", "nodeID", m.opts.NodeID, "address", other, "lasts", left)
		over = end
		if err := sleep(ctx, min(left, lease/3+lease/12)+time.Millisecond); err != nil {
			return fmt.Errorf("join the cluster: %w", err)
		}
	}
}

// joined takes over what join answered.
func (m *Metadata) joined(a answer) error {
	r := &reader{keys: &m.store.keys}
	var id metadata.TopicID
	cluster, err := a.values[0].ToString()
	if err == nil {
		id, err = metadata.DecodeID(cluster)
	}
	node, nodeErr := a.values[1].AsInt64()
	if err := errors.Join(err, nodeErr); err != nil {
		r.fail(m.store.keys.id, "%v", err)
		return fmt.Errorf("join the cluster: %w", r.err)
	}
	m.store.cluster, m.id = metadata.EncodeID(id), int32(node)
	return nil
}

// other is the address of the broker that is registered under this one's id, and how long that lasts.
func (m *Metadata) other(a answer) (address string, left time.Duration) {
	var r registration
	raw, err := a.values[1].ToString()
	if err == nil {
		err = json.Unmarshal([]byte(raw), &r)
	}
	address = net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
	if err != nil {
		address = fmt.Sprintf("an address that is not known: key %s is %q", m.store.keys.broker(m.opts.NodeID), metadata.Clip(raw))
	}
	ms, err := a.values[2].AsInt64()
	if err != nil || ms < 0 { // it has no end, as no broker wrote it: it does not come nearer
		return address, m.opts.Lease
	}
	return address, min(time.Duration(min(ms, maxLease.Milliseconds()))*time.Millisecond, m.opts.Lease)
}

// sleep waits, and returns ctx's error where that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NodeID is the broker's Kafka node id.
func (m *Metadata) NodeID() int32 { return m.id }

// Close takes the broker out of the cluster: others lead its partitions at once, and its own snapshot shows it as the leader of none. It is to be called
// before the broker stops to answer clients. Topics can no longer be changed after it.
func (m *Metadata) Close() error {
	m.closeOnce.Do(func() {
		m.stop()
		m.done.Wait()
		m.mu.Lock()
		m.deadline = time.Time{}
		m.rebuild()
		m.mu.Unlock()
		m.expiry.Stop()
		m.closeErr = m.deregister()
		m.store.client.Close()
	})
	return m.closeErr
}

// deregister ends the broker's registration.
func (m *Metadata) deregister() error {
	if _, err := m.store.call(context.Background(), leave, strconv.Itoa(int(m.id)), m.registration, m.instance); err != nil {
		return fmt.Errorf("leave the cluster; the other brokers hear of it in %v: %w", m.opts.Lease, err)
	}
	return nil
}
