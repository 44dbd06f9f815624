// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func group(t *testing.T, addr, name string) groupDetailJSON {
	t.Helper()
	return decoded[groupDetailJSON](t, must(t, "", at(addr, "group", "describe", name, "-o", "json")...))
}

func TestAGroupGoesOnWhereItStopped(t *testing.T) {
	b := startBroker(t, t.TempDir())
	if got := must(t, "", at(b.addr, "group", "list", "-o", "json")...); got != "[]\n" {
		t.Errorf("no groups are printed as %q, want an empty array", got)
	}
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "3")...)
	r := cli(t, "k1:one\nk2:two\nk1:three\nk3:four", at(b.addr, "produce", "orders", "--key-separator", ":")...)
	if r.code != exitOK || r.out != "" || r.err != "4 records to orders\n" {
		t.Fatalf("produce: %+v", r)
	}
	var all []string
	for _, n := range []string{"1", "2", "1"} {
		all = append(all, lines(must(t, "", at(b.addr, "consume", "orders", "--group", "billing", "--from-beginning", "--max", n)...))...)
	}
	slices.Sort(all)
	if diff := cmp.Diff([]string{"four", "one", "three", "two"}, all); diff != "" {
		t.Errorf("read in three sittings (-want +got):\n%s", diff)
	}
	g := group(t, b.addr, "billing")
	if g.State != "Empty" || g.Lag != 0 || len(g.Members) != 0 || g.Members == nil {
		t.Errorf("group = %+v", g)
	}
	list := decoded[[]groupJSON](t, must(t, "", at(b.addr, "group", "list", "-o", "json")...))
	if len(list) != 1 || list[0].Group != "billing" || list[0].State != "Empty" || list[0].Coordinator != 1 {
		t.Errorf("groups = %+v", list)
	}
	must(t, "five\n", at(b.addr, "produce", "orders", "--partition", "1")...)
	if got := group(t, b.addr, "billing").Lag; got != 1 {
		t.Errorf("lag = %d, want 1", got)
	}
	if got := must(t, "", at(b.addr, "group", "delete", "billing")...); got != "deleted group billing\n" {
		t.Errorf("delete printed %q", got)
	}
	if r := cli(t, "", at(b.addr, "group", "describe", "billing")...); r.code != exitFailed {
		t.Errorf("describe of a deleted group: %+v", r)
	}
}

func TestASignalCommitsAndLeaves(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "4")...)
	for name, sig := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			must(t, "a\nb\nc\n", at(b.addr, "produce", "orders", "--partitioner", "RoundRobin")...)
			c := startChild(t, at(b.addr, "consume", "orders", "--group", name, "--from-beginning")...)
			c.out.await(t, `(?s)a\n.*b\n.*c\n|b\n.*a\n.*c\n|(.+\n){3}`)

			g := group(t, b.addr, name)
			if g.State != "Stable" || len(g.Members) != 1 || len(g.Partitions) != 4 {
				t.Errorf("group while it runs = %+v", g)
			}
			table := must(t, "", at(b.addr, "group", "describe", name)...)
			if !strings.Contains(table, "orders[0-3]") || !strings.Contains(table, "State:         Stable") {
				t.Errorf("describe printed\n%s", table)
			}
			if r := cli(t, "", at(b.addr, "group", "delete", name)...); r.code != exitFailed ||
				r.err != fmt.Sprintf("ringmaster: group %q has members; stop them first (`ringmaster group describe %s` lists them; one with a group.instance.id stays a member until its session ends)\n", name, name) {
				t.Errorf("deleting a group with members: %+v", r)
			}

			if err := c.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := c.wait(t); code != exitOK || c.err.String() != "" {
				t.Errorf("exit code %d, %s", code, c.err)
			}
			g = group(t, b.addr, name)
			if g.State != "Empty" || g.Lag != 0 || len(g.Members) != 0 {
				t.Errorf("group after the signal = %+v", g)
			}
		})
	}
}

func TestWithoutAGroupNothingIsCommitted(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "a\nb\n", at(b.addr, "produce", "auto")...) // the topic is made
	for range 2 {
		if got := lines(must(t, "", at(b.addr, "consume", "auto", "--from-beginning", "--idle-timeout", "2s")...)); len(got) != 2 {
			t.Errorf("read %q", got)
		}
	}
	if got := must(t, "", at(b.addr, "group", "list", "-o", "json")...); got != "[]\n" {
		t.Errorf("groups = %q", got)
	}
}

func TestWithoutFromBeginningOldRecordsAreSkipped(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "old\n", at(b.addr, "produce", "news")...)
	c := startChild(t, at(b.addr, "consume", "news", "--max", "1")...)
	// The consumer is at the end once it fetches; until then what comes would be old.
	for c.out.String() == "" && c.cmd.ProcessState == nil {
		must(t, "new\n", at(b.addr, "produce", "news")...)
		select {
		case <-c.out.grown:
		default:
		}
	}
	if code := c.wait(t); code != exitOK || c.out.String() != "new\n" {
		t.Errorf("exit code %d, output %q, error %s", code, c.out, c.err)
	}
}

