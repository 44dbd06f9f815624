// SPDX-License-Identifier: Apache-2.0

package coordinator

import "github.com/ringmaster-dev/ringmaster/broker/assigner"

// The states of a group, by Kafka's names.
const (
	// StateEmpty is a group without members; it may have offsets.
	StateEmpty = "Empty"
	// StatePreparingRebalance is a group that waits for its members to join again.
	StatePreparingRebalance = "PreparingRebalance"
	// StateCompletingRebalance is a group that waits for its leader's plan, or a managed group with a client that has not yet fetched its share.
	StateCompletingRebalance = "CompletingRebalance"
	// StateStable is a group whose members have their shares.
	StateStable = "Stable"
	// StateDead is a group that was deleted.
	StateDead = "Dead"
)

// Description is what DescribeGroups and ListGroups tell of a group.
type Description struct {
	GroupID      string
	State        string
	Managed      bool
	Generation   int32
	ProtocolType string
	// Protocol is the protocol in use; in a managed group that of its first member.
	Protocol string
	// Leader is the leader's member id, or ManagedLeader.
	Leader string
	// Members are sorted by member id.
	Members []MemberDescription
}

// MemberDescription is a member as DescribeGroups tells it. Of Assignment (ordinary groups, as the leader sent it) and Share (managed groups)
// one counts; Description.Managed says which.
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
	Share      []TopicPartitions
}

// State returns the group's state by Kafka's name. A managed group is PreparingRebalance while a client has yet to be told of its new share.
func (g *Group) State() string {
	switch {
	case g.dead:
		return StateDead
	case g.managed != nil:
		return g.managedState()
	}
	return g.ordinary.state
}

// Managed says whether the group follows the operator's plan.
func (g *Group) Managed() bool { return g.managed != nil }

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
		GroupID: g.id, State: g.State(), Managed: g.Managed(), Generation: g.Generation(),
		ProtocolType: g.ordinary.protocolType, Protocol: g.ordinary.protocol, Leader: g.ordinary.leader,
	}
	members := g.sortedMembers()
	if d.Managed && len(members) > 0 {
		d.ProtocolType, d.Protocol = g.protocolOf(members[0])
		d.Leader = ManagedLeader
	}
	for _, m := range members {
		md := MemberDescription{
			MemberID: m.id, InstanceID: m.instanceID, ClientID: m.clientID, Host: m.host,
			Pod: m.client.pod, Metadata: m.metadata(d.Protocol), Assignment: m.assignment,
		}
		if d.Managed {
			_, protocol := g.protocolOf(m)
			md.Metadata, md.Share = m.metadata(protocol), g.managed.reads(m)
		}
		d.Members = append(d.Members, md)
	}
	return d
}

// reads is what the client was told last and still holds.
func (mg *managedGroup) reads(m *groupMember) []TopicPartitions {
	var out []assigner.Partition
	for _, tp := range m.client.last {
		if mg.holders[tp] == m {
			out = append(out, tp)
		}
	}
	return group(out)
}
