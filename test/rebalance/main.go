// SPDX-License-Identifier: Apache-2.0

// Command rebalance measures how consumer groups change hands: pods with ordinary clients on the cluster of hack/cluster, in a managed group of Ringmaster's and in
// Apache Kafka. rebalance.sh starts it, inside the cluster's network.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	dir, source, image, ringmasterImage, ringmaster, helm, kafka, java, classes, python, out, doc, merge string
	// mounts are the machine's folders that pods get at the same place.
	mounts             []string
	systems, kinds     []string
	parts              []string
	rounds             int
	kafkaRounds, short int
	partitions         int
	period             time.Duration
	quick              bool
}

// list is a flag of names with commas between them.
func list(to *[]string, name, initial, usage string) {
	split := func(s string) error {
		*to = strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
		return nil
	}
	_ = split(initial) // it never fails
	flag.Func(name, usage, split)
}

func parse() *options {
	o := &options{}
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	flag.StringVar(&o.dir, "dir", "/var/tmp/ringmaster-rebalance", "a folder for journals and Kafka's data")
	flag.StringVar(&o.source, "source", "test/rebalance", "this module's folder")
	flag.StringVar(&o.image, "image", "localhost/ringmaster-rebalance:dev", "the members' image")
	flag.StringVar(&o.ringmasterImage, "ringmaster-image", "localhost/ringmaster:dev", "Ringmaster's image")
	flag.StringVar(&o.helm, "helm", "helm", "the helm to use")
	flag.StringVar(&o.kafka, "kafka", "", "the folder of Kafka's jars")
	flag.StringVar(&o.java, "java", "java", "the java to use, here and in pods")
	flag.StringVar(&o.classes, "classes", "", "the folder of the Java member's class")
	flag.StringVar(&o.python, "python", "python3", "the python3 with librdkafka, here and in pods")
	flag.StringVar(&o.out, "o", "rebalance.json", "the file for all figures")
	flag.StringVar(&o.doc, "doc", "", "the page to write the figures into")
	flag.StringVar(&o.ringmaster, "ringmaster", "bin/ringmaster", "the ringmaster binary")
	flag.StringVar(&o.merge, "merge", "", "a file of figures of an earlier run to begin with")
	flag.BoolVar(&o.quick, "quick", false, "make few groups")
	list(&o.mounts, "mounts", "", "folders of this machine that pods need, with commas between them")
	list(&o.systems, "systems", "ringmaster,kafka", "what to measure, with commas between them")
	list(&o.kinds, "kinds", strings.Join(names, ","), "the clients, with commas between them")
	list(&o.parts, "parts", "scale,kill,roll", "what to do, with commas between them; burst alone needs no cluster")
	flag.IntVar(&o.rounds, "rounds", 16, "how often a consumer is killed, with each kind of client (at most 20)")
	flag.IntVar(&o.kafkaRounds, "kafka-rounds", 2, "the same with Kafka and its default session timeout")
	flag.IntVar(&o.short, "short-rounds", 5, "the same with Kafka and its shortest session timeout")
	flag.IntVar(&o.partitions, "partitions", 60, "how many partitions the topic has")
	flag.DurationVar(&o.period, "period", 100*time.Millisecond, "how often a record is written to each partition")
	flag.Parse()
	return o
}

// Whatever this program starts ends with it: the kernel says so to a child when the thread ends that made it, and this keeps the main one for what main calls.
func init() { runtime.LockOSThread() }

// dies has a child end with this program.
func dies() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, parse())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rebalance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	r := &figures{Begin: time.Now(), Partitions: o.partitions, Period: o.period}
	if err := o.load(r); err != nil {
		return err
	}
	if slices.Contains(o.parts, "burst") {
		return o.bursts(ctx, r)
	}
	if _, err := command(ctx, "", "kubectl", "create", "namespace", namespace); err != nil && !strings.Contains(err.Error(), "AlreadyExists") {
		return err
	}
	starts := map[string]func(context.Context, *options) (*system, error){"ringmaster": startRingmaster, "kafka": func(ctx context.Context, o *options) (*system, error) {
		return startKafka(ctx, o, kafkaAddress, o.partitions)
	}}
	for _, name := range o.systems {
		start := starts[name]
		if start == nil {
			return fmt.Errorf("there is no system %q", name)
		}
		if err := o.measure(ctx, start, r); err != nil {
			return err
		}
	}
	r.Took = time.Since(r.Begin)
	return o.report(ctx, r)
}

// measure does everything with one system.
func (o *options) measure(ctx context.Context, start func(context.Context, *options) (*system, error), r *figures) error {
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	if err := feed(feeding, s.bootstrap, o.partitions, o.period); err != nil {
		return err
	}
	for i := range kinds {
		k := &kinds[i]
		if !slices.Contains(o.kinds, k.name) {
			continue
		}
		cell, err := o.one(ctx, s, k)
		r.Cells = append(r.Cells, cell)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			cell.Failure = err.Error()
			fmt.Println("rebalance:", s.name, k.name, "failed:", err)
		}
		if err := o.save(r); err != nil {
			return err
		}
	}
	return nil
}

