// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/metadata/file"
	"github.com/ringmaster-dev/ringmaster/broker/server"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// script is a metadata source that says what a test wants, and a cluster of two brokers, of which the server is the first.
type script struct {
	mu      sync.Mutex
	snap    *metadata.Snapshot
	changed chan struct{}
	purged  []metadata.Incarnation
	alter   func(topic string, change metadata.ConfigChange) error
	create  func(metadata.NewTopic) error
}

func newScript() *script {
	brokers := []metadata.Broker{{ID: 1, Host: "one", Port: 1001}, {ID: 2, Host: "two", Port: 1002}}
	return &script{changed: make(chan struct{}), snap: &metadata.Snapshot{ClusterID: "script", Brokers: brokers, AutoCreateTopics: true}}
}

// in makes the server use the script.
func (s *script) in(c *server.Config, _ *file.Options) { c.Metadata = s }

func (s *script) Snapshot() *metadata.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snap
}

func (s *script) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// change puts a changed copy of the snapshot in place.
func (s *script) change(change func(*metadata.Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := metadata.Snapshot{}
	if s.snap != nil {
		next = *s.snap
	}
	next.Topics, next.Purge = maps.Clone(next.Topics), slices.Clone(next.Purge)
	if next.Topics == nil {
		next.Topics = make(map[string]*metadata.Topic)
	}
	change(&next)
	s.snap = &next
	close(s.changed)
	s.changed = make(chan struct{})
}

// topic puts a topic in place.
func (s *script) topic(name string, id byte, config metadata.TopicConfig, leaders ...int32) {
	s.change(func(snap *metadata.Snapshot) {
		snap.Topics[name] = &metadata.Topic{Name: name, ID: metadata.TopicID{id}, Leaders: leaders, Config: config}
	})
}

func (s *script) CreateTopic(_ context.Context, t metadata.NewTopic) error {
	if s.create == nil {
		return metadata.ErrUnavailable
	}
	return s.create(t)
}

func (s *script) CreatePartitions(context.Context, string, int32) error {
	return fmt.Errorf("%w: you may not", metadata.ErrDenied)
}

func (s *script) AlterTopicConfig(_ context.Context, topic string, change metadata.ConfigChange) error {
	if s.alter == nil {
		return fmt.Errorf("%w: topic %s", metadata.ErrUnavailable, topic)
	}
	return s.alter(topic, change)
}

func (s *script) DeleteTopic(context.Context, string) error { panic("no topic is deleted here") }

func (s *script) Purged(_ context.Context, gone []metadata.Incarnation) error {
	s.change(func(snap *metadata.Snapshot) {
		s.purged = append(s.purged, gone...)
		snap.Purge = slices.DeleteFunc(snap.Purge, func(i metadata.Incarnation) bool { return slices.Contains(gone, i) })
	})
	return nil
}

// produceCode produces to a partition and returns the error code.
func produceCode(b *broker, topic string, partition int32, value string) int16 {
	req := produceRequest(topic, -1, batchOf(0, value))
	req.Topics[0].Partitions[0].Partition = partition
	return produced(call[*kmsg.ProduceResponse](b.dial(), req, 9)).ErrorCode
}

// becomes waits until a produce is answered with an error code.
func (b *broker) becomes(topic string, partition int32, code int16) {
	b.t.Helper()
	eventually(b.t, func() error {
		if got := produceCode(b, topic, partition, "x"); got != code {
			return fmt.Errorf("%s-%d is answered with %d, not %d", topic, partition, got, code)
		}
		return nil
	})
}

func TestAPartitionIsServedByItsLeaderAlone(t *testing.T) {
	s := newScript()
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1, 2, -1)
	b := start(t, s.in)
	for partition, want := range []int16{0, kerr.NotLeaderForPartition.Code, kerr.NotLeaderForPartition.Code, kerr.UnknownTopicOrPartition.Code} {
		if got := produceCode(b, "topic", int32(partition), "x"); got != want {
			t.Errorf("partition %d is answered with %d, want %d", partition, got, want)
		}
	}
	fetch := fetchRequest("", 0, 0)
	fetch.Topics[0].TopicID = metadata.TopicID{1}
	resp := call[*kmsg.FetchResponse](b.dial(), fetch, 17)
	p := resp.Topics[0].Partitions[1]
	if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 {
		t.Errorf("the fetch is answered with %+v", p)
	}
	if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "two" {
		t.Errorf("the leader is said to be %+v", resp.Brokers)
	}
	md := call[*kmsg.MetadataResponse](b.dial(), metadataRequest(false, "topic"), 12)
	if got := md.Topics[0].Partitions[2]; got.ErrorCode != kerr.LeaderNotAvailable.Code || got.Leader != -1 || len(got.Replicas) != 0 {
		t.Errorf("a partition without a leader is %+v", got)
	}
}

