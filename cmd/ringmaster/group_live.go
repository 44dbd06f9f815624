// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// planJSON is what "group plan --group -o json" prints.
type planJSON struct {
	Group    string `json:"group"`
	Assigner string `json:"assigner"`
	// Members is how many members the group has, Then how many it would have.
	Members int `json:"members"`
	Then    int `json:"then"`
	assigner.Simulation
	Moves []moveJSON `json:"moves"`
}

// moveJSON is what one member would take over from another.
type moveJSON struct {
	// From is empty where nobody reads the partitions now.
	From        string           `json:"from"`
	To          string           `json:"to"`
	Assignments []assignmentJSON `json:"assignments"`
}

// planMember is a member of a group and what it reads now.
type planMember struct {
	assigner.Member
	share []assigner.Partition
}

// planMembers returns a group's members.
func (c *client) planMembers(ctx context.Context, group string) ([]planMember, error) {
	classic, consumer, err := c.findGroup(ctx, "plan group "+group, group)
	var members []planMember
	switch {
	case err != nil:
		return nil, err
	case consumer != nil:
		for i := range consumer.Members {
			members = append(members, consumerMember(&consumer.Members[i]))
		}
	case len(classic.Members) > 0 && classic.ProtocolType != "consumer":
		return nil, fmt.Errorf("group %q is of the type %q; only groups of consumers can be planned", group, classic.ProtocolType)
	case strings.HasSuffix(classic.State, "Rebalance"):
		return nil, fmt.Errorf("group %q is in the state %s and divides its partitions right now; try again when it is Stable", group, classic.State)
	default:
		for i := range classic.Members {
			members = append(members, classicMember(&classic.Members[i]))
		}
	}
	if len(members) == 0 {
		return nil, errNoMembers(group)
	}
	return members, nil
}

// classicMember reads a member of the classic protocol. What is no subscription of a consumer counts as reading what is assigned.
func classicMember(m *kadm.DescribedGroupMember) planMember {
	p := planMember{Member: assigner.Member{ID: memberName(m.InstanceID, m.MemberID)}}
	if joined, ok := m.Join.AsConsumer(); ok {
		p.Topics = append(p.Topics, joined.Topics...)
	}
	if assigned, ok := m.Assigned.AsConsumer(); ok {
		for _, t := range assigned.Topics {
			p.hold(t.Topic, t.Partitions)
		}
	}
	return p
}

// consumerMember reads a member of KIP-848. One that subscribes by a regular expression counts as reading what it is to have, too.
func consumerMember(m *kadm.ConsumerGroupMember) planMember {
	p := planMember{Member: assigner.Member{ID: memberName(m.InstanceID, m.MemberID)}}
	p.Topics = append(p.Topics, m.SubscribedTopics...)
	target := m.TargetAssignment // what the group's coordinator means it to have
	if len(target) == 0 {
		target = m.Assignment
	}
	for _, t := range target.Sorted() {
		p.hold(t.Topic, t.Partitions)
	}
	return p
}

// hold adds partitions that the member reads.
func (m *planMember) hold(topic string, partitions []int32) {
	m.Topics = append(m.Topics, topic)
	for _, p := range partitions {
		m.share = append(m.share, assigner.Partition{Topic: topic, Partition: p})
	}
}

// planPartitions returns how many partitions the members' topics have. A topic that does not exist has none.
func (c *client) planPartitions(ctx context.Context, members []planMember) (map[string]int32, error) {
	names := topicsOf(members)
	counts := make(map[string]int32, len(names))
	if len(names) == 0 {
		return counts, nil
	}
	topics, err := c.adm.ListTopics(ctx, names...)
	if err != nil {
		return nil, c.explain("list the topics that it reads", err, "")
	}
	for _, t := range topics {
		if t.Err == nil {
			counts[t.Topic] = int32(len(t.Partitions))
		} else if !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			return nil, c.explain("look up the topic "+t.Topic, t.Err, "")
		}
	}
	return counts, nil
}

// topicsOf returns the topics that any of the members reads, sorted.
func topicsOf(members []planMember) []string {
	var topics []string
	for i := range members {
		topics = append(topics, members[i].Topics...)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// planGroup computes what moves when the group has then members: the last by id leave, or new ones come that read every topic.
func planGroup(a assigner.Assigner, members []planMember, partitions map[string]int32, then int) *planJSON {
	members = slices.Clone(members)
	slices.SortFunc(members, func(x, y planMember) int { return cmp.Compare(x.ID, y.ID) })
	in := assigner.Input{Partitions: partitions, Previous: assigner.Assignment{}}
	taken := map[string]bool{}
	for i := range members {
		taken[members[i].ID] = true
		in.Previous[members[i].ID] = members[i].share
		if i < then {
			in.Members = append(in.Members, members[i].Member)
		}
	}
	topics := topicsOf(members)
	for n := 1; len(in.Members) < then; n++ {
		if id := fmt.Sprintf("new-%d", n); !taken[id] {
			in.Members = append(in.Members, assigner.Member{ID: id, Topics: topics})
		}
	}
	after := a.Assign(in)
	return &planJSON{
		Assigner: a.Name(), Members: len(members), Then: then,
		Simulation: assigner.Measure(in, after), Moves: movesBetween(in.Previous, after),
	}
}

// movesBetween lists what each member would take over, by the one that has it and the one that gets it.
func movesBetween(before, after assigner.Assignment) []moveJSON {
	owner := map[assigner.Partition]string{}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		for _, p := range before[id] {
			if _, twice := owner[p]; !twice {
				owner[p] = id
			}
		}
	}
	type way struct{ from, to string }
	topics := map[way]map[string][]int32{}
	for to, share := range after {
		for _, p := range share {
			w := way{owner[p], to}
			if w.from == to {
				continue
			}
			if topics[w] == nil {
				topics[w] = map[string][]int32{}
			}
			topics[w][p.Topic] = append(topics[w][p.Topic], p.Partition)
		}
	}
	moves := make([]moveJSON, 0, len(topics))
	for w, by := range topics {
		m := moveJSON{From: w.from, To: w.to}
		for _, topic := range slices.Sorted(maps.Keys(by)) {
			m.Assignments = append(m.Assignments, assignmentJSON{Topic: topic, Partitions: by[topic]})
		}
		moves = append(moves, m)
	}
	slices.SortFunc(moves, func(a, b moveJSON) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return moves
}

func (p *planJSON) print(cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	sum := newTable("ASSIGNER", "MEMBERS", "THEN", "MOVED", "MINIMUM", "MAX LOAD", "MIN LOAD")
	sum.row(p.Assigner, p.Members, p.Then, p.Moved, p.Minimum, p.MaxLoad, p.MinLoad)
	if err := sum.print(w); err != nil || len(p.Moves) == 0 {
		return err
	}
	if err := printf(w, "\n"); err != nil {
		return err
	}
	moves := newTable("FROM", "TO", "PARTITIONS")
	for _, m := range p.Moves {
		var shares []string
		for _, a := range m.Assignments {
			shares = append(shares, a.Topic+ranges(a.Partitions))
		}
		moves.row(m.From, m.To, strings.Join(shares, " "))
	}
	return moves.print(w)
}

func errNoMembers(group string) error {
	return fmt.Errorf("group %q has no members, so nothing says what they read; start them, or plan with --partitions and --members instead", group)
}
