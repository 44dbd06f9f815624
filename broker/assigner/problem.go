// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// none is the owner of a partition that has none.
const none = -1

// problem is an Input in dense form: members and topics are numbered in the order of their names, and partitions in the order
// of topic and number, so that nothing depends on the order of the input and the work is done on plain slices.
type problem struct {
	members []string
	// subs are the distinct subscriptions; sub holds each member's.
	subs []subscription
	sub  []int32
	// topics are those with a partition and a reader.
	topics []string
	index  map[string]int32
	// start holds the number of each topic's partition 0; the last entry is the number of all partitions.
	start []int
	// owner holds each partition's member. Invariant: it is none, or a member that reads the topic.
	owner []int32
	// load holds each member's number of partitions. Invariant: load[m] is the number of g with owner[g] == m.
	load []int32
}

// subscription is a set of topics.
type subscription struct {
	topics []int32
	has    []bool
}

// newProblem numbers an input and gives each partition its previous owner where that still holds.
func newProblem(in Input) *problem {
	members := sortMembers(in.Members)
	p := &problem{
		members: make([]string, len(members)),
		sub:     make([]int32, len(members)),
		load:    make([]int32, len(members)),
	}
	for i := range members {
		p.members[i] = members[i].ID
	}
	p.numberTopics(members, in.Partitions)
	p.subscribe(members)
	p.owner = make([]int32, p.start[len(p.topics)])
	for g := range p.owner {
		p.owner[g] = none
	}
	p.keep(in.Previous)
	return p
}

// sortMembers returns the members sorted by id. Should an id occur twice, against the rules, the two count as one.
func sortMembers(members []Member) []Member {
	byID := func(a, b Member) int { return strings.Compare(a.ID, b.ID) }
	sorted := members
	if !slices.IsSortedFunc(members, byID) {
		sorted = slices.Clone(members)
		slices.SortFunc(sorted, byID)
	}
	for i := 1; i < len(sorted); i++ {
		if sorted[i].ID == sorted[i-1].ID {
			return mergeMembers(sorted)
		}
	}
	return sorted
}

func mergeMembers(sorted []Member) []Member {
	merged := make([]Member, 0, len(sorted))
	for _, m := range sorted {
		if last := len(merged) - 1; last >= 0 && merged[last].ID == m.ID {
			merged[last].Topics = slices.Concat(merged[last].Topics, m.Topics)
			continue
		}
		merged = append(merged, m)
	}
	return merged
}

// numberTopics collects the topics that have a partition and a reader.
func (p *problem) numberTopics(members []Member, partitions map[string]int32) {
	p.index = make(map[string]int32)
	for i, m := range members {
		if i > 0 && slices.Equal(m.Topics, members[i-1].Topics) {
			continue
		}
		for _, topic := range m.Topics {
			if _, seen := p.index[topic]; !seen && partitions[topic] > 0 {
				p.index[topic] = 0
				p.topics = append(p.topics, topic)
			}
		}
	}
	slices.Sort(p.topics)
	p.start = make([]int, len(p.topics)+1)
	for t, topic := range p.topics {
		p.index[topic] = int32(t)
		p.start[t+1] = p.start[t] + int(partitions[topic])
	}
}

// subscribe finds the distinct subscriptions.
func (p *problem) subscribe(members []Member) {
	known := make(map[string]int32)
	for i, m := range members {
		if i > 0 && slices.Equal(m.Topics, members[i-1].Topics) {
			p.sub[i] = p.sub[i-1]
			continue
		}
		topics := make([]int32, 0, len(m.Topics))
		for _, topic := range m.Topics {
			if t, ok := p.index[topic]; ok {
				topics = append(topics, t)
			}
		}
		slices.Sort(topics)
		topics = slices.Compact(topics)
		key := make([]byte, 0, 4*len(topics))
		for _, t := range topics {
			key = binary.BigEndian.AppendUint32(key, uint32(t))
		}
		s, ok := known[string(key)]
		if !ok {
			s = int32(len(p.subs))
			known[string(key)] = s
			p.subs = append(p.subs, p.newSubscription(topics))
		}
		p.sub[i] = s
	}
}

