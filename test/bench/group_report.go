// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
)

func (p *phase) seconds() float64 { return p.Seconds }

// phaseFigures are a figure of a phase in a work's rounds with a peer.
func phaseFigures(samples []*sample, work, peer, name string, figure func(*phase) float64) []float64 {
	var all []float64
	for _, s := range samples {
		if s.Work != work || s.Peer != peer || s.Error != "" {
			continue
		}
		for i := range s.Phases {
			if s.Phases[i].Name == name {
				all = append(all, figure(&s.Phases[i]))
			}
		}
	}
	return all
}

// groupColumn is one of a group's table.
type groupColumn struct {
	title  string
	figure func(*phase) float64
	sum    func([]float64) float64
	// not names a phase of which it says nothing.
	not string
}

// groupColumns are those of a work's table.
func groupColumns(w *work) []groupColumn {
	cols := []groupColumn{
		{"median s", (*phase).seconds, median, ""},
		{"p99 s", (*phase).seconds, func(v []float64) float64 { return quantile(v, 0.99) }, ""},
		{"slowest s", (*phase).seconds, slices.Max[[]float64], ""},
	}
	if w.Restart {
		cols = append(cols, groupColumn{"broker answers after s", func(p *phase) float64 { return p.FirstAnswer }, median, ""})
	} else {
		cols = append(cols, groupColumn{"members that lost or gained", func(p *phase) float64 { return float64(p.Changed) }, median, ""})
	}
	if w.Thin {
		cols = append(cols, groupColumn{"joined again", func(p *phase) float64 { return float64(p.Rejoined) }, median, ""})
	}
	cols = append(cols, groupColumn{"partitions moved", func(p *phase) float64 { return float64(p.Moved) }, median, phaseStart})
	if !w.Restart {
		cols = append(cols, groupColumn{"unread partition-seconds", func(p *phase) float64 { return p.Idle }, median, phaseStart})
	}
	if w.Thin && !w.Restart && w.Protocol != protocolConsumer {
		cols = append(cols, groupColumn{"leader's plan s", func(p *phase) float64 { return p.Planning }, median, ""})
	}
	return append(cols, groupColumn{"broker CPU s, mean", func(p *phase) float64 { return p.ServerCPU }, mean, ""})
}

// groupTable writes a group's table.
func (r *report) groupTable(b *bytes.Buffer, w *work) {
	cols := groupColumns(w)
	head, rule := "| | | rounds |", "|---|---|---:|"
	for _, c := range cols {
		head, rule = head+" "+c.title+" |", rule+"---:|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, rule)
	for _, name := range []string{phaseStart, phaseJoin, phaseLeave, phaseRestart} {
		for _, peer := range w.Peers {
			n := len(phaseFigures(r.Samples, w.Name, peer, name, (*phase).seconds))
			if n == 0 || w.Restart && name == phaseStart { // with a broker that has just been started
				continue
			}
			fmt.Fprintf(b, "| %s | %s | %d |", name, peer, n)
			for _, c := range cols {
				if c.not == name {
					b.WriteString(" |")
					continue
				}
				fmt.Fprintf(b, " %s |", figure(c.sum(phaseFigures(r.Samples, w.Name, peer, name, c.figure))))
			}
			b.WriteString("\n")
		}
	}
	for _, s := range r.Samples {
		if n := len(s.Phases); s.Work == w.Name && n > 0 && s.Phases[n-1].Twice > 0 {
			fmt.Fprintf(b, "\n%s, round %d: %s got a member while another still read them.\n", s.Peer, s.Round+1, plural(s.Phases[n-1].Twice, "partition"))
		}
	}
}

// groupSettings are what a reader must know to judge the figures of groups.
func groupSettings(o *options) []fact {
	return []fact{
		{"Stable", "each partition has one owner, by what the members were told, and the members' shares differ by one at most; with KIP-848 and cooperative-sticky that is when the last " +
			"partition has been given up by one member and taken by the other"},
		{"franz-go consumers", "whole clients in one process, from when they are made; their assignment counts when their callback is called. They read empty topics"},
		{"Members", "of the groups of 1,000: each has one connection, made before the time begins, and does what the group's protocol asks for and nothing else; the leader plans with " +
			"franz-go's balancer. They are the same program for both brokers, on the same processors"},
		{"Heartbeats", fmt.Sprintf("every %v, in both protocols and with both brokers: members hear of a rebalance with their next heartbeat, so this is in most figures, once or, with "+
			"cooperative-sticky, twice. The clients' default is 3 s (classic), the brokers' 5 s (KIP-848)", groupHeartbeat)},
		{"Rounds", "each is a new group; both brokers take turns, and each round begins with another. The p99 of fewer than 100 rounds is the slowest. A member joins and another leaves in each fifth " +
			"round (in each, with 1,000 members)"},
		{"Before the first round", fmt.Sprintf("groups of 100 members become stable over and over, for %v, with Kafka for %v (its compiler)", o.warmPeer, o.warmKafka)},
		{"Partitions moved", "those whose owner after is another than before; those of a member that left are among them"},
		{"Unread", "how long partitions had no owner, summed over partitions"},
		{"Killed", "with SIGKILL, and started at once with the same data at the same address; the time ends when a heartbeat of every member was answered without an error since, and the " +
			"group is stable"},
		{"Waiting for members", fmt.Sprintf("a new classic group waits for %v, and again while members come; one of KIP-848 assigns every %v at most: with both brokers, "+
			"whose defaults are 3 s and 1 s with Kafka", groupDelay, groupDelay)},
		{ringmasterGroups, "one process, its defaults but for these settings"},
		{kafkaGroups, "one process as above (KRaft, 1 GB of heap), its defaults but for these settings and a longer queue of connections (socket.listen.backlog.size)"},
	}
}
