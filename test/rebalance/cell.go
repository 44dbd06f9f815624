// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const (
	// lookEvery is how often the journals are looked at.
	lookEvery = 50 * time.Millisecond
	// settleLimit is how long a group may take to become stable: Kafka's takes its session timeout, 45 s, where a consumer has died.
	settleLimit = 2 * time.Minute
	// restFor is more than the clients' heartbeat interval, 3 s.
	restFor = 4 * time.Second
	// pauseOf is how long no record of a partition may be read for its pod to count as paused; records come every 100 ms.
	pauseOf = 500 * time.Millisecond
)

// system is what is measured.
type system struct {
	name, title, bootstrap string
	// managed says that it has ConsumerGroups.
	managed bool
	stop    func()
}

// cell is the consumers of one kind against one system.
type cell struct {
	o *options
	s *system
	k *kind
	// name is the Deployment's and the group's.
	name string
	// session is the classic clients' session timeout; 0 for their default.
	session time.Duration
	dir     string
	ledger  *ledger
	watch   *watch
	// pods is how many consumers there are to be.
	pods int
}

// open starts the consumers.
func open(ctx context.Context, o *options, s *system, k *kind, session time.Duration, pods int) (*cell, error) {
	name := k.name
	if session > 0 {
		name += "-short"
	}
	c := &cell{o: o, s: s, k: k, name: name, session: session, dir: filepath.Join(o.dir, "journals", s.name, name), pods: pods}
	if err := os.RemoveAll(c.dir); err != nil {
		return nil, fmt.Errorf("remove old journals: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the journals' folder: %w", err)
	}
	c.ledger = newLedger(c.dir, o.partitions)
	var err error
	if c.watch, err = startWatch(ctx, s.managed); err != nil {
		return nil, err
	}
	if s.managed {
		if err := apply(ctx, c.managed()); err != nil {
			return nil, fmt.Errorf("make the ConsumerGroup: %w", err)
		}
	} else if session > 0 && k.consumer() {
		if err := shorten(ctx, s.bootstrap, name, session); err != nil {
			return nil, err
		}
	}
	if err := apply(ctx, c.deployment(pods)); err != nil {
		return nil, fmt.Errorf("make the consumers: %w", err)
	}
	if _, err := c.settle(ctx); err != nil {
		return nil, fmt.Errorf("the first %d consumers: %w", pods, err)
	}
	return c, nil
}

// close removes the consumers.
func (c *cell) close(ctx context.Context) error {
	what := []string{"deployment/" + c.name}
	if c.s.managed {
		what = append(what, "consumergroup/"+c.name)
	}
	_, err := kubectl(ctx, append([]string{"delete", "--cascade=foreground", "--ignore-not-found", "--timeout=90s"}, what...)...)
	return err
}

// await looks at the journals until done.
func (c *cell) await(ctx context.Context, limit time.Duration, done func() bool) error {
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := c.ledger.look(); err != nil {
			return err
		}
		if done() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not done within %s", limit)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// settle waits until the group is stable, and returns who reads what.
func (c *cell) settle(ctx context.Context) (owners, error) { return c.settleOn(ctx, nil) }

// rest waits until the group is stable, and then for longer than a heartbeat interval: a client that has just joined is not to be heard of before its first heartbeat.
func (c *cell) rest(ctx context.Context) (owners, error) {
	if _, err := c.settle(ctx); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(restFor):
	}
	return c.settle(ctx)
}

// settleOn waits until the group is stable and its owners are as asked for.
func (c *cell) settleOn(ctx context.Context, good func(owners) bool) (owners, error) {
	var now owners
	err := c.await(ctx, settleLimit, func() bool {
		var ok bool
		now, ok = c.ledger.stable(time.Now(), c.pods)
		return ok && (good == nil || good(now))
	})
	if err != nil {
		return nil, fmt.Errorf("the group %s with %d pods: %w", c.name, c.pods, err)
	}
	return now, nil
}

// step is what a change of the number of pods did.
type step struct {
	// From and To are how many pods there were.
	From, To int
	// Moved is how many partitions have another owner, Minimum how few would do.
	Moved, Minimum int
	// Losers is how many of the pods that stay gave a partition up; Paused how many of them saw a revoke or read nothing of a partition that they kept for pauseOf.
	Losers, Paused int
	// KeptPause and MovedPause are the longest times without a record of a partition that stayed and of one that moved.
	KeptPause, MovedPause time.Duration
}

// scale changes the number of pods.
func (c *cell) scale(ctx context.Context, to int) (*step, error) {
	before, err := c.rest(ctx)
	if err != nil {
		return nil, err
	}
	s := &step{From: c.pods, To: to}
	begin := time.Now()
	if _, err := kubectl(ctx, "scale", "deployment/"+c.name, "--replicas="+strconv.Itoa(to)); err != nil {
		return nil, err
	}
	c.pods = to
	after, err := c.settle(ctx)
	if err != nil {
		return nil, err
	}
	s.compare(c.ledger, before, after, begin, time.Now())
	return s, nil
}

func (s *step) compare(l *ledger, before, after owners, begin, end time.Time) {
	s.Minimum = leastMoves(before, after.pods())
	stays := make(map[string]bool)
	for _, pod := range after.pods() {
		stays[pod] = slices.Contains(before.pods(), pod)
	}
	losers, paused := make(map[string]bool), make(map[string]bool)
	for p := range before {
		old, pause := before[p].pod, l.pause(p, begin, end)
		if old == after[p].pod {
			s.KeptPause = max(s.KeptPause, pause)
			if pause > pauseOf {
				paused[old] = true
			}
			continue
		}
		s.Moved++
		s.MovedPause = max(s.MovedPause, pause)
		if stays[old] {
			losers[old] = true
		}
	}
	for _, t := range l.tellings(begin, end) {
		if t.event != 'G' && stays[t.by.pod] {
			paused[t.by.pod] = true
		}
	}
	s.Losers, s.Paused = len(losers), len(paused)
}

