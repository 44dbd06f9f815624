// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

var seedFlag = flag.Uint64("seed", 1, "the seed of the random run; 0 takes a new one")

// claim is a partition in one leader epoch.
type claim struct {
	topic     metadata.TopicID
	partition int
	epoch     int32
}

// witness watches what brokers believe.
type witness struct {
	t  *testing.T
	mu sync.Mutex
	// claims holds the process that believed to lead a partition in an epoch: never two.
	claims map[claim]string
}

// watch watches a broker until ctx ends: no epoch may fall, and nobody else may lead in an epoch in which the broker leads.
func (w *witness) watch(ctx context.Context, m *Metadata) {
	epochs := map[string]int32{}
	for {
		changed := m.Changed()
		s := m.Snapshot()
		w.look(m, s, epochs)
		if len(s.Purge) > 0 {
			_ = m.Purged(ctx, s.Purge) // Redis may be away; it is asked again with the next snapshot
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

func (w *witness) look(m *Metadata, s *metadata.Snapshot, epochs map[string]int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, topic := range s.Topics {
		for p, leader := range topic.Leaders {
			if leader < 0 {
				continue
			}
			key := fmt.Sprintf("%s/%d", name, p)
			if epochs[key] > topic.LeaderEpochs[p] {
				w.t.Errorf("broker %d saw the epoch of %s fall from %d to %d", m.NodeID(), key, epochs[key], topic.LeaderEpochs[p])
			}
			epochs[key] = topic.LeaderEpochs[p]
			if leader != m.NodeID() {
				continue
			}
			c := claim{topic: topic.ID, partition: p, epoch: topic.LeaderEpochs[p]}
			if other := w.claims[c]; other != "" && other != m.instance {
				w.t.Errorf("two processes, %s and %s, led %s in epoch %d", other, m.instance, key, c.epoch)
			}
			w.claims[c] = m.instance
		}
	}
}

// run is a random run.
type run struct {
	t       *testing.T
	rng     *rand.Rand
	server  *testredis.Server
	witness *witness
	live    map[int32]*member
	roads   map[int32]*road
	frozen  bool
}

func TestRandomBrokersComeAndGo(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	r := &run{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), server: start(t), live: map[int32]*member{}, roads: map[int32]*road{},
		witness: &witness{t: t, claims: map[claim]string{}},
	}
	for range 60 {
		r.step()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	r.thaw()
	for id := range r.roads {
		r.clear(id)
	}
	for len(r.live) == 0 {
		r.open()
	}
	r.end()
}

// step does something at random.
func (r *run) step() {
	if r.frozen && r.rng.IntN(2) == 0 {
		r.thaw()
	}
	for _, id := range slices.Sorted(maps.Keys(r.roads)) {
		if r.roads[id].blocked && r.rng.IntN(3) == 0 {
			r.clear(id)
		}
	}
	switch action := r.rng.IntN(19) - 2; {
	case action < 4:
		r.open()
	case action == 4:
		r.stop("leaves", func(m *member) { _ = m.Close() })
	case action < 7:
		r.stop("dies", func(m *member) { m.kill() })
	case action < 11:
		r.change()
	case action == 11:
		r.t.Log("Redis freezes")
		r.server.Freeze()
		r.frozen = true
	case action < 14:
		if len(r.live) > 0 {
			id := r.pick()
			r.t.Logf("broker %d is cut off", id)
			r.roads[id].block()
		}
	case r.frozen:
	case action == 16:
		r.t.Log("Redis is killed and comes back")
		r.server.Kill()
		r.server.Run()
	case action == 14:
		_, _ = r.server.CLI("script", "flush")
	default:
		_, _ = r.server.CLI("client", "kill", "type", []string{"pubsub", "normal"}[r.rng.IntN(2)])
	}
	time.Sleep(time.Duration(r.rng.Int64N(int64(randomLease / 2)))) // so that leases end somewhere
}

const randomLease = 600 * time.Millisecond

func (r *run) thaw() {
	if r.frozen {
		r.t.Log("Redis thaws")
		r.server.Thaw()
		r.frozen = false
	}
}

// clear lets a broker reach Redis again.
func (r *run) clear(id int32) {
	if way := r.roads[id]; way != nil && way.blocked {
		r.t.Logf("broker %d is no longer cut off", id)
		way.clear()
	}
}

func (r *run) open() {
	id := int32(r.rng.IntN(5) + 1)
	if r.live[id] != nil || r.frozen {
		return
	}
	r.t.Logf("broker %d comes", id)
	way := newRoad(r.t, r.server.Address)
	m, err := tryOpen(r.t, way.url, func(o *Options) {
		node(id)(o)
		o.Lease = randomLease
	})
	if err != nil {
		if !strings.Contains(err.Error(), "belongs to the broker at") && !strings.Contains(err.Error(), metadata.ErrUnavailable.Error()) {
			r.t.Errorf("broker %d: %v", id, err)
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.witness.watch(ctx, m.Metadata)
	}()
	r.t.Cleanup(func() {
		way.clear() // or its end would wait for Redis
		cancel()
		<-done
	})
	r.clear(id) // the road of an earlier process
	r.live[id], r.roads[id] = m, way
}

func (r *run) stop(how string, f func(*member)) {
	if len(r.live) == 0 {
		return
	}
	id := r.pick()
	r.t.Logf("broker %d %s", id, how)
	f(r.live[id])
	delete(r.live, id)
}

func (r *run) pick() int32 {
	ids := slices.Sorted(maps.Keys(r.live))
	return ids[r.rng.IntN(len(ids))]
}

// change makes, grows or deletes a topic. It may fail where Redis is away, or the topic is or is not there.
func (r *run) change() {
	if len(r.live) == 0 {
		return
	}
	m, name := r.live[r.pick()], []string{"a", "b", "c"}[r.rng.IntN(3)]
	ctx, cancel := context.WithTimeout(context.Background(), randomLease/3)
	defer cancel()
	switch r.rng.IntN(4) {
	case 0:
		_ = m.DeleteTopic(ctx, name)
	case 1:
		_ = m.CreatePartitions(ctx, name, int32(r.rng.IntN(20)+1))
	default:
		_ = m.CreateTopic(ctx, metadata.NewTopic{Name: name, Partitions: int32(r.rng.IntN(8) + 1)})
	}
}

// end waits until all brokers that are there agree who they are, and that each partition is led by one of them, and leads as many as the others, or one more.
func (r *run) end() {
	ids := slices.Sorted(maps.Keys(r.live))
	for _, id := range ids {
		await(r.t, r.live[id].Metadata, fmt.Sprintf("a leader among %v for every partition", ids), func(s *metadata.Snapshot) bool {
			leads := map[int32]int{}
			for _, id := range ids {
				leads[id] = 0
			}
			for _, topic := range s.Topics {
				for _, leader := range topic.Leaders {
					leads[leader]++
				}
			}
			counts := slices.Sorted(maps.Values(leads))
			return len(leads) == len(ids) && len(s.Purge) == 0 && counts[len(counts)-1]-counts[0] <= 1
		})
	}
	r.witness.mu.Lock()
	defer r.witness.mu.Unlock()
	r.t.Logf("%d brokers in the end, %d times a broker led a partition", len(ids), len(r.witness.claims))
}
