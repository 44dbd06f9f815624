// SPDX-License-Identifier: Apache-2.0

// Package groups has clients share a group and go through what groups go through: members that join, leave, are killed and come back, and a
// coordinator that is. Each member is a process (package member), so that several clients can share one group. While that goes on records are
// written; in the end each must have been read, and none again after it was committed.
package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

const (
	// session is the members' session timeout in milliseconds, Kafka's smallest by default, and heartbeat the time between their heartbeats.
	session, heartbeat = 6000, 300
	// calmHeartbeat is the time in milliseconds between the heartbeats of a managed group's members.
	calmHeartbeat = 1000
	// longSession is a session timeout in milliseconds; nothing takes that long to start.
	longSession = 30000
	// calmCommits is how many offsets each member commits until a group counts as calm: what it reads in some two seconds.
	calmCommits = 100
	// writeEvery is the time between two records of a partition.
	writeEvery = 50 * time.Millisecond
	// settleLimit is how long a group may take until all is shared again.
	settleLimit = 75 * time.Second
)

// Setting is where the scenarios are played.
type Setting struct {
	// Bootstrap is the brokers' address, HOST:PORT.
	Bootstrap string
	// Prefix begins the name of every topic and group.
	Prefix string
	// Command is the client's program.
	Command []string
	// Logs is a directory that keeps what members print; empty for none.
	Logs string
	// Restart kills the broker and starts it again on the same data; nil where that cannot be done.
	Restart func(ctx context.Context) error
	// Planner makes groups managed ones; nil where that cannot be done.
	Planner Planner
}

// group is a group, and what is written for it.
type group struct {
	setting Setting
	name    string
	base    member.Config
	// sticky says that a member keeps its partitions through a rebalance, but for those that move.
	sticky bool
	// epochs says that the members' generation is a KIP-848 group's epoch, which a managed group's plan gives to all members, whether or not they see a rebalance.
	epochs bool

	client  *kgo.Client
	admin   *kadm.Client
	members []*process
	mu      sync.Mutex
	topics  map[string]int32 // how many partitions each has; mu guards it
	every   time.Duration    // between two records of a partition
	// settled is how each member was when all was last shared.
	settled map[*process]state
}

// state is a member as it is at some time.
type state struct {
	// owned are its partitions.
	owned map[member.Partition]bool
	// mark is how far its events were.
	mark int
	// id and generation are those of its last commit.
	id         string
	generation int32
}

// step is a part of a scenario.
type step struct {
	what string
	do   func(ctx context.Context) error
}

// play makes a group that reads two topics, and plays the steps while records are written to both.
func play(ctx context.Context, s Setting, base member.Config, script func(g *group) []step) (err error) {
	g, err := open(s, base)
	if err != nil {
		return err
	}
	defer g.close()
	if base.Protocol == member.Consumer {
		if err := g.shorten(ctx); err != nil {
			return err
		}
	}
	for topic, partitions := range map[string]int32{g.name + "-a": 6, g.name + "-b": 4} {
		if err := g.topic(ctx, topic, partitions); err != nil {
			return err
		}
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var writer errgroup.Group
	writer.Go(func() error {
		err := g.write(ctx, writing)
		if err != nil {
			fail(err)
		}
		return err
	})
	if g.base.Pattern == "" {
		g.base.Topics = g.names()
	}
	for _, step := range script(g) {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, errors.Join(err, context.Cause(ctx)))
		}
	}
	stop()
	if err := writer.Wait(); err != nil {
		return err
	}
	return g.finish(ctx)
}

// open makes a group that has no members and no topics yet.
func open(s Setting, base member.Config) (*group, error) {
	g := &group{setting: s, name: base.Group, base: base, sticky: base.Protocol != member.Eager, topics: map[string]int32{}, every: writeEvery}
	var err error
	if g.client, err = kgo.NewClient(kgo.SeedBrokers(s.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0)); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	g.admin = kadm.NewClient(g.client)
	return g, nil
}

// close ends what runs. A member that still does is of no use any more.
func (g *group) close() {
	for _, m := range g.members {
		m.kill()
	}
	g.client.Close()
}

