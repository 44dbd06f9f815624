// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// section is a part of the document that is written by itself, between two marked lines, by a run that did all of its works.
type section struct {
	begin, end string
	// heading is that of its parts.
	heading string
	holds   func(w *work) bool
}

// groupHeading is that of the section of groups.
const groupHeading = "###"

// sections are the parts of the document.
var sections = []section{
	{
		"<!-- bench: begin; \"make bench\" writes what is between these lines -->", "<!-- bench: end -->", "##",
		func(w *work) bool { return w.Kind != kindGroup },
	},
	{
		"<!-- rebalance: begin; \"make bench\" and \"BENCH=rebalance make bench\" write what is between these lines -->", "<!-- rebalance: end -->", groupHeading,
		func(w *work) bool { return w.Kind == kindGroup },
	},
}

// report is what a run found of a section.
type report struct {
	section  section
	Machine  []fact    `json:"machine"`
	Settings []fact    `json:"settings"`
	Works    []work    `json:"works"`
	Samples  []*sample `json:"samples"`
}

// fact is a named line of the report.
type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// markdown writes the report as a part of a document.
func (r *report) markdown() []byte {
	var b bytes.Buffer
	part := func(title string) { fmt.Fprintf(&b, "\n%s %s\n\n", r.section.heading, title) }
	part("Targets")
	r.targets(&b)
	part("Machine")
	facts(&b, r.Machine)
	part("Settings")
	facts(&b, r.Settings)
	part("Results")
	b.WriteString("Each figure is the median of its rounds where it does not say otherwise; behind MB/s are the lowest and the highest round.\n")
	for i := range r.Works {
		if r.has(&r.Works[i]) {
			r.table(&b, &r.Works[i])
		}
	}
	r.failures(&b)
	return bytes.TrimPrefix(b.Bytes(), []byte("\n"))
}

// whole says whether all works of the section were done with all their peers.
func (r *report) whole(run *runner) bool {
	works := 0
	for _, w := range allWorks() {
		if !r.section.holds(&w) {
			continue
		}
		works++
		if slices.ContainsFunc(w.Peers, func(name string) bool { return run.peer(name) == nil }) {
			return false
		}
	}
	return works == len(r.Works)
}

// facts writes a list.
func facts(b *bytes.Buffer, all []fact) {
	for _, f := range all {
		fmt.Fprintf(b, "- **%s**: %s\n", f.Name, f.Value)
	}
}

// targets writes what became of them.
func (r *report) targets(b *bytes.Buffer) {
	all := results(r.Samples)
	passed := 0
	for i := range all {
		if all[i].passed() {
			passed++
		}
	}
	fmt.Fprintf(b, "%d of %d are met.\n\n", passed, len(all))
	b.WriteString("| target | work | figures | is | should be | |\n|---|---|---|---|---|---|\n")
	for i := range all {
		t := &all[i]
		sign, value := "≥", fmt.Sprintf("%.2f", t.value)
		if t.atMost {
			sign = "≤"
		}
		figures := figure(t.mine) + " " + t.unit
		if t.of != "" {
			figures = fmt.Sprintf("%s : %s %s", figure(t.mine), figure(t.theirs), t.unit)
		} else {
			value = figure(t.value)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s %g | %s |\n", t.what, t.work, figures, value, sign, t.bound, t.verdict())
	}
}

// figure writes a number with as many digits as it is worth.
func figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// has says whether there is anything to show of a work.
func (r *report) has(w *work) bool {
	return slices.ContainsFunc(r.Samples, func(s *sample) bool { return s.Work == w.Name && s.Error == "" })
}

// column is one of a table.
type column struct {
	title  string
	figure func(*sample) float64
}

// columns are those of a kind of work.
func columns(kind string) []column {
	records := column{"records/s", func(s *sample) float64 { return float64(s.Records) / s.Seconds }}
	latency := []column{
		{"p50 ms", func(s *sample) float64 { return s.P50 }}, {"p99 ms", (*sample).p99}, {"p99.9 ms", func(s *sample) float64 { return s.P999 }},
	}
	cost := []column{
		{"CPU s/GB", (*sample).cpuPerGB}, {"client CPU s/GB", func(s *sample) float64 { return perGB(s.ClientCPU, s.Bytes) }},
		{"peak MB", func(s *sample) float64 { return float64(s.PeakBytes) / 1e6 }},
	}
	switch kind {
	case kindStart:
		return []column{{"first answer ms", (*sample).firstMs}, {"idle MB", (*sample).idleMB}, {"of that anonymous MB", func(s *sample) float64 { return float64(s.IdleAnonBytes) / 1e6 }}}
	case kindConsume:
		return append([]column{records}, cost...)
	case kindCold:
		read := column{"read from disk MB", func(s *sample) float64 { return float64(s.DiskReadBytes) / 1e6 }}
		return append([]column{records, read}, cost...)
	case kindFanOut, kindClient:
		read := column{"read along MB/s", func(s *sample) float64 { return float64(s.ReadBytes) / s.Seconds / 1e6 }}
		return slices.Concat([]column{records, read}, latency, cost)
	case kindHalf:
		return slices.Concat([]column{{"asked MB/s", func(s *sample) float64 { return s.Rate / 1e6 }}}, latency, cost)
	}
	return slices.Concat([]column{records}, latency, cost)
}

// table writes a work's table.
func (r *report) table(b *bytes.Buffer, w *work) {
	loads := figures(r.Samples, w.Name, "", func(s *sample) float64 { return s.Load })
	fmt.Fprintf(b, "\n#%s %s\n\nThe machine's load average was %.1f to %.1f.\n\n", r.section.heading, strings.ToUpper(w.Name[:1])+w.Name[1:], slices.Min(loads), slices.Max(loads))
	if w.Kind == kindGroup {
		r.groupTable(b, w)
		return
	}
	cols := columns(w.Kind)
	head, rule := "| |", "|---|"
	if w.Kind != kindStart {
		head, rule = head+" MB/s | |", rule+"---:|---|"
	}
	for _, c := range cols {
		head, rule = head+" "+c.title+" |", rule+"---:|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, rule)
	for _, name := range w.Peers {
		all := figures(r.Samples, w.Name, name, (*sample).mbps)
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s |", name)
		if w.Kind != kindStart {
			fmt.Fprintf(b, " %s | %s–%s |", figure(median(all)), figure(slices.Min(all)), figure(slices.Max(all)))
		}
		for _, c := range cols {
			fmt.Fprintf(b, " %s |", figure(medianOf(r.Samples, w.Name, name, c.figure)))
		}
		b.WriteString("\n")
	}
}

// failures writes what could not be measured.
func (r *report) failures(b *bytes.Buffer) {
	first := true
	for _, s := range r.Samples {
		if s.Error == "" {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n#%s Not measured\n\n", r.section.heading)
			first = false
		}
		line, _, _ := strings.Cut(s.Error, "\n")
		fmt.Fprintf(b, "- %s, %s, round %d: %s\n", s.Work, s.Peer, s.Round+1, line)
	}
}

// write puts the report between its section's marked lines of a document.
func (r *report) write(path string) error {
	doc, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	before, rest, ok := bytes.Cut(doc, []byte(r.section.begin))
	_, after, ok2 := bytes.Cut(rest, []byte(r.section.end))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", path, r.section.begin, r.section.end)
	}
	text := bytes.Join([][]byte{before, []byte(r.section.begin + "\n\n"), r.markdown(), []byte("\n" + r.section.end), after}, nil)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return errors.Join(errors.New("write the document"), err)
	}
	return nil
}

