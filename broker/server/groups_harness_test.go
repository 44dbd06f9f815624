// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/test/testengine"
)

// groupDeadline is how long a test of groups waits for what has to happen.
const groupDeadline = 30 * time.Second

// groupMetadata is a metadata source that a test changes.
type groupMetadata struct {
	mu      sync.Mutex
	snap    *metadata.Snapshot
	changed chan struct{}
}

// newGroupMetadata knows broker 1, the topic orders with six partitions and the offsets topic, all of which broker 1 leads.
func newGroupMetadata() *groupMetadata {
	topic := func(id byte, name string, partitions int) *metadata.Topic {
		return &metadata.Topic{Name: name, ID: metadata.TopicID{id}, Leaders: slices.Repeat([]int32{1}, partitions), Config: metadata.DefaultTopicConfig}
	}
	offsets := topic(1, topicConsumerOffsets, 4)
	offsets.Internal, offsets.Config.CleanupPolicy = true, "compact"
	return &groupMetadata{changed: make(chan struct{}), snap: &metadata.Snapshot{
		ClusterID: "test",
		Topics:    map[string]*metadata.Topic{topicConsumerOffsets: offsets, "orders": topic(2, "orders", 6)},
	}}
}

func (m *groupMetadata) Snapshot() *metadata.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snap
}

func (m *groupMetadata) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// change puts a changed copy of the snapshot in place. change replaces what it alters and leaves the rest.
func (m *groupMetadata) change(change func(*metadata.Snapshot)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := *m.snap
	next.Topics, next.Groups = maps.Clone(next.Topics), maps.Clone(next.Groups)
	if next.Groups == nil {
		next.Groups = make(map[string]*metadata.Group)
	}
	change(&next)
	m.snap = &next
	close(m.changed)
	m.changed = make(chan struct{})
}

// lead gives every partition of a topic another leader.
func (m *groupMetadata) lead(topic string, leader int32) {
	m.change(func(s *metadata.Snapshot) {
		t := *s.Topics[topic]
		t.Leaders = slices.Repeat([]int32{leader}, len(t.Leaders))
		s.Topics[topic] = &t
	})
}

func (m *groupMetadata) setBroker(t *testing.T, id int32, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatalf("the broker's address: %v", err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatalf("the broker's port: %v", err)
	}
	m.change(func(s *metadata.Snapshot) {
		s.Brokers = slices.DeleteFunc(slices.Clone(s.Brokers), func(b metadata.Broker) bool { return b.ID == id })
		s.Brokers = append(s.Brokers, metadata.Broker{ID: id, Host: host, Port: int32(n)})
		slices.SortFunc(s.Brokers, func(a, b metadata.Broker) int { return int(a.ID - b.ID) })
	})
}

func (*groupMetadata) CreateTopic(context.Context, metadata.NewTopic) error {
	return metadata.ErrDenied
}
func (*groupMetadata) CreatePartitions(context.Context, string, int32) error {
	return metadata.ErrDenied
}
func (*groupMetadata) AlterTopicConfig(context.Context, string, metadata.ConfigChange) error {
	return metadata.ErrDenied
}
func (*groupMetadata) DeleteTopic(context.Context, string) error { return metadata.ErrDenied }

func (*groupMetadata) Purged(context.Context, []metadata.Incarnation) error { return nil }

// brokenEngine is an engine whose appends to the offsets topic fail while broken holds an error, and wait while they are held.
type brokenEngine struct {
	storage.Engine
	mu     sync.Mutex
	broken error
	// held is closed when appends may go on; nil while they are not held.
	held chan struct{}
	// appends counts those that were begun.
	appends int
}

type brokenLog struct {
	storage.Log
	e *brokenEngine
}

func (e *brokenEngine) setBroken(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = err
}

// hold makes appends wait until release is called.
func (e *brokenEngine) hold() (release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := make(chan struct{})
	e.held, e.appends = held, 0
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.held = nil
		close(held)
	})
}

// begun is how many appends were begun since they were last held.
func (e *brokenEngine) begun() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.appends
}

func (e *brokenEngine) Open(ctx context.Context, p storage.Partition, epoch int32, c storage.Config) (storage.Log, error) {
	l, err := e.Engine.Open(ctx, p, epoch, c)
	if err != nil || p.Topic != topicConsumerOffsets {
		return l, err
	}
	return &brokenLog{Log: l, e: e}, nil
}

func (l *brokenLog) Append(ctx context.Context, data []byte, d storage.Durability) (int64, error) {
	l.e.mu.Lock()
	l.e.appends++
	held := l.e.held
	l.e.mu.Unlock()
	if held != nil {
		<-held
	}
	l.e.mu.Lock()
	err := l.e.broken
	l.e.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return l.Log.Append(ctx, data, d)
}

// groupBroker is a broker on its own, over a directory.
type groupBroker struct {
	t       *testing.T
	node    int32
	dir     string
	md      *groupMetadata
	engine  *brokenEngine
	server  *Server
	address string
	stop    func()
	// compact compacts the logs.
	compact func(now time.Time) error
	// groups are the settings of consumer groups.
	groups GroupConfig
	// ahead is how far the groups' clock is ahead of the real one.
	ahead atomic.Int64
}

// startGroupBroker starts a broker on a free port; it is stopped at the test's end.
func startGroupBroker(t *testing.T) *groupBroker {
	t.Helper()
	return startGroupBrokerNode(t, 1, newGroupMetadata())
}

