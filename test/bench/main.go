// SPDX-License-Identifier: Apache-2.0

// Command bench measures this project's broker beside others, in one run on one machine. docs/benchmarks.md says what was found.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	go runSpawns()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := mainErr(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// quickPeers are those of the short run.
const quickPeers = "^(ringmaster|kafka|disk|kfake-memory)"

// options are the flags.
type options struct {
	peers, works     string
	rounds           int
	duration, warmUp time.Duration
	// warmPeer and warmKafka are how long servers work before the first round.
	warmPeer, warmKafka time.Duration
	bytes               int64
	dir                 string
	ringmaster, kafka   string
	json, doc, profile  string
	quick               bool
}

func mainErr(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == serveWord {
		return serve(ctx, os.Args[2:])
	}
	var o options
	flag.StringVar(&o.peers, "peers", ".", "the `REGEXP` of the peers to measure")
	flag.StringVar(&o.works, "works", ".", "the `REGEXP` of the works to do")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each work is done with each peer, in turns")
	flag.DurationVar(&o.duration, "duration", 1500*time.Millisecond, "how long each work is measured")
	flag.DurationVar(&o.warmUp, "warm-up", 700*time.Millisecond, "how long each work runs before it is measured")
	flag.Int64Var(&o.bytes, "bytes", 1500*mib, "ends a measurement early, in bytes")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "the `DIR` on the disk that all peers use; a new directory is made in it")
	flag.StringVar(&o.ringmaster, "ringmaster", "bin/ringmaster", "this project's binary")
	flag.StringVar(&o.kafka, "kafka", "bin/bench/kafka", "the `DIR` of Kafka's jars")
	flag.StringVar(&o.json, "o", "", "also write the samples as JSON to this `FILE`")
	flag.StringVar(&o.doc, "doc", "", "also write the sections that were done whole into this `FILE`, between their marked lines")
	flag.BoolVar(&o.quick, "quick", false, "a few works, with this project's broker, Kafka, kfake and the disk, in less than three minutes")
	flag.StringVar(&o.profile, "profile", "", "write perf profiles of this project's broker to this `DIR`")
	flag.Parse()
	o.warmPeer, o.warmKafka = time.Second, 7*time.Second
	if o.quick {
		o.duration, o.warmUp, o.warmKafka = 600*time.Millisecond, 200*time.Millisecond, 4*time.Second
		if o.peers == "." {
			o.peers = quickPeers
		}
	}
	return o.run(ctx)
}

func (o *options) run(ctx context.Context) (err error) {
	r := &runner{
		window: window{o.warmUp, o.duration, o.bytes / 6, o.bytes}, rounds: o.rounds, out: os.Stderr, profile: o.profile, started: time.Now(),
		warmPeer: o.warmPeer, warmKafka: o.warmKafka, loaded: make(map[loading]bool),
	}
	if r.dir, err = os.MkdirTemp(o.dir, "ringmaster-bench-"); err != nil {
		return fmt.Errorf("make a directory for the data: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	chosen, err := regexp.Compile(o.peers)
	if err != nil {
		return fmt.Errorf("-peers: %w", err)
	}
	picked, err := regexp.Compile(o.works)
	if err != nil {
		return fmt.Errorf("-works: %w", err)
	}
	if r.fresh, err = o.servers(); err != nil {
		return err
	}
	defer func() {
		for _, p := range r.peers {
			if p.server() != nil {
				p.server().stop()
			}
		}
	}()
	works := slices.DeleteFunc(allWorks(), func(w work) bool { return !picked.MatchString(w.Name) || o.quick && !w.Quick })
	for i := range works {
		if w := &works[i]; o.quick && w.Limit > 0 {
			w.Limit = quickLimit
		}
	}
	if err := r.open(ctx, chosen, works); err != nil {
		return err
	}
	if err := r.warm(ctx); err != nil {
		return err
	}
	machine := o.machine(ctx)
	err = r.run(ctx, works)
	r.say("done in %s", since(r.started))
	return errors.Join(err, o.report(ctx, r, machine, works))
}

// report prints what was found, and writes it where that is asked for.
func (o *options) report(ctx context.Context, r *runner, machine []fact, works []work) error {
	var all []*report
	for _, s := range sections {
		found := &report{section: s, Machine: machine, Settings: o.settings()}
		if s.heading == groupHeading {
			found.Settings = groupSettings(o)
		}
		for i := range works {
			if s.holds(&works[i]) {
				found.Works = append(found.Works, works[i])
			}
		}
		for _, one := range r.samples {
			if slices.ContainsFunc(found.Works, func(w work) bool { return w.Name == one.Work }) {
				found.Samples = append(found.Samples, one)
			}
		}
		if len(found.Samples) == 0 {
			continue
		}
		all = append(all, found)
		if _, err := os.Stdout.Write(found.markdown()); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		if o.doc != "" && ctx.Err() == nil && !o.quick && found.whole(r) {
			if err := found.write(o.doc); err != nil {
				return err
			}
		}
	}
	if o.json == "" || len(all) == 0 {
		return nil
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.WriteFile(o.json, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
