// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/groups"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

const heartbeatsUsage = `Measure how soon the members of managed groups hear of a change, with unmodified clients and their own defaults, with heartbeats held and not.

usage: conformance heartbeats [flags]

Run it in the repository's root, as "make heartbeats" does. It ends with 1 if a member saw a rebalance for no reason, or a client could not be run.
docs/heartbeats.md is written only by a run of all clients with all measurements. Figures of a busy machine say nothing.

`

// pace is what is measured, and for how long.
type pace struct {
	options
	changes  int
	commits  time.Duration
	watch    time.Duration
	parallel int
	seed     uint64
}

// side is a broker that holds heartbeats, or one that does not.
type side struct {
	name  string
	flags []string
	tap   *brokers.Tap
	world *brokers.World
}

// trial is a client with one of the protocols that it has, and what was measured. The arrays are by side: not held, held.
type trial struct {
	program
	protocol string

	changes  [2]groups.Changes
	commits  [2][]time.Duration
	watched  bool
	spurious []string
	errs     []error
}

func parseHeartbeats(args []string) (*pace, error) {
	p := &pace{}
	flags := flag.NewFlagSet("conformance heartbeats", flag.ContinueOnError)
	flags.StringVar(&p.clients, "clients", "", "the `NAMES` of the clients to run, with commas between them (default: all that can be members): "+strings.Join(names(), ", "))
	flags.StringVar(&p.bin, "ringmaster", "bin/ringmaster", "the broker's `FILE`")
	flags.StringVar(&p.cache, "cache", "", "the `DIR` that keeps what was fetched (default: ringmaster/conformance in the user's cache directory)")
	flags.BoolVar(&p.keep, "keep", false, "keep the brokers' data and logs, and what members print, and say where they are")
	flags.IntVar(&p.changes, "changes", 24, "how many changes of the plan to measure with each client and protocol; 0 for none")
	flags.DurationVar(&p.commits, "commits", 20*time.Second, "how long members commit; 0 for not at all")
	flags.DurationVar(&p.watch, "watch", 10*time.Minute, "how long groups to which nothing happens are watched; 0 for not at all")
	flags.IntVar(&p.parallel, "parallel", 3, "how many clients' changes are measured at the same time")
	flags.Uint64Var(&p.seed, "seed", 0, "the `NUMBER` that the times of changes follow from (default: another one each time)")
	flags.Usage = func() {
		fmt.Fprint(os.Stdout, heartbeatsUsage)
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("there is no argument %q; see --help", flags.Arg(0))
	}
	p.seed = cmp.Or(p.seed, uint64(time.Now().UnixNano()))
	if err := p.locate(); err != nil {
		return nil, err
	}
	return p, nil
}