func TestAPartitionComesAndGoesWithItsLeadership(t *testing.T) {
	s := newScript()
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1)
	b := start(t, s.in)
	b.becomes("topic", 0, 0)
	// A fetch that waits hears of it at once.
	w, fetch := b.dial(), fetchRequest("topic", 1)
	fetch.MinBytes, fetch.MaxWaitMillis = 1, 60000
	id := w.send(fetch, 12)
	s.topic("topic", 1, metadata.DefaultTopicConfig, 2)
	resp, err := w.receive(fetch, id)
	if r, ok := resp.(*kmsg.FetchResponse); err != nil || !ok || fetched(r).CurrentLeader.LeaderID != 2 {
		t.Errorf("the waiting fetch got %+v, %v", resp, err)
	}
	b.becomes("topic", 0, kerr.NotLeaderForPartition.Code)
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1)
	b.becomes("topic", 0, 0)
	if err := endsAt2(b, "topic"); err != nil {
		t.Error(err)
	}
}

// endsAt2 says whether partition 0 ends at 2, asked over a connection to the broker itself.
func endsAt2(b *broker, topic string) error {
	p := fetched(call[*kmsg.FetchResponse](b.dial(), fetchRequest(topic, 0), 12))
	if p.HighWatermark != 2 {
		return fmt.Errorf("the log ends at %d, not at 2", p.HighWatermark)
	}
	return nil
}

func TestATopicThatKeepsItsRecordsHasThemWhenItComesBack(t *testing.T) {
	s := newScript()
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1)
	b := start(t, s.in)
	b.becomes("topic", 0, 0)
	s.change(func(snap *metadata.Snapshot) { delete(snap.Topics, "topic") })
	b.becomes("topic", 0, kerr.UnknownTopicOrPartition.Code)
	s.topic("topic", 2, metadata.DefaultTopicConfig, 1)
	b.becomes("topic", 0, 0)
	if err := endsAt2(b, "topic"); err != nil {
		t.Error(err)
	}
}

func TestTheRecordsOfDeletedTopicsAreRemovedAlsoAfterARestart(t *testing.T) {
	s := newScript()
	s.topic("gone", 1, metadata.DefaultTopicConfig, 1)
	s.topic("again", 2, metadata.DefaultTopicConfig, 1)
	b := start(t, s.in)
	b.becomes("gone", 0, 0)
	b.becomes("again", 0, 0)
	b.stop()
	// Both were deleted meanwhile, and one was created again.
	s.change(func(snap *metadata.Snapshot) {
		delete(snap.Topics, "gone")
		snap.Topics["again"] = &metadata.Topic{Name: "again", ID: metadata.TopicID{3}, Leaders: []int32{1}, Config: metadata.DefaultTopicConfig}
		snap.Purge = []metadata.Incarnation{{Topic: "again", ID: metadata.TopicID{2}}, {Topic: "gone", ID: metadata.TopicID{1}}}
	})
	again := startIn(t, b.dir, s.in)
	again.becomes("again", 0, 0)
	if p := fetched(call[*kmsg.FetchResponse](again.dial(), fetchRequest("again", 0), 12)); p.HighWatermark != 1 {
		t.Errorf("the new topic's log ends at %d, not at 1", p.HighWatermark)
	}
	partitions, err := again.engine.List(t.Context())
	if err != nil || slices.ContainsFunc(partitions, func(p storage.Partition) bool { return p.Topic == "gone" }) {
		t.Errorf("the engine has %v, %v", partitions, err)
	}
	if len(s.purged) != 2 {
		t.Errorf("the source was told that %v are removed", s.purged)
	}
}

func TestAChangedConfigurationReachesAnOpenLog(t *testing.T) {
	s := newScript()
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1)
	b := start(t, s.in)
	long := strings.Repeat("x", 5000)
	if code := produceCode(b, "topic", 0, long); code != 0 {
		t.Fatalf("error %d", code)
	}
	small := metadata.DefaultTopicConfig
	small.MaxMessageBytes = 2000
	s.topic("topic", 1, small, 1)
	eventually(t, func() error {
		if code := produceCode(b, "topic", 0, long); code != kerr.MessageTooLarge.Code {
			return fmt.Errorf("error %d", code)
		}
		return nil
	})
}

func TestWhatTheMetadataSourceRefusesIsToldToTheClient(t *testing.T) {
	s := newScript()
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1)
	b := start(t, s.in)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis, req.Topics = 1000, []kmsg.CreatePartitionsRequestTopic{{Topic: "topic", Count: 4}}
	got := call[*kmsg.CreatePartitionsResponse](b.dial(), req, 3).Topics[0]
	if got.ErrorCode != kerr.PolicyViolation.Code || !strings.Contains(*got.ErrorMessage, "you may not") {
		t.Errorf("got %d %v", got.ErrorCode, got.ErrorMessage)
	}
	created := call[*kmsg.CreateTopicsResponse](b.dial(), createRequest(newTopic("new", 1, 1)), 7).Topics[0]
	if created.ErrorCode != kerr.RequestTimedOut.Code {
		t.Errorf("got %d %v", created.ErrorCode, created.ErrorMessage)
	}
}

