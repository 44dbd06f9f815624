// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
	"github.com/ringmaster-dev/ringmaster/test/conformance/page"
)

// dash is where there is nothing to say.
const dash = "–"

// print prints the tables.
func (r *heartbeatsRun) print() {
	b := &bytes.Buffer{}
	r.tables(b)
	_, _ = os.Stdout.Write(b.Bytes())
}

// write writes them into the page.
func (r *heartbeatsRun) write(path string) error {
	b := &bytes.Buffer{}
	r.tables(b)
	return page.Replace(path, "make heartbeats", b.Bytes())
}

func (r *heartbeatsRun) tables(b *bytes.Buffer) {
	if r.changes > 0 {
		fmt.Fprintf(b, "\nFrom a change of the plan to the old member's rejoin, until the new one is told that it has the partition, and until it has read a record of it: median and 99th percentile of %d changes, in ms:\n\n", r.changes)
		b.WriteString("| client | protocol | not held: rejoin | told | read | held: rejoin | told | read | members that the change did not concern |\n")
		b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
		for _, t := range r.trials {
			was, is := t.changes[0], t.changes[1]
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", t.name, label(t.protocol), times(was.Rejoin, 0.99), times(was.Granted, 0.99), times(was.Read, 0.99),
				times(is.Rejoin, 0.99), times(is.Granted, 0.99), times(is.Read, 0.99), saw(len(was.Rejoin) > 0 && len(is.Rejoin) > 0, slices.Concat(was.Others, is.Others)))
		}
		r.traffic(b)
	}
	if r.commits > 0 {
		fmt.Fprintf(b, "\nCommits, one after the other for %s, in ms: median, 99th percentile and the longest one:\n\n", duration(r.commits))
		b.WriteString("| client | protocol | not held | held | commits |\n| --- | --- | --- | --- | --- |\n")
		for _, t := range r.trials {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %d, %d |\n", t.name, label(t.protocol), times(t.commits[0], 0.99, 1), times(t.commits[1], 0.99, 1), len(t.commits[0]), len(t.commits[1]))
		}
	}
	if r.watch > 0 {
		fmt.Fprintf(b, "\nGroups to which nothing happens, all at the same time for %s, heartbeats held:\n\n| client | protocol | rebalances |\n| --- | --- | --- |\n", duration(r.watch))
		for _, t := range r.trials {
			fmt.Fprintf(b, "| %s | %s | %s |\n", t.name, label(t.protocol), saw(t.watched, t.spurious))
		}
	}
	b.WriteByte('\n')
}

// duration is a time without the units that say nothing.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}

// label is a protocol's name in the tables.
func label(protocol string) string {
	if protocol == member.Consumer {
		return "KIP-848"
	}
	return protocol
}

// saw counts rebalances.
func saw(measured bool, moves []string) string {
	switch {
	case !measured:
		return dash
	case len(moves) == 0:
		return "none saw anything"
	}
	return fmt.Sprintf("**%d calls**", len(moves))
}

// times are the median and some quantiles, in milliseconds.
func times(list []time.Duration, quantiles ...float64) string {
	if len(list) == 0 {
		return dash
	}
	sorted := slices.Sorted(slices.Values(list))
	var parts []string
	for _, q := range append([]float64{0.5}, quantiles...) {
		parts = append(parts, millis(quantile(sorted, q)))
	}
	return strings.Join(parts, ", ")
}

// quantile is the nearest rank of a sorted list that is not empty.
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// millis writes three digits or so.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.0f", ms)
	}
}

// traffic writes what was seen of the clients' heartbeats on the wire, while the plan changed.
func (r *heartbeatsRun) traffic(b *bytes.Buffer) {
	b.WriteString("\nWhat the clients send, as it was seen on the wire: the heartbeats' interval where they are not held (median), how long they are held (median, and the longest), and what else " +
		"comes by the connection that they use:\n\n")
	b.WriteString("| client | protocol | calls itself | interval | held for | also on the connection |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, t := range r.trials {
		was, is := r.beats(t, 0), r.beats(t, 1)
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", t.name, label(t.protocol), cmp.Or(strings.Join(is.software, ", "), "nothing"), times(was.gaps), times(is.took, 1),
			cmp.Or(strings.Join(is.others, ", "), "nothing"))
	}
}

// beats are what is known of the heartbeats of a client's members.
type beats struct {
	software []string
	gaps     []time.Duration
	took     []time.Duration
	others   []string
}

// notable are the requests that are told of where they share a connection with heartbeats: those that wait long, and those that somebody waits for.
var notable = []int16{int16(kmsg.Fetch), int16(kmsg.OffsetCommit), int16(kmsg.Metadata), int16(kmsg.ListOffsets)}

// beats reads what the tap has noted.
func (r *heartbeatsRun) beats(t *trial, i int) beats {
	var out beats
	seen := map[int16]bool{}
	for _, id := range t.changes[i].Members {
		out.software = append(out.software, r.sides[i].tap.Software(id)...)
		exchanges := r.sides[i].tap.Exchanges(id)
		last := map[int]time.Time{}
		for _, e := range exchanges {
			if e.Key != int16(kmsg.Heartbeat) && e.Key != int16(kmsg.ConsumerGroupHeartbeat) {
				continue
			}
			if before, ok := last[e.Conn]; ok {
				out.gaps = append(out.gaps, e.Sent.Sub(before))
			}
			last[e.Conn] = e.Sent
			if e.Took >= 0 {
				out.took = append(out.took, e.Took)
			}
		}
		for _, e := range exchanges {
			if _, ok := last[e.Conn]; ok && slices.Contains(notable, e.Key) {
				seen[e.Key] = true
			}
		}
	}
	slices.Sort(out.software)
	out.software = slices.Compact(out.software)
	for _, key := range notable {
		if seen[key] {
			out.others = append(out.others, kmsg.NameForKey(key))
		}
	}
	return out
}
