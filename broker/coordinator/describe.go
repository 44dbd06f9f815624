// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// The states of a group, by Kafka's names.
const (
	// StateEmpty is a group without members; it may have offsets.
	StateEmpty = "Empty"
	// StatePreparingRebalance is a group that waits for its members to join again.
	StatePreparingRebalance = "PreparingRebalance"
	// StateCompletingRebalance is a group that waits for its leader's plan, or a managed group with a client that has not yet fetched its share.
	StateCompletingRebalance = "CompletingRebalance"
	// StateAssigning is a consumer group (KIP-848) that is about to assign to members that have joined.
	StateAssigning = "Assigning"
	// StateReconciling is a consumer group (KIP-848) with a member that does not have its share yet.
	StateReconciling = "Reconciling"
	// StateStable is a group whose members have their shares.
	StateStable = "Stable"
	// StateDead is a group that was deleted.
	StateDead = "Dead"
)

// Description is what DescribeGroups and ListGroups tell of a group.
type Description struct {
	GroupID string
	// Type says how the group works, and State what it is at: one of the State constants.
	Type  GroupType
	State string
	// Generation is the generation, of a consumer group its epoch.
	Generation int32
	// Assignor is the name of the assigner of a consumer group.
	Assignor     string
	ProtocolType string
	// Protocol is the protocol in use; in a managed group that of its first member.
	Protocol string
	// Leader is the leader's member id, or ManagedLeader.
	Leader string
	// Members are sorted by member id.
	Members []MemberDescription
}

// MemberDescription is a member as DescribeGroups and ConsumerGroupDescribe tell it. Of Assignment (as the leader sent it, encoded) and Share (what the group
// decided) one counts; Shared says that it is Share.
type MemberDescription struct {
	MemberID   string
	InstanceID string
	ClientID   string
	Host       string
	// Pod is the pod that a client of a managed group was matched to, empty for none.
	Pod string
	// Metadata is what the member sent with the protocol in use.
	Metadata   []byte
	Assignment []byte
	Shared     bool
	Share      []TopicPartitions
	// Target is what the member is to read once others have let go of it.
	Target []TopicPartitions
	// Consumer says that the member speaks KIP-848's protocol. Epoch is its epoch, of a classic one its generation.
	Consumer bool
	Epoch    int32
	Rack     string
	// Topics are the topics that the member named, Regex the expression that names others; nil and empty where they are not known.
	Topics []string
	Regex  string
}

// State returns the group's state by Kafka's name. A managed group is PreparingRebalance while a client has yet to be told of its new share.
func (g *Group) State() string {
	switch {
	case g.dead:
		return StateDead
	case g.managed != nil:
		return g.managedState()
	case g.consumer != nil:
		return g.consumerState()
	}
	return g.ordinary.state
}

// consumerState is the state of a consumer group by KIP-848's names.
func (g *Group) consumerState() string {
	switch {
	case len(g.members) == 0:
		return StateEmpty
	case !g.consumer.due.IsZero():
		return StateAssigning
	case slices.ContainsFunc(g.sorted, g.reconciling):
		return StateReconciling
	}
	return StateStable
}

// reconciling says whether a member of a consumer group is yet to be told something.
func (g *Group) reconciling(m *groupMember) bool {
	switch {
	case m.consumer == nil:
		return !m.client.synced || g.needsRejoin(m)
	case m.consumer.away:
		return false
	}
	return m.generation < g.Generation() || len(m.client.moved) > 0 || !slices.Equal(m.client.last, m.client.target)
}

// Dead says that the group was deleted, or that all that it remembered has expired: it is to be dropped.
func (g *Group) Dead() bool { return g.dead }

// Managed says whether the group follows the operator's plan.
func (g *Group) Managed() bool { return g.managed != nil }

// Type returns how the group works.
func (g *Group) Type() GroupType {
	switch {
	case g.managed != nil:
		return TypeManaged
	case g.consumer != nil:
		return TypeConsumer
	}
	return TypeClassic
}

// Generation returns the generation: the plan's in a managed group.
func (g *Group) Generation() int32 {
	if g.managed != nil {
		return g.managed.generation
	}
	return g.ordinary.generation
}

// NeedsRejoin says whether a heartbeat of the member would tell it to join again, or that it is none: a caller that holds back the answer to a heartbeat
// asks after each step whether it is due.
func (g *Group) NeedsRejoin(memberID string) bool {
	m, ok := g.members[memberID]
	return !ok || g.needsRejoin(m)
}

// Describe returns a description of the group. Its slices of bytes are the group's own and must not be changed.
func (g *Group) Describe() Description {
	d := Description{
		GroupID: g.id, Type: g.Type(), State: g.State(), Generation: g.Generation(),
		ProtocolType: g.ordinary.protocolType, Protocol: g.ordinary.protocol, Leader: g.ordinary.leader,
	}
	if g.consumer != nil {
		d.Assignor = g.consumer.assignor
	}
	if g.handoff != nil && len(g.members) > 0 {
		d.ProtocolType, d.Protocol = g.protocolOf(g.sorted[0])
		d.Leader = ManagedLeader
	}
	for _, m := range g.sorted {
		d.Members = append(d.Members, g.describeMember(m))
	}
	return d
}

func (g *Group) describeMember(m *groupMember) MemberDescription {
	_, protocol := g.protocolOf(m)
	d := MemberDescription{
		MemberID: m.id, InstanceID: m.instanceID, ClientID: m.clientID, Host: m.host, Pod: m.client.pod,
		Metadata: m.metadata(protocol), Assignment: m.part.bytes, Shared: m.part.computed || g.handoff != nil, Epoch: max(m.generation, 0),
	}
	if d.Assignment == nil && m.part.planned {
		d.Assignment = []byte{}
	}
	if m.subscription != nil {
		d.Topics = m.subscription.Topics
	}
	if c := m.consumer; c != nil {
		d.Consumer, d.Rack, d.Regex = true, c.rack, c.regex
	}
	switch {
	case g.handoff != nil:
		d.Share, d.Target = g.handoff.reads(m), group(m.client.target)
	case m.part.computed:
		d.Share = group(m.part.share)
	}
	return d
}

// reads is what the client was told last and still holds.
func (h *handoff) reads(m *groupMember) []TopicPartitions {
	var out []assigner.Partition
	for _, tp := range m.client.last {
		if h.holders[tp] == m {
			out = append(out, tp)
		}
	}
	return group(out)
}
