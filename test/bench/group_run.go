// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// The phases of a group.
const (
	phaseStart   = "from nothing to stable"
	phaseJoin    = "one joins"
	phaseLeave   = "one leaves"
	phaseRestart = "the broker is killed"
)

// phase is what a group goes through from one stable state to the next.
type phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Changed is how many members lost or gained a partition, Rejoined how many joined again (of thin members alone), Moved how many partitions have another
	// owner than before.
	Changed  int `json:"changed"`
	Rejoined int `json:"rejoined"`
	Moved    int `json:"moved"`
	// Idle is how long partitions had no owner, in seconds, summed over partitions.
	Idle float64 `json:"idle"`
	// Planning is how long the leader planned, in seconds, with thin members.
	Planning float64 `json:"planning,omitempty"`
	// Twice counts the partitions that a member got while another had not given them up.
	Twice int `json:"twice,omitempty"`
	// FirstAnswer is when a broker that was started again answered, in seconds after it was killed.
	FirstAnswer float64 `json:"firstAnswer,omitempty"`
	// ServerCPU is what the broker used, in seconds; it is measured in steps of a hundredth.
	ServerCPU float64 `json:"serverCPU,omitempty"`
}

// phasesLine is phases as a line of progress.
func phasesLine(all []phase) string {
	var parts []string
	for i := range all {
		p := &all[i]
		parts = append(parts, fmt.Sprintf("%s: %.3f s, %d changed, %d rejoined, %d moved, %.2f idle, plan %.3f s, CPU %.2f s", p.Name, p.Seconds, p.Changed, p.Rejoined, p.Moved,
			p.Idle, p.Planning, p.ServerCPU))
		if p.FirstAnswer > 0 {
			parts = append(parts, fmt.Sprintf("answers after %.3f s", p.FirstAnswer))
		}
	}
	return strings.Join(parts, "; ")
}

// rebalance takes a new group through its phases; where the broker is killed, with a broker of its own.
func (r *runner) rebalance(ctx context.Context, w *work, p peer, round int) (*sample, error) {
	if !w.Restart {
		topics, err := r.groupTopics(ctx, w, p)
		if err != nil {
			return nil, err
		}
		return r.regroup(ctx, w, p, topics, round)
	}
	s := r.fresh[p.server().title]()
	dir, err := os.MkdirTemp(r.dir, "killed-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	defer s.stop()
	if err := s.start(ctx, dir); err != nil {
		return nil, err
	}
	own := &kafkaPeer{p.name(), s, nil}
	topics, err := makeGroupTopics(ctx, w, own, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	return r.regroup(ctx, w, own, topics, round)
}

// regroup takes a new group through its phases.
func (r *runner) regroup(ctx context.Context, w *work, p peer, topics *topicSet, round int) (*sample, error) {
	if w.Protocol == protocolConsumer {
		if err := offersKIP848(ctx, p.server().address); err != nil {
			return nil, err
		}
	}
	group := fmt.Sprintf("%s-%d", w.slug(), round)
	if err := awaitCoordinator(ctx, p.server().address, group); err != nil {
		return nil, err
	}
	limited, stop := context.WithTimeoutCause(ctx, groupLimit, fmt.Errorf("the group was not stable within %v", groupLimit))
	defer stop()
	limited, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	t := &team{w: w, address: p.server().address, group: group, topics: topics, owners: newOwners(w.Partitions), cancel: cancel}
	profiled := r.capture(p, group)
	s, err := t.phases(limited, p.server(), round)
	profiled()
	if closed := t.close(limited); err == nil {
		err = closed
	}
	return s, err
}

// phases are those of a work's round.
func (t *team) phases(ctx context.Context, server *server, round int) (*sample, error) {
	s := &sample{}
	do := func(name string, act func() (time.Time, error)) error {
		before, err := cpuTime(server.pid())
		if err != nil {
			return err
		}
		begin, err := act()
		if err != nil {
			return err
		}
		at, err := t.owners.await(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found := t.owners.phase(name, at.Sub(begin))
		after, err := cpuTime(server.pid())
		if err != nil {
			return err
		}
		if name == phaseRestart { // it is another process
			found.FirstAnswer, before = server.process.first.Seconds(), 0
		}
		found.ServerCPU = (after - before).Seconds()
		s.Phases = append(s.Phases, found)
		return nil
	}
	err := do(phaseStart, func() (time.Time, error) { return t.add(ctx, t.w.Members) })
	if every := t.w.ChangeEvery; err == nil && every > 0 && round%every == 0 {
		err = do(phaseJoin, func() (time.Time, error) { return t.add(ctx, 1) })
		if err == nil {
			err = do(phaseLeave, func() (time.Time, error) { return t.drop(ctx, t.w.Members/2) })
		}
	}
	if err == nil && t.w.Restart {
		// All members have heard of the stable group, so that none is in the middle of joining.
		t.owners.begin(true)
		if _, err := t.owners.await(ctx); err != nil {
			return nil, err
		}
		err = do(phaseRestart, func() (time.Time, error) {
			t.owners.begin(true)
			begin := time.Now()
			return begin, server.restart(ctx)
		})
	}
	return s, err
}

// groupTopics makes the topics of a work, or returns those of one before it: works with the same topics share them.
func (r *runner) groupTopics(ctx context.Context, w *work, p peer) (*topicSet, error) {
	return makeGroupTopics(ctx, w, p, func(topic string) bool {
		key := loading{topic, p.name()}
		fresh := !r.loaded[key]
		r.loaded[key] = true
		return fresh
	})
}

// makeGroupTopics makes those of a work's topics that are missing. Their names are short, since Kafka keeps a classic group in one record of at most 1 MB, in which
// each member names them three times.
func makeGroupTopics(ctx context.Context, w *work, p peer, missing func(topic string) bool) (*topicSet, error) {
	names, each := make([]string, w.Topics), w.Partitions/w.Topics
	for i := range names {
		names[i] = fmt.Sprintf("t%d-%d", each, i)
		if !missing(names[i]) {
			continue
		}
		if err := makeTopic(ctx, p.server().address, names[i], each, nil); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, groupLimit)
	defer cancel()
	return describeTopics(ctx, p.server().address, names, each)
}

// prepareGroups makes a work's topics before its time begins; where that fails, the rounds say so.
func (r *runner) prepareGroups(ctx context.Context, w *work) {
	for _, name := range w.Peers {
		p := r.peer(name)
		if p == nil || w.Restart {
			continue
		}
		begin := time.Now()
		if _, err := r.groupTopics(ctx, w, p); err == nil {
			r.say("  %s has %s after %v", name, plural(w.Partitions, "partition"), time.Since(begin).Round(time.Millisecond))
		}
	}
}

// warmGroups lets groups of a hundred members, classic and KIP-848, become stable over and over.
func (r *runner) warmGroups(ctx context.Context, p peer, limit time.Duration) error {
	begin := time.Now()
	for _, protocol := range []string{protocolCooperative, protocolConsumer} {
		w := work{
			Name: "warm-up " + protocol, Kind: kindGroup, Protocol: protocol, Thin: true, Partitions: 1000, Topics: 1, Members: 100, Heartbeat: 100 * time.Millisecond, ChangeEvery: 1,
			Peers: []string{p.name()},
		}
		for round := 0; round == 0 || time.Since(begin) < limit/2; round++ {
			if _, err := r.rebalance(ctx, &w, p, round); err != nil {
				return err
			}
		}
		begin = begin.Add(limit / 2)
	}
	return nil
}
