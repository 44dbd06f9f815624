// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

const (
	// warmUp is longer than two heartbeats of any client by its own defaults: after it the coordinator knows how often they come.
	warmUp = 8 * time.Second
	// beat is the clients' heartbeat interval, by their own defaults. Changes come at any time within it, and not before a member that has joined has sent its first one, which
	// it does an interval later.
	beat = 3 * time.Second
	// commitPause is the time in milliseconds between two commits.
	commitPause = 20
	// slowWrite is the time between two records of a partition while members are watched.
	slowWrite = 500 * time.Millisecond
	// spell is how long records are written, and then none, while members are watched.
	spell = 30 * time.Second
	// look is how often a measurement looks whether something has come.
	look = time.Millisecond
)

// Changes are what changes of a managed group's plan brought about: each takes one partition from one member and gives it to another one, while nobody has
// anything to read.
type Changes struct {
	// Rejoin are the times from the writing of the plan until the old member had let go of the partition to join again, Granted until the new one was told that it has it,
	// Read until it had read a record that was written to the partition as soon as the old one had let go.
	Rejoin, Granted, Read []time.Duration
	// Others are what a member saw whose share never changed.
	Others []string
	// Members are the client ids.
	Members []string
}

// trial is a managed group of one topic with six partitions, whose members have their client's defaults.
type trial struct {
	*group
	topic   string
	a, b, c *process
	plan    plan
}

// begin makes a trial and starts its members.
func begin(ctx context.Context, s Setting, base member.Config) (*trial, error) {
	g, err := open(s, base)
	if err != nil {
		return nil, err
	}
	t := &trial{group: g, topic: base.Group + "-t"}
	t.a, t.b, t.c = g.pod("a"), g.pod("b"), g.pod("c")
	g.epochs = base.Protocol == member.Consumer
	if err := t.start(ctx); err != nil {
		g.close()
		return nil, err
	}
	return t, nil
}

func (t *trial) start(ctx context.Context) error {
	if err := t.group.topic(ctx, t.topic, 6); err != nil {
		return err
	}
	t.base.Topics = t.names()
	t.plan = plan{}
	for i, m := range []*process{t.a, t.b, t.c} {
		m.config.Topics = t.base.Topics
		t.plan[m] = []member.Partition{t.at(2 * i), t.at(2*i + 1)}
	}
	if err := t.setting.Planner.Manage(ctx, t.name, t.base.Topics); err != nil {
		return err
	}
	if err := t.plan.write(ctx, t.group); err != nil {
		return err
	}
	for _, m := range []*process{t.a, t.b, t.c} {
		if err := t.group.start(ctx, m); err != nil {
			return err
		}
	}
	return t.settled(ctx, warmUp)
}

func (t *trial) at(number int) member.Partition {
	return member.Partition{Topic: t.topic, Number: int32(number)}
}

// settled waits until each member has what the plan says, and had it for a while: some clients join once more when they first learn of the topics.
func (t *trial) settled(ctx context.Context, calm time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		if err := check.Await(limited, t.plan.holds); err != nil {
			return t.explain(err)
		}
		marks := t.marks()
		if err := rest(limited, calm); err != nil {
			return err
		}
		if len(t.moves(marks)) == 0 {
			return nil
		}
	}
}

// marks are how far the members' events are.
func (t *trial) marks() map[*process]int {
	marks := map[*process]int{}
	for _, m := range t.members {
		marks[m] = m.mark()
	}
	return marks
}

