// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// Scenario is a check of groups.
type Scenario struct {
	// Check is its name.
	Check string
	// Slug is what names its topics and group.
	Slug string
	// Base is what all members are asked to do.
	Base member.Config
	// Restarts says that it kills the coordinator, and so needs a broker of its own.
	Restarts bool
	// Managed says that pods are the group's members, and so it needs an API server.
	Managed bool

	script func(g *group) []step
}

// Scenarios are all of them, in the order of the table.
func Scenarios() []Scenario {
	classic := func(protocol string) member.Config { return member.Config{Protocol: protocol} }
	consumer := func(assignor string) member.Config {
		return member.Config{Protocol: member.Consumer, Assignor: assignor}
	}
	// Where a member or a coordinator is restarted, the session must not end before it is there again.
	lasting := func(c member.Config) member.Config {
		c.SessionMillis = longSession
		return c
	}
	// Where the coordinator can hold heartbeats, they are to be far enough from one another.
	calm := func(c member.Config) member.Config {
		c.HeartbeatMillis = calmHeartbeat
		return c
	}
	return []Scenario{
		{Check: check.GroupEager, Slug: "eager", Base: classic(member.Eager), script: share},
		{Check: check.GroupCooperative, Slug: "cooperative", Base: classic(member.Cooperative), script: share},
		{Check: check.GroupStatic, Slug: "static", Base: lasting(classic(member.Eager)), script: static},
		{Check: check.GroupConsumer, Slug: "uniform", Base: consumer("uniform"), script: share},
		{Check: check.GroupConsumerRange, Slug: "range", Base: consumer("range"), script: share},
		{Check: check.GroupConsumerStatic, Slug: "static848", Base: lasting(consumer("")), script: static},
		{Check: check.GroupPattern, Slug: "pattern", Base: consumer(""), script: pattern},
		{Check: check.GroupMigration, Slug: "migration", Base: classic(member.Eager), script: migration},
		{Check: check.RestartClassic, Slug: "restart", Base: lasting(classic(member.Eager)), Restarts: true, script: restart},
		{Check: check.RestartConsumer, Slug: "restart848", Base: lasting(consumer("")), Restarts: true, script: restart},
		{Check: check.ManagedEager, Slug: "managed", Base: calm(classic(member.Eager)), Managed: true, script: managed},
		{Check: check.ManagedCooperative, Slug: "managed-cooperative", Base: calm(classic(member.Cooperative)), Managed: true, script: managed},
		{Check: check.ManagedConsumer, Slug: "managed-848", Base: consumer(""), Managed: true, script: managed},
	}
}

// Play plays a scenario.
func (s Scenario) Play(ctx context.Context, setting Setting) error {
	base := s.Base
	base.Group = setting.Prefix + "-" + s.Slug
	base.SessionMillis, base.HeartbeatMillis = cmp.Or(base.SessionMillis, session), cmp.Or(base.HeartbeatMillis, heartbeat)
	return play(ctx, setting, base, s.script)
}

// share has members join, leave and be killed.
func share(g *group) []step {
	a, b, c, d := g.member("a", nil), g.member("b", nil), g.member("c", nil), g.member("d", nil)
	return []step{
		{"two members join", func(ctx context.Context) error { return g.join(ctx, a, b) }},
		{"a third one joins", func(ctx context.Context) error { return g.join(ctx, c) }},
		{"it leaves", func(ctx context.Context) error { return errors.Join(c.leave(), g.settle(ctx)) }},
		{"a fourth one joins", func(ctx context.Context) error { return g.join(ctx, d) }},
		{"it is killed", func(ctx context.Context) error {
			d.kill()
			return g.settle(ctx)
		}},
	}
}

// static has members with an instance id be restarted, and one of them have a twin.
func static(g *group) []step {
	named := func(name, instance string) *process {
		return g.member(name, func(c *member.Config) { c.Instance = instance })
	}
	a, b, c := named("a", "i-a"), named("b", "i-b"), named("c", "i-c")
	again, third, twin := named("c, restarted", "i-c"), named("c, restarted twice", "i-c"), named("the twin of b", "i-b")
	steps := []step{
		{"three members join", func(ctx context.Context) error { return errors.Join(g.join(ctx, a, b, c), g.calm(ctx, a, b, c)) }},
		{"one is closed and started again", func(ctx context.Context) error {
			return errors.Join(c.leave(), g.replace(ctx, c, again), g.untouched(ctx, a, b))
		}},
	}
	if g.base.Protocol == member.Consumer {
		// One that is killed has not told the coordinator that it will be back: its instance id is in use until the session's end.
		return append(steps, step{"a second member with an instance id is refused", func(ctx context.Context) error {
			if err := g.start(ctx, twin); err != nil {
				return err
			}
			err := g.awaitError(ctx, twin, `(?i)unreleased|still used`)
			twin.kill()
			return errors.Join(err, g.untouched(ctx, a, b, again))
		}})
	}
	return append(steps,
		step{"one is killed and started again", func(ctx context.Context) error {
			again.kill()
			return errors.Join(g.replace(ctx, again, third), g.untouched(ctx, a, b))
		}},
		step{"a second member with an instance id fences the first one", func(ctx context.Context) error {
			if err := g.start(ctx, twin); err != nil {
				return err
			}
			err := g.awaitError(ctx, b, `(?i)fenced|rejected this static consumer`)
			b.kill()
			b.forgetUncommitted()
			return errors.Join(err, g.inherits(ctx, b, twin), g.untouched(ctx, a, third))
		}})
}

// replace starts a member in the place of one that has ended.
func (g *group) replace(ctx context.Context, old, now *process) error {
	if err := g.start(ctx, now); err != nil {
		return err
	}
	return g.inherits(ctx, old, now)
}

