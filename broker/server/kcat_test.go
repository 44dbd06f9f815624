// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// startForKcat starts a broker. Where there is no kcat the test is skipped, or fails where CI is set: a skipped test there would look like a passed one.
func startForKcat(t *testing.T) *broker {
	t.Helper()
	if _, err := exec.LookPath("kcat"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("kcat is missing (%v): install the Debian package kcat", err)
		}
		t.Skip("kcat is not installed; the Debian package kcat has it")
	}
	return start(t)
}

// kcat runs kcat (librdkafka) against the broker, with a standard input.
func (b *broker) kcat(input string, args ...string) string {
	b.t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(b.ctx(), "kcat", append([]string{"-b", b.addr}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("kcat %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func TestKcatProducesConsumesAndLists(t *testing.T) {
	b := startForKcat(t)
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	cases := map[string][]string{
		"as it is":   nil,
		"gzip":       {"-z", "gzip"},
		"snappy":     {"-z", "snappy"},
		"lz4":        {"-z", "lz4"},
		"zstd":       {"-z", "zstd"},
		"idempotent": {"-X", "enable.idempotence=true"},
		"one ack":    {"-X", "acks=1"},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			topic := strings.ReplaceAll("kcat "+name, " ", "-")
			b.create(topic, 1)
			b.kcat(lines.String(), append([]string{"-P", "-t", topic}, args...)...)
			if diff := cmp.Diff(lines.String(), b.kcat("", "-C", "-t", topic, "-o", "beginning", "-e", "-q")); diff != "" {
				t.Errorf("what kcat reads (-want +got):\n%s", diff)
			}
			if got := b.kcat("", "-C", "-t", topic, "-o", "-3", "-e", "-q"); got != "line 997\nline 998\nline 999\n" {
				t.Errorf("the last three lines are %q", got)
			}
		})
	}
	list := b.kcat("", "-L")
	for _, want := range []string{"broker 1 at " + b.addr, `topic "kcat-gzip" with 1 partitions`, "partition 0, leader 1, replicas: 1, isrs: 1"} {
		if !strings.Contains(list, want) {
			t.Errorf("kcat -L does not say %q:\n%s", want, list)
		}
	}
	if got := b.kcat("", "-Q", "-t", "kcat-gzip:0:0"); !strings.Contains(got, "offset 0") {
		t.Errorf("kcat -Q says %q", got)
	}
}

func TestKcatCreatesTheTopicThatItProducesTo(t *testing.T) {
	b := startForKcat(t)
	b.kcat("a\nb\n", "-P", "-t", "fresh")
	if got := b.kcat("", "-C", "-t", "fresh", "-o", "beginning", "-e", "-q"); got != "a\nb\n" {
		t.Errorf("kcat reads %q", got)
	}
}

func TestKcatReadsInAGroup(t *testing.T) {
	b := startForKcat(t)
	b.create("grouped", 2)
	b.kcat("a\nb\nc\n", "-P", "-t", "grouped", "-p", "1")
	if got := b.kcat("", "-G", "readers", "-c", "3", "-q", "-X", "auto.offset.reset=earliest", "grouped"); got != "a\nb\nc\n" {
		t.Errorf("kcat reads %q", got)
	}
	b.kcat("d\n", "-P", "-t", "grouped", "-p", "1")
	if got := b.kcat("", "-G", "readers", "-c", "1", "-q", "-X", "auto.offset.reset=earliest", "grouped"); got != "d\n" {
		t.Errorf("after its commit, kcat reads %q", got)
	}
}
