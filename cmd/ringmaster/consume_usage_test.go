// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestMistakesOfConsumeAreOneLine(t *testing.T) {
	tests := map[string]struct {
		args string
		want string
	}{
		"no record at a time":            {"--messages 0", "--messages must be from 1 to 100000, not 0"},
		"too many at a time":             {"--messages 100001", "--messages must be from 1 to 100000, not 100001"},
		"no handler":                     {"--concurrency 0", "--concurrency must be from 1 to 1000, not 0"},
		"too many handlers":              {"--concurrency 1001", "--concurrency must be from 1 to 1000, not 1001"},
		"no time to end":                 {"--shutdown-timeout 0s", "--shutdown-timeout must be more than 0, such as 30s"},
		"no command":                     {"--exec=", "--exec must not be empty"},
		"a command and a format":         {"--exec cat -o json", "give --exec or --output, not both: with --exec the command prints"},
		"errors of no command":           {"--on-error skip", "--on-error goes with --exec"},
		"an unknown way with errors":     {"--exec cat --on-error ignore", `invalid argument "ignore" for "--on-error" flag: use stop, skip, retry`},
		"a session without a group":      {"--session-timeout 10s", "--session-timeout goes with --group"},
		"a session that is too short":    {"--group g --session-timeout 99ms", "--session-timeout must be from 100ms to 24h, not 99ms"},
		"a session that is too long":     {"--group g --session-timeout 25h", "--session-timeout must be from 100ms to 24h, not 25h0m0s"},
		"a rebalance without a group":    {"--rebalance-timeout 10s", "--rebalance-timeout goes with --group"},
		"a rebalance that is too short":  {"--group g --rebalance-timeout 999ms", "--rebalance-timeout must be from 1s to 24h, not 999ms"},
		"a time that is none":            {"--shutdown-timeout soon", `invalid argument "soon" for "--shutdown-timeout" flag: time: invalid duration "soon"`},
		"a number of handlers in words":  {"--concurrency all", `invalid argument "all" for "--concurrency" flag: it is not a number`},
		"a maximum of nothing with more": {"--exec cat --max 0", "--max must be at least 1, not 0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := cli(t, "", append([]string{"consume", "x"}, strings.Fields(tc.args)...)...)
			if want := "ringmaster: " + tc.want + "; see \"ringmaster consume --help\"\n"; r.code != exitUsage || r.out != "" || r.err != want {
				t.Errorf("exit code %d, output %q, error\n%swant\n%s", r.code, r.out, r.err, want)
			}
		})
	}
}

func TestASessionThatTheBrokerDoesNotTake(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "a\n", at(b.addr, "produce", "orders")...)
	r := cli(t, "", at(b.addr, "consume", "orders", "--group", "g", "--session-timeout", "1s")...)
	if r.code != exitFailed || !strings.HasPrefix(r.err, "ringmaster: join the group: ") || !strings.Contains(r.err, "session timeout") {
		t.Errorf("exit code %d, error %s", r.code, r.err)
	}
}

func TestConsumeCompletesItsFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--on-error ": "stop skip retry :4", "--concurrency ": ":4", "--messages ": ":4", "--session-timeout ": ":4", "--rebalance-timeout ": ":4",
		"--shutdown-timeout ": ":4", "--exec ": ":0",
	} {
		got := strings.Join(lines(must(t, "", append([]string{"__completeNoDesc", "consume", "x"}, strings.SplitN(args, " ", 2)...)...)), " ")
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s completes to %q, want %q", args, got, want)
		}
	}
}
