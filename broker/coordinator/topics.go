// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// pattern is a regular expression that members subscribe by, and what it matches. An internal topic it matches only where it spells the whole name out: one that is
// meant to match everything would else read the offsets that its own reading commits, for ever.
type pattern struct {
	expr   string
	re     *regexp.Regexp
	topics []string
}

// maxPatternWeight limits what an expression compiles to, in about as many instructions: matching takes that for each byte of a name.
const maxPatternWeight = 2_000

// compile makes an expression that matches whole names. RE2 does not backtrack, but a{1000} compiles to a thousand times as much as a, so that one that is too heavy is refused
// before.
func compile(expr string) (*regexp.Regexp, error) {
	parsed, err := syntax.Parse(expr, syntax.Perl) // a)|(b is refused, though it would be taken below
	if err != nil {
		return nil, err
	}
	if w := weight(parsed); w > maxPatternWeight {
		return nil, fmt.Errorf("it repeats too much: it compiles to %d instructions, and %d are allowed", w, maxPatternWeight)
	}
	return regexp.Compile(`\A(?:` + expr + `)\z`)
}

// weight is about how many instructions an expression compiles to. The parser bounds nested repetition, so that it cannot overflow.
func weight(re *syntax.Regexp) int {
	w := 1
	if re.Op == syntax.OpLiteral {
		w = len(re.Rune)
	}
	for _, sub := range re.Sub {
		w += weight(sub)
	}
	if re.Op == syntax.OpRepeat {
		w *= max(re.Min, re.Max, 1)
	}
	return w
}

// matches returns the topics that an expression matches, sorted; none if it is not one.
func (g *Group) matches(expr string) []string {
	p := g.patterns[expr]
	if p == nil {
		re, err := compile(expr)
		if err != nil {
			return nil
		}
		p = &pattern{expr: expr, re: re}
		p.match(nil, g.topics)
		g.patterns[expr] = p
	}
	return p.topics
}

// match finds the topics that the expression matches, given those that there were when it last did, for matching all takes long.
func (p *pattern) match(before, topics map[string]Topic) {
	p.topics = slices.DeleteFunc(p.topics, func(name string) bool { _, ok := topics[name]; return !ok })
	for name, t := range topics {
		if _, known := before[name]; known {
			continue
		}
		if (!t.Internal || strings.Contains(p.expr, name)) && p.re.MatchString(name) {
			p.topics = append(p.topics, name)
		}
	}
	slices.Sort(p.topics)
}

// resolve finds the topics that a member reads, and says whether they are others than before.
func (g *Group) resolve(m *groupMember) (changed bool) {
	topics := sortedTopics(m.subscription)
	if m.consumer != nil && m.consumer.regex != "" {
		topics = slices.Concat(topics, g.matches(m.consumer.regex))
		slices.Sort(topics)
		topics = slices.Compact(topics)
	}
	if slices.Equal(topics, m.topics) {
		return false
	}
	m.topics = topics
	return true
}

// adoptTopics takes note of the topics that there are. In a consumer group, what a member reads of a topic that is gone, or was created anew, is nobody's.
func (g *Group) adoptTopics(in Topics) {
	before := g.topics
	g.topics = in.Topics
	if before == nil {
		g.lookForExpired()
	}
	g.matchPatterns(before)
	changed := before == nil
	for _, m := range g.sorted {
		if m.consumer != nil && m.consumer.regex != "" && g.resolve(m) {
			changed = true
			g.seat(m)
		}
	}
	switch {
	case g.managed != nil:
		g.forgetTopics(createdAnew(before, g.topics))
		g.divideAll()
	case g.consumer != nil && (changed || g.grown(before)):
		anew, waited := g.forgetTopics(g.staleTopics()), !g.consumer.due.IsZero()
		if waited { // those that wait are answered with the epoch that they are assigned in
			g.bump()
		}
		if (g.assign() || anew) && !waited {
			g.bump()
		}
	}
}

// checkPattern is what is wrong with an expression.
func (g *Group) checkPattern(expr string) error {
	if g.patterns[expr] != nil {
		return nil
	}
	_, err := compile(expr)
	return err
}

// dropPatterns drops the expressions that no member has any more.
func (g *Group) dropPatterns() {
	used := map[string]bool{}
	for _, m := range g.sorted {
		if m.consumer != nil {
			used[m.consumer.regex] = true
		}
	}
	maps.DeleteFunc(g.patterns, func(expr string, _ *pattern) bool { return !used[expr] })
}

// matchPatterns matches the members' expressions anew.
func (g *Group) matchPatterns(before map[string]Topic) {
	g.dropPatterns()
	for _, p := range g.patterns {
		p.match(before, g.topics)
	}
}

