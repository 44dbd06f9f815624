// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// groupMember is a consumer with what it has read and holds.
type groupMember struct {
	name   string
	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	owned map[int32]bool
	// taken counts the times that partitions were revoked or lost, assigned the times that some were assigned.
	taken, assigned int
	values          map[string]int
}

// join starts a consumer of orders.
func (b *groupBroker) join(name, group string, opts ...kgo.Opt) *groupMember {
	b.t.Helper()
	m := &groupMember{name: name, done: make(chan struct{}), owned: make(map[int32]bool), values: make(map[string]int)}
	lose := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range lost["orders"] {
			delete(m.owned, p)
		}
		if len(lost) > 0 {
			m.taken++
		}
	}
	defaults := []kgo.Opt{
		kgo.ClientID(name), kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"), kgo.HeartbeatInterval(50 * time.Millisecond),
		kgo.SessionTimeout(10 * time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond), kgo.AutoCommitInterval(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, won map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range won["orders"] {
				m.owned[p] = true
			}
			m.assigned++
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, lost map[string][]int32) {
			_ = cl.CommitUncommittedOffsets(ctx) // a client that cannot commit reads twice, which tests see
			lose(ctx, cl, lost)
		}),
		kgo.OnPartitionsLost(lose),
	}
	m.cl = b.client(append(defaults, opts...)...)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.poll(ctx)
	b.t.Cleanup(m.stop)
	return m
}

func (m *groupMember) poll(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		fetches := m.cl.PollFetches(ctx)
		m.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { m.values[string(r.Value)]++ })
		m.mu.Unlock()
	}
}

// stop ends the polling, but does not leave the group; Close of the client does.
func (m *groupMember) stop() {
	m.cancel()
	<-m.done
}

// leave commits and leaves the group.
func (m *groupMember) leave(t *testing.T) {
	t.Helper()
	m.stop()
	if err := m.cl.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Errorf("%s: commit before leaving: %v", m.name, err)
	}
	m.cl.Close()
}

func (m *groupMember) partitions() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

func (m *groupMember) counts() (assigned, taken int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.assigned, m.taken
}

// readBy waits until the members have read all values between them.
func readBy(t *testing.T, values []string, members ...*groupMember) {
	t.Helper()
	eventually(t, func() error {
		missing := 0
		for _, v := range values {
			if !slices.ContainsFunc(members, func(m *groupMember) bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.values[v] > 0
			}) {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d records are not read", missing, len(values))
		}
		return nil
	})
}

// share waits until the members hold the six partitions between them, each one once, and as evenly as can be.
func share(t *testing.T, members ...*groupMember) {
	t.Helper()
	eventually(t, func() error {
		var all []int32
		var loads []string
		even := true
		for _, m := range members {
			held := m.partitions()
			all = append(all, held...)
			loads = append(loads, fmt.Sprintf("%s:%v", m.name, held))
			even = even && len(held) >= 6/len(members) && len(held) <= (6+len(members)-1)/len(members)
		}
		slices.Sort(all)
		if !even || !slices.Equal(all, []int32{0, 1, 2, 3, 4, 5}) {
			return fmt.Errorf("shares are %v", loads)
		}
		return nil
	})
}

// holds waits until a member holds exactly these partitions.
func (m *groupMember) holds(t *testing.T, want ...int32) {
	t.Helper()
	eventually(t, func() error {
		if got := m.partitions(); !slices.Equal(got, want) {
			return fmt.Errorf("%s holds %v, want %v", m.name, got, want)
		}
		return nil
	})
}
