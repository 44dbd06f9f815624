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
	// zones holds the zone of each partition's leader, memberZone each member's; none is a zone that has no members, or no zone. zones is nil
	// if there is nothing to prefer.
	zones      []int32
	memberZone []int32
	zoneCount  int
	// weight holds what each partition weighs, nil if all weigh the same.
	weight []int32
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
	p.numberZones(members, in.Zones)
	p.numberWeights(in.Weights)
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
		if i > 0 && sameTopics(m.Topics, members[i-1].Topics) {
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
	var topics []int32
	var key []byte
	for i, m := range members {
		if i > 0 && sameTopics(m.Topics, members[i-1].Topics) {
			p.sub[i] = p.sub[i-1]
			continue
		}
		topics, key = topics[:0], key[:0]
		for _, topic := range m.Topics {
			if t, ok := p.index[topic]; ok {
				topics = append(topics, t)
			}
		}
		slices.Sort(topics)
		topics = slices.Compact(topics)
		for _, t := range topics {
			key = binary.BigEndian.AppendUint32(key, uint32(t))
		}
		s, ok := known[string(key)]
		if !ok {
			s = int32(len(p.subs))
			known[string(key)] = s
			p.subs = append(p.subs, p.newSubscription(slices.Clone(topics)))
		}
		p.sub[i] = s
	}
}

// sameTopics reports whether two lists are equal, at once if they are one.
func sameTopics(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
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
		for share := previous[id]; len(share) > 0; {
			topic, run := share[0].Topic, 1
			for run < len(share) && share[run].Topic == topic {
				run++
			}
			if t, ok := p.index[topic]; ok && p.reads(int32(m), t) {
				p.keepTopic(int32(m), p.owner[p.start[t]:p.start[t+1]], share[:run])
			}
			share = share[run:]
		}
	}
}

// keepTopic gives a member those of a topic's partitions that exist and nobody has.
func (p *problem) keepTopic(m int32, owner []int32, share []Partition) {
	kept := int32(0)
	for _, part := range share {
		if i := int(part.Partition); i >= 0 && i < len(owner) && owner[i] == none {
			owner[i] = m
			kept++
		}
	}
	p.load[m] += kept
}

// partitions returns the number of partitions of a topic.
func (p *problem) partitions(t int32) int { return p.start[t+1] - p.start[t] }

// reads reports whether a member reads a topic.
func (p *problem) reads(m, t int32) bool { return p.subs[p.sub[m]].has[t] }

// equal reports whether all members read the same topics.
func (p *problem) equal() bool { return len(p.subs) <= 1 }

// solve gives every partition an owner so that the loads are best balanced and least changes. hashes and points are the members' on the
// ring, nil for an assigner without one.
func (p *problem) solve(hashes, points []uint64) {
	switch {
	case p.weight != nil:
		p.balanceWeights(points)
	case p.zones != nil || !p.equal():
		p.settle(p.quotas(p.byPoint(points)), hashes, points)
	default: // there is a formula
		p.balance(p.targets(points), hashes, points)
	}
}

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

// readers returns each topic's readers, by id.
func (p *problem) readers() [][]int32 {
	readers := make([][]int32, len(p.topics))
	for m := range p.members {
		for _, t := range p.subs[p.sub[m]].topics {
			readers[t] = append(readers[t], int32(m))
		}
	}
	return readers
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

// assignment returns the owners as an Assignment, in one allocation for all partitions. It sorts the partitions' numbers by owner first and
// fills that allocation from front to back, for it is large: six times the size of the numbers.
func (p *problem) assignment() Assignment {
	end := make([]int32, len(p.members))
	total := int32(0)
	for m, load := range p.load {
		end[m] = total
		total += load
	}
	byOwner := make([]int32, total)
	for g, m := range p.owner {
		if m != none {
			byOwner[end[m]] = int32(g)
			end[m]++
		}
	}
	all := make([]Partition, total)
	out := make(Assignment, len(p.members))
	at := 0
	for m, id := range p.members {
		out[id] = nil
		if from, to := at, int(end[m]); from < to {
			t := 0
			for ; at < to; at++ {
				for int(byOwner[at]) >= p.start[t+1] {
					t++
				}
				all[at] = Partition{Topic: p.topics[t], Partition: byOwner[at] - int32(p.start[t])}
			}
			out[id] = all[from:to:to]
		}
	}
	return out
}
