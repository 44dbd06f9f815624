// SPDX-License-Identifier: Apache-2.0

// Command suites runs the tests that the authors of clients wrote for their own client, against our brokers. See "make conformance-suites".
//
// Each suite is a module, or a package of sources, at a pinned version, whose checksum is compared. Its tests run in a copy of it, in which nothing is changed but what
// the list of suites says: an address that is written in a test, say. Tests that cannot pass, or that have nothing to do with a broker, are left out
// by name, each with the reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
	"github.com/ringmaster-dev/ringmaster/test/conformance/page"
)

const usage = `Run the tests that the authors of clients wrote for their own client, against our brokers.

usage: suites [flags]

Run it in the repository's root, as "make conformance-suites" does. It ends with 1 if a test failed. docs/clients.md is written only by a run of all
suites.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "conformance-suites:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	suites string
	bin    string
	only   string
	keep   bool
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("suites", flag.ContinueOnError)
	flags.StringVar(&o.suites, "suites", "", "the `NAMES` of the suites to run, with commas between them (default: all): "+strings.Join(names(), ", "))
	flags.StringVar(&o.bin, "ringmaster", "bin/ringmaster", "the broker's `FILE`")
	flags.StringVar(&o.only, "run", "", "run the tests that match this `REGEXP`, and print all that they print")
	flags.BoolVar(&o.keep, "keep", false, "keep the brokers' data and logs, and the modules' copies, and say where they are")
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
	return o, nil
}

func names() []string {
	var list []string
	for _, s := range suites {
		list = append(list, s.name)
	}
	return list
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	chosen := names()
	if o.suites != "" {
		chosen = strings.Split(o.suites, ",")
		for _, name := range chosen {
			if !slices.Contains(names(), name) {
				return fmt.Errorf("there is no suite %q; there are %s", name, strings.Join(names(), ", "))
			}
		}
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return fmt.Errorf("find the broker: %w", err)
	}
	dir, err := os.MkdirTemp("", "conformance-suites-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	if o.keep {
		fmt.Println("conformance-suites: the brokers' data and logs and the modules' copies are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	var outcomes []outcome
	var errs []error
	for i := range suites {
		s := &suites[i]
		if !slices.Contains(chosen, s.name) {
			continue
		}
		fmt.Printf("== %s %s\n", s.module, s.version)
		got, err := s.run(ctx, bin, filepath.Join(dir, s.name), o.only)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		if len(got.failed) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d tests failed: %s", s.name, len(got.failed), strings.Join(got.failed, ", ")))
		}
		fmt.Printf("   %d passed, %d failed, %d skipped by themselves, %d left out\n", got.passed, len(got.failed), len(got.skipped), len(got.left))
		outcomes = append(outcomes, got)
	}
	if len(outcomes) == len(suites) && o.only == "" {
		errs = append(errs, page.Replace(filepath.Join("docs", "clients.md"), "make conformance-suites", table(outcomes)))
	}
	return errors.Join(errs...)
}

// one starts a broker on its own.
func one(bin, dir string) (*brokers.World, error) { return brokers.StartOne(bin, dir) }

// four starts a broker on its own that gives topics four partitions where nobody says how many, and has a new group wait for members as Kafka's default is.
func four(bin, dir string) (*brokers.World, error) {
	return brokers.StartOne(bin, dir, "--default-partitions", "4", "--initial-rebalance-delay", "3s")
}

// standard starts a broker on its own at Kafka's usual port.
func standard(bin, dir string) (*brokers.World, error) {
	w, err := brokers.StartAt(bin, dir, "127.0.0.1:9092", "localhost:9092")
	if err != nil {
		return nil, fmt.Errorf("start a broker at port 9092, which must be free: %w", err)
	}
	return w, nil
}

// table writes the page's part.
func table(outcomes []outcome) []byte {
	var b strings.Builder
	b.WriteString("\n| tests of | version | passed | failed | skipped by themselves | left out |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d |\n", o.suite.title, strings.TrimPrefix(o.suite.version, "v"), o.passed, len(o.failed), len(o.skipped), len(o.left))
	}
	for _, o := range outcomes {
		fmt.Fprintf(&b, "\n%s, %s:\n\n", o.suite.title, o.suite.brokers)
		for _, e := range o.suite.edits {
			fmt.Fprintf(&b, "- changed in the copy: `%s` to `%s`: %s\n", e.old, e.shown(), e.why)
		}
		for _, l := range o.suite.leave {
			fmt.Fprintf(&b, "- left out: `%s`: %s\n", l.pattern, l.why)
		}
		for _, name := range o.failed {
			fmt.Fprintf(&b, "- failed: `%s`\n", name)
		}
	}
	b.WriteByte('\n')
	return []byte(b.String())
}
