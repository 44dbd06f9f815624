// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/test/e2e/judge"
)

// faultRun is one run of the faults: what it did, saw and found.
type faultRun struct {
	dir      string
	journals *judge.Folder
	watch    *watcher
	random   *rand.Rand
	replicas int
	// normal is the longest gap of each team's pods while nothing happened.
	normal map[string]time.Duration
	fences []judge.Fence
	// found are the broken promises, each once.
	found []string
	rows  []faultRow
}

// faultRow is a line of the report.
type faultRow struct {
	fault, team string
	recovered   time.Duration
	moved       int
	minimum     int32
	steps       int
	unaffected  int
	gap         time.Duration
}

// effect is what a fault does beside what the groups' status tells.
type effect struct {
	// victims are pods that were touched, whatever their share: they are not unaffected.
	victims []string
	// away are partitions whose broker was away.
	away []int32
	// check holds the versions of a team's group against what the fault may do, beyond what every fault may.
	check func(t team, versions []version) []string
}

// blame adds what was found, each finding once.
func (r *faultRun) blame(found ...string) {
	for _, f := range found {
		if !slices.Contains(r.found, f) {
			r.found = append(r.found, f)
			fmt.Println("FOUND:", f)
		}
	}
}

// of are the processes of a team's pods.
func (r *faultRun) of(t team) []*judge.Process {
	return r.journals.Processes(func(pod string) bool { return teamOf(pod) == t.name })
}

func (r *faultRun) feeds() []*judge.Process {
	return r.journals.Processes(func(pod string) bool { return teamOf(pod) == "feed" })
}

func (r *faultRun) refresh() { ExpectWithOffset(1, r.journals.Refresh()).To(Succeed()) }

// faultPods are the pods of all teams, by team.
func faultPods() (map[string][]corev1.Pod, error) {
	var list corev1.PodList
	if err := get(&list, "pods", "-l", "faults=witness"); err != nil {
		return nil, err
	}
	out := map[string][]corev1.Pod{}
	for _, p := range list.Items {
		out[p.Labels["app"]] = append(out[p.Labels["app"]], p)
	}
	return out, nil
}

// unsettled says what a team lacks to be at rest, or nothing: as many pods as it is to have, every one an active member, nothing held by another process, what
// status says Stable and balanced and held by the clients, and a record read of each partition since it was given.
func (r *faultRun) unsettled(t team, pods []corev1.Pod) string {
	names := []string{}
	for _, p := range pods {
		if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("pod %s is on its way", p.Name)
		}
		names = append(names, p.Name)
	}
	if len(names) != t.size(r.replicas) {
		return fmt.Sprintf("%d pods", len(names))
	}
	v := r.watch.now(t.name)
	if v.group.Status.State != v1alpha1.GroupStable || len(v.group.Status.Members) != len(names) {
		return fmt.Sprintf("state %s with %d members", v.group.Status.State, len(v.group.Status.Members))
	}
	for _, m := range v.group.Status.Members {
		if m.Phase != v1alpha1.MemberActive || !slices.Contains(names, m.Name) {
			return fmt.Sprintf("member %s is %s", m.Name, m.Phase)
		}
	}
	for _, p := range r.of(t) {
		if !slices.Contains(names, p.Pod) && p.Holds() {
			return fmt.Sprintf("the process of %s is gone, and has not let go", p.Name)
		}
	}
	return r.unheld(t, v, func(string) bool { return true })
}

// unheld says which member does not hold, and read, what status says, of those that are asked for.
func (r *faultRun) unheld(t team, v version, asked func(pod string) bool) string {
	processes := r.of(t)
	held, read := judge.Holdings(processes), judge.ReadSinceGiven(processes)
	total := 0
	for name, share := range v.shares() {
		total += len(share)
		if !asked(name) {
			continue
		}
		if mine := slices.Sorted(slices.Values(held[name])); !slices.Equal(mine, share) {
			return fmt.Sprintf("%s holds %v, not %v", name, mine, share)
		}
		for _, p := range share {
			if !slices.Contains(read[name], p) {
				return fmt.Sprintf("%s has read nothing of partition %d", name, p)
			}
		}
	}
	if total != ledgerPartitions {
		return fmt.Sprintf("%d partitions are assigned", total)
	}
	return ""
}

// settle waits until every team is at rest, and returns when each was.
func (r *faultRun) settle(limit time.Duration) map[string]int64 {
	GinkgoHelper()
	at := map[string]int64{}
	lacks := map[string]string{}
	for deadline := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		pods, err := faultPods()
		if err != nil {
			continue
		}
		r.refresh()
		clear(lacks)
		for _, t := range teams {
			why := r.unsettled(t, pods[t.name])
			if why == "" {
				if at[t.name] == 0 {
					at[t.name] = time.Now().UnixNano()
				}
				continue
			}
			delete(at, t.name)
			lacks[t.name] = why
		}
		if len(lacks) == 0 {
			return at
		}
		if time.Now().After(deadline) {
			Fail(fmt.Sprintf("not at rest after %v: %v; found until then:\n%s", limit, lacks, strings.Join(r.found, "\n")))
		}
	}
}

