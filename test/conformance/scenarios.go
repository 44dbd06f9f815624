// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/groups"
)

// stage plays the scenarios of groups.
type stage struct {
	// bin is the broker's program, dir a directory for those brokers that scenarios kill.
	bin, dir string
	// keep says that what members print is kept in dir.
	keep bool
	// restart is a command that kills the coordinator and starts it again, where the brokers are not ours.
	restart string
	// only, if not nil, matches the scenarios that are played.
	only *regexp.Regexp
}

// play plays the scenarios with a client. They wait most of the time, each in a group of its own, and so they are played at the same time; but
// where there is one coordinator for all, those that kill it come after the others, one by one.
func (s *stage) play(ctx context.Context, p *program, w *brokers.World, prefix string, results map[string]check.Result) {
	var mu sync.Mutex
	run := func(scenario *groups.Scenario) {
		r := check.Result{Check: scenario.Check, OK: true}
		if err := s.one(ctx, p, w, prefix, scenario); err != nil {
			r.OK, r.Detail = false, err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		results[r.Check] = r
		r.Show()
	}
	var wg sync.WaitGroup
	room := make(chan struct{}, cmp.Or(p.parallel, len(groups.Scenarios())))
	var last []*groups.Scenario
	for _, scenario := range groups.Scenarios() {
		switch why := p.lacks[scenario.Check]; {
		case s.only != nil && !s.only.MatchString(scenario.Check):
		case why != "" || p.lacksAll != "":
			results[scenario.Check] = check.Result{Check: scenario.Check, Skip: p.lacksAll + why}
		case scenario.Restarts && s.restart == "" && !w.Single():
		case scenario.Managed && !w.Plans():
		case scenario.Restarts && s.restart != "":
			last = append(last, &scenario)
		default:
			wg.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				run(&scenario)
			})
		}
	}
	wg.Wait()
	for _, scenario := range last {
		run(scenario)
	}
}

// one plays one scenario, with a broker of its own if it kills it.
func (s *stage) one(ctx context.Context, p *program, w *brokers.World, prefix string, scenario *groups.Scenario) (err error) {
	setting := groups.Setting{Bootstrap: w.Bootstrap, Prefix: prefix, Command: p.command, Planner: w}
	if s.keep {
		setting.Logs = s.dir
	}
	switch {
	case scenario.Restarts && s.restart != "":
		setting.Restart = func(ctx context.Context) error {
			if out, err := exec.CommandContext(ctx, "sh", "-c", s.restart).CombinedOutput(); err != nil {
				return fmt.Errorf("restart the brokers: %w: %s", err, out)
			}
			return nil
		}
	case scenario.Restarts:
		ports, err := brokers.FreePorts(1) // and no proxy, which would take connections while there is no broker
		if err != nil {
			return err
		}
		address := brokers.Local(ports[0])
		own, err := brokers.StartAt(s.bin, filepath.Join(s.dir, p.name+"-"+scenario.Slug), address, address, "--consumer-session-timeout", "30s")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, own.Stop()) }()
		setting.Bootstrap = own.Bootstrap
		setting.Restart = func(context.Context) error { return own.Crash() }
	}
	return scenario.Play(ctx, setting)
}
