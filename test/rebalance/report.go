// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figures are all that a run measured.
type figures struct {
	Begin      time.Time
	Took       time.Duration
	Partitions int
	Period     time.Duration
	Cells      []*cellResult
	Bursts     []*burst
	// Failures say why groups were not made.
	Failures []string
}

// cellResult is what one kind of client did with one system.
type cellResult struct {
	System, Kind string
	Steps        []*step
	Kills        []*kill
	// ShortKills are with the shortest session timeout.
	ShortKills []*kill
	Roll       *roll
	// Failure says why it ended early.
	Failure string
}

// The targets: how long a killed consumer's partitions may be without a reader, and a group from nothing to stable.
const (
	killMedian, killTail   = 1500 * time.Millisecond, 2500 * time.Millisecond
	killOverHeartbeat      = time.Second
	smallGroup, largeGroup = time.Second, 5 * time.Second
)

// The page's measured part is between these lines.
const (
	beginMark = "<!-- measured: \"make rebalance\" writes what is between these lines -->"
	endMark   = "<!-- measured: end -->"
)

// orphans are the times of all partitions of some kills, ascending.
func orphans(kills []*kill) []time.Duration {
	var all []time.Duration
	for _, k := range kills {
		all = append(all, k.Orphans...)
	}
	slices.Sort(all)
	return all
}

// quantile returns the value that a part of ascending values does not exceed; 0 where there is none.
func quantile(ascending []time.Duration, part float64) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	return ascending[max(0, int(math.Ceil(part*float64(len(ascending))))-1)]
}

func middle(ascending []time.Duration) time.Duration { return quantile(ascending, 0.5) }
func last(ascending []time.Duration) time.Duration   { return quantile(ascending, 1) }

// short is a time in seconds or milliseconds.
func short(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// ratio says how many times as long another system takes.
func ratio(other, ours time.Duration) string {
	if other == 0 || ours == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.1f×)", other.Seconds()/ours.Seconds())
}

// met says whether a time is within a target, or by how much it is not.
func met(d, target time.Duration) string {
	if d <= target {
		return "met"
	}
	return "missed by " + short(d-target)
}

// cell finds what a kind did with a system; an empty one where it was not measured.
func (f *figures) cell(system, kind string) *cellResult {
	for _, c := range f.Cells {
		if c.System == system && c.Kind == kind {
			return c
		}
	}
	return &cellResult{}
}

// table writes a table in Markdown.
func table(b *strings.Builder, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
	b.WriteString("\n")
}

// page is the measured part.
func (o *options) page(ctx context.Context, f *figures) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "\n%s, %d cores, %s, Linux %s. %s. Apache Kafka %s on %s. A run of %s.\n\n", f.Begin.UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), processor(), kernel(ctx),
		firstLine(ctx, o.ringmaster, "version"), o.kafkaVersion(), firstLine(ctx, o.java, "-version"), f.Took.Round(time.Minute))
	f.kills(b)
	f.causes(b)
	f.steps(b)
	f.rolls(b)
	f.bursts(b)
	for _, c := range f.Cells {
		if c.Failure != "" {
			fmt.Fprintf(b, "Ended early: %s with %s: %s.\n\n", c.Kind, c.System, c.Failure)
		}
	}
	for _, failure := range f.Failures {
		fmt.Fprintf(b, "Ended early: %s.\n\n", failure)
	}
	return b.String()
}

func (f *figures) kills(b *strings.Builder) {
	b.WriteString("### A consumer is killed: until its partitions are read elsewhere\n\n")
	rows := [][]string{{"client", "Ringmaster: median", "p99", "slowest of", "target", "Kafka, shortest session (6 s): median", "slowest", "Kafka, default session: median", "slowest", "others paused: Ringmaster", "Kafka, default"}}
	for _, k := range kinds {
		ours, theirs := f.cell("ringmaster", k.name), f.cell("kafka", k.name)
		if len(ours.Kills)+len(theirs.Kills)+len(theirs.ShortKills) == 0 {
			continue
		}
		times, brief, whole := orphans(ours.Kills), orphans(theirs.ShortKills), orphans(theirs.Kills)
		half, tail := killMedian, killTail
		if !k.told {
			half, tail = k.heartbeat+killOverHeartbeat, k.heartbeat+killOverHeartbeat
		}
		verdict := "median " + met(middle(times), half) + ", p99 " + met(quantile(times, 0.99), tail)
		rows = append(rows, []string{k.title, short(middle(times)), short(quantile(times, 0.99)), fmt.Sprintf("%s of %d", short(last(times)), len(times)), verdict,
			measured(brief, middle) + ratio(middle(brief), middle(times)), measured(brief, last), measured(whole, middle) + ratio(middle(whole), middle(times)), measured(whole, last),
			others(ours.Kills), others(theirs.Kills)})
	}
	table(b, rows)
}

// measured is a figure of times, or a dash where there are none.
func measured(times []time.Duration, of func([]time.Duration) time.Duration) string {
	if len(times) == 0 {
		return "–"
	}
	return short(of(times))
}

// others is the longest pause of what was not the victim's.
func others(kills []*kill) string {
	var times []time.Duration
	for _, k := range kills {
		times = append(times, k.OthersPause)
	}
	slices.Sort(times)
	return measured(times, last)
}