// leastMoves is how few partitions must move for the pods to have equally many, or one more: with q each and r left over, the r pods that hold most keep q+1.
func leastMoves(before owners, pods []string) int {
	var held []int
	for _, pod := range pods {
		held = append(held, len(before.of(pod)))
	}
	slices.SortFunc(held, func(a, b int) int { return b - a })
	each, rest := len(before)/len(pods), len(before)%len(pods)
	kept := 0
	for i, n := range held {
		most := each
		if i < rest {
			most++
		}
		kept += min(n, most)
	}
	return len(before) - kept
}

// kill is what the death of one consumer did.
type kill struct {
	// Orphans are the times from the kill to the first record of each partition that it had, read by another process, ascending.
	Orphans []time.Duration
	// Kubelet is when the API server told that the pod is not alive, Operator when it told of a new plan, Client when the last new owner was given its part: each since
	// the kill, and 0 where that was not seen.
	Kubelet, Operator, Client time.Duration
	// OthersPause is the longest time without a record of a partition whose owner lived.
	OthersPause time.Duration
	// Same is how many of the partitions were next read by the victim's own pod, started again.
	Same int
}

// kill kills the process of a pod that was not killed before, waits until its partitions are read, and then until all pods read again.
func (c *cell) kill(ctx context.Context) (*kill, error) {
	before, err := c.rest(ctx)
	if err != nil {
		return nil, err
	}
	victim := c.victim(before)
	if victim == nil {
		return nil, errors.New("every pod was killed before")
	}
	pid, err := processOf(victim.pod)
	if err != nil {
		return nil, err
	}
	orphans := before.of(victim.pod)
	begin := time.Now()
	if err := killHard(pid); err != nil {
		return nil, err
	}
	firsts := make(map[int]read)
	err = c.await(ctx, settleLimit, func() bool {
		for _, p := range orphans {
			if _, found := firsts[p]; !found {
				if first, ok := c.ledger.firstBy(p, begin, victim); ok {
					firsts[p] = first
				}
			}
		}
		return len(firsts) == len(orphans)
	})
	if err != nil {
		return nil, fmt.Errorf("%d of the %d partitions of a killed consumer of %s are read: %w", len(firsts), len(orphans), c.name, err)
	}
	k := &kill{}
	for _, first := range firsts {
		k.Orphans = append(k.Orphans, time.Duration(first.at-begin.UnixNano()))
		if first.by.pod == victim.pod {
			k.Same++
		}
	}
	slices.Sort(k.Orphans)
	if _, err := c.settle(ctx); err != nil { // the pod's new process reads
		return nil, err
	}
	c.explain(k, victim, orphans, begin)
	for p := range before {
		if before[p] != victim {
			k.OthersPause = max(k.OthersPause, c.ledger.pause(p, begin, begin.Add(k.Orphans[len(k.Orphans)-1])))
		}
	}
	return k, nil
}

// victim is a process that has partitions and is its pod's first: the kubelet lets a pod wait whose container ends again.
func (c *cell) victim(now owners) *process {
	runs := make(map[string]int)
	for _, p := range c.ledger.processes {
		runs[p.pod]++
	}
	for _, p := range now {
		if runs[p.pod] == 1 {
			return p
		}
	}
	return nil
}

// explain says where the time went.
func (c *cell) explain(k *kill, victim *process, orphans []int, begin time.Time) {
	if at, ok := c.watch.podDown(victim.pod, begin); ok {
		k.Kubelet = at.Sub(begin)
	}
	if at := c.watch.planned(c.name, begin); !at.IsZero() {
		k.Operator = at.Sub(begin)
	}
	given := make(map[int]bool)
	for _, t := range c.ledger.tellings(begin, begin.Add(k.Orphans[len(k.Orphans)-1])) {
		for _, p := range t.partitions {
			if t.event == 'G' && t.by != victim && slices.Contains(orphans, p) && !given[p] {
				given[p] = true
				k.Client = time.Duration(t.at - begin.UnixNano())
			}
		}
	}
}

// roll is what a rolling update did.
type roll struct {
	Took time.Duration
	// Moved is how often a partition went from one pod to another.
	Moved int
	// Pauses are each partition's longest time without a record, ascending.
	Pauses []time.Duration
}

// roll replaces every pod.
func (c *cell) roll(ctx context.Context) (*roll, error) {
	before, err := c.rest(ctx)
	if err != nil {
		return nil, err
	}
	old := before.pods()
	begin := time.Now()
	if _, err := kubectl(ctx, "rollout", "restart", "deployment/"+c.name); err != nil {
		return nil, err
	}
	_, err = c.settleOn(ctx, func(now owners) bool {
		return !slices.ContainsFunc(now, func(p *process) bool { return slices.Contains(old, p.pod) })
	})
	if err != nil {
		return nil, fmt.Errorf("a rolling update: %w", err)
	}
	end := time.Now()
	r := &roll{Took: end.Sub(begin) - calm}
	for p := range before {
		r.Moved += c.ledger.moves(p, begin, end)
		r.Pauses = append(r.Pauses, c.ledger.pause(p, begin, end))
	}
	slices.Sort(r.Pauses)
	return r, nil
}
