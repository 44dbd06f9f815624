// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// testLease is short, and long enough for a slow machine.
const testLease = 3 * time.Second

// member is a broker's metadata in a test, which can die without a word.
type member struct {
	*Metadata
	kill context.CancelFunc
}

// openMember opens a broker's metadata; it leaves with the test.
func openMember(t testing.TB, url string, change func(*Options)) *member {
	t.Helper()
	m, err := tryOpen(t, url, change)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func tryOpen(t testing.TB, url string, change func(*Options)) (*member, error) {
	t.Helper()
	opts := Options{
		Conn: redisconn.Options{URL: url}, Prefix: "test", Host: "127.0.0.1", Port: 9092, Lease: testLease, OffsetsPartitions: 4, DefaultPartitions: 3,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&opts)
	}
	opts.Logger = opts.Logger.With("node", opts.NodeID)
	ctx, kill := context.WithCancel(context.Background())
	m, err := Open(ctx, opts)
	if err != nil {
		kill()
		return nil, err
	}
	t.Cleanup(func() {
		kill()
		_ = m.Close() // Redis may be gone
	})
	return &member{Metadata: m, kill: kill}, nil
}

// node gives a broker its id, and an address of its own.
func node(id int32) func(*Options) {
	return func(o *Options) { o.NodeID, o.Port = id, 9000+id }
}

// await waits until a snapshot satisfies cond.
func await(t testing.TB, m *Metadata, what string, cond func(*metadata.Snapshot) bool) *metadata.Snapshot {
	t.Helper()
	timeout := time.After(patience)
	for {
		changed := m.Changed()
		s := m.Snapshot()
		if cond(s) {
			return s
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("broker %d: %s has not come; topics: %+v, brokers: %+v", m.NodeID(), what, show(s), s.Brokers)
		}
	}
}

func show(s *metadata.Snapshot) map[string][]int32 {
	out := map[string][]int32{}
	for name, topic := range s.Topics {
		out[name] = topic.Leaders
	}
	return out
}

// ledBy says whether every partition of so many topics is led by one of these brokers, all of which lead some.
func ledBy(topics int, ids ...int32) func(*metadata.Snapshot) bool {
	return func(s *metadata.Snapshot) bool {
		leads := map[int32]bool{}
		for _, topic := range s.Topics {
			for _, leader := range topic.Leaders {
				leads[leader] = true
			}
		}
		return len(s.Topics) == topics && slices.Equal(slices.Sorted(maps.Keys(leads)), ids)
	}
}

// create creates a topic and waits until it is led.
func create(t testing.TB, m *Metadata, name string, partitions int32) *metadata.Topic {
	t.Helper()
	if err := m.CreateTopic(t.Context(), metadata.NewTopic{Name: name, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	s := await(t, m, "topic "+name+" with leaders", func(s *metadata.Snapshot) bool {
		return s.Topics[name] != nil && !slices.Contains(s.Topics[name].Leaders, -1)
	})
	return s.Topics[name]
}

// assignmentOf is who leads what, as the assigner has it.
func assignmentOf(s *metadata.Snapshot) assigner.Assignment {
	a := assigner.Assignment{}
	for _, b := range s.Brokers {
		a[strconv.Itoa(int(b.ID))] = nil
	}
	for name, topic := range s.Topics {
		for p, leader := range topic.Leaders {
			id := strconv.Itoa(int(leader))
			a[id] = append(a[id], assigner.Partition{Topic: name, Partition: int32(p)})
		}
	}
	return a
}

// minimum is the fewest partitions that must move from prev for the brokers of next.
func minimum(prev, next *metadata.Snapshot) int {
	in := assigner.Input{Partitions: map[string]int32{}, Previous: assignmentOf(prev)}
	names := slices.Sorted(maps.Keys(next.Topics))
	for _, name := range names {
		in.Partitions[name] = int32(len(next.Topics[name].Leaders))
	}
	for _, b := range next.Brokers {
		in.Members = append(in.Members, assigner.Member{ID: strconv.Itoa(int(b.ID)), Topics: names})
	}
	return assigner.Minimum(in)
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// start starts a Redis. The test runs beside others: for most of its time it waits.
func start(t *testing.T) *testredis.Server {
	t.Helper()
	t.Parallel()
	return testredis.Start(t)
}
