// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// mortal dials for a client until it is killed: then its connections close, as the kernel closes those of a process, and no more are made.
type mortal struct {
	ip string

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (m *mortal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(m.ip)}}
	c, err := d.DialContext(ctx, network, address)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead && err == nil {
		return nil, errors.Join(errors.New("killed"), c.Close())
	}
	m.conns = append(m.conns, c)
	return c, err
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.conns {
		_ = c.Close()
	}
}

// A consumer that is killed has not left its group, and its session and the handoff timeout have long to go: its closed connections and its dead pod are
// what frees its partitions.
func TestAKilledConsumersPartitionsAreFreeWhenItsPodIsDead(t *testing.T) {
	t.Parallel()
	b := startGroupBroker(t)
	plan := func(generation int32, members ...metadata.GroupMember) {
		b.md.change(func(s *metadata.Snapshot) {
			s.Groups["g"] = &metadata.Group{
				ID: "g", Generation: generation, Assigner: "ConsistentHash", Topics: []string{"orders"}, Members: members, HandoffTimeout: time.Hour,
			}
		})
	}
	plan(1, pod("web-0", "127.0.0.2", 0), pod("web-1", "127.0.0.3", 1))
	victim := &mortal{ip: "127.0.0.2"}
	killed := b.join("killed", "g", kgo.Dialer(victim.dial), kgo.SessionTimeout(5*time.Minute))
	other := b.join("other", "g", from("127.0.0.3"), kgo.SessionTimeout(5*time.Minute))
	killed.holds(t, 0)
	other.holds(t, 1)

	victim.kill()
	plan(2, pod("web-1", "127.0.0.3", 0, 1))
	other.holds(t, 0, 1)
}

func TestMemberConnections(t *testing.T) {
	t.Parallel()
	var m memberConnections
	one, two := &conn{}, &conn{}
	m.heard(nil, "g", "a")
	m.heard(one, "g", "")
	m.heard(one, "g", "a")
	m.heard(one, "g", "b")
	m.heard(two, "g", "a")
	if got := m.closed(one); len(got) != 1 || got[0] != (memberKey{"g", "b"}) {
		t.Errorf("the first connection's members are %v, want b alone: a was heard of by another since", got)
	}
	if got := m.closed(one); len(got) != 0 {
		t.Errorf("a closed connection still has %v", got)
	}
	if got := m.closed(two); len(got) != 1 || got[0] != (memberKey{"g", "a"}) {
		t.Errorf("the second connection's members are %v, want a", got)
	}
	if len(m.last) != 0 || len(m.members) != 0 {
		t.Errorf("something is kept of closed connections: %v %v", m.last, m.members)
	}
}

func TestAConnectionIsRememberedForAFewMembersOnly(t *testing.T) {
	var m memberConnections
	one, two := &conn{}, &conn{}
	for i := range 3 * maxConnMembers {
		m.heard(one, "g", fmt.Sprint("m", i))
	}
	m.heard(one, "g", strings.Repeat("x", maxMemberID+1))
	m.heard(two, "g", "m0") // it moves
	for i := range maxConnMembers {
		m.heard(two, "h", fmt.Sprint("m", i))
	}
	m.heard(two, "g", "m1") // it moves to where there is no room
	if a, b := len(m.closed(one)), len(m.closed(two)); a != maxConnMembers-2 || b != maxConnMembers {
		t.Errorf("the connections were those of %d and %d members, want %d and %d", a, b, maxConnMembers-2, maxConnMembers)
	}
	if len(m.last)+len(m.members) != 0 {
		t.Errorf("%d members and %d connections are left", len(m.last), len(m.members))
	}
}
