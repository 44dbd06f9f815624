// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"maps"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// Load applies a stored record: a group into which all records of an earlier one were loaded, in their order, has the same offsets.
func (g *Group) Load(r Record) {
	tp := assigner.Partition{Topic: r.Topic, Partition: r.Partition}
	if r.Deleted {
		delete(g.offsets, tp)
		return
	}
	g.offsets[tp] = r.Offset
}

// Offset returns the committed offset of a partition.
func (g *Group) Offset(topic string, partition int32) (Offset, bool) {
	o, ok := g.offsets[assigner.Partition{Topic: topic, Partition: partition}]
	return o, ok
}

// Offsets returns all committed offsets as records, sorted by topic and partition.
func (g *Group) Offsets() []Record {
	out := make([]Record, 0, len(g.offsets))
	for _, tp := range slices.SortedFunc(maps.Keys(g.offsets), comparePartitions) {
		out = append(out, Record{Topic: tp.Topic, Partition: tp.Partition, Offset: g.offsets[tp]})
	}
	return out
}

// record stores a change of an offset and applies it just as it will be when it is loaded.
func (g *Group) record(r Record) {
	g.out.Records = append(g.out.Records, r)
	g.Load(r)
}

// commit takes an OffsetCommit.
func (g *Group) commit(in Commit) {
	m, code := g.checkCommit(in)
	body := CommitReply{Errs: make([]int16, len(in.Offsets))}
	for i, o := range in.Offsets {
		body.Errs[i] = code
		if code == ErrNone {
			body.Errs[i] = g.commitOne(m, o)
		}
	}
	g.reply(in.Token, code, body)
}

// commitOne stores an offset of a member, or of nobody, or says why not.
func (g *Group) commitOne(m *groupMember, o OffsetCommit) int16 {
	if len(o.Metadata) > g.opts.MaxMetadataBytes {
		return ErrOffsetMetadataTooLarge
	}
	if g.managed != nil && m != nil && !g.managed.mayCommit(m, assigner.Partition{Topic: o.Topic, Partition: o.Partition}) {
		return ErrIllegalGeneration
	}
	g.record(Record{Topic: o.Topic, Partition: o.Partition, Offset: Offset{
		Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata, CommitTime: g.now,
	}})
	return ErrNone
}

// mayCommit says whether the group takes it that the client reads the partition.
func (mg *managedGroup) mayCommit(m *groupMember, tp assigner.Partition) bool {
	if m.client.opaque {
		return m.client.blocking && mg.holders[tp] == nil
	}
	return mg.holders[tp] == m
}

// checkCommit finds the member that an OffsetCommit is of, nil for a client that is no member, or why it is refused. The rules are Kafka's: in an empty
// group anybody may commit, else members alone. A member may while the group prepares a rebalance, for it learns of it only from its next heartbeat; once it
// has joined it may not until it has its new share.
func (g *Group) checkCommit(in Commit) (*groupMember, int16) {
	if g.dead {
		return nil, ErrCoordinatorNotAvailable
	}
	if in.Generation < 0 && len(g.members) == 0 {
		return nil, ErrNone
	}
	if in.Generation < 0 && in.Client.MemberID == "" && in.Client.InstanceID == "" {
		return nil, ErrUnknownMemberID
	}
	m, code := g.checkMember(in.Client, in.Generation)
	if code != ErrNone {
		return nil, code
	}
	g.touch(m)
	rebalancing := g.ordinary.state == StateCompletingRebalance
	if g.managed != nil {
		rebalancing = !m.client.synced && !m.client.opaque
	}
	if rebalancing {
		return nil, ErrRebalanceInProgress
	}
	return m, ErrNone
}

// deleteGroup removes the group's offsets, if it has no members.
func (g *Group) deleteGroup(in Delete) {
	switch {
	case g.dead:
		g.reply(in.Token, ErrCoordinatorNotAvailable, nil)
		return
	case len(g.members) > 0:
		g.reply(in.Token, ErrNonEmptyGroup, nil)
		return
	}
	for _, r := range g.Offsets() {
		g.record(Record{Topic: r.Topic, Partition: r.Partition, Deleted: true})
	}
	g.pending = map[string]time.Time{}
	g.dead, g.managed = true, nil
	g.reply(in.Token, ErrNone, nil)
}

// deleteOffsets removes offsets, but for those of topics that members read.
func (g *Group) deleteOffsets(in DeleteOffsets) {
	body := DeleteOffsetsReply{Errs: make([]int16, len(in.Partitions))}
	code := ErrNone
	if g.dead {
		code = ErrCoordinatorNotAvailable
	}
	for i, t := range in.Partitions {
		if body.Errs[i] = code; code != ErrNone {
			continue
		}
		if body.Errs[i] = g.reading(t.Topic); body.Errs[i] != ErrNone {
			continue
		}
		for _, tp := range flatten([]TopicPartitions{t}) {
			if _, ok := g.offsets[tp]; ok {
				g.record(Record{Topic: tp.Topic, Partition: tp.Partition, Deleted: true})
			}
		}
	}
	g.reply(in.Token, code, body)
}

// reading is why a topic's offsets cannot be deleted, 0 if they can. What members read is known only of consumers.
func (g *Group) reading(topic string) int16 {
	code := ErrNone
	for _, m := range g.members {
		switch {
		case m.subscription == nil:
			return ErrNonEmptyGroup
		case slices.Contains(m.subscription.Topics, topic):
			code = ErrGroupSubscribedToTopic
		}
	}
	return code
}
