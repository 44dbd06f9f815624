// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// Planner does what the operator does for a managed group.
type Planner interface {
	// Manage makes a group a managed one that reads the topics.
	Manage(ctx context.Context, group string, topics []string) error
	// Plan says which pod of the group reads what.
	Plan(ctx context.Context, group string, pods []brokers.Pod) error
}

// plan says which partitions each member is to read.
type plan map[*process][]member.Partition

// pod makes a member that runs in a pod of its own, as its client.id says.
func (g *group) pod(name string) *process {
	return g.member(name, func(c *member.Config) { c.ClientID = g.name + "-" + name })
}

// write has the plan be the group's.
func (p plan) write(ctx context.Context, g *group) error {
	var pods []brokers.Pod
	for m, partitions := range p {
		share := map[string][]int32{}
		for _, tp := range partitions {
			share[tp.Topic] = append(share[tp.Topic], tp.Number)
		}
		for _, numbers := range share {
			slices.Sort(numbers)
		}
		pods = append(pods, brokers.Pod{Name: m.config.ClientID, Share: share})
	}
	slices.SortFunc(pods, func(a, b brokers.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return g.setting.Planner.Plan(ctx, g.name, pods)
}

// moved is the plan after one partition has gone from one member to another.
func (p plan) moved(tp member.Partition, from, to *process) plan {
	next := maps.Clone(p)
	next[from] = slices.DeleteFunc(slices.Clone(p[from]), func(had member.Partition) bool { return had == tp })
	next[to] = append(slices.Clone(p[to]), tp)
	return next
}

// holds says whether each member has what the plan says.
func (p plan) holds() error {
	for m, want := range p {
		got := m.partitions()
		for _, tp := range want {
			if !got[tp] {
				return fmt.Errorf("member %s does not have %s-%d", m.name, tp.Topic, tp.Number)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("member %s has %d partitions, want %d", m.name, len(got), len(want))
		}
	}
	return nil
}

// follow has a plan be the group's, and waits until each member has what it says and commits. Those that are named have what they had: they must see nothing of it.
func (g *group) follow(ctx context.Context, p plan, others ...*process) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if err := p.write(limited, g); err != nil {
		return err
	}
	if err := check.Await(limited, p.holds); err != nil {
		return g.explain(err)
	}
	before := g.settled
	g.remember()
	for m := range p {
		if err := g.awaitCommit(limited, m); err != nil {
			return err
		}
	}
	for _, m := range others { // what they saw counts from before
		g.settled[m] = before[m]
	}
	if err := g.untouched(limited, others...); err != nil {
		return err
	}
	if err := p.holds(); err != nil {
		return g.explain(fmt.Errorf("and then no more: %w", err))
	}
	g.remember()
	return nil
}

// managed has the members of a managed group follow its plans. A member whose share does not change must see nothing of the others' changes.
func managed(g *group) []step {
	g.epochs = g.base.Protocol == member.Consumer
	a, b, c := g.pod("a"), g.pod("b"), g.pod("c")
	one, two := g.name+"-a", g.name+"-b"
	first := plan{
		a: {{Topic: one, Number: 0}, {Topic: one, Number: 1}, {Topic: one, Number: 2}, {Topic: two, Number: 0}},
		b: {{Topic: one, Number: 3}, {Topic: one, Number: 4}, {Topic: two, Number: 1}},
		c: {{Topic: one, Number: 5}, {Topic: two, Number: 2}, {Topic: two, Number: 3}},
	}
	second := first.moved(member.Partition{Topic: one, Number: 2}, a, b)
	third := second.moved(member.Partition{Topic: two, Number: 1}, b, a)
	last := plan{a: slices.Concat(third[a], third[b]), c: third[c]}
	return []step{
		{"three members join that a plan names", func(ctx context.Context) error {
			if err := g.setting.Planner.Manage(ctx, g.name, g.names()); err != nil {
				return err
			}
			for _, m := range []*process{a, b, c} {
				if err := g.start(ctx, m); err != nil {
					return err
				}
			}
			if err := g.follow(ctx, first); err != nil {
				return err
			}
			return g.commitOn(ctx, calmCommits, a, b, c)
		}},
		{"a partition moves from one to another", func(ctx context.Context) error { return g.follow(ctx, second, c) }},
		{"another one moves back", func(ctx context.Context) error { return g.follow(ctx, third, c) }},
		{"one is killed, and its pod is gone", func(ctx context.Context) error {
			b.kill()
			return g.follow(ctx, last, c)
		}},
	}
}
