// SPDX-License-Identifier: Apache-2.0

// Command conformance runs unmodified Kafka clients against brokers and says what they could do. See "make conformance".
//
// It runs one program for each client (clients/), written in the client's own language, against one broker and against three, and puts together
// docs/clients.md from what they print. Package check says what a program prints. Its subcommand heartbeats measures the members of managed groups; see "make heartbeats".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
)

const usage = `Run unmodified Kafka clients against one broker, against three, and against two that share a Redis, and say what they could do.

usage: conformance [flags]

Run it in the repository's root, as "make conformance" does. It ends with 1 if a check failed or a client could not be run. docs/clients.md is written
only by a run of all clients against all brokers.

`

// options are the command line's.
type options struct {
	clients string
	brokers string
	bin     string
	cache   string
	keep    bool
	// bootstrap are brokers that run already, restart a command that restarts them, scenarios a pattern of those that are played.
	bootstrap string
	restart   string
	scenarios string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	command, args := run, os.Args[1:]
	if len(args) > 0 && args[0] == "heartbeats" {
		command, args = heartbeats, args[1:]
	}
	err := command(ctx, args)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.StringVar(&o.clients, "clients", "", "the `NAMES` of the clients to run, with commas between them (default: all): "+strings.Join(names(), ", "))
	flags.StringVar(&o.brokers, "brokers", "1,3,redis", "which brokers to run them against, with commas between them: `1`, 3, or two that share a redis")
	flags.StringVar(&o.bin, "ringmaster", "bin/ringmaster", "the broker's `FILE`")
	flags.StringVar(&o.cache, "cache", "", "the `DIR` that keeps what was fetched (default: ringmaster/conformance in the user's cache directory)")
	flags.BoolVar(&o.keep, "keep", false, "keep the brokers' data and logs, and say where they are")
	flags.StringVar(&o.bootstrap, "bootstrap", "", "the `HOST:PORT` of brokers that run already, of whatever make, to run the clients against; no broker is started then")
	flags.StringVar(&o.restart, "restart", "", "with --bootstrap, a shell `COMMAND` that kills the only broker and starts it again; without it the checks that need it are left out")
	flags.StringVar(&o.scenarios, "groups", "", "play those scenarios of groups alone whose names match this `REGEXP`, and none of the clients' other checks")
	flags.Usage = func() {
		fmt.Fprint(os.Stdout, usage)
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("there is no argument %q; see --help", flags.Arg(0))
	}
	for _, world := range strings.Split(o.brokers, ",") {
		if world != "1" && world != "3" && world != "redis" {
			return nil, fmt.Errorf("--brokers must be of 1, 3 and redis, not %q", o.brokers)
		}
	}
	if err := o.locate(); err != nil {
		return nil, err
	}
	return o, nil
}

// locate finds the cache, where it is not given, and the broker.
func (o *options) locate() error {
	if o.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("find the cache: %w; give --cache", err)
		}
		o.cache = filepath.Join(dir, "ringmaster", "conformance")
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return fmt.Errorf("find the broker: %w", err)
	}
	o.bin = bin
	if _, err := os.Stat(bin); err != nil && o.bootstrap == "" {
		return fmt.Errorf("there is no broker: %w; run make build", err)
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	chosen, err := choose(o.clients)
	if err != nil {
		return err
	}
	scenarios := &stage{bin: o.bin, restart: o.restart, keep: o.keep}
	if o.scenarios != "" {
		if scenarios.only, err = regexp.Compile(o.scenarios); err != nil {
			return fmt.Errorf("--groups: %w", err)
		}
	}
	programs, err := install(ctx, o.cache, chosen)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return fmt.Errorf("make a directory for the brokers: %w", err)
	}
	if o.keep {
		fmt.Println("conformance: the brokers' data and logs are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	rep := newReport(chosen)
	worlds := strings.Split(o.brokers, ",")
	if o.bootstrap != "" {
		worlds = []string{o.bootstrap}
	}
	for i, world := range worlds {
		scenarios.dir = filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(scenarios.dir, 0o750); err != nil {
			return fmt.Errorf("make a directory: %w", err)
		}
		if err := runWorld(ctx, world, scenarios, programs, rep); err != nil {
			return err
		}
	}
	if len(chosen) == len(clients) && o.brokers == "1,3,redis" && o.bootstrap == "" && o.scenarios == "" {
		if err := rep.write(filepath.Join("docs", "clients.md")); err != nil {
			return err
		}
	}
	return rep.summary()
}

// runWorld starts brokers, runs the clients one after the other and stops the brokers.
func runWorld(ctx context.Context, world string, scenarios *stage, programs []program, rep *report) (err error) {
	w, err := start(world, scenarios.bin, filepath.Join(scenarios.dir, "brokers"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	for _, p := range programs {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		p.run(ctx, w, scenarios, rep)
	}
	return nil
}

// start starts brokers, or takes those that run already.
func start(world, bin, dir string) (*brokers.World, error) {
	switch world {
	case "1":
		return brokers.StartOne(bin, dir)
	case "redis":
		return brokers.StartRedis(bin, dir, 2)
	case "3":
	default:
		return brokers.Running(world), nil
	}
	ports, err := brokers.FreePorts(3)
	if err != nil {
		return nil, err
	}
	return brokers.StartCluster(bin, dir, brokers.Cluster{Ports: ports, Advertised: ports, AutoCreateTopics: true})
}

// choose picks clients by name, in the table's order.
func choose(list string) ([]client, error) {
	if list == "" {
		return clients, nil
	}
	picked := strings.Split(list, ",")
	for _, name := range picked {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("there is no client %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return !slices.Contains(picked, c.name) }), nil
}