// settings are what a reader must know to judge the figures.
func (o *options) settings() []fact {
	return []fact{
		{"Rounds", fmt.Sprintf("%d; each work is done with one peer after the other, and each round begins with another peer", o.rounds)},
		{"Window", fmt.Sprintf("%v after %v of warm-up, ended early by %d MB (the warm-up by a sixth of that), so that what is dirty stays below the kernel's limit; "+
			"before each, all that is dirty is written to disk", o.duration, o.warmUp, o.bytes/1e6)},
		{"Before the first round", fmt.Sprintf("each peer produces for %v and consumes for half of that, Kafka for %v (its compiler)", o.warmPeer, o.warmKafka)},
		{"Data", "values of fixed seeded bytes, half of each random, half repeating; batches are not compressed by the producer; MB/s counts values alone"},
		{"Producers", "one connection each, 5 requests in flight, batches of 16 KB (or 1 MB), one for each partition, at most 256 KB (1 MB) a request; " +
			"idempotent with acks=all, as clients are by default"},
		{"Consumers", "one connection each, one fetch in flight, at most 10 MB a fetch and 1 MB a partition, min 1 byte, wait 500 ms; headers of batches are " +
			"read, records are not decoded"},
		{"Cold files", "the kernel drops what it holds of all files in the benchmark's directory; all is read once, dropped again, and the second reading counts"},
		{"Latency", "of one request, so at full speed it is mostly the queue of what is in flight. At half rate the loop is open: a request's time counts from when it " +
			"was due, not from when it could be sent (no coordinated omission)"},
		{"CPU", "user and system time of the server's process, from /proc; peak memory is its VmHWM, reset before each window"},
		{"Processors", "nothing is pinned: client and server share all cores"},
		{"ringmaster-flush, ringmaster-os", "one process, topics with flush.messages=1 (its default) and 9223372036854775807"},
		{"kafka-flush, kafka-os", "one process (KRaft, broker and controller, the shipped server.properties, 1 GB of heap as its script sets), topics with flush.messages=1 and its " +
			"default, none"},
		{"kfake-memory, kfake-flush", "franz-go's fake broker without a data directory, and with one and SyncWrites"},
		{"redis-always, redis-everysec", "Redis Streams: an entry for each record, as many XADD in one write as a request has records; AOF with that appendfsync, its " +
			"rewrite and RDB off while measured; read with XREAD COUNT 1000"},
		{"nats-always, nats-default", "JetStream file storage, a stream for each partition, a message for each record, as many PUB in one write as a request has records, each " +
			"acknowledged; SyncAlways and the default of 2 minutes; read with pull consumers"},
		{"disk-flush, disk-os", "this program: a file for each partition; its goroutine appends, with one write, the batches that all producers together may have in flight for the " +
			"partition, then fdatasync (or none)"},
	}
}

// since writes a duration for people.
func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }
