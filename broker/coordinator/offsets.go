// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"maps"
	"slices"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

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

// CheckFetch is the error of an OffsetFetch of a member that speaks KIP-848's protocol: a request that names its member (v9 and later) is answered only if the
// epoch is the member's.
func (g *Group) CheckFetch(memberID string, epoch int32) int16 {
	if memberID == "" && epoch < 0 {
		return ErrNone
	}
	m, ok := g.members[memberID]
	switch {
	case !ok:
		return ErrUnknownMemberID
	case m.consumer != nil && (m.generation != epoch || m.consumer.away):
		return ErrStaleMemberEpoch
	}
	return ErrNone
}

// Idle says that the group has neither members nor offsets, so that Delete takes nothing from anybody.
func (g *Group) Idle() bool { return len(g.members) == 0 && len(g.offsets) == 0 }

// record stores a change of an offset and applies it just as it will be when it is loaded.
func (g *Group) record(r Record) {
	g.out.Records = append(g.out.Records, r)
	g.Load(r)
}

// commit takes an OffsetCommit, and says, as handle does, whether no deadline moved but a session's.
func (g *Group) commit(in Commit) (quiet bool) {
	before := g.expireNext
	m, code := g.checkCommit(in)
	body := CommitReply{Errs: make([]int16, len(in.Offsets))}
	read := g.readByMembers(m, code)
	for i, o := range in.Offsets {
		body.Errs[i] = code
		switch {
		case code == ErrNone && read[assigner.Partition{Topic: o.Topic, Partition: o.Partition}]:
			body.Errs[i] = ErrUnknownMemberID
		case code == ErrNone:
			body.Errs[i] = g.commitOne(m, in.Generation, o)
		}
	}
	g.reply(in.Token, code, body)
	g.expireBy(g.now)
	return g.expireNext.Equal(before)
}

// readByMembers are the partitions for which a client that is no member (m is nil) may not commit: those of a managed group that are in a member's target, or that a
// member still holds.
func (g *Group) readByMembers(m *groupMember, code int16) map[assigner.Partition]bool {
	if m != nil || code != ErrNone || g.managed == nil || len(g.members) == 0 {
		return nil
	}
	read := make(map[assigner.Partition]bool, len(g.handoff.holders))
	for tp := range g.handoff.holders {
		read[tp] = true
	}
	for _, m := range g.sorted {
		for _, tp := range m.client.target {
			read[tp] = true
		}
	}
	return read
}

// mayBeAdministered says whether clients that are no members may commit although the group has members: in a managed group, for what none of these reads, such as all of it while it
// is paused. What a member reads that was there before the group was managed, and what the pods are to read before the plan is there, is not known.
func (g *Group) mayBeAdministered() bool {
	return g.managed != nil && !g.managed.awaited && g.handoff.blockers == 0
}

// commitOne stores an offset of a member, or of nobody, or says why not.
func (g *Group) commitOne(m *groupMember, generation int32, o OffsetCommit) int16 {
	if len(o.Metadata) > g.opts.MaxMetadataBytes {
		return ErrOffsetMetadataTooLarge
	}
	if g.handoff != nil && m != nil && !g.mayCommit(m, generation, assigner.Partition{Topic: o.Topic, Partition: o.Partition}) {
		if m.consumer != nil {
			return ErrStaleMemberEpoch
		}
		return ErrIllegalGeneration
	}
	g.record(Record{Topic: o.Topic, Partition: o.Partition, Offset: Offset{
		Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata, CommitTime: g.now,
	}})
	return ErrNone
}

// mayCommit says whether a member may commit for a partition: in a managed group it has to hold it, in a consumer group nobody else may. A
// commit that the next epoch has overtaken is taken if the member has held the partition since before (KIP-1251).
func (g *Group) mayCommit(m *groupMember, generation int32, tp assigner.Partition) bool {
	holder := g.handoff.holders[tp]
	switch {
	case m.client.opaque:
		return m.client.blocking && holder == nil
	case m.consumer != nil && generation != m.generation:
		return holder == m && m.client.since[tp] <= generation
	case g.consumer != nil:
		return holder == m || holder == nil
	}
	return holder == m
}

// checkCommit finds the member that an OffsetCommit is of, nil for a client that is no member, or why it is refused. The rules are Kafka's: in an empty
// group anybody may commit, else members alone, but for mayBeAdministered. A member may while the group prepares a rebalance, for it learns of it only from its next heartbeat; once it
// has joined it may not until it has its new share.
func (g *Group) checkCommit(in Commit) (*groupMember, int16) {
	if g.dead {
		return nil, ErrCoordinatorNotAvailable
	}
	if in.Generation < 0 && len(g.members) == 0 {
		return nil, ErrNone
	}
	if in.Generation < 0 && in.Client.MemberID == "" && in.Client.InstanceID == "" {
		if g.mayBeAdministered() {
			return nil, ErrNone
		}
		return nil, ErrUnknownMemberID
	}
	if m, ok := g.members[in.Client.MemberID]; ok && m.consumer != nil {
		return g.checkConsumerCommit(in)
	}
	m, code := g.checkMember(in.Client, in.Generation)
	if code != ErrNone {
		return nil, code
	}
	g.touch(m)
	rebalancing := g.ordinary.state == StateCompletingRebalance
	if g.handoff != nil {
		rebalancing = !m.client.synced && !m.client.opaque
	}
	if rebalancing {
		return nil, ErrRebalanceInProgress
	}
	return m, ErrNone
}

// checkConsumerCommit finds the member that an OffsetCommit of KIP-848's protocol is of.
func (g *Group) checkConsumerCommit(in Commit) (*groupMember, int16) {
	m, code := g.identify(in.Client)
	switch {
	case code != ErrNone:
		return nil, code
	case in.Generation < 0:
		return nil, ErrUnknownMemberID
	case in.Generation > m.generation, m.consumer.away:
		return nil, ErrStaleMemberEpoch
	}
	m.disconnected, m.unheard = false, false // its session goes on with its heartbeats alone, by which it hears what it is to give up
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
	g.dead, g.managed, g.consumer, g.handoff = true, nil, nil, nil
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
	for _, m := range g.sorted {
		switch {
		case m.subscription == nil:
			return ErrNonEmptyGroup
		case slices.Contains(m.topics, topic):
			code = ErrGroupSubscribedToTopic
		}
	}
	return code
}