// startGroupBrokerNode starts one of several brokers that share their metadata.
func startGroupBrokerNode(t *testing.T, node int32, md *groupMetadata) *groupBroker {
	t.Helper()
	b := &groupBroker{
		t: t, node: node, dir: t.TempDir(), md: md, address: "127.0.0.1:0",
		groups: GroupConfig{ConsumerHeartbeatInterval: 50 * time.Millisecond}, // a client learns of the others by its heartbeats
	}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// start starts the broker where it was before.
func (b *groupBroker) start() {
	b.t.Helper()
	engine := testengine.Open(b.t, b.dir, nil)
	b.engine, b.compact = &brokenEngine{Engine: engine}, engine.Compact
	listener, err := new(net.ListenConfig).Listen(b.t.Context(), "tcp", b.address)
	if err != nil {
		b.t.Fatalf("listen: %v", err)
	}
	b.address = listener.Addr().String()
	b.md.setBroker(b.t, b.node, b.address)
	log := slog.New(slog.NewTextHandler(b.t.Output(), nil))
	b.server, err = New(Config{
		NodeID: b.node, Metadata: b.md, Engine: b.engine, Listener: listener, Logger: log, ShutdownTimeout: time.Second, Groups: b.groups,
	})
	if err != nil {
		b.t.Fatalf("make the server: %v", err)
	}
	b.server.groups.now = func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.server.Serve(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("serve: %v", err)
		}
		if err := engine.Close(); err != nil {
			b.t.Errorf("close the storage engine: %v", err)
		}
	})
}

// pass moves the groups' clock on, and their deadlines with it.
func (b *groupBroker) pass(d time.Duration) {
	b.ahead.Add(int64(d))
	select {
	case b.server.groups.timers.wake <- struct{}{}:
	default:
	}
}

// hosted returns a group of this broker.
func (b *groupBroker) hosted(group string) *hosted {
	b.t.Helper()
	p, code := b.server.groups.partition(group)
	if code != codeNone {
		b.t.Fatalf("the partition of group %q: error code %d", group, code)
	}
	h, _ := p.get(group, false)
	if h == nil {
		b.t.Fatalf("there is no group %q", group)
	}
	return h
}

// undelivered waits until n steps and views of a group wait for what is being stored.
func (h *hosted) undelivered(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.decided) != n {
			return fmt.Errorf("%d steps wait to be stored, want %d", len(h.decided), n)
		}
		return nil
	})
}

// client makes a client, closed at the test's end.
func (b *groupBroker) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	defaults := []kgo.Opt{
		kgo.SeedBrokers(b.address), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}
	cl, err := kgo.NewClient(append(defaults, opts...)...)
	if err != nil {
		b.t.Fatalf("make a client: %v", err)
	}
	b.t.Cleanup(cl.Close)
	return cl
}

// rawConn is a connection that sends requests in any version.
type rawConn struct {
	t    *testing.T
	conn net.Conn
	next int32
}

func (b *groupBroker) raw() *rawConn {
	b.t.Helper()
	conn, err := new(net.Dialer).DialContext(b.t.Context(), "tcp", b.address)
	if err != nil {
		b.t.Fatalf("connect: %v", err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	return &rawConn{t: b.t, conn: conn}
}

// send sends a request in its version.
func (c *rawConn) send(req kmsg.Request, version int16) {
	c.t.Helper()
	req.SetVersion(version)
	c.next++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, c.next)
	if _, err := c.conn.Write(frame); err != nil {
		c.t.Fatalf("send %s: %v", kmsg.NameForKey(req.Key()), err)
	}
}

// receive reads the response to the last request.
func (c *rawConn) receive(resp kmsg.Response) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(groupDeadline)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.conn, frame); err != nil {
		return err
	}
	body := frame[4:]
	if resp.IsFlexible() {
		body = body[1:] // no tags in the header
	}
	return resp.ReadFrom(body)
}

// ask sends a request over a connection of its own and returns the response.
func ask[T kmsg.Response](b *groupBroker, req kmsg.Request, version int16) T {
	b.t.Helper()
	c := b.raw()
	c.send(req, version)
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if err := c.receive(resp); err != nil {
		b.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	typed, ok := resp.(T)
	if !ok {
		b.t.Fatalf("%s is answered with a %T", kmsg.NameForKey(req.Key()), resp)
	}
	return typed
}

// produce writes n records to orders, evenly over the partitions, and returns their values.
func (b *groupBroker) produce(prefix string, n int) []string {
	b.t.Helper()
	cl := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	values := make([]string, n)
	records := make([]*kgo.Record, n)
	for i := range n {
		values[i] = fmt.Sprintf("%s-%d", prefix, i)
		records[i] = &kgo.Record{Topic: "orders", Partition: int32(i % 6), Value: []byte(values[i])}
	}
	if err := cl.ProduceSync(b.t.Context(), records...).FirstErr(); err != nil {
		b.t.Fatalf("produce: %v", err)
	}
	return values
}

// generation waits until a group is stable and returns its generation.
func (b *groupBroker) generation(group string) (generation int32) {
	b.t.Helper()
	eventually(b.t, func() error {
		state := "unknown"
		_, code := b.server.groups.view(b.t.Context(), group, func(g *coordinator.Group) { state, generation = g.State(), g.Generation() })
		if state != coordinator.StateStable {
			return fmt.Errorf("the group is %s, error code %d", state, code)
		}
		return nil
	})
	return generation
}

func (b *groupBroker) admin() *kadm.Client { return kadm.NewClient(b.client()) }

// eventually waits until f holds; what it returns otherwise is the complaint.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(groupDeadline)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", groupDeadline, err)
		}
		<-ticker.C
	}
}

var errTest = errors.New("the disk is on fire")
