// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestMistakesInTheCommandLineAreOneLine(t *testing.T) {
	tests := map[string]struct {
		args string
		want string
	}{
		"an unknown command":                       {"topics", `unknown command "topics" for "ringmaster" (did you mean topic?); see "ringmaster --help"`},
		"an unknown subcommand":                    {"topic frobnicate", `unknown command "frobnicate" for "ringmaster topic"; see "ringmaster topic --help"`},
		"an unknown flag":                          {"topic list --colour red", `unknown flag: --colour; see "ringmaster topic list --help"`},
		"a flag without its value":                 {"topic list --bootstrap", `flag needs an argument: --bootstrap; see "ringmaster topic list --help"`},
		"an unknown output format":                 {"topic list -o xml", `invalid argument "xml" for "-o, --output" flag: use table, json; see "ringmaster topic list --help"`},
		"an argument too many":                     {"topic describe a b", `ringmaster topic describe takes the NAME of a topic and nothing else, not "b"; see "ringmaster topic describe --help"`},
		"an argument that is missing":              {"topic create", `ringmaster topic create needs the NAME of the topic; see "ringmaster topic create --help"`},
		"an argument where none goes":              {"version 2", `ringmaster version takes no arguments, not "2"; see "ringmaster version --help"`},
		"a flag that is required":                  {"topic add-partitions orders", `required flag(s) "to" not set; see "ringmaster topic add-partitions --help"`},
		"no partitions":                            {"topic create x --partitions 0", `--partitions must be from 1 to 10000, not 0; see "ringmaster topic create --help"`},
		"too many partitions":                      {"topic add-partitions x --to 10001", `--to must be from 1 to 10000, not 10001; see "ringmaster topic add-partitions --help"`},
		"a retention that is none":                 {"topic create x --retention week", `--retention must be a duration of at least 1s, such as 168h, or -1 to keep records for ever, not "week"; see "ringmaster topic create --help"`},
		"a config entry without value":             {"topic create x --config retention.ms", `--config "retention.ms" is not KEY=VALUE, such as retention.ms=3600000; see "ringmaster topic create --help"`},
		"retention twice":                          {"topic create x --config retention.ms=1 --retention 1h", `give --retention or --config retention.ms, not both; see "ringmaster topic create --help"`},
		"flush twice":                              {"topic create x --config flush.messages=1 --flush Os", `give --flush or --config flush.messages, not both; see "ringmaster topic create --help"`},
		"an unknown flush":                         {"topic alter x --flush os", `invalid argument "os" for "--flush" flag: use Sync, Os; see "ringmaster topic alter --help"`},
		"tombstones for a week":                    {"topic alter x --tombstone-retention week", `--tombstone-retention must be a duration, such as 24h, not "week"; see "ringmaster topic alter --help"`},
		"tombstones for ever":                      {"topic alter x --tombstone-retention=-1", `--tombstone-retention must be a duration, such as 24h, not "-1"; see "ringmaster topic alter --help"`},
		"a change of nothing":                      {"topic alter x", `say what to change, such as --retention 72h; see "ringmaster topic alter --help"`},
		"a change there and back":                  {"topic alter x --retention 1h --reset retention.ms", `--reset retention.ms, and a value for it; give one of them; see "ringmaster topic alter --help"`},
		"records before nothing":                   {"topic delete-records x", `required flag(s) "before" not set; see "ringmaster topic delete-records --help"`},
		"records before a word":                    {"topic delete-records x --before now", `--before: "now" is not PARTITION:OFFSET, such as 0:1000, nor the word end; see "ringmaster topic delete-records --help"`},
		"records before less than 0":               {"topic delete-records x --before 0:-1", `--before: "0:-1" is not PARTITION:OFFSET, such as 0:1000, nor the word end; see "ringmaster topic delete-records --help"`},
		"records of a partition twice":             {"topic delete-records x --before 0:1,0:2", `--before gives partition 0 twice; see "ringmaster topic delete-records --help"`},
		"room for no connection":                   {"broker --data-dir d --max-connections 0", `--max-connections must be from 10 to 1000000, not 0; see "ringmaster broker --help"`},
		"none from one address":                    {"broker --data-dir d --max-connections-per-ip=-1", `--max-connections-per-ip must be from 1 to 1000000, not -1; see "ringmaster broker --help"`},
		"requests of 2 GiB":                        {"broker --data-dir d --max-request-bytes 2147483648", `--max-request-bytes must be from 1048576 to 1073741824, not 2147483648; see "ringmaster broker --help"`},
		"an idle time of nothing":                  {"broker --data-dir d --idle-timeout 0s", `--idle-timeout must be from 1s to 24h, not 0s; see "ringmaster broker --help"`},
		"offsets that nobody keeps":                {"broker --data-dir d --offsets-retention 1s", `--offsets-retention must be from 1m to 87600h, not 1s; see "ringmaster broker --help"`},
		"no session that is allowed":               {"broker --data-dir d --min-session-timeout 31m", `--min-session-timeout, 31m0s, must not be longer than --max-session-timeout, 30m0s; see "ringmaster broker --help"`},
		"heartbeats that come late":                {"broker --data-dir d --consumer-session-timeout 5s", `--consumer-heartbeat-interval, 5s, must be shorter than --consumer-session-timeout, 5s; see "ringmaster broker --help"`},
		"heartbeats held for too long":             {"broker --data-dir d --heartbeat-hold 11s", `--heartbeat-hold must be from 0s to 10s, not 11s; see "ringmaster broker --help"`},
		"a bootstrap without port":                 {"topic list --bootstrap localhost", `--bootstrap: "localhost" is not HOST:PORT, such as 127.0.0.1:9092; see "ringmaster topic list --help"`},
		"an empty bootstrap in a list":             {"topic list --bootstrap a:1,", `--bootstrap: "" is not HOST:PORT, such as 127.0.0.1:9092; see "ringmaster topic list --help"`},
		"a bootstrap without host":                 {"topic list --bootstrap :9092", `--bootstrap: ":9092" is not HOST:PORT, such as 127.0.0.1:9092; see "ringmaster topic list --help"`},
		"a timeout of nothing":                     {"topic list --timeout 0s", `--timeout must be more than 0, such as 10s; see "ringmaster topic list --help"`},
		"an empty name to create":                  {"topic create ''", `ringmaster topic create needs the NAME of the topic, which must not be empty; see "ringmaster topic create --help"`},
		"an empty name to describe":                {"topic describe ''", `ringmaster topic describe needs the NAME of a topic, which must not be empty; see "ringmaster topic describe --help"`},
		"an empty group to describe":               {"group describe ''", `ringmaster group describe needs the name of a GROUP, which must not be empty; see "ringmaster group describe --help"`},
		"an empty topic to consume":                {"consume x ''", `ringmaster consume needs the name of a TOPIC, which must not be empty; see "ringmaster consume --help"`},
		"a number out of range":                    {"consume x --max 99999999999999999999", `invalid argument "99999999999999999999" for "--max" flag: the number is too large or too small; see "ringmaster consume --help"`},
		"a word for a number":                      {"topic create x --partitions many", `invalid argument "many" for "--partitions" flag: it is not a number; see "ringmaster topic create --help"`},
		"a word for a switch":                      {"broker --data-dir d --auto-create-topics=maybe", `invalid argument "maybe" for "--auto-create-topics" flag: use true or false; see "ringmaster broker --help"`},
		"an unknown shell":                         {"completion tcsh", `unknown command "tcsh" for "ringmaster completion" (did you mean bash or fish or zsh?); see "ringmaster completion --help"`},
		"advertising a null character":             {"broker --data-dir d --advertise a\x00b:9092", `--advertise: "a\x00b:9092" is not HOST:PORT, such as 127.0.0.1:9092; see "ringmaster broker --help"`},
		"no topic to consume":                      {"consume", `ringmaster consume needs the name of a TOPIC; see "ringmaster consume --help"`},
		"an empty group":                           {"consume x --group=", `--group must not be empty; see "ringmaster consume --help"`},
		"a maximum of nothing":                     {"consume x --max 0", `--max must be at least 1, not 0; see "ringmaster consume --help"`},
		"an instance without group":                {"consume x --instance-id i", `--instance-id needs a value, and --group; see "ringmaster consume --help"`},
		"an empty separator":                       {"produce x --key-separator=", `--key-separator must not be empty; see "ringmaster produce --help"`},
		"two kinds of key":                         {"produce x --key-separator : --key k", `give --key or --key-separator, not both; see "ringmaster produce --help"`},
		"a negative partition":                     {"produce x --partition=-1", `--partition must be at least 0, not -1; see "ringmaster produce --help"`},
		"two ways to a partition":                  {"produce x --partition 1 --partitioner Sticky", `give --partition or --partitioner, not both; see "ringmaster produce --help"`},
		"unknown acks":                             {"produce x --acks 2", `invalid argument "2" for "--acks" flag: use all, 1, 0; see "ringmaster produce --help"`},
		"no data directory":                        {"broker", `give --data-dir, the directory that holds records and metadata; see "ringmaster broker --help"`},
		"an empty data directory":                  {"broker --data-dir=", `give --data-dir, the directory that holds records and metadata; see "ringmaster broker --help"`},
		"a port to listen on alone":                {"broker --data-dir d --listen 9092", `--listen: "9092" is not HOST:PORT, such as 127.0.0.1:9092; see "ringmaster broker --help"`},
		"a port that is too large":                 {"broker --data-dir d --listen 127.0.0.1:70000", `--listen: "127.0.0.1:70000" is not HOST:PORT, such as 127.0.0.1:9092; see "ringmaster broker --help"`},
		"a health address of words":                {"broker --data-dir d --health-listen yes", `--health-listen: "yes" is not HOST:PORT, such as 127.0.0.1:9092; see "ringmaster broker --help"`},
		"advertising all addresses":                {"broker --data-dir d --advertise 0.0.0.0:9092", `--advertise: clients cannot reach "0.0.0.0:9092"; give a host and a port, such as broker.example.com:9092; see "ringmaster broker --help"`},
		"advertising no port":                      {"broker --data-dir d --advertise here:0", `--advertise: clients cannot reach "here:0"; give a host and a port, such as broker.example.com:9092; see "ringmaster broker --help"`},
		"a node id of nothing":                     {"broker --data-dir d --node-id 0", `--node-id must be at least 1, not 0; see "ringmaster broker --help"`},
		"an unknown log level":                     {"broker --data-dir d --log-level loud", `invalid argument "loud" for "--log-level" flag: use debug, info, warn, error; see "ringmaster broker --help"`},
		"a cluster without Kubernetes":             {"broker --data-dir d --cluster main", `--cluster goes with --metadata kubernetes; see "ringmaster broker --help"`},
		"Kubernetes without a cluster":             {"broker --data-dir d --metadata kubernetes", `--metadata kubernetes needs the name of the BrokerCluster: give --cluster; see "ringmaster broker --help"`},
		"Kubernetes without a node id":             {"broker --data-dir d --metadata kubernetes --cluster main", `--metadata kubernetes needs the broker's node id: give --node-id or --pod-name; see "ringmaster broker --help"`},
		"a pod without an ordinal":                 {"broker --data-dir d --metadata kubernetes --cluster main --pod-name main-x", `--pod-name "main-x" does not end in a node id of at least 1, such as main-broker-1; see "ringmaster broker --help"`},
		"metadata in Redis, and records on a disk": {"broker --metadata redis --data-dir d", `--metadata redis needs --storage redis: a partition that another broker leads would leave its records behind; see "ringmaster broker --help"`},
		"Redis, and no word of where":              {"broker --metadata redis --storage redis", `--storage redis needs to know where Redis is: give --redis-url, such as redis://127.0.0.1:6379; see "ringmaster broker --help"`},
		"a Redis that is none":                     {"broker --metadata redis --storage redis --redis-url http://user:secret@a:1", `the Redis URL is not understood; give redis://HOST:PORT, rediss://HOST:PORT or unix:///SOCKET; see "ringmaster broker --help"`},
		"a directory that nothing is kept in":      {"broker --metadata redis --storage redis --redis-url redis://a:1 --data-dir d", `--metadata redis and --storage redis keep nothing in a directory: leave --data-dir out; see "ringmaster broker --help"`},
		"a Redis that is not used":                 {"broker --data-dir d --redis-url redis://a:1", `--redis-url goes with --storage redis; see "ringmaster broker --help"`},
		"half of a certificate":                    {"broker --metadata redis --storage redis --redis-url rediss://a:1 --redis-cert-file c", `give --redis-cert-file and --redis-key-file together; see "ringmaster broker --help"`},
		"certificates without TLS":                 {"broker --metadata redis --storage redis --redis-url redis://a:1 --redis-ca-file c", `certificates for Redis are given, and the URL does not begin with rediss://; see "ringmaster broker --help"`},
		"advertising in Kubernetes":                {"broker --data-dir d --metadata kubernetes --cluster main --advertise a:1", `--advertise goes with --metadata file or redis; in Kubernetes the BrokerCluster says it; see "ringmaster broker --help"`},
		"a plan of nothing":                        {"group plan --partitions 0 --members 1 --then 2", `partitions must be from 1 to 1000000, not 0; see "ringmaster group plan --help"`},
		"a plan of too much":                       {"group plan --partitions 1000001 --members 1 --then 2", `partitions must be from 1 to 1000000, not 1000001; see "ringmaster group plan --help"`},
		"a plan of negative members":               {"group plan --partitions 1 --members -1 --then 2", `the number of members must be from 0 to 100000, not -1; see "ringmaster group plan --help"`},
		"a plan of too many members":               {"group plan --partitions 1 --members 1 --then 100001", `the number of members must be from 0 to 100000, not 100001; see "ringmaster group plan --help"`},
		"a plan of no group":                       {"group plan --then 2", `give --group, or --partitions and --members; see "ringmaster group plan --help"`},
		"a plan of half a group":                   {"group plan --then 2 --members 3", `give --group, or --partitions and --members; see "ringmaster group plan --help"`},
		"a plan of two groups":                     {"group plan --then 2 --members 3 --group g", `give --group, or --partitions and --members, not both; see "ringmaster group plan --help"`},
		"a plan of less than nobody":               {"group plan --then -1 --group g", `--then: the number of members must be from 0 to 100000, not -1; see "ringmaster group plan --help"`},
		"a plan without an end":                    {"group plan --group g", `required flag(s) "then" not set; see "ringmaster group plan --help"`},
		"an unknown assigner":                      {"group plan --partitions 1 --members 1 --then 1 --assigner X", `invalid argument "X" for "--assigner" flag: use ConsistentHash, Range, RoundRobin, Sticky; see "ringmaster group plan --help"`},
		"a number that is none":                    {"group plan --partitions many --members 1 --then 1", `invalid argument "many" for "--partitions" flag: it is not a number; see "ringmaster group plan --help"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(tc.args)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			r := cli(t, "", args...)
			if want := "ringmaster: " + tc.want + "\n"; r.code != exitUsage || r.out != "" || r.err != want {
				t.Errorf("exit code %d, output %q, error\n%swant\n%s", r.code, r.out, r.err, want)
			}
		})
	}
}

func TestAWrongBootstrapVariableIsNamed(t *testing.T) {
	t.Setenv(envBootstrap, "nonsense")
	r := cli(t, "", "topic", "list")
	want := "ringmaster: RINGMASTER_BOOTSTRAP: \"nonsense\" is not HOST:PORT, such as 127.0.0.1:9092; see \"ringmaster topic list --help\"\n"
	if r.code != exitUsage || r.err != want {
		t.Errorf("exit code %d, error %q", r.code, r.err)
	}
}

func TestPlan(t *testing.T) {
	args := strings.Fields("group plan --partitions 10000 --members 1000 --then 1001 --assigner ConsistentHash -o json")
	if got, want := must(t, "", args...), `{"moved":9,"minimum":9,"maxLoad":10,"minLoad":9}`+"\n"; got != want {
		t.Errorf("plan printed %q, want %q", got, want)
	}
	want := "ASSIGNER         MOVED   MINIMUM   MAX LOAD   MIN LOAD\nConsistentHash   3       3         3          3\n"
	if got := must(t, "", strings.Fields("group plan --partitions 12 --members 3 --then 4")...); got != want {
		t.Errorf("plan printed\n%s", got)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a short or long description or an example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range []string{"", "--help", "topic", "group --help", "consume --help"} {
		if r := cli(t, "", strings.Fields(args)...); r.code != exitOK || r.err != "" || !strings.Contains(r.out, "Usage:") {
			t.Errorf("%q: exit code %d, %q, %q", args, r.code, r.out, r.err)
		}
	}
	if got := must(t, "", "version"); !strings.HasPrefix(got, "ringmaster dev go1.") {
		t.Errorf("version printed %q", got)
	}
	if v := decoded[versionJSON](t, must(t, "", "version", "-o", "json")); v.Version != "dev" || v.Platform == "" {
		t.Errorf("version = %+v", v)
	}
}

func TestCompletion(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"output formats":     {[]string{"topic", "list", "-o", ""}, []string{"table", "json"}},
		"formats of records": {[]string{"consume", "x", "-o", ""}, []string{"value", "table", "json"}},
		"assigners":          {[]string{"group", "plan", "--assigner", ""}, []string{"ConsistentHash", "Range", "RoundRobin", "Sticky"}},
		"partitioners":       {[]string{"produce", "x", "--partitioner", ""}, []string{"KeyHash", "RoundRobin", "Sticky", "ConsistentHash"}},
		"metadata sources":   {[]string{"broker", "--metadata", ""}, []string{"file", "kubernetes"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := lines(must(t, "", append([]string{cobra.ShellCompNoDescRequestCmd}, tc.args...)...))
			if len(got) < len(tc.want) || strings.Join(got[:len(tc.want)], " ") != strings.Join(tc.want, " ") {
				t.Errorf("completions = %q, want %q", got, tc.want)
			}
		})
	}
	if got := must(t, "", "completion", "bash"); !strings.Contains(got, "ringmaster") {
		t.Error("no completion for bash")
	}
}
