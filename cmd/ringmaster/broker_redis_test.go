// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// redisBroker starts a broker that shares a Redis with others, in a process of its own, and returns where it listens.
func redisBroker(t *testing.T, url string) (*child, string) {
	t.Helper()
	c := startChild(t, "broker", "--metadata", "redis", "--storage", "redis", "--redis-url", url, "--redis-lease", "2s", "--listen", "127.0.0.1:0")
	return c, c.err.await(t, `msg="ringmaster broker" listen=(\S+)`)[1]
}

// numbered are the lines from one number to another.
func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestBrokersThatShareARedisAreOneCluster has two processes, of which one dies, one comes, and one stops; all that was acknowledged is read, each of the groups goes on where it was.
func TestBrokersThatShareARedisAreOneCluster(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	one, first := redisBroker(t, redis.URL())
	two, second := redisBroker(t, redis.URL())
	must(t, "", at(first, "topic", "create", "orders", "--partitions", "6")...)
	must(t, numbered(1, 300), at(second, "produce", "orders", "--partitioner", "RoundRobin", "--timeout", "30s")...)
	leaders := map[int32]int{}
	for _, p := range decoded[topicDetailJSON](t, must(t, "", at(first, "topic", "describe", "orders", "-o", "json")...)).Partitions {
		leaders[p.Leader]++
	}
	if leaders[1] != 3 || leaders[2] != 3 {
		t.Errorf("partitions by leader: %v", leaders)
	}
	before := decoded[coordinatorJSON](t, must(t, "", at(second, "group", "coordinator", "g", "-o", "json")...))
	read := lines(must(t, "", at(first, "consume", "orders", "--group", "g", "--from-beginning", "--max", "300")...))

	if err := one.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	must(t, numbered(301, 600), at(second, "produce", "orders", "--partitioner", "RoundRobin", "--timeout", "30s")...)
	t.Logf("all partitions could be written again %s after one of two brokers was killed", time.Since(killed))
	read = append(read, lines(must(t, "", at(second, "consume", "orders", "--group", "g", "--max", "300", "--timeout", "30s")...))...)

	after := decoded[coordinatorJSON](t, must(t, "", at(second, "group", "coordinator", "g", "-o", "json")...))
	if before.Since == nil || after.Since == nil || after.Coordinator != 2 && after.Coordinator != 1 || after.Address != second {
		t.Errorf("the group's coordinator was %+v, and is %+v after that at %s was killed", before, after, first)
	}

	_, third := redisBroker(t, redis.URL())
	must(t, "", at(third, "topic", "describe", "orders")...)
	if err := two.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := two.wait(t); code != exitOK {
		t.Errorf("a broker that is told to stop ends with exit code %d:\n%s", code, two.err)
	}
	stopped := time.Now()
	must(t, numbered(601, 900), at(third, "produce", "orders", "--partitioner", "RoundRobin", "--timeout", "30s")...)
	t.Logf("all partitions could be written again %s after one of two brokers was told to stop", time.Since(stopped))
	read = append(read, lines(must(t, "", at(third, "consume", "orders", "--group", "g", "--max", "300", "--timeout", "30s")...))...)

	slices.Sort(read)
	want := lines(numbered(1, 900))
	slices.Sort(want)
	if !slices.Equal(read, want) {
		t.Errorf("%d records were read, want each of %d once", len(read), len(want))
	}
}

func TestABrokerWithoutItsRedisSaysSo(t *testing.T) {
	t.Parallel()
	r := cli(t, "", "broker", "--metadata", "redis", "--storage", "redis", "--redis-url", "redis://user:secret@127.0.0.1:1", "--listen", "127.0.0.1:0")
	if r.code != exitFailed || !strings.Contains(r.err, "connect to Redis at 127.0.0.1:1") || strings.Contains(r.err, "secret") {
		t.Errorf("exit code %d, error %q", r.code, r.err)
	}
}