// causes says where the time goes with Ringmaster.
func (f *figures) causes(b *strings.Builder) {
	rows := [][]string{{"client", "the kubelet has told", "the operator has planned", "the last new reader was told", "its last first record"}}
	for _, k := range kinds {
		kills := f.cell("ringmaster", k.name).Kills
		if len(kills) == 0 {
			continue
		}
		row := []string{k.title}
		for _, of := range []func(*kill) time.Duration{
			func(k *kill) time.Duration { return k.Kubelet }, func(k *kill) time.Duration { return k.Operator },
			func(k *kill) time.Duration { return k.Client }, func(k *kill) time.Duration { return last(k.Orphans) },
		} {
			var times []time.Duration
			for _, k := range kills {
				if d := of(k); d > 0 {
					times = append(times, d)
				}
			}
			slices.Sort(times)
			row = append(row, fmt.Sprintf("%s, %s", measured(times, middle), measured(times, last)))
		}
		rows = append(rows, row)
	}
	b.WriteString("Where the time goes, since the kill (Ringmaster; median and longest):\n\n")
	table(b, rows)
}

func (f *figures) steps(b *strings.Builder) {
	fmt.Fprintf(b, "### The number of pods changes (%d partitions)\n\nMoved/minimum; pods that give something up → pods that paused; longest time without a record of a partition that stays, and of one that moves.\n\n", f.Partitions)
	rows := [][]string{{"client", "system", "5 → 6", "6 → 5", "5 → 10", "10 → 11", "11 → 10"}}
	for _, k := range kinds {
		for _, system := range []string{"ringmaster", "kafka"} {
			steps := f.cell(system, k.name).Steps
			if len(steps) == 0 {
				continue
			}
			row := []string{k.title, system}
			for _, s := range steps {
				row = append(row, fmt.Sprintf("%d/%d; %d → %d; %s, %s", s.Moved, s.Minimum, s.Losers, s.Paused, short(s.KeptPause), short(s.MovedPause)))
			}
			rows = append(rows, row)
		}
	}
	table(b, rows)
}

func (f *figures) rolls(b *strings.Builder) {
	b.WriteString("### A rolling update of 10 pods (a Deployment that surges by 3)\n\n")
	rows := [][]string{{"client", "Ringmaster: moved / P", "longest pause of a partition: median", "longest", "Kafka: moved / P", "longest pause of a partition: median", "longest"}}
	for _, k := range kinds {
		row, some := []string{k.title}, false
		for _, system := range []string{"ringmaster", "kafka"} {
			r := f.cell(system, k.name).Roll
			if r == nil {
				row = append(row, "–", "–", "–")
				continue
			}
			some = true
			row = append(row, fmt.Sprintf("%.2f", float64(r.Moved)/float64(f.Partitions)), short(middle(r.Pauses)), short(last(r.Pauses)))
		}
		if some {
			rows = append(rows, row)
		}
	}
	table(b, rows)
}

func (f *figures) bursts(b *strings.Builder) {
	b.WriteString("### A group from nothing to stable\n\n")
	rows := [][]string{{"group", "protocol", "Ringmaster: median", "slowest of", "since the last pod was ready", "target", "Kafka: median", "slowest"}}
	for _, ours := range f.Bursts {
		if ours.System != "ringmaster" || len(ours.Times) == 0 {
			continue
		}
		protocol, target := "classic", smallGroup
		if ours.Consumer {
			protocol = "KIP-848"
		}
		if ours.Members > 100 {
			target = largeGroup
		}
		var theirs []time.Duration
		for _, k := range f.Bursts {
			if k.System == "kafka" && k.Members == ours.Members && k.Consumer == ours.Consumer {
				theirs = k.Times
			}
		}
		rows = append(rows, []string{fmt.Sprintf("%d partitions, %d members", ours.Partitions, ours.Members), protocol, short(middle(ours.Times)),
			fmt.Sprintf("%s of %d", short(last(ours.Times)), len(ours.Times)), short(last(ours.LastReady)), met(last(ours.Times), target),
			measured(theirs, middle) + ratio(middle(theirs), middle(ours.Times)), measured(theirs, last)})
	}
	table(b, rows)
}

// report prints the figures, and writes them into the page if it is to.
func (o *options) report(ctx context.Context, f *figures) error {
	part := o.page(ctx, f)
	fmt.Println(part)
	if err := o.save(f); err != nil || o.doc == "" {
		return err
	}
	old, err := os.ReadFile(o.doc)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	head, rest, ok := strings.Cut(string(old), beginMark+"\n")
	_, tail, found := strings.Cut(rest, endMark)
	if !ok || !found {
		return errors.New("the page lacks the lines that the figures belong between")
	}
	return os.WriteFile(o.doc, []byte(head+beginMark+"\n"+part+endMark+tail), 0o644)
}

// firstLine is what a program prints first.
func firstLine(ctx context.Context, name string, args ...string) string {
	out, err := command(ctx, "", "sh", append([]string{"-c", `"$0" "$@" 2>&1`, name}, args...)...)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(line)
}

func (o *options) kafkaVersion() string {
	jars, _ := filepath.Glob(filepath.Join(o.kafka, "kafka_2.13-*.jar")) // the pattern is good
	if len(jars) == 0 {
		return "unknown"
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "kafka_2.13-"), ".jar")
}

func kernel(ctx context.Context) string { return firstLine(ctx, "uname", "-r") }

// processor is the machine's.
func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