// topic creates a topic of the group.
func (g *group) topic(ctx context.Context, name string, partitions int32) error {
	if _, err := g.admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	g.grown(name, partitions)
	return nil
}

// grow gives a topic more partitions, and waits until records can be written to them.
func (g *group) grow(ctx context.Context, name string, partitions int32) error {
	resp, err := g.admin.UpdatePartitions(ctx, int(partitions), name)
	if err := errors.Join(err, resp.Error()); err != nil {
		return fmt.Errorf("add partitions to topic %s: %w", name, err)
	}
	err = check.Await(ctx, func() error {
		g.client.ForceMetadataRefresh()
		return g.client.ProduceSync(ctx, &kgo.Record{Topic: name, Partition: partitions - 1, Value: []byte("first")}).FirstErr()
	})
	if err == nil {
		g.grown(name, partitions)
	}
	return err
}

// grown notes how many partitions a topic has.
func (g *group) grown(name string, partitions int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.topics[name] = partitions
}

// partitions are those of all topics.
func (g *group) partitions() []member.Partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []member.Partition
	for topic, n := range g.topics {
		for i := range n {
			all = append(all, member.Partition{Topic: topic, Number: i})
		}
	}
	return all
}

// names are the topics' names.
func (g *group) names() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.topics))
}

// write writes a record to each partition over and over, until the second context ends.
func (g *group) write(ctx, until context.Context) error {
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	for {
		var records []*kgo.Record
		for _, p := range g.partitions() {
			records = append(records, &kgo.Record{Topic: p.Topic, Partition: p.Number, Value: []byte("value")})
		}
		if err := g.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		select {
		case <-until.Done():
			return nil
		case <-tick.C:
		}
	}
}

// finish waits until all that was written was read, and says whether something was read again that had been committed.
func (g *group) finish(ctx context.Context) error {
	ends, err := g.admin.ListEndOffsets(ctx, g.names()...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("list the end offsets: %w", err)
	}
	rest, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	err = check.Await(rest, func() error {
		read := map[member.Partition][]interval{}
		for _, e := range g.events() {
			if e.Kind == member.Read {
				read[e.Partition] = append(read[e.Partition], interval{e.First, e.Last})
			}
		}
		var err error
		ends.Each(func(o kadm.ListedOffset) {
			if lost := missing(read[member.Partition{Topic: o.Topic, Number: o.Partition}], o.Offset); lost != nil {
				err = fmt.Errorf("%s-%d: %w", o.Topic, o.Partition, lost)
			}
		})
		return err
	})
	if err != nil {
		return g.explain(err)
	}
	var errs []error
	for _, m := range g.members {
		if !m.ended() {
			errs = append(errs, m.leave())
		}
	}
	return errors.Join(append(errs, readAgain(g.events()))...)
}

// events are those of all members.
func (g *group) events() []member.Event {
	var all []member.Event
	for _, m := range g.members {
		all = append(all, m.since(0, member.Read, member.Committed)...)
	}
	return all
}

// join starts members, and waits until each has a share.
func (g *group) join(ctx context.Context, members ...*process) error {
	for _, m := range members {
		if err := g.start(ctx, m); err != nil {
			return err
		}
	}
	return g.settle(ctx)
}

// start starts a member.
func (g *group) start(ctx context.Context, m *process) error {
	g.members = append(g.members, m)
	return m.start(ctx, g.setting)
}

// member makes a member, which is not started.
func (g *group) member(name string, change func(c *member.Config)) *process {
	m := &process{name: name, config: g.base}
	if change != nil {
		change(&m.config)
	}
	return m
}

// living are the members that have not ended.
func (g *group) living() []*process {
	return slices.DeleteFunc(slices.Clone(g.members), (*process).ended)
}