func TestATopicWithoutLeadersYetIsToldSo(t *testing.T) {
	s := newScript()
	s.create = func(n metadata.NewTopic) error { s.topic(n.Name, 9, n.Config, -1); return nil }
	b := start(t, s.in)
	req := createRequest(newTopic("slow", 1, 1))
	req.TimeoutMillis = 50
	if got := call[*kmsg.CreateTopicsResponse](b.dial(), req, 7).Topics[0]; got.ErrorCode != kerr.RequestTimedOut.Code {
		t.Errorf("created with %d %v", got.ErrorCode, got.ErrorMessage)
	}
	time.AfterFunc(50*time.Millisecond, func() { s.topic("late", 8, metadata.DefaultTopicConfig, 1) })
	s.create = func(metadata.NewTopic) error { return nil }
	if got := call[*kmsg.MetadataResponse](b.dial(), metadataRequest(true, "late"), 12).Topics[0]; got.ErrorCode != 0 {
		t.Errorf("a topic that comes while the client waits is answered with %d", got.ErrorCode)
	}
	if got := call[*kmsg.MetadataResponse](b.dial(), metadataRequest(true, "never"), 12).Topics[0]; got.ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("a topic that does not come is answered with %d", got.ErrorCode)
	}
}

func TestAServerWithoutMetadataIsNotReady(t *testing.T) {
	s := newScript()
	s.snap = nil
	b := start(t, s.in)
	if b.Ready() {
		t.Error("it is ready")
	}
	if got := call[*kmsg.MetadataResponse](b.dial(), metadataRequest(false, "x"), 12); got.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("got %+v", got)
	}
	s.topic("x", 1, metadata.DefaultTopicConfig, 1)
	b.becomes("x", 0, 0)
	if !b.Ready() {
		t.Error("it is not ready")
	}
}

func TestAHandlerThatFailsEndsItsConnectionAlone(t *testing.T) {
	s := newScript()
	s.topic("topic", 1, metadata.DefaultTopicConfig, 1, 1)
	b := start(t, s.in)
	other := b.dial()
	w := b.dial()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{"topic"}
	w.send(req, 4)
	w.closed()
	if b.logs.count("no topic is deleted here") == 0 {
		t.Error("the log does not say why")
	}
	b.engine.set(func(e *faults) { e.onAppend = func() { panic("the disk bites") } })
	for _, partitions := range [][][]byte{{batchOf(0, "x")}, {batchOf(0, "x"), batchOf(0, "x")}} {
		w := b.dial()
		w.send(produceRequest("topic", -1, partitions...), 9)
		w.closed()
	}
	b.engine.set(func(e *faults) { e.onAppend = nil })
	if p := produced(call[*kmsg.ProduceResponse](other, produceRequest("topic", -1, batchOf(0, "x")), 9)); p.ErrorCode != 0 {
		t.Errorf("the other connection's append is answered with %d", p.ErrorCode)
	}
}

// metrics returns the values of all counters and gauges, by name and labels.
func (b *broker) metrics(registry *prometheus.Registry) map[string]float64 {
	b.t.Helper()
	families, err := registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%q", l.GetName(), l.GetValue())
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

func TestMetricsCountWhatHappens(t *testing.T) {
	b := start(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(b.Collectors()...)
	b.create("topic", 1)
	b.produce("topic", "a", "b")
	produceCode(b, "other", 0, "x")
	b.dial().write([]byte{0, 0, 0, 0})
	want := map[string]float64{
		`ringmaster_broker_requests_total api="Produce" error="0"`: 2,
		`ringmaster_broker_requests_total api="Produce" error="3"`: 1,
		`ringmaster_broker_bad_requests_total`:                     1,
	}
	eventually(t, func() error {
		got := b.metrics(registry)
		for name, v := range want {
			if got[name] != v {
				return fmt.Errorf("%s is %v, not %v", name, got[name], v)
			}
		}
		return nil
	})
}

func TestAFetchThatWaitsEndsWithItsConnection(t *testing.T) {
	b := start(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(b.Collectors()...)
	admin := b.admin()
	if _, err := admin.CreateTopic(b.ctx(), 1, 1, nil, "topic"); err != nil {
		t.Fatal(err)
	}
	admin.Close()
	w := b.dial()
	call[*kmsg.ApiVersionsResponse](w, newAPIVersions(), 3)
	fetch := fetchRequest("topic", 0)
	fetch.MinBytes, fetch.MaxWaitMillis = 1, 1<<30
	w.send(fetch, 12)
	connections := func(want float64) func() error {
		return func() error {
			if got := b.metrics(registry)["ringmaster_broker_connections"]; got != want {
				return fmt.Errorf("%v connections are open, not %v", got, want)
			}
			return nil
		}
	}
	eventually(t, connections(1))
	w.nc.Close()
	eventually(t, connections(0))
}