func (p *problem) newSubscription(topics []int32) subscription {
	has := make([]bool, len(p.topics))
	for _, t := range topics {
		has[t] = true
	}
	return subscription{topics: topics, has: has}
}

// keep gives each partition its previous owner if that is still a member that reads the topic; of several, the first by id.
func (p *problem) keep(previous Assignment) {
	for m, id := range p.members {
		topic, t := "", int32(none)
		for _, part := range previous[id] {
			if t == none || part.Topic != topic {
				found, ok := p.index[part.Topic]
				if !ok {
					continue
				}
				topic, t = part.Topic, found
			}
			if part.Partition < 0 || int(part.Partition) >= p.partitions(t) || !p.reads(int32(m), t) {
				continue
			}
			if g := p.start[t] + int(part.Partition); p.owner[g] == none {
				p.give(g, int32(m))
			}
		}
	}
}

// partitions returns the number of partitions of a topic.
func (p *problem) partitions(t int32) int { return p.start[t+1] - p.start[t] }

// reads reports whether a member reads a topic.
func (p *problem) reads(m, t int32) bool { return p.subs[p.sub[m]].has[t] }

// equal reports whether all members read the same topics.
func (p *problem) equal() bool { return len(p.subs) <= 1 }

// give makes m the owner of the partition g, which has none.
func (p *problem) give(g int, m int32) {
	p.owner[g] = m
	p.load[m]++
}

// take makes the partition g have no owner.
func (p *problem) take(g int) {
	p.load[p.owner[g]]--
	p.owner[g] = none
}

// counts returns how many partitions of each topic each member has, at [m*len(topics)+t].
func (p *problem) counts() []int32 {
	counts := make([]int32, len(p.members)*len(p.topics))
	for t := range p.topics {
		for g := p.start[t]; g < p.start[t+1]; g++ {
			if m := int(p.owner[g]); m != none {
				counts[m*len(p.topics)+t]++
			}
		}
	}
	return counts
}

// targets returns how many partitions each member shall have when all read the same topics. With P partitions, n members,
// q = ⌊P/n⌋ and r = P mod n, r members get q+1 and the others q. The q+1 go first to the members that have more than q, by load:
// that moves P − Σ min(load, target) partitions, and no balanced assignment moves fewer. What is left of them goes to members that gain
// partitions anyway, so that as few members as possible see their share change. Ties break by tie, then by id; without tie, by id alone.
func (p *problem) targets(tie []uint64) []int32 {
	n := len(p.members)
	if n == 0 {
		return nil
	}
	q, r := int32(len(p.owner)/n), len(p.owner)%n
	target := make([]int32, n)
	order := make([]int32, n)
	for m := range target {
		target[m] = q
		order[m] = int32(m)
	}
	if r == 0 {
		return target
	}
	slices.SortFunc(order, func(a, b int32) int {
		if c := cmp.Compare(claim(p.load[b], q), claim(p.load[a], q)); c != 0 {
			return c
		}
		if len(tie) > 0 && tie[a] != tie[b] {
			return cmp.Compare(tie[a], tie[b])
		}
		return cmp.Compare(a, b)
	})
	for _, m := range order[:r] {
		target[m] = q + 1
	}
	return target
}

// claim orders members by how good their claim to one partition more than q is.
func claim(load, q int32) int32 {
	switch {
	case load > q:
		return load - q + 1
	case load < q:
		return 1
	default:
		return 0
	}
}

// assignment returns the owners as an Assignment, in one allocation for all partitions.
func (p *problem) assignment() Assignment {
	all := make([]Partition, len(p.owner))
	shares := make([][]Partition, len(p.members))
	at := 0
	for m, load := range p.load {
		end := at + int(load)
		shares[m] = all[at:at:end]
		at = end
	}
	for t, topic := range p.topics {
		for g := p.start[t]; g < p.start[t+1]; g++ {
			if m := p.owner[g]; m != none {
				shares[m] = append(shares[m], Partition{Topic: topic, Partition: int32(g - p.start[t])})
			}
		}
	}
	out := make(Assignment, len(p.members))
	for m, id := range p.members {
		if len(shares[m]) == 0 {
			shares[m] = nil
		}
		out[id] = shares[m]
	}
	return out
}
