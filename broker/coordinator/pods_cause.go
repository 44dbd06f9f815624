// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The reasons of a PodsOutput.
const (
	// MemberJoined says that a pod became a member.
	MemberJoined = "MemberJoined"
	// MemberLeft says that a member's pod is gone for good.
	MemberLeft = "MemberLeft"
	// MemberExpired says that a member's pod did not come back within the grace period.
	MemberExpired = "MemberExpired"
	// MemberReplaced says that a pod took over the partitions of one that its workload has replaced.
	MemberReplaced = "MemberReplaced"
	// Paused says that all partitions were taken from all members, and Resumed that they were given out again.
	Paused  = "Paused"
	Resumed = "Resumed"
	// TopicAdded says that the group reads a topic that it did not read before, or one that did not exist.
	TopicAdded = "TopicAdded"
	// TopicRemoved says that the group no longer reads a topic, or that the topic no longer exists.
	TopicRemoved = "TopicRemoved"
	// PartitionsAdded says that a topic grew.
	PartitionsAdded = "PartitionsAdded"
	// PartitionsRemoved says that a topic was made anew with fewer partitions.
	PartitionsRemoved = "PartitionsRemoved"
	// AssignerChanged says that the assignment changed although neither members nor partitions did: another assigner computed it.
	AssignerChanged = "AssignerChanged"
)

// maxNamed is how many members or topics a message names before it says how many more there are.
const maxNamed = 5

// podsCause is what changed between two decisions, each list sorted once reason or message is called.
type podsCause struct {
	joined, left, expired []string
	replaced              []replacement
	paused, resumed       bool
	// the topics' changes; grown and shrunk as phrases.
	added, removed, grown, shrunk []string
}

// replacement is a pod that took over from another one.
type replacement struct{ old, successor string }

// shares finds what changed beside the members: the group was paused, or reads other topics than its seats did. Without seats nothing is known of before, and nothing
// changed.
func (c *podsCause) shares(in PodsInput) {
	if in.Paused || in.WasPaused {
		c.paused, c.resumed = in.Paused && !in.WasPaused, in.WasPaused && !in.Paused
		return
	}
	if len(in.Seats) == 0 {
		return
	}
	before := make(map[string]int32)
	for i := range in.Seats {
		for _, share := range in.Seats[i].Share {
			for _, p := range share.Partitions {
				before[share.Topic] = max(before[share.Topic], p+1)
			}
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(in.Topics)) {
		count, had := in.Topics[topic], before[topic]
		switch {
		case count <= 0:
		case had == 0:
			c.added = append(c.added, topic)
		case had < count:
			c.grown = append(c.grown, fmt.Sprintf("topic %s grew from %d to %d partitions", topic, had, count))
		case had > count:
			c.shrunk = append(c.shrunk, fmt.Sprintf("topic %s shrank from %d to %d partitions", topic, had, count))
		}
	}
	for topic := range before {
		if in.Topics[topic] <= 0 {
			c.removed = append(c.removed, topic)
		}
	}
}

// reason returns the reasons, separated by commas.
func (c *podsCause) reason() string {
	var reasons []string
	for _, r := range []struct {
		holds  bool
		reason string
	}{
		{c.paused, Paused},
		{c.resumed, Resumed},
		{len(c.joined) > 0, MemberJoined},
		{len(c.left) > 0, MemberLeft},
		{len(c.expired) > 0, MemberExpired},
		{len(c.replaced) > 0, MemberReplaced},
		{len(c.added) > 0, TopicAdded},
		{len(c.removed) > 0, TopicRemoved},
		{len(c.grown) > 0, PartitionsAdded},
		{len(c.shrunk) > 0, PartitionsRemoved},
	} {
		if r.holds {
			reasons = append(reasons, r.reason)
		}
	}
	if len(reasons) == 0 {
		return AssignerChanged
	}
	return strings.Join(reasons, ",")
}

// message names what changed.
func (c *podsCause) message() string {
	var phrases []string
	if c.paused {
		phrases = append(phrases, "paused: nobody reads")
	}
	if c.resumed {
		phrases = append(phrases, "resumed")
	}
	for _, p := range []struct {
		names           []string
		one, many, verb string
	}{
		{c.joined, "member", "members", "joined"},
		{c.left, "member", "members", "left"},
		{c.expired, "member", "members", "did not come back within the grace period"},
		{c.added, "topic", "topics", "added"},
		{c.removed, "topic", "topics", "removed"},
	} {
		switch len(p.names) {
		case 0:
		case 1:
			phrases = append(phrases, p.one+" "+p.names[0]+" "+p.verb)
		default:
			phrases = append(phrases, p.many+" "+enumerate(p.names)+" "+p.verb)
		}
	}
	for _, topics := range [][]string{c.takeovers(), c.grown, c.shrunk} {
		if len(topics) > 0 {
			phrases = append(phrases, enumerate(topics))
		}
	}
	if len(phrases) == 0 {
		return "the assigner changed"
	}
	return strings.Join(phrases, "; ")
}

func (c *podsCause) takeovers() []string {
	var phrases []string
	for _, r := range c.replaced {
		phrases = append(phrases, "member "+r.successor+" took over from "+r.old)
	}
	return phrases
}

// enumerate joins names, sorted, and counts those beyond the first few.
func enumerate(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