// heartbeats is the subcommand of that name.
func heartbeats(ctx context.Context, args []string) (err error) {
	p, err := parseHeartbeats(args)
	if err != nil {
		return err
	}
	chosen, err := choose(p.clients)
	if err != nil {
		return err
	}
	programs, err := install(ctx, p.cache, members(chosen))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "heartbeats-")
	if err != nil {
		return fmt.Errorf("make a directory for the brokers: %w", err)
	}
	if p.keep {
		fmt.Println("heartbeats: the brokers' data and logs are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	sides := [2]*side{{name: "not-held", flags: []string{"--heartbeat-hold", "0s"}}, {name: "held"}}
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, s := range sides {
		if err := s.start(p.bin, filepath.Join(dir, s.name)); err != nil {
			return err
		}
	}
	run := &heartbeatsRun{pace: p, sides: sides, trials: trials(programs), dir: dir}
	fmt.Println("heartbeats: seed", p.seed)
	run.all(ctx)
	run.print()
	if p.clients == "" && p.changes > 0 && p.commits > 0 && p.watch > 0 {
		if err := run.write(filepath.Join("docs", "heartbeats.md")); err != nil {
			return err
		}
	}
	return run.failed()
}

// members are those of the clients that can be members of a group of this package's.
func members(chosen []client) []client {
	var list []client
	for _, c := range chosen {
		if c.lacksAll == "" && c.name != "wire" {
			list = append(list, c)
		}
	}
	return list
}

// trials are the clients' protocols.
func trials(programs []program) []*trial {
	var list []*trial
	for _, p := range programs {
		for _, kind := range []struct{ protocol, check string }{
			{member.Eager, check.ManagedEager}, {member.Cooperative, check.ManagedCooperative}, {member.Consumer, check.ManagedConsumer},
		} {
			if p.lacks[kind.check] == "" {
				list = append(list, &trial{program: p, protocol: kind.protocol})
			}
		}
	}
	return list
}

// start starts one broker whose metadata are in an API server of its own. Its sessions and intervals are the broker's defaults.
func (s *side) start(bin, dir string) error {
	ports, err := brokers.FreePorts(1)
	if err != nil {
		return err
	}
	s.tap = brokers.NewTap()
	flags := append([]string{"--consumer-session-timeout", "45s", "--consumer-heartbeat-interval", "5s"}, s.flags...)
	s.world, err = brokers.StartCluster(bin, dir, brokers.Cluster{Ports: ports, Tap: s.tap, Flags: flags})
	return err
}

func (s *side) stop() error {
	if s.world == nil {
		return nil
	}
	return s.world.Stop()
}

// heartbeatsRun is one run.
type heartbeatsRun struct {
	*pace
	sides  [2]*side
	trials []*trial
	dir    string
	mu     sync.Mutex // guards every trial's results
}

// all measures everything. Both sides are measured at the same time, so that what disturbs one disturbs the other.
func (r *heartbeatsRun) all(ctx context.Context) {
	if r.changes > 0 {
		r.each(r.parallel, func(t *trial) {
			r.both(t, func(i int, s groups.Setting) error {
				seed := rand.New(rand.NewPCG(r.seed, uint64(i)))
				changes, err := groups.MeasureChanges(ctx, s, t.protocol, r.changes, seed)
				r.note(t, err, func() { t.changes[i] = changes })
				return err
			})
		})
	}
	if r.commits > 0 {
		r.each(1, func(t *trial) {
			r.both(t, func(i int, s groups.Setting) error {
				took, err := groups.MeasureCommits(ctx, s, t.protocol, r.commits)
				r.note(t, err, func() { t.commits[i] = took })
				return err
			})
		})
	}
	if r.watch > 0 {
		fmt.Printf("   ...  all at the same time for %s\n", duration(r.watch))
		r.each(len(r.trials), func(t *trial) {
			moves, err := groups.Watch(ctx, r.setting(t, r.sides[1]), t.protocol, r.watch)
			r.note(t, err, func() { t.watched, t.spurious = true, moves })
		})
	}
}

// each calls f for every trial, for some at the same time.
func (r *heartbeatsRun) each(parallel int, f func(*trial)) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, t := range r.trials {
		g.Go(func() error {
			f(t)
			return nil
		})
	}
	_ = g.Wait()
}

// both measures both sides at the same time.
func (r *heartbeatsRun) both(t *trial, f func(i int, s groups.Setting) error) {
	var g errgroup.Group
	for i, s := range r.sides {
		g.Go(func() error { return f(i, r.setting(t, s)) })
	}
	err := g.Wait()
	fmt.Printf("   %-4s %s, %s\n", map[bool]string{true: "ok", false: "FAIL"}[err == nil], t.name, t.protocol)
}

func (r *heartbeatsRun) setting(t *trial, s *side) groups.Setting {
	setting := groups.Setting{Bootstrap: s.world.Bootstrap, Prefix: t.name, Command: t.command, Planner: s.world}
	if r.keep {
		setting.Logs = filepath.Join(r.dir, s.name)
	}
	return setting
}

// note notes what was measured, or why it was not.
func (r *heartbeatsRun) note(t *trial, err error, take func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		t.errs = append(t.errs, err)
		return
	}
	take()
}

// failed is what went wrong, and what members saw for no reason.
func (r *heartbeatsRun) failed() error {
	var errs []error
	for _, t := range r.trials {
		for _, err := range t.errs {
			errs = append(errs, fmt.Errorf("%s, %s: %w", t.name, t.protocol, err))
		}
		for i, c := range t.changes {
			if len(c.Others) > 0 {
				errs = append(errs, fmt.Errorf("%s, %s, %s: a member whose share does not change saw %v", t.name, t.protocol, r.sides[i].name, c.Others))
			}
		}
		if len(t.spurious) > 0 {
			errs = append(errs, fmt.Errorf("%s, %s: for no reason %s", t.name, t.protocol, strings.Join(t.spurious, "; ")))
		}
	}
	return errors.Join(errs...)
}
