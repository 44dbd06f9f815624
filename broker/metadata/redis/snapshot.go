// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"reflect"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// Snapshot returns what is known now. Nobody may change it. Once the broker's lease is over, it leads nothing in it.
func (m *Metadata) Snapshot() *metadata.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leading && !time.Now().Before(m.deadline) { // the timer is late
		m.rebuild()
	}
	return m.current
}

// Changed returns a channel that is closed at the next change. Take the channel first and the snapshot second, and no change is missed.
func (m *Metadata) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// take makes a state the current one, and extends the time in which the broker believes that it leads.
func (m *Metadata) take(s *state, deadline time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.deadline = s, deadline
	m.expiry.Reset(time.Until(deadline))
	m.rebuild()
}

// hold extends the time in which the broker believes that it leads, by what it knew before: its lease is renewed, and what it was to read is damaged, for
// every other broker too.
func (m *Metadata) hold(deadline time.Time) {
	if s := m.known(); s != nil {
		m.take(s, deadline)
	}
}

// known is the state that was last read, nil where there is none.
func (m *Metadata) known() *state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// expire shows clients that this broker leads nothing once its lease is over.
func (m *Metadata) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leading && !time.Now().Before(m.deadline) {
		m.log.Warn("the broker's lease is over: until it is renewed, it leads no partitions", "lease", m.opts.Lease)
		m.rebuild()
	}
}

// withdraw ends the lease before its time.
func (m *Metadata) withdraw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deadline = time.Time{}
	m.rebuild()
}

// rebuild publishes a snapshot of the state, if it differs from the last. The caller holds m.mu.
func (m *Metadata) rebuild() {
	if m.state == nil {
		return
	}
	m.leading = time.Now().Before(m.deadline)
	next := m.build(m.state, m.leading)
	if reflect.DeepEqual(next, m.current) {
		return
	}
	m.current = next
	close(m.changed)
	m.changed = make(chan struct{})
}

// build makes the snapshot of a state. leading says that this broker may lead.
func (m *Metadata) build(s *state, leading bool) *metadata.Snapshot {
	out := &metadata.Snapshot{
		ClusterID:         m.store.cluster,
		Topics:            make(map[string]*metadata.Topic, len(s.topics)),
		Groups:            map[string]*metadata.Group{},
		AutoCreateTopics:  m.opts.AutoCreateTopics,
		DefaultPartitions: m.opts.DefaultPartitions,
	}
	leads := make(map[int32]bool, len(s.brokers))
	for _, b := range s.brokers {
		if b.live {
			out.Brokers = append(out.Brokers, metadata.Broker{ID: b.id, Host: b.Host, Port: b.Port})
		}
		leads[b.id] = b.leads() && (b.id != m.id || leading && b.Instance == m.instance)
	}
	// Nobody may write to a topic while records of an earlier one of its name are being removed.
	removed := map[string]bool{}
	for _, d := range s.deleted {
		removed[d.Topic] = true
		if d.instance == m.instance && leading {
			out.Purge = append(out.Purge, d.Incarnation)
		}
	}
	for name, t := range s.topics {
		out.Topics[name] = t.snapshot(name, func(broker int32) bool { return leads[broker] && !removed[name] })
	}
	return out
}

// snapshot is the topic with the leaders that may lead.
func (t *topic) snapshot(name string, leads func(broker int32) bool) *metadata.Topic {
	out := &metadata.Topic{
		Name: name, ID: t.id, Config: t.config, DeleteData: true, Internal: t.internal,
		Leaders: make([]int32, t.partitions), LeaderEpochs: make([]int32, t.partitions), LeadersSince: make([]int64, t.partitions),
	}
	for p := range out.Leaders {
		out.Leaders[p] = -1
		if p >= len(t.led.Leaders) {
			continue
		}
		out.LeaderEpochs[p] = t.led.Epochs[p]
		if leader := t.led.Leaders[p]; leads(leader) {
			out.Leaders[p], out.LeadersSince[p] = leader, t.led.Since[p]
		}
	}
	return out
}