// fault does something to the teams, waits until they are at rest, and judges what they did meanwhile.
func (r *faultRun) fault(name string, do func() effect) {
	GinkgoHelper()
	By(name)
	r.refresh()
	from := time.Now().UnixNano()
	done := do()
	settled := r.settle(3 * time.Minute)
	to := time.Now().UnixNano()
	for _, t := range teams {
		versions := r.watch.between(t.name, from, to)
		row := faultRow{fault: name, team: t.name, recovered: time.Duration(settled[t.name] - from)}
		r.blame(r.judgeSteps(t, versions, &row)...)
		if done.check != nil {
			for _, f := range done.check(t, versions) {
				r.blame(fmt.Sprintf("%s: %s: %s", name, t.name, f))
			}
		}
		r.judgeUnaffected(t, versions, done, from, to, &row)
		r.rows = append(r.rows, row)
		fmt.Println(row)
	}
	r.judgeAll()
}

func (row faultRow) String() string {
	return fmt.Sprintf("%-24s %-6s recovered after %5.1f s, %d moved (minimum %d) in %d steps, %d unaffected with a longest gap of %v",
		row.fault, row.team, row.recovered.Seconds(), row.moved, row.minimum, row.steps, row.unaffected, row.gap.Round(time.Millisecond))
}

// judgeSteps holds each change of an assignment against what it says of itself, and against the minimum.
func (r *faultRun) judgeSteps(t team, versions []version, row *faultRow) []string {
	var found []string
	for i := 1; i < len(versions); i++ {
		a, b := versions[i-1], versions[i]
		n := moved(a, b, map[int32]int{})
		if b.group.Status.Generation == a.group.Status.Generation {
			if n != 0 {
				found = append(found, fmt.Sprintf("%s: %d partitions moved within generation %d", t.name, n, b.group.Status.Generation))
			}
			continue
		}
		last := b.group.Status.LastRebalance
		row.steps++
		row.moved += n
		row.minimum += last.Minimum
		if b.group.Status.Generation != a.group.Status.Generation+1 || n != int(last.Moved) || last.Moved != last.Minimum {
			found = append(found, fmt.Sprintf("%s: generation %d after %d (%s: %s) moved %d partitions, says that it moved %d, and the minimum was %d: %s, then %s", t.name,
				b.group.Status.Generation, a.group.Status.Generation, last.Reason, last.Message, n, last.Moved, last.Minimum, a.group.Status.Assignments, b.group.Status.Assignments))
		}
	}
	return found
}

// judgeUnaffected: a pod whose share stayed as it was throughout, and that the fault did not touch, is told nothing, and reads on.
func (r *faultRun) judgeUnaffected(t team, versions []version, done effect, from, to int64, row *faultRow) {
	processes, feeds := r.of(t), r.feeds()
	for name, share := range unchanged(versions) {
		if slices.Contains(done.victims, name) {
			continue
		}
		row.unaffected++
		for _, c := range judge.Callbacks(processes, name, from, to) {
			r.blame(fmt.Sprintf("%s: unaffected, but %s", row.fault, c))
		}
		share = slices.DeleteFunc(slices.Clone(share), func(p int32) bool { return slices.Contains(done.away, p) })
		gap := judge.LongestGap(processes, feeds, name, share, feedEvery, from, to)
		row.gap = max(row.gap, gap.Length)
		if gap.Length > 2*r.normal[t.name] {
			r.blame(fmt.Sprintf("%s: unaffected, but %v; the longest while nothing happened was %v", row.fault, gap, r.normal[t.name]))
		}
	}
}

// judgeAll holds all that was written down until now against what never may be.
func (r *faultRun) judgeAll() {
	for _, t := range teams {
		processes := r.of(t)
		tenures := judge.Tenures(processes)
		found := slices.Concat(judge.Overlaps(tenures, r.fences), judge.Strays(processes), judge.WrongCommits(processes, tenures))
		for _, f := range found {
			r.blame(t.name + ": " + f)
		}
	}
	for _, p := range r.journals.Processes(func(pod string) bool { return teamOf(pod) == "stranger" }) {
		for _, e := range p.Events {
			if (e.What == judge.Given && len(e.Partitions) > 0) || e.What == judge.Read {
				r.blame(fmt.Sprintf("a client of no member was given %v of %s, or read offset %d of partition %d", e.Partitions, teams[0].name, e.Offset, e.Partition))
			}
		}
	}
}

// calm measures the longest gaps while nothing happens.
func (r *faultRun) calm(length time.Duration) {
	from := time.Now().UnixNano()
	time.Sleep(length)
	to := time.Now().UnixNano()
	r.refresh()
	for _, t := range teams {
		processes, feeds := r.of(t), r.feeds()
		for name, share := range r.watch.now(t.name).shares() {
			gap := judge.LongestGap(processes, feeds, name, share, feedEvery, from, to-int64(2*feedEvery))
			r.normal[t.name] = max(r.normal[t.name], gap.Length)
		}
		fmt.Printf("%s: the longest gap while nothing happened for %v was %v\n", t.name, length, r.normal[t.name])
	}
}

// report prints a line for each fault and team.
func (r *faultRun) report() {
	fmt.Println("\nfault                    team   recovered  moved/minimum  steps  unaffected  longest gap (normal)")
	for _, row := range r.rows {
		fmt.Printf("%-24s %-6s %7.1f s  %5d/%-7d  %5d  %10d  %v (%v)\n", row.fault, row.team, row.recovered.Seconds(), row.moved, row.minimum, row.steps, row.unaffected,
			row.gap.Round(time.Millisecond), r.normal[row.team].Round(time.Millisecond))
	}
}