// grown says whether a topic that a member reads is another than before.
func (g *Group) grown(before map[string]Topic) bool {
	var last []string
	for _, m := range g.sorted {
		if slices.Equal(m.topics, last) {
			continue
		}
		last = m.topics
		if slices.ContainsFunc(last, func(name string) bool { return before[name] != g.topics[name] }) {
			return true
		}
	}
	return false
}

// forgetTopics takes from the members what is of a topic that is gone, or that was created anew: nobody reads that any more. A client that was told of the old topic
// is told anew, since it does not hold what it was told. It says whether there is such a topic.
func (g *Group) forgetTopics(gone map[string]bool) bool {
	if len(gone) == 0 {
		return false
	}
	for _, m := range g.sorted {
		c := &m.client
		for tp := range c.held {
			if !gone[tp.Topic] {
				continue
			}
			g.mark(m)
			if m.consumer == nil { // it reads by the topic's name, until it is told anew
				g.handoff.takeAway(m, tp)
			} else {
				g.handoff.drop(m, tp)
			}
		}
	}
	return true
}

// staleTopics are the topics of a consumer group's assignment that are gone, or were created anew.
func (g *Group) staleTopics() map[string]bool {
	gone := map[string]bool{}
	for name, id := range g.consumer.ids {
		if t, ok := g.topics[name]; !ok || t.ID != id {
			gone[name] = true
		}
	}
	return gone
}

// createdAnew are the topics that have another id than before.
func createdAnew(before, now map[string]Topic) map[string]bool {
	gone := map[string]bool{}
	for name, t := range now {
		if old, ok := before[name]; ok && old.ID != t.ID {
			gone[name] = true
		}
	}
	return gone
}

// assignors are the names that assigners are asked for by: Kafka's "uniform" is ConsistentHash, and ours count whether in capitals or not.
func assignors() []string { return append([]string{uniform}, assigner.Names()...) }

// uniform is Kafka's name for an assigner that balances and moves little.
const uniform = "uniform"

func assignorNamed(name string) (assigner.Assigner, bool) {
	switch strings.ToLower(name) {
	case uniform:
		return assigner.ConsistentHash{}, true
	case "cooperative-sticky":
		return assigner.Sticky{}, true
	}
	for _, known := range assigner.Names() {
		if strings.EqualFold(name, known) {
			a, err := assigner.ByName(known)
			return a, err == nil
		}
	}
	return nil, false
}

// chooseAssignor is the assigner that most members prefer, the first by name of several.
func (g *Group) chooseAssignor() assigner.Assigner {
	votes, spelt := map[string]int{}, map[string]string{}
	for _, m := range g.sorted {
		if m.consumer != nil && m.consumer.assignor != "" {
			name := strings.ToLower(m.consumer.assignor)
			votes[name]++
			spelt[name] = m.consumer.assignor
		}
	}
	best := uniform
	for i, name := range slices.Sorted(maps.Keys(votes)) {
		if i == 0 || votes[name] > votes[strings.ToLower(best)] {
			best = spelt[name]
		}
	}
	g.consumer.assignor = best
	if a, ok := assignorNamed(best); ok {
		return a
	}
	return assigner.ConsistentHash{}
}

// assignerInput is what the members' targets are computed from.
func (g *Group) assignerInput(previous assigner.Assignment) assigner.Input {
	in := assigner.Input{Partitions: map[string]int32{}, Previous: previous, Members: make([]assigner.Member, 0, len(g.sorted))}
	var last []string
	for _, m := range g.sorted {
		in.Members = append(in.Members, assigner.Member{ID: m.id, Topics: m.topics})
		if slices.Equal(m.topics, last) {
			continue
		}
		last = m.topics
		for _, name := range m.topics {
			if t, ok := g.topics[name]; ok {
				in.Partitions[name] = t.Partitions
			}
		}
	}
	return in
}

// assign computes the targets of the members of a consumer group, and says whether one has changed.
func (g *Group) assign() (changed bool) {
	if g.topics == nil {
		g.consumer.due = time.Time{} // who waits is answered when the topics are there
		return false
	}
	if g.ordinary.generation == 0 { // a group whose plan was of generation 0: a member's epoch is 1 at least
		g.bump()
	}
	previous := make(assigner.Assignment, len(g.sorted))
	for _, m := range g.sorted {
		previous[m.id] = m.client.target
	}
	in := g.assignerInput(previous)
	plan := g.chooseAssignor().Assign(in)
	for _, m := range g.sorted {
		if g.retarget(m, plan[m.id]) {
			changed = true
		}
	}
	ids := make(map[string]TopicID, len(in.Partitions))
	for name := range in.Partitions {
		ids[name] = g.topics[name].ID
	}
	g.consumer.ids, g.consumer.due = ids, time.Time{}
	g.answerBeats()
	return changed
}
