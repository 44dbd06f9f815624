// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// memberConnections knows the connection by which each member of a group was last heard of, so that the group can be told when that closes: a process
// that was killed cannot leave its group, but the kernel closes its connections.
type memberConnections struct {
	mu sync.Mutex
	// last holds each member's connection, and members the same the other way round.
	last    map[memberKey]*conn
	members map[*conn]map[memberKey]bool
}

// maxConnMembers is how many members of groups a connection is remembered for; clients have one each. The sessions of others end by their timeouts alone.
const maxConnMembers = 100

// memberKey names a member of a group.
type memberKey struct{ group, member string }

// heard notes that a member's request came by a connection. Where its client has not said there what it is, what it said of itself on the one before counts.
func (m *memberConnections) heard(c *conn, group, member string) {
	if c == nil || member == "" || len(member) > maxMemberID {
		return
	}
	key := memberKey{group, member}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.last[key]
	if before == c {
		return
	}
	if before != nil {
		c.client.CompareAndSwap(clientUnknown, before.client.Load())
	}
	m.drop(before, key)
	if len(m.members[c]) >= maxConnMembers {
		return
	}
	if m.last == nil {
		m.last, m.members = make(map[memberKey]*conn), make(map[*conn]map[memberKey]bool)
	}
	if m.members[c] == nil {
		m.members[c] = make(map[memberKey]bool)
	}
	m.last[key], m.members[c][key] = c, true
}

// drop forgets that a member's requests come by a connection. mu is held.
func (m *memberConnections) drop(c *conn, key memberKey) {
	delete(m.members[c], key)
	if len(m.members[c]) == 0 {
		delete(m.members, c)
	}
	delete(m.last, key)
}

// closed returns the members that were last heard of by a connection, and forgets them.
func (m *memberConnections) closed(c *conn) []memberKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []memberKey
	for key := range m.members[c] {
		gone = append(gone, key)
		m.drop(c, key)
	}
	return gone
}

// hungUp tells the groups of the members that were last heard of by a connection that it has closed.
func (g *groups) hungUp(ctx context.Context, c *conn) {
	for _, key := range g.connections.closed(c) {
		p, code := g.partition(key.group)
		if code != codeNone {
			continue
		}
		if h, code := p.get(key.group, false); h != nil && code == codeNone {
			h.disconnect(ctx, key.member)
		}
	}
}

// disconnect tells the group that a member's connection has closed.
func (h *hosted) disconnect(ctx context.Context, member string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.gone && h.group != nil {
		h.apply(ctx, coordinator.Disconnect{MemberID: member})
	}
}
