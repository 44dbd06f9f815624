// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// retentionInterval is how often the offsets of a group that has members are looked through for topics that none of them reads.
const retentionInterval = time.Hour

// expireBy says that an offset may expire once the retention has passed from a time on.
func (g *Group) expireBy(from time.Time) {
	if g.opts.OffsetsRetention > 0 && len(g.offsets) > 0 {
		g.expireNext = earliest(g.expireNext, from.Add(g.opts.OffsetsRetention))
	}
}

// lookForExpired sees to it that offsets are looked through that may have expired before they were loaded: a little later, when the group has heard whether it is managed.
func (g *Group) lookForExpired() {
	if len(g.offsets) > 0 && g.opts.OffsetsRetention > 0 {
		g.expireNext = earliest(g.expireNext, g.now.Add(time.Second))
	}
}

// expireOffsets removes the offsets that nobody has needed for the retention (KIP-211): in a group without members from when the last one left, and of a topic that no
// member reads, or in a group that never had one, from when it was committed. What a member reads stays, and so does all of a managed group, which may have
// been scaled to zero. A group that has lost its last offset and has no member is Dead.
func (g *Group) expireOffsets() {
	if !g.due(g.expireNext) {
		return
	}
	g.expireNext = time.Time{}
	if g.managed != nil || g.opts.OffsetsRetention <= 0 {
		return
	}
	expired := 0
	for _, r := range g.Offsets() {
		at, ok := g.expiryOf(r)
		switch {
		case !ok:
		case g.due(at):
			expired++
			g.record(Record{Topic: r.Topic, Partition: r.Partition, Deleted: true})
		default:
			g.expireNext = earliest(g.expireNext, at)
		}
	}
	if expired > 0 {
		g.notef("%d committed offset(s) expired after %s", expired, g.opts.OffsetsRetention)
	}
	switch {
	case len(g.members) > 0 && len(g.offsets) > 0:
		g.expireNext = earliest(g.expireNext, g.now.Add(retentionInterval))
	case expired > 0 && g.Idle():
		g.dead, g.handoff, g.consumer = true, nil, nil
	}
}

// expiryOf is when an offset expires as things are; never, if not ok.
func (g *Group) expiryOf(r Record) (at time.Time, ok bool) {
	at = r.Offset.CommitTime.Add(g.opts.OffsetsRetention)
	if len(g.members) == 0 {
		if empty := g.emptySince.Add(g.opts.OffsetsRetention); !g.emptySince.IsZero() && empty.After(at) {
			at = empty
		}
		return at, true
	}
	return at, !g.reads(assigner.Partition{Topic: r.Topic, Partition: r.Partition})
}

// reads says whether a member may read a partition, or may need its offset.
func (g *Group) reads(tp assigner.Partition) bool {
	return slices.ContainsFunc(g.sorted, func(m *groupMember) bool {
		if m.subscription == nil || (g.topics == nil && m.consumer != nil && m.consumer.regex != "") {
			return true
		}
		_, reads := slices.BinarySearch(m.topics, tp.Topic)
		return reads
	})
}
