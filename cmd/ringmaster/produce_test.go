// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/partitioner"
)

// A record goes to the partition of --partition, else to the one that --partitioner chooses by its key, or where that looks at no keys, or there is none,
// by what was sent before.
func TestWhereRecordsGo(t *testing.T) {
	const partitions, in = 4, "k1:a\nk2:b\nk3:c\nk1:d\nk2:e\nk3:f\nk1:g\nk2:h\n"
	tests := map[string]struct {
		args string
		// key is the key of every record; nil: none. keys: that before the colon.
		key  *string
		keys bool
		// by is the partitioner whose choice for a record's key is the partition; only is the partition of all records.
		by   string
		only int32
		// evenly says that each partition has as many.
		evenly bool
	}{
		"nothing is given":                         {args: "", only: -1},
		"KeyHash without a key":                    {args: "--partitioner KeyHash", only: -1},
		"ConsistentHash without a key":             {args: "--partitioner ConsistentHash", only: -1},
		"Sticky":                                   {args: "--partitioner Sticky", only: -1},
		"RoundRobin":                               {args: "--partitioner RoundRobin", evenly: true, only: -1},
		"a partition":                              {args: "--partition 2", only: 2},
		"the first partition":                      {args: "--partition 0", only: 0},
		"a key":                                    {args: "--key k", key: new("k"), by: "KeyHash", only: -1},
		"an empty key":                             {args: "--key=", key: new(""), by: "KeyHash", only: -1},
		"a key and KeyHash":                        {args: "--key k --partitioner KeyHash", key: new("k"), by: "KeyHash", only: -1},
		"a key and ConsistentHash":                 {args: "--key k --partitioner ConsistentHash", key: new("k"), by: "ConsistentHash", only: -1},
		"a key and Sticky":                         {args: "--key k --partitioner Sticky", key: new("k"), only: -1},
		"a key and RoundRobin":                     {args: "--key k --partitioner RoundRobin", key: new("k"), evenly: true, only: -1},
		"a key and a partition":                    {args: "--key k --partition 1", key: new("k"), only: 1},
		"keys of the lines":                        {args: "--key-separator :", keys: true, by: "KeyHash", only: -1},
		"keys of the lines and KeyHash":            {args: "--key-separator : --partitioner KeyHash", keys: true, by: "KeyHash", only: -1},
		"keys of the lines and ConsistentHash":     {args: "--key-separator : --partitioner ConsistentHash", keys: true, by: "ConsistentHash", only: -1},
		"keys of the lines and Sticky":             {args: "--key-separator : --partitioner Sticky", keys: true, only: -1},
		"keys of the lines and RoundRobin":         {args: "--key-separator : --partitioner RoundRobin", keys: true, evenly: true, only: -1},
		"keys of the lines and a partition":        {args: "--key-separator : --partition 3", keys: true, only: 3},
		"a partition, acks of one and compression": {args: "--partition 3 --acks 1 --compression gzip", only: 3},
	}
	b := startBroker(t, t.TempDir())
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			topic := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			must(t, "", at(b.addr, "topic", "create", topic, "--partitions", fmt.Sprint(partitions))...)
			must(t, in, at(b.addr, append([]string{"produce", topic}, strings.Fields(tc.args)...)...)...)
			var values strings.Builder
			found := map[string]int{}
			counts := make([]int, partitions)
			for _, l := range lines(must(t, "", at(b.addr, "consume", topic, "--from-beginning", "--max", "8", "-o", "json")...)) {
				r := decoded[recordJSON](t, l)
				counts[r.Partition]++
				line := *r.Value
				if tc.keys {
					line = *r.Key + ":" + line
				} else if diff := cmp.Diff(tc.key, r.Key); diff != "" {
					t.Errorf("key (-want +got):\n%s", diff)
				}
				found[line]++
				fmt.Fprintln(&values, line)
				if tc.only >= 0 && r.Partition != tc.only {
					t.Errorf("%s is in partition %d, want %d", line, r.Partition, tc.only)
				}
				if tc.by != "" {
					p, err := partitioner.ByName(tc.by)
					if err != nil {
						t.Fatal(err)
					}
					if want := p.Partition([]byte(*r.Key), partitions); r.Partition != want {
						t.Errorf("%s is in partition %d, want %d", line, r.Partition, want)
					}
				}
			}
			if tc.only >= 0 && values.String() != in {
				t.Errorf("in that partition is\n%s", values.String())
			}
			if diff := cmp.Diff([]int{2, 2, 2, 2}, counts); tc.evenly && diff != "" {
				t.Errorf("records by partition (-want +got):\n%s", diff)
			}
			for _, line := range lines(in) {
				if found[line] != 1 {
					t.Errorf("%s was found %d times", line, found[line])
				}
			}
		})
	}
}

func TestWhereGeneratedRecordsGo(t *testing.T) {
	b := startBroker(t, t.TempDir())
	for name, args := range map[string]string{
		"partition": "--partition 2", "key": "--key foobar", "both": "--partition 2 --key foobar", "turns": "--partitioner RoundRobin",
	} {
		t.Run(name, func(t *testing.T) {
			must(t, "", at(b.addr, "topic", "create", name, "--partitions", "3")...)
			c := startChild(t, at(b.addr, append([]string{"produce", name, "--generate", "500"}, strings.Fields(args)...)...)...)
			counts := map[int32]int{}
			for _, l := range lines(must(t, "", at(b.addr, "consume", name, "--from-beginning", "--max", "30", "-o", "json")...)) {
				r := decoded[recordJSON](t, l)
				counts[r.Partition]++
				if (r.Key != nil) != strings.Contains(args, "--key") {
					t.Errorf("key %v", r.Key)
				}
			}
			if len(counts) != 1 && name != "turns" || len(counts) != 3 && name == "turns" {
				t.Errorf("records by partition: %v", counts)
			}
			c.signal(t, syscall.SIGTERM)
			if code := c.wait(t); code != exitOK {
				t.Errorf("exit code %d, %s", code, c.err)
			}
		})
	}
}

func TestPartitionsThatAreNotThere(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "2")...)
	for _, args := range [][]string{{"--partition", "2"}, {"--partition", "2", "--key", "k"}, {"--partition", "2147483647"}} {
		r := cli(t, "a\n", at(b.addr, append([]string{"produce", "orders"}, args...)...)...)
		if want := fmt.Sprintf("ringmaster: topic \"orders\" has no partition %s: it has 2 partitions, from 0\n", args[1]); r.code != exitFailed || r.err != want {
			t.Errorf("%q: exit code %d, error %s", args, r.code, r.err)
		}
	}
}