// one does everything with one kind of client.
func (o *options) one(ctx context.Context, s *system, k *kind) (*cellResult, error) {
	r := &cellResult{System: s.name, Kind: k.name}
	if err := o.defaults(ctx, s, k, r); err != nil {
		return r, err
	}
	if s.managed || o.short == 0 || !slices.Contains(o.parts, "kill") {
		return r, nil
	}
	err := within(ctx, o, s, k, shortest, 10, func(ctx context.Context, c *cell) error {
		var err error
		r.ShortKills, err = c.kills(ctx, o.short)
		return err
	})
	return r, err
}

// shortest is the shortest session timeout that Kafka's broker allows.
const shortest = 6 * time.Second

// defaults does what is done with the clients' own session timeout.
func (o *options) defaults(ctx context.Context, s *system, k *kind, r *cellResult) error {
	first, rounds := 10, o.rounds
	if slices.Contains(o.parts, "scale") {
		first = 5
	}
	if !s.managed {
		rounds = o.kafkaRounds
	}
	return within(ctx, o, s, k, 0, first, func(ctx context.Context, c *cell) error {
		if slices.Contains(o.parts, "scale") {
			if err := c.scales(ctx, r); err != nil {
				return err
			}
		}
		before := rounds
		if slices.Contains(o.parts, "roll") { // which brings pods that were not killed
			before = (rounds + 1) / 2
		}
		before = min(before, 10)
		var err error
		if slices.Contains(o.parts, "kill") {
			if r.Kills, err = c.kills(ctx, before); err != nil {
				return err
			}
		}
		if slices.Contains(o.parts, "roll") {
			if r.Roll, err = c.roll(ctx); err != nil {
				return err
			}
			fmt.Printf("rebalance: %s %s: rolling update in %s, moves %d/%d, pauses %s median %s longest\n", s.name, k.name, short(r.Roll.Took), r.Roll.Moved, o.partitions,
				short(middle(r.Roll.Pauses)), short(last(r.Roll.Pauses)))
		}
		if slices.Contains(o.parts, "kill") && rounds > before {
			more, err := c.kills(ctx, min(rounds-before, 10))
			r.Kills = append(r.Kills, more...)
			return err
		}
		return nil
	})
}

// within runs something with consumers, and removes them.
func within(ctx context.Context, o *options, s *system, k *kind, session time.Duration, pods int, do func(context.Context, *cell) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := open(ctx, o, s, k, session, pods)
	if c == nil {
		c = &cell{s: s, name: k.name}
	}
	if err == nil {
		err = do(ctx, c)
	}
	if closed := c.close(context.WithoutCancel(ctx)); err == nil {
		err = closed
	}
	return err
}

// scales goes from 5 pods to 6 and back, and from 10 to 11 and back to 10.
func (c *cell) scales(ctx context.Context, r *cellResult) error {
	for _, to := range []int{6, 5, 10, 11, 10} {
		s, err := c.scale(ctx, to)
		if err != nil {
			return err
		}
		r.Steps = append(r.Steps, s)
		fmt.Printf("rebalance: %s %s: %d to %d pods: moved %d, minimum %d; %d gave up, %d paused; pauses of kept %s, of moved %s\n", c.s.name, c.k.name, s.From, s.To, s.Moved, s.Minimum,
			s.Losers, s.Paused, short(s.KeptPause), short(s.MovedPause))
	}
	return nil
}

// kills ends a consumer over and over.
func (c *cell) kills(ctx context.Context, rounds int) ([]*kill, error) {
	var all []*kill
	for range rounds {
		k, err := c.kill(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, k)
		fmt.Printf("rebalance: %s %s: killed: first records after %s to %s (kubelet %s, operator %s, client %s); others paused %s; %d of %d in the same pod\n", c.s.name, c.name,
			short(k.Orphans[0]), short(last(k.Orphans)), short(k.Kubelet), short(k.Operator), short(k.Client), short(k.OthersPause), k.Same, len(k.Orphans))
	}
	return all, nil
}

// load reads the figures of an earlier run.
func (o *options) load(r *figures) error {
	if o.merge == "" {
		return nil
	}
	b, err := os.ReadFile(o.merge)
	if err != nil {
		return fmt.Errorf("read an earlier run's figures: %w", err)
	}
	earlier := &figures{}
	if err := json.Unmarshal(b, earlier); err != nil {
		return fmt.Errorf("read an earlier run's figures: %w", err)
	}
	r.Bursts, r.Failures = earlier.Bursts, earlier.Failures
	return nil
}

// save writes all figures, so that a run that is cut off leaves what it has.
func (o *options) save(r *figures) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o750); err != nil {
		return fmt.Errorf("make the figures' folder: %w", err)
	}
	return os.WriteFile(o.out, append(b, '\n'), 0o600)
}
