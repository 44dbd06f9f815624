// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// Names of flags that many commands have.
const (
	flagBootstrap = "bootstrap"
	flagOutput    = "output"
	flagTimeout   = "timeout"

	envBootstrap = "RINGMASTER_BOOTSTRAP"
)

// Values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputValue = "value"
)

// enum is a flag's value that is one of a few words.
type enum struct {
	value string
	words []string
}

func newEnum(value string, words ...string) *enum { return &enum{value: value, words: words} }

// String implements pflag.Value.
func (e *enum) String() string { return e.value }

// Set implements pflag.Value.
func (e *enum) Set(s string) error {
	if !slices.Contains(e.words, s) {
		return fmt.Errorf("use %s", strings.Join(e.words, ", "))
	}
	e.value = s
	return nil
}

// Type implements pflag.Value; the help shows it as the flag's placeholder.
func (e *enum) Type() string { return strings.Join(e.words, "|") }

// addEnum adds a flag that is one of a few words, and its completion.
func addEnum(cmd *cobra.Command, e *enum, name, shorthand, usage string) {
	cmd.Flags().VarP(e, name, shorthand, usage)
	complete := cobra.FixedCompletions(e.words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // only for a flag that was never added, or added twice
	}
}

// addOutput adds --output table|json.
func addOutput(cmd *cobra.Command) *enum {
	e := newEnum(outputTable, outputTable, outputJSON)
	addEnum(cmd, e, flagOutput, "o", "how to print the result")
	return e
}

// clientFlags are the flags of a command that speaks to brokers.
type clientFlags struct {
	bootstrap string
	timeout   time.Duration
}

func addClientFlags(cmd *cobra.Command) *clientFlags {
	c := &clientFlags{}
	cmd.Flags().StringVar(&c.bootstrap, flagBootstrap, "127.0.0.1:9092",
		"brokers to ask first, `HOST:PORT[,HOST:PORT]`; the variable "+envBootstrap+" changes the default")
	cmd.Flags().DurationVar(&c.timeout, flagTimeout, 10*time.Second, "how long to wait for the brokers' answers")
	noFiles(cmd, flagBootstrap, flagTimeout)
	return c
}

// noFiles says that the shell shall not complete these flags with names of files.
func noFiles(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions); err != nil {
			panic(err) // only for a flag that was never added, or added twice
		}
	}
}

// seeds checks the flags and returns the brokers to ask first.
func (c *clientFlags) seeds(cmd *cobra.Command) ([]string, error) {
	from := "--" + flagBootstrap
	list := c.bootstrap
	if env := os.Getenv(envBootstrap); env != "" && !cmd.Flags().Changed(flagBootstrap) {
		from, list = envBootstrap, env
	}
	if c.timeout <= 0 {
		return nil, usagef("--%s must be more than 0, such as 10s", flagTimeout)
	}
	var seeds []string
	for seed := range strings.SplitSeq(list, ",") {
		host, port, err := parseHostPort(strings.TrimSpace(seed))
		if err == nil && host == "" {
			err = errNotHostPort(seed)
		}
		if err != nil {
			return nil, usagef("%s: %v", from, err)
		}
		seeds = append(seeds, net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	return seeds, nil
}

func errNotHostPort(s string) error {
	return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:9092", s)
}

// parseHostPort parses HOST:PORT. The host may be empty, the port 0.
func parseHostPort(s string) (host string, port int32, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, errNotHostPort(s)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || strings.ContainsFunc(host, func(r rune) bool { return r == '/' || !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return "", 0, errNotHostPort(s)
	}
	return host, int32(n), nil
}