// moves are the partitions that came and went since marks.
func (t *trial) moves(marks map[*process]int) []string {
	var all []string
	for _, m := range t.members {
		for _, e := range m.since(marks[m], member.Assigned, member.Revoked, member.Lost) {
			all = append(all, fmt.Sprintf("member %s saw %d partitions %s", m.name, len(e.Partitions), e.Kind))
		}
	}
	return all
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// MeasureChanges changes the plan of a group of three members n times.
func MeasureChanges(ctx context.Context, s Setting, protocol string, n int, random *rand.Rand) (Changes, error) {
	t, err := begin(ctx, s, member.Config{Group: s.Prefix + "-changes-" + protocol, Protocol: protocol})
	if err != nil {
		return Changes{}, err
	}
	defer t.close()
	out := Changes{Members: []string{t.a.config.ClientID, t.b.config.ClientID, t.c.config.ClientID}}
	mark := t.c.mark()
	from, to, moving := t.a, t.b, t.at(1)
	for range n {
		if err := rest(ctx, beat+time.Second+time.Duration(random.Int64N(int64(beat)))); err != nil {
			return Changes{}, err
		}
		if err := t.change(ctx, moving, from, to, &out); err != nil {
			return Changes{}, t.explain(err)
		}
		from, to = to, from
	}
	for _, e := range t.c.since(mark, member.Assigned, member.Revoked, member.Lost) {
		out.Others = append(out.Others, e.Kind)
	}
	return out, t.end()
}

// change moves a partition, and notes how long that took.
func (t *trial) change(ctx context.Context, p member.Partition, from, to *process, out *Changes) error {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	old, next := from.mark(), to.mark()
	t.plan = t.plan.moved(p, from, to)
	changed := time.Now()
	if err := t.plan.write(limited, t.group); err != nil {
		return err
	}
	gone, err := awaitEvent(limited, from, old, p, member.Revoked, member.Lost)
	if err != nil {
		return err
	}
	if err := t.client.ProduceSync(limited, &kgo.Record{Topic: p.Topic, Partition: p.Number, Value: []byte("value")}).FirstErr(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	has, err := awaitEvent(limited, to, next, p, member.Assigned)
	if err != nil {
		return err
	}
	reads, err := awaitEvent(limited, to, next, p, member.Read)
	if err != nil {
		return err
	}
	out.Rejoin, out.Granted, out.Read = append(out.Rejoin, gone.Sub(changed)), append(out.Granted, has.Sub(changed)), append(out.Read, reads.Sub(changed))
	return t.settled(ctx, 0)
}

// awaitEvent waits for an event that a member has of a partition after a mark, and returns its time.
func awaitEvent(ctx context.Context, m *process, mark int, p member.Partition, kinds ...string) (time.Time, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		for _, e := range m.since(mark, kinds...) {
			if e.Partition == p || slices.Contains(e.Partitions, p) {
				return e.At(), nil
			}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait until member %s says %s of %s-%d: %w", m.name, kinds[0], p.Topic, p.Number, ctx.Err())
		case <-tick.C:
		}
	}
}

// end has the members leave.
func (t *trial) end() error {
	var errs []error
	for _, m := range t.members {
		if m.ended() {
			errs = append(errs, fmt.Errorf("member %s ended by itself", m.name))
			continue
		}
		errs = append(errs, m.leave())
	}
	return errors.Join(errs...)
}

// MeasureCommits has three members commit for a time, each one commit after the other, with nothing to read, and returns how long each took.
func MeasureCommits(ctx context.Context, s Setting, protocol string, during time.Duration) ([]time.Duration, error) {
	t, err := begin(ctx, s, member.Config{Group: s.Prefix + "-commits-" + protocol, Protocol: protocol, CommitMillis: commitPause})
	if err != nil {
		return nil, err
	}
	defer t.close()
	marks := t.marks()
	if err := rest(ctx, during); err != nil {
		return nil, err
	}
	var took []time.Duration
	for _, m := range t.members {
		for _, e := range m.since(marks[m], member.Timed) {
			took = append(took, time.Duration(e.Micros)*time.Microsecond)
		}
	}
	if len(took) == 0 {
		return nil, t.explain(errors.New("nobody has committed anything"))
	}
	return took, t.end()
}

// Watch watches a group of three members for a time, while records are written for half a minute and none for the next one, and so on, and returns what partitions came and
// went: there is no reason for any. Every record must be read, and none again after it was committed.
func Watch(ctx context.Context, s Setting, protocol string, during time.Duration) ([]string, error) {
	t, err := begin(ctx, s, member.Config{Group: s.Prefix + "-watch-" + protocol, Protocol: protocol})
	if err != nil {
		return nil, err
	}
	defer t.close()
	t.every = slowWrite
	marks, deadline := t.marks(), time.Now().Add(during)
	for writes := true; time.Now().Before(deadline); writes = !writes {
		until, cancel := context.WithTimeout(ctx, min(spell, time.Until(deadline)))
		if writes {
			err = t.write(ctx, until)
		} else {
			<-until.Done()
		}
		cancel()
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
	}
	moves := t.moves(marks)
	return moves, t.finish(ctx)
}
