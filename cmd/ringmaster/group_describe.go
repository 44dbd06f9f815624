// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupDetailJSON is what "group describe -o json" prints.
type groupDetailJSON struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Type        string `json:"type"`
	Assigner    string `json:"assigner"`
	Coordinator int32  `json:"coordinator"`
	// Lag is the sum of the partitions' lags that are known.
	Lag        int64               `json:"lag"`
	Members    []memberJSON        `json:"members"`
	Partitions []groupPositionJSON `json:"partitions"`
}

type memberJSON struct {
	MemberID    string           `json:"memberID"`
	InstanceID  string           `json:"instanceID"`
	ClientID    string           `json:"clientID"`
	Host        string           `json:"host"`
	Assignments []assignmentJSON `json:"assignments"`
}

type assignmentJSON struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// groupPositionJSON is where a group is in a partition. Committed is null where nothing is committed, End and Lag where the partition's
// leader does not answer. Without a committed offset the lag counts from the partition's oldest record.
type groupPositionJSON struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	MemberID  string `json:"memberID"`
	Committed *int64 `json:"committed"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
}

func newGroupDescribeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a consumer group's members, partitions and lag",
		Long: `Show a consumer group's state, its members and what they read, and for each partition the committed offset, the offset that its next
record gets, and the lag between them. A partition in which nothing was committed counts from its oldest record.`,
		Example:           "  ringmaster group describe billing\n  ringmaster group describe billing -o json",
		Args:              named("the name of a GROUP"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags, output := addClientFlags(cmd), addOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		ctx, c, done, err := flags.dial(cmd)
		if err != nil {
			return err
		}
		defer done()
		d, err := c.describeGroup(ctx, args[0])
		if err != nil {
			return err
		}
		if output.value == outputJSON {
			return printJSON(cmd.OutOrStdout(), d)
		}
		return d.print(cmd)
	})
	return cmd
}

// groupError explains an error of a request about a group.
func (c *client) groupError(what, group string, err error) error {
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return errNoGroup(group)
	case errors.Is(err, kerr.PolicyViolation):
		return fmt.Errorf("group %q is managed: a ConsumerGroup decides its members; delete that first (kubectl delete consumergroup)", group)
	case errors.Is(err, kerr.NonEmptyGroup):
		return fmt.Errorf("group %q has members; stop them first (`ringmaster group describe %s` lists them; one with a group.instance.id stays a member until its session ends)", group, group)
	}
	return c.explain(what, err, "")
}

func (c *client) describeGroup(ctx context.Context, name string) (*groupDetailJSON, error) {
	what := "describe group " + name
	classic, consumer, err := c.findGroup(ctx, what, name)
	if err != nil {
		return nil, err
	}
	committed, err := c.adm.FetchOffsets(ctx, name)
	if err != nil {
		return nil, c.groupError(what, name, err)
	}
	d := detailOf(name, classic, consumer)
	d.Partitions = append(d.Partitions, positions(d.Members, committed)...)
	c.measure(ctx, d)
	return d, nil
}

// detailOf returns what is told of a group of the one or the other protocol, without partitions.
func detailOf(name string, classic *kadm.DescribedGroup, consumer *kadm.DescribedConsumerGroup) *groupDetailJSON {
	d := &groupDetailJSON{Group: name, Members: []memberJSON{}, Partitions: []groupPositionJSON{}}
	if consumer != nil {
		d.State, d.Type, d.Assigner, d.Coordinator = consumer.State, "consumer", consumer.AssignorName, consumer.Coordinator.NodeID
		for i := range consumer.Members {
			d.Members = append(d.Members, consumerMemberOf(&consumer.Members[i]))
		}
		return d
	}
	d.State, d.Type, d.Assigner, d.Coordinator = classic.State, classic.ProtocolType, classic.Protocol, classic.Coordinator.NodeID
	for i := range classic.Members {
		d.Members = append(d.Members, memberOf(&classic.Members[i]))
	}
	return d
}

// consumerMemberOf tells of a member what it reads now.
func consumerMemberOf(m *kadm.ConsumerGroupMember) memberJSON {
	j := memberJSON{MemberID: m.MemberID, ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), Assignments: []assignmentJSON{}}
	if m.InstanceID != nil {
		j.InstanceID = *m.InstanceID
	}
	for _, t := range m.Assignment.Sorted() {
		j.Assignments = append(j.Assignments, assignmentJSON{Topic: t.Topic, Partitions: t.Partitions})
	}
	return j
}

func memberOf(m *kadm.DescribedGroupMember) memberJSON {
	j := memberJSON{MemberID: m.MemberID, ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), Assignments: []assignmentJSON{}}
	if m.InstanceID != nil {
		j.InstanceID = *m.InstanceID
	}
	assigned, ok := m.Assigned.AsConsumer()
	if !ok {
		return j
	}
	for _, t := range assigned.Topics {
		partitions := append([]int32{}, t.Partitions...)
		slices.Sort(partitions)
		j.Assignments = append(j.Assignments, assignmentJSON{Topic: t.Topic, Partitions: partitions})
	}
	slices.SortFunc(j.Assignments, func(a, b assignmentJSON) int { return cmp.Compare(a.Topic, b.Topic) })
	return j
}

// positions lists the partitions that a member reads or the group has committed, by topic and number.
func positions(members []memberJSON, committed kadm.OffsetResponses) []groupPositionJSON {
	type key struct {
		topic     string
		partition int32
	}
	at := map[key]groupPositionJSON{}
	for _, m := range members {
		for _, a := range m.Assignments {
			for _, p := range a.Partitions {
				at[key{a.Topic, p}] = groupPositionJSON{Topic: a.Topic, Partition: p, MemberID: m.MemberID}
			}
		}
	}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.Err != nil || o.At < 0 {
			return
		}
		k := key{o.Topic, o.Partition}
		pos := at[k]
		pos.Topic, pos.Partition, pos.Committed = o.Topic, o.Partition, &o.At
		at[k] = pos
	})
	list := make([]groupPositionJSON, 0, len(at))
	for _, pos := range at {
		list = append(list, pos)
	}
	slices.SortFunc(list, func(a, b groupPositionJSON) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return list
}

// measure fills in the ends and lags, as far as the partitions' leaders say.
func (c *client) measure(ctx context.Context, d *groupDetailJSON) {
	var topics []string
	for _, p := range d.Partitions {
		topics = append(topics, p.Topic)
	}
	topics = slices.Compact(topics)
	if len(topics) == 0 {
		return
	}
	// A partition whose leader does not answer is left without an end: the group can be described while a broker is down.
	starts, _ := c.adm.ListStartOffsets(ctx, topics...)
	ends, _ := c.adm.ListEndOffsets(ctx, topics...)
	for i := range d.Partitions {
		p := &d.Partitions[i]
		end, ok := ends.Lookup(p.Topic, p.Partition)
		if !ok || end.Err != nil {
			continue
		}
		p.End = &end.Offset
		from := p.Committed
		if from == nil {
			start, ok := starts.Lookup(p.Topic, p.Partition)
			if !ok || start.Err != nil {
				continue
			}
			from = &start.Offset
		}
		lag := max(0, end.Offset-*from)
		p.Lag = &lag
		d.Lag += lag
	}
}

func (d *groupDetailJSON) print(cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	err := printFields(w, "Group", d.Group, "State", d.State, "Assigner", cmp.Or(d.Assigner, "-"),
		"Coordinator", strconv.Itoa(int(d.Coordinator)), "Lag", strconv.FormatInt(d.Lag, 10))
	if err != nil {
		return err
	}
	labels := map[string]string{}
	members := newTable("MEMBER", "CLIENT", "HOST", "PARTITIONS")
	for _, m := range d.Members {
		var shares []string
		for _, a := range m.Assignments {
			shares = append(shares, a.Topic+ranges(a.Partitions))
		}
		labels[m.MemberID] = cmp.Or(m.InstanceID, m.MemberID)
		members.row(labels[m.MemberID], m.ClientID, m.Host, strings.Join(shares, " "))
	}
	partitions := newTable("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")
	for _, p := range d.Partitions {
		partitions.row(p.Topic, p.Partition, known(p.Committed), known(p.End), known(p.Lag), labels[p.MemberID])
	}
	for _, t := range []*table{members, partitions} {
		if len(t.rows) == 0 {
			continue
		}
		if err := printf(w, "\n"); err != nil {
			return err
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	return nil
}

// known is a number, or nothing where it is not known.
func known(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// ranges prints ascending numbers in a compact form: [0-3,7].
func ranges(ns []int32) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := 0; i < len(ns); {
		j := i
		for j+1 < len(ns) && ns[j+1] == ns[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d", ns[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", ns[j])
		}
		i = j + 1
	}
	b.WriteByte(']')
	return b.String()
}