func TestLinesHoldAnyBytes(t *testing.T) {
	b := startBroker(t, t.TempDir())
	every := make([]byte, 0, 256)
	for i := range 256 {
		if i != '\n' {
			every = append(every, byte(i))
		}
	}
	long := strings.Repeat("x", 1_000_000)
	in := "\n" + string(every) + "\r\n" + long + "\nlast"
	if r := cli(t, in, at(b.addr, "produce", "bytes")...); r.err != "4 records to bytes\n" {
		t.Fatalf("produce: %+v", r)
	}
	if got := must(t, "", at(b.addr, "consume", "bytes", "--from-beginning", "--max", "4")...); got != in+"\n" {
		t.Errorf("%d bytes came back, want %d", len(got), len(in)+1)
	}
	out := lines(must(t, "", at(b.addr, "consume", "bytes", "--from-beginning", "--max", "4", "-o", "json")...))
	first, second := decoded[recordJSON](t, out[0]), decoded[recordJSON](t, out[1])
	if first.Value == nil || *first.Value != "" || first.Key != nil || first.Encoding != "" || first.Offset != 0 || first.Topic != "bytes" {
		t.Errorf("record = %+v", first)
	}
	if raw, err := base64.StdEncoding.DecodeString(*second.Value); second.Encoding != "base64" || err != nil || !bytes.Equal(raw, append(every, '\r')) {
		t.Errorf("record = %+v", second)
	}
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`).MatchString(first.Timestamp) {
		t.Errorf("timestamp = %q", first.Timestamp)
	}
	table := lines(must(t, "", at(b.addr, "consume", "bytes", "--from-beginning", "--max", "4", "-o", "table")...))
	if len(table) != 5 || !strings.HasPrefix(table[0], "TOPIC ") || !strings.HasSuffix(table[4], "  last") {
		t.Errorf("the table has %d lines", len(table))
	}
}

func TestEveryWayToProduce(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "ways", "--partitions", "4")...)
	var want []string
	for i, args := range []string{
		"--acks all", "--acks 1", "--compression gzip", "--compression snappy", "--compression lz4", "--compression zstd",
		"--partitioner RoundRobin", "--partitioner Sticky", "--partitioner ConsistentHash", "--key k", "--key=", "--partition 3", "-o json",
	} {
		value := fmt.Sprintf("value-%02d", i)
		want = append(want, value)
		must(t, value+"\n", at(b.addr, append([]string{"produce", "ways"}, strings.Fields(args)...)...)...)
	}
	if got := must(t, "x\ny\n", at(b.addr, "produce", "other", "-o", "json")...); got != `{"topic":"other","records":2}`+"\n" {
		t.Errorf("produce printed %q", got)
	}
	n := fmt.Sprint(len(want))
	got := lines(must(t, "", at(b.addr, "consume", "ways", "--from-beginning", "--max", n)...))
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, "zero\n", at(b.addr, "produce", "zero", "--acks", "0")...)
	if got := must(t, "", at(b.addr, "consume", "zero", "--from-beginning", "--max", "1")...); got != "zero\n" {
		t.Errorf("with acks 0: %q", got)
	}
}

func TestKeysGoWhereKafkaPutsThem(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "keys", "--partitions", "7")...)
	must(t, "foobar:a\n21:b\nabc:c\n", at(b.addr, "produce", "keys", "--key-separator", ":")...)
	got := map[string]int32{}
	for _, l := range lines(must(t, "", at(b.addr, "consume", "keys", "--from-beginning", "--max", "3", "-o", "json")...)) {
		r := decoded[recordJSON](t, l)
		got[*r.Key] = r.Partition
	}
	want := map[string]int32{"foobar": -790332482 & 0x7fffffff % 7, "21": -973932308 & 0x7fffffff % 7, "abc": 479470107 % 7}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
}

func TestProduceSaysHowManyWereAcknowledged(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "small", "--config", "max.message.bytes=1024")...)
	must(t, "", at(b.addr, "topic", "create", "compacted", "--config", "cleanup.policy=compact")...)
	r := cli(t, "a\n", at(b.addr, "produce", "compacted")...)
	if want := "ringmaster: cannot produce to compacted: line 1: the topic does not take the record: one that is compacted takes none without a key; " +
		"give --key or --key-separator; 0 records acknowledged, 1 failed\n"; r.code != exitFailed || r.err != want {
		t.Errorf("exit code %d, error\n%swant\n%s", r.code, r.err, want)
	}
	tests := map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"a line that is too long": {"a\nb\n" + strings.Repeat("x", 1025) + "\n", nil,
			"ringmaster: cannot produce to small: line 3 is longer than the 1024 bytes that the topic takes; 2 records acknowledged\n"},
		"a record that is too large with its batch": {strings.Repeat("x", 1020) + "\n", nil,
			"ringmaster: cannot produce to small: line 1: the record is larger than the topic's max.message.bytes allows; 0 records acknowledged, 1 failed\n"},
		"a line without a key": {"k:v\nnothing\n", []string{"--key-separator", ":"},
			"ringmaster: cannot produce to small: line 2 has no key: \":\" is not in it; 1 record acknowledged\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := cli(t, tc.stdin, at(b.addr, append([]string{"produce", "small"}, tc.args...)...)...)
			if r.code != exitFailed || r.out != "" || r.err != tc.want {
				t.Errorf("exit code %d, output %q, error\n%swant\n%s", r.code, r.out, r.err, tc.want)
			}
		})
	}
}

func TestAnInterruptedProduceSendsWhatItHasRead(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "slow")...)
	c := &child{cmd: exec.Command(os.Args[0], at(b.addr, "produce", "slow")...), out: newWatched(), err: newWatched()}
	c.cmd.Env = append(os.Environ(), envRunMain+"=1")
	c.cmd.Stderr = c.err
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	if _, err := in.Write([]byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	// Records are sent while the input is still open.
	if got := must(t, "", at(b.addr, "consume", "slow", "--from-beginning", "--max", "2")...); got != "one\ntwo\n" {
		t.Errorf("read %q", got)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.wait(t); code != exitFailed || c.err.String() != "ringmaster: interrupted before the end of the input; 2 records acknowledged\n" {
		t.Errorf("exit code %d, %s", code, c.err)
	}
}

func TestGeneratedRecordsComeUntilTheCommandIsToldToStop(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders")...)
	c := startChild(t, at(b.addr, "produce", "orders", "--generate", "200")...)
	out := must(t, "", at(b.addr, "consume", "orders", "--from-beginning", "--max", "20")...)
	if !strings.Contains(out, "record 20, made at 20") {
		t.Errorf("consumed %q", out)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.wait(t); code != 0 || !strings.HasSuffix(c.err.String(), " records to orders\n") {
		t.Errorf("exit code %d, %s", code, c.err)
	}
}

func TestAReaderThatHasSeenEnoughIsNoError(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, strings.Repeat(strings.Repeat("x", 999)+"\n", 2000), at(b.addr, "produce", "orders")...)
	cmd := exec.Command(os.Args[0], at(b.addr, "consume", "orders", "--group", "head", "--from-beginning")...)
	cmd.Env = append(os.Environ(), envRunMain+"=1")
	errs := newWatched()
	cmd.Stderr = errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, out: newWatched(), err: errs}
	if code := c.wait(t); code != exitOK || errs.String() != "" {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if g := group(t, b.addr, "head"); g.State != "Empty" {
		t.Errorf("group = %+v", g)
	}
}

func TestTwoMembersShareATopic(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "4")...)
	first := startChild(t, at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--client-id", "one")...)
	second := startChild(t, at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--client-id", "two")...)
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool {
		shares := 0
		for _, m := range g.Members {
			for _, a := range m.Assignments {
				if len(a.Partitions) == 2 {
					shares++
				}
			}
		}
		return g.State == "Stable" && len(g.Members) == 2 && shares == 2
	})
	var in strings.Builder
	for i := range 400 {
		fmt.Fprintf(&in, "%d\n", i)
	}
	must(t, in.String(), at(b.addr, "produce", "orders", "--partitioner", "RoundRobin")...)
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.Lag == 0 })
	for _, c := range []*child{first, second} {
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := c.wait(t); code != exitOK {
			t.Errorf("exit code %d: %s", code, c.err)
		}
	}
	one, two := lines(first.out.String()), lines(second.out.String())
	if len(one) != 200 || len(two) != 200 {
		t.Errorf("the members read %d and %d records, want 200 each", len(one), len(two))
	}
	all := slices.Concat(one, two)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 400 {
		t.Errorf("%d different records, want 400", n)
	}
}

// awaitGroup asks for a group until it is as wanted. Each question is a request to the broker, so there is no need for a pause.
func awaitGroup(t *testing.T, addr, name string, ok func(groupDetailJSON) bool) {
	t.Helper()
	var last result
	for start := time.Now(); time.Since(start) < patience; {
		last = cli(t, "", at(addr, "group", "describe", name, "-o", "json")...)
		if last.code == exitOK && ok(decoded[groupDetailJSON](t, last.out)) {
			return
		}
	}
	t.Fatalf("group %s is not as wanted: %+v", name, last)
}

func TestRoundRobinFillsEveryPartition(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "12")...)
	must(t, strings.Repeat("x\n", 120), at(b.addr, "produce", "orders", "--partitioner", "RoundRobin")...)
	must(t, "", at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--max", "120")...)
	for _, p := range group(t, b.addr, "g").Partitions {
		if p.End == nil || *p.End != 10 {
			t.Errorf("partition %d: %+v, want 10 records", p.Partition, p)
		}
	}
}