// inherits waits until a member has what one that has ended had.
func (g *group) inherits(ctx context.Context, old, now *process) error {
	before := g.settled
	if err := g.settle(ctx); err != nil {
		return err
	}
	if had, has := before[old].owned, g.settled[now].owned; !maps.Equal(had, has) {
		return fmt.Errorf("member %s has %v, want what %s had: %v", now.name, has, old.name, had)
	}
	for m := range g.settled { // what the others saw counts from before
		if was, ok := before[m]; ok {
			g.settled[m] = was
		}
	}
	return nil
}

// awaitError waits until a client says an error that matches a pattern.
func (g *group) awaitError(ctx context.Context, m *process, pattern string) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	want := regexp.MustCompile(pattern)
	return check.Await(limited, func() error {
		said := m.errors(0)
		if slices.ContainsFunc(said, want.MatchString) {
			return nil
		}
		return fmt.Errorf("member %s said at last %q, want %s", m.name, said[max(0, len(said)-2):], pattern)
	})
}

// pattern has members subscribe to a pattern; then a topic comes that matches, and one grows.
func pattern(g *group) []step {
	g.base.Topics, g.base.Pattern = nil, "^"+g.name+"-[a-z]$"
	a, b, c := g.member("a", nil), g.member("b", nil), g.member("c", func(c *member.Config) { c.Pattern, c.Topics = "", g.names() })
	return []step{
		{"two members join", func(ctx context.Context) error { return g.join(ctx, a, b) }},
		{"a topic comes that matches", func(ctx context.Context) error {
			if _, err := g.admin.CreateTopic(ctx, 1, 1, nil, g.name+"-other"); err != nil {
				return fmt.Errorf("create a topic that does not match: %w", err)
			}
			return errors.Join(g.topic(ctx, g.name+"-c", 3), g.settle(ctx))
		}},
		{"a topic gets more partitions", func(ctx context.Context) error {
			return errors.Join(g.grow(ctx, g.name+"-a", 9), g.settle(ctx))
		}},
		{"a member joins that names the topics", func(ctx context.Context) error { return g.join(ctx, c) }},
	}
}

// migration has members change from the classic protocol to that of KIP-848 one by one, and back.
func migration(g *group) []step {
	next := func(name string) *process {
		return g.member(name, func(c *member.Config) { c.Protocol = member.Consumer })
	}
	a, b, c, d := g.member("a, classic", nil), g.member("b, classic", nil), g.member("c, classic", nil), g.member("d, classic", nil)
	e, f := next("e, KIP-848"), next("f, KIP-848")
	return []step{
		{"two classic members join", func(ctx context.Context) error { return errors.Join(g.join(ctx, a, b), g.isOfType(ctx, "classic")) }},
		{"a KIP-848 member joins", func(ctx context.Context) error { return errors.Join(g.join(ctx, e), g.isOfType(ctx, "consumer")) }},
		{"a classic one leaves", func(ctx context.Context) error { return errors.Join(a.leave(), g.settle(ctx)) }},
		{"another KIP-848 member joins", func(ctx context.Context) error { return g.join(ctx, f) }},
		{"the last classic one leaves", func(ctx context.Context) error {
			return errors.Join(b.leave(), g.settle(ctx), g.isOfType(ctx, "consumer"))
		}},
		{"a classic member joins", func(ctx context.Context) error { return g.join(ctx, c) }},
		{"a KIP-848 one leaves", func(ctx context.Context) error { return errors.Join(e.leave(), g.settle(ctx)) }},
		{"another classic member joins", func(ctx context.Context) error { return g.join(ctx, d) }},
		{"the last KIP-848 one leaves", func(ctx context.Context) error {
			return errors.Join(f.leave(), g.settle(ctx), g.isOfType(ctx, "classic"))
		}},
	}
}

// restart kills the coordinator in the middle of a group's life.
func restart(g *group) []step {
	a, b, c := g.member("a", nil), g.member("b", nil), g.member("c", nil)
	return []step{
		{"two members join", func(ctx context.Context) error { return errors.Join(g.join(ctx, a, b), g.calm(ctx, a, b)) }},
		{"the coordinator is killed and started again", func(ctx context.Context) error {
			if err := g.setting.Restart(ctx); err != nil {
				return err
			}
			return g.untouched(ctx, a, b)
		}},
		{"a third member joins", func(ctx context.Context) error { return g.join(ctx, c) }},
	}
}

// isOfType says whether the coordinator lists the group as one of a type (KIP-848).
func (g *group) isOfType(ctx context.Context, want string) error {
	listed, err := g.admin.ListGroups(ctx)
	if err != nil {
		return fmt.Errorf("list the groups: %w", err)
	}
	if got := listed[g.name]; got.GroupType != want {
		return fmt.Errorf("the group is of type %q, want %q", got.GroupType, want)
	}
	return nil
}

// shorten gives the group a short session, as far as the brokers allow it: with KIP-848 it is the coordinator that has one.
func (g *group) shorten(ctx context.Context) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, g.name
	for name, value := range map[string]int{"consumer.session.timeout.ms": g.base.SessionMillis, "consumer.heartbeat.interval.ms": heartbeat} {
		resource.Configs = append(resource.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Value: kmsg.StringPtr(fmt.Sprint(value))})
	}
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, g.client)
	if err != nil {
		return fmt.Errorf("shorten the group's session: %w", err)
	}
	for _, r := range resp.Resources {
		err = errors.Join(err, kerr.ErrorForCode(r.ErrorCode))
	}
	if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.InvalidRequest) {
		return nil // the brokers' own session is short enough, or the check takes long
	}
	return err
}