// settle waits until each partition is with one living member, and each of them has one at least and commits. Then it checks that nobody lost what it
// has kept.
func (g *group) settle(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	before := g.settled
	for {
		if err := check.Await(limited, g.shared); err != nil {
			return g.explain(err)
		}
		g.remember()
		for _, m := range g.living() {
			if err := g.awaitCommit(limited, m); err != nil {
				return err
			}
		}
		if g.shared() == nil { // and not only for a moment
			break
		}
	}
	g.remember()
	if !g.sticky {
		return nil
	}
	for _, m := range g.living() {
		for _, e := range m.since(before[m].mark, member.Revoked, member.Lost) {
			for _, p := range e.Partitions {
				if before[m].owned[p] && g.settled[m].owned[p] {
					return fmt.Errorf("member %s kept %s-%d, but saw it %s", m.name, p.Topic, p.Number, e.Kind)
				}
			}
		}
	}
	return nil
}

// awaitCommit waits until a member has committed since all was last shared.
func (g *group) awaitCommit(ctx context.Context, m *process) error {
	err := check.Await(ctx, func() error {
		if m.ended() || len(m.since(g.settled[m].mark, member.Committed)) > 0 {
			return nil
		}
		return fmt.Errorf("member %s commits nothing", m.name)
	})
	if err != nil {
		return g.explain(err)
	}
	return nil
}

// remember notes how every member is.
func (g *group) remember() {
	g.settled = map[*process]state{}
	for _, m := range g.living() {
		g.settled[m] = m.state()
	}
}

// shared says whether each partition is with one living member, and each of them has one at least.
func (g *group) shared() error {
	owners := map[member.Partition][]string{}
	for _, m := range g.living() {
		owned := m.partitions()
		if len(owned) == 0 {
			return fmt.Errorf("member %s has no partition", m.name)
		}
		for p := range owned {
			owners[p] = append(owners[p], m.name)
		}
	}
	for _, p := range g.partitions() {
		if o := owners[p]; len(o) != 1 {
			return fmt.Errorf("%s-%d has %d owners %v", p.Topic, p.Number, len(o), o)
		}
		delete(owners, p)
	}
	for p, o := range owners {
		return fmt.Errorf("%s-%d, which is not subscribed to, is with %v", p.Topic, p.Number, o)
	}
	return nil
}

// explain adds to an error what the clients said was wrong.
func (g *group) explain(err error) error {
	var said []string
	for _, m := range g.members {
		all := m.errors(0)
		for _, e := range all[max(0, len(all)-2):] {
			said = append(said, m.name+": "+e)
		}
		if m.ended() && m.exit != nil {
			said = append(said, fmt.Sprintf("%s ended with %v", m.name, m.exit))
		}
	}
	if said == nil {
		return err
	}
	return fmt.Errorf("%w; the clients said: %s", err, strings.Join(said, "; "))
}

// calm waits until the members have seen no rebalance for a while: some clients join once more when they first learn of the topics.
func (g *group) calm(ctx context.Context, members ...*process) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return check.Await(limited, func() error {
		if err := g.settle(limited); err != nil {
			return err
		}
		return g.commitOn(limited, calmCommits, members...)
	})
}

// untouched says whether the members have what they had when all was last shared, have seen no rebalance, and go on committing as the same
// members in the same generation.
func (g *group) untouched(ctx context.Context, members ...*process) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return g.commitOn(limited, 1, members...)
}

// commitOn waits until each member has committed n offsets more, and says whether they are untouched.
func (g *group) commitOn(ctx context.Context, n int, members ...*process) error {
	for _, m := range members {
		was, now := g.settled[m], m.mark()
		err := check.Await(ctx, func() error {
			if got := len(m.since(now, member.Committed)); got < n {
				return fmt.Errorf("member %s commits %d offsets, want %d", m.name, got, n)
			}
			return nil
		})
		if err != nil {
			return g.explain(err)
		}
		if is := m.state(); is.id != was.id || is.generation != was.generation && !g.epochs {
			return fmt.Errorf("member %s was %q in generation %d, and is %q in generation %d", m.name, was.id, was.generation, is.id, is.generation)
		}
		if moved := m.since(was.mark, member.Assigned, member.Revoked, member.Lost); len(moved) > 0 {
			return fmt.Errorf("member %s saw a rebalance: %s %v", m.name, moved[0].Kind, moved[0].Partitions)
		}
	}
	return nil
}
