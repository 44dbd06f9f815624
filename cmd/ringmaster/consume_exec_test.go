// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// gate is a named pipe that commands wait at, and a directory for what they leave.
type gate struct{ dir, path string }

// newGate makes a gate. A command waits at it with "cat $GATE": until the test opens it.
func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{dir: t.TempDir()}
	g.path = filepath.Join(g.dir, "gate")
	if err := syscall.Mkfifo(g.path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.release)
	t.Setenv("GATE", g.path)
	t.Setenv("DIR", g.dir)
	return g
}

// open waits for a command at the gate and lets it through.
func (g *gate) open(t *testing.T) {
	t.Helper()
	opened := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(g.path, os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("no command comes to the gate")
	}
}

// release lets the commands through that are at the gate.
func (g *gate) release() {
	if f, err := os.OpenFile(g.path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		_ = f.Close()
	}
}

// numbers are lines from 0 to n-1.
func numbers(n int) string {
	var in strings.Builder
	for i := range n {
		fmt.Fprintln(&in, i)
	}
	return in.String()
}

// committed is what a group has committed of a partition; 0 where that is nothing.
func committed(t *testing.T, addr, name string, partition int32) int64 {
	t.Helper()
	for _, p := range group(t, addr, name).Partitions {
		if p.Partition == partition && p.Committed != nil {
			return *p.Committed
		}
	}
	return 0
}

// signalled sends a signal to a child.
func (c *child) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// awaitEnd waits until a process is gone.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); time.Since(start) < patience; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		if syscall.Kill(n, 0) != nil || err == nil && bytes.Contains(stat, []byte(") Z ")) {
			return
		}
	}
	t.Errorf("process %s still runs", pid)
}

func TestACommandGetsARecord(t *testing.T) {
	const show = `printf '%s|' "$RINGMASTER_TOPIC" "$RINGMASTER_PARTITION" "$RINGMASTER_OFFSET" "$RINGMASTER_TIMESTAMP" "${RINGMASTER_KEY-none}" ` +
		`"${RINGMASTER_KEY_ENCODING-none}" "${RINGMASTER_HEADERS-none}" "${RINGMASTER_TOMBSTONE-none}"; base64 -w 0`
	when := time.UnixMilli(1764560000123)
	tests := map[string]struct {
		record kgo.Record
		want   string
	}{
		"a value alone":             {kgo.Record{Value: []byte("v")}, "none|none|none|none|dg=="},
		"an empty key and value":    {kgo.Record{Key: []byte{}, Value: []byte{}}, "|none|none|none|"},
		"a tombstone":               {kgo.Record{Key: []byte("k")}, "k|none|none|true|"},
		"bytes that are no text":    {kgo.Record{Key: []byte("\xff\xfe"), Value: []byte("\x00\xff\n")}, "//4=|base64|none|none|AP8K"},
		"a key with a NUL":          {kgo.Record{Key: []byte("a\x00b"), Value: []byte("v")}, "YQBi|base64|none|none|dg=="},
		"a key with what sh knows":  {kgo.Record{Key: []byte("$(id) `id` '\"\n\\"), Value: []byte("v")}, "$(id) `id` '\"\n\\|none|none|none|dg=="},
		"headers of the same name":  {kgo.Record{Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("<2>")}}}, `none|none|[{"key":"h","value":"1"},{"key":"h","value":"<2>"}]|none|dg==`},
		"headers that are no text":  {kgo.Record{Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("\xff")}, {Key: "i", Value: []byte("a\x00")}}}, `none|none|[{"key":"h","value":"/w==","encoding":"base64"},{"key":"i","value":"a\u0000"}]|none|dg==`},
		"a value that ends a line":  {kgo.Record{Value: []byte("v\n")}, "none|none|none|none|dgo="},
		"a key as long as they get": {kgo.Record{Key: bytes.Repeat([]byte("k"), 100_000), Value: []byte("v")}, strings.Repeat("k", 100_000) + "|none|none|none|dg=="},
	}
	t.Setenv(envKey, "the environment's own")
	t.Setenv(envTombstone, "true")
	b := startBroker(t, t.TempDir())
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			topic := strings.ReplaceAll(name, " ", "-")
			must(t, "", at(b.addr, "topic", "create", topic, "--partitions", "3")...)
			tc.record.Topic, tc.record.Partition, tc.record.Timestamp = topic, 2, when
			produceRecord(t, b.addr, &tc.record)
			got := must(t, "", at(b.addr, "consume", topic, "--from-beginning", "--max", "1", "--exec", show)...)
			if want := topic + "|2|0|2025-12-01T03:33:20.123Z|" + tc.want + "\n"; got != want {
				t.Errorf("the command printed\n%.300swant\n%.300s", got, want)
			}
		})
	}
}

// produceRecord produces a record to the partition that it names.
func produceRecord(t *testing.T, addr string, r *kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(largestMessage),
		kgo.BrokerMaxWriteBytes(largestMessage+1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatHappensWhenACommandFails(t *testing.T) {
	tests := map[string]struct {
		args          []string
		command       string
		wantCode      int
		wantErr       string
		wantOut       string
		wantCommitted int64
	}{
		"it stops": {nil, `read n; echo $n; [ $n != 3 ] || exit 7`, exitFailed,
			"ringmaster: orders[0] offset 3: the command ended with exit code 7\n", "0\n1\n2\n3\n", 3},
		"it stops with what several commands do": {[]string{"--concurrency", "3"}, `read n; echo $n; [ $n != 3 ] || exit 7`, exitFailed,
			"ringmaster: orders[0] offset 3: the command ended with exit code 7\n", "0\n1\n2\n3\n", 3},
		"it skips the record": {[]string{"--on-error", "skip"}, `read n; echo $n; [ $n != 3 ] || exit 7`, exitOK,
			"ringmaster: warning: orders[0] offset 3: the command ended with exit code 7; it is skipped\n", "0\n1\n2\n3\n4\n5\n", 6},
		"it tries again": {[]string{"--on-error", "retry"}, `read n; echo $n; [ $n != 3 ] || [ -e "$DIR/again" ] || { touch "$DIR/again"; exit 1; }`, exitOK,
			"ringmaster: warning: orders[0] offset 3: the command ended with exit code 1; trying again in 100ms\n", "0\n1\n2\n3\n3\n4\n5\n", 6},
		"a signal is a failure": {nil, `kill -9 $$`, exitFailed,
			"ringmaster: orders[0] offset 0: the command was ended by a signal: killed\n", "", 0},
		"a command that does not exist": {nil, `nothing-of-that-name 2>/dev/null`, exitFailed,
			"ringmaster: orders[0] offset 0: the command ended with exit code 127\n", "", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			newGate(t)
			b := startBroker(t, t.TempDir())
			must(t, numbers(6), at(b.addr, "produce", "orders")...)
			r := cli(t, "", append(at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--max", "6", "--exec", tc.command), tc.args...)...)
			if r.code != tc.wantCode || r.err != tc.wantErr || r.out != tc.wantOut {
				t.Errorf("exit code %d, error\n%swant\n%soutput\n%swant\n%s", r.code, r.err, tc.wantErr, r.out, tc.wantOut)
			}
			if got := committed(t, b.addr, "g", 0); got != tc.wantCommitted {
				t.Errorf("offset %d is committed, want %d", got, tc.wantCommitted)
			}
			if g := group(t, b.addr, "g"); g.State != "Empty" {
				t.Errorf("group = %+v", g)
			}
		})
	}
}

// A key that no environment can hold fails as any command does; what is skipped is committed.
func TestAKeyThatIsLargerThanAnEnvironment(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders")...)
	produceRecord(t, b.addr, &kgo.Record{Topic: "orders", Key: bytes.Repeat([]byte("k"), 500_000)})
	must(t, "small\n", at(b.addr, "produce", "orders")...)
	args := at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--max", "2", "--exec", "cat")
	const message = "orders[0] offset 0: the command cannot be started: the record's key and headers are larger than an environment may be"
	if r := cli(t, "", args...); r.code != exitFailed || r.err != "ringmaster: "+message+"\n" {
		t.Errorf("exit code %d, error %s", r.code, r.err)
	}
	if r := cli(t, "", append(args, "--on-error", "skip")...); r.code != exitOK || r.err != "ringmaster: warning: "+message+"; it is skipped\n" || r.out != "small\n" {
		t.Errorf("exit code %d, error %s, output %q", r.code, r.err, r.out)
	}
}

// A command that cannot be started at all is nothing that a record could be skipped for.
func TestWithoutAShellNothingIsSkipped(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "a\n", at(b.addr, "produce", "orders")...)
	t.Setenv("PATH", t.TempDir())
	r := cli(t, "", at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--exec", "cat", "--on-error", "skip")...)
	if want := "ringmaster: orders[0] offset 0: the command cannot be started: exec: \"sh\": executable file not found in $PATH\n"; r.code != exitFailed || r.err != want {
		t.Errorf("exit code %d, error %s", r.code, r.err)
	}
	if got := committed(t, b.addr, "g", 0); got != 0 {
		t.Errorf("offset %d is committed", got)
	}
}

func TestHugeRecords(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "huge", "--partitions", "2", "--config", "max.message.bytes=33554432")...)
	big := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
	for p := range int32(2) {
		produceRecord(t, b.addr, &kgo.Record{Topic: "huge", Partition: p, Value: big})
	}
	t.Run("their lines are whole", func(t *testing.T) {
		got := must(t, "", at(b.addr, "consume", "huge", "--from-beginning", "--max", "2", "--concurrency", "2", "--exec", "cat")...)
		if want := string(big) + "\n" + string(big) + "\n"; got != want {
			t.Errorf("%d bytes came out, want %d", len(got), len(want))
		}
	})
	t.Run("a command need not read them", func(t *testing.T) {
		r := cli(t, "", at(b.addr, "consume", "huge", "--from-beginning", "--max", "2", "--exec", "head -c 4; exec <&-; echo")...)
		if r.code != exitOK || r.out != "0123\n0123\n" || r.err != "" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("nor any of it", func(t *testing.T) {
		if r := cli(t, "", at(b.addr, "consume", "huge", "--from-beginning", "--max", "2", "--exec", "true")...); r != (result{}) {
			t.Errorf("%+v", r)
		}
	})
}

func TestWhatHoldsACommandsOutputIsKilled(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "a\n", at(b.addr, "produce", "orders")...)
	const killed = "orders[0] offset 0: the command has ended, but left processes behind that hold its output; they are killed\n"
	tests := map[string]struct {
		command  string
		wantCode int
		wantErr  string
	}{
		"after the command has ended well": {"sleep 1000 & echo $!", exitOK, "ringmaster: warning: " + killed},
		"after it has failed":              {"sleep 1000 & echo $!; exit 3", exitFailed, "ringmaster: orders[0] offset 0: the command ended with exit code 3\n"},
		"in the middle of a long line": {"sleep 1000 & echo $!; head -c 3000000 /dev/zero | tr '\\0' x >&2", exitOK,
			strings.Repeat("x", 3_000_000) + "\nringmaster: warning: " + killed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the time of grace
			r := cli(t, "", at(b.addr, "consume", "orders", "--from-beginning", "--max", "1", "--exec", tc.command)...)
			if r.code != tc.wantCode || r.err != tc.wantErr {
				t.Fatalf("exit code %d, error %.300s", r.code, r.err)
			}
			awaitEnd(t, strings.TrimSpace(r.out))
		})
	}
}

func TestWhatACommandLeavesBehind(t *testing.T) {
	g, b := newGate(t), startBroker(t, t.TempDir())
	must(t, "a\n", at(b.addr, "produce", "orders")...)
	args := at(b.addr, "consume", "orders", "--from-beginning", "--max", "1")
	t.Run("is waited for a while", func(t *testing.T) {
		c := startChild(t, append(args, "--exec", "(cat $GATE; echo late) & echo early")...)
		c.out.await(t, "early\n")
		g.open(t)
		if code := c.wait(t); code != exitOK || c.out.String() != "early\nlate\n" || c.err.String() != "" {
			t.Errorf("exit code %d, %s, %s", code, c.out, c.err)
		}
	})
	t.Run("lives on where it lets go of the output", func(t *testing.T) {
		r := cli(t, "", append(args, "--exec", "sleep 1000 >/dev/null 2>&1 & echo $!")...)
		pid, err := strconv.Atoi(strings.TrimSpace(r.out))
		if r.code != exitOK || r.err != "" || err != nil {
			t.Fatalf("%+v", r)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
}

// The pipes within a command break as they do in any shell.
func TestCommandsEndAtABrokenPipe(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "a\n", at(b.addr, "produce", "orders")...)
	c := startChild(t, at(b.addr, "consume", "orders", "--from-beginning", "--max", "1", "--exec", "yes | head -n 1")...)
	if code := c.wait(t); code != exitOK || c.out.String() != "y\n" || c.err.String() != "" {
		t.Errorf("exit code %d, output %q, error %q", code, c.out, c.err)
	}
}

func TestManyRecordsAtOnce(t *testing.T) {
	const records, partitions = 1000, 16
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", strconv.Itoa(partitions))...)
	must(t, numbers(records), at(b.addr, "produce", "orders", "--partitioner", "RoundRobin")...)
	out := lines(must(t, "", at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--concurrency", "16", "--max", strconv.Itoa(records),
		"--exec", `read n; echo "$RINGMASTER_PARTITION $RINGMASTER_OFFSET $n"; echo "to standard error" >&2`)...))
	next, seen := map[string]int{}, map[string]bool{}
	for _, l := range out {
		fields := strings.Fields(l)
		if len(fields) != 3 {
			t.Fatalf("mixed lines: %q", l)
		}
		if want := strconv.Itoa(next[fields[0]]); fields[1] != want {
			t.Errorf("partition %s: offset %s came where %s was next", fields[0], fields[1], want)
		}
		next[fields[0]]++
		seen[fields[2]] = true
	}
	if len(out) != records || len(seen) != records || len(next) != partitions {
		t.Errorf("%d lines of %d records of %d partitions", len(out), len(seen), len(next))
	}
	if g := group(t, b.addr, "g"); g.Lag != 0 {
		t.Errorf("group = %+v", g)
	}
}

// --max counts records that commands have handled, however many run at once.
func TestTheEndsOfConsumeWithCommands(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", "4")...)
	must(t, numbers(40), at(b.addr, "produce", "orders", "--partitioner", "RoundRobin")...)
	for name, tc := range map[string]struct {
		args string
		want int
	}{
		"a number of records":           {"--max 7 --concurrency 4 --messages 2", 7},
		"one record":                    {"--max 1 --concurrency 4", 1},
		"more handlers than partitions": {"--max 40 --concurrency 64", 40},
		"a time without records":        {"--idle-timeout 3s --concurrency 2 --messages 3", 40},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(strings.Fields(tc.args), "--from-beginning", "--exec", "cat")
			out := lines(must(t, "", at(b.addr, append([]string{"consume", "orders"}, args...)...)...))
			slices.Sort(out)
			if n := len(slices.Compact(slices.Clone(out))); len(out) != tc.want || n != tc.want {
				t.Errorf("%d lines, %d different ones, want %d", len(out), n, tc.want)
			}
		})
	}
}

// A reader that has seen enough ends it; the record that it did not take in is not committed.
func TestAReaderOfCommandsThatHasSeenEnough(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, numbers(50), at(b.addr, "produce", "orders")...)
	cmd := exec.Command(os.Args[0], at(b.addr, "consume", "orders", "--group", "head", "--from-beginning", "--exec", "cat; head -c 100000 /dev/zero")...)
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
	if g := group(t, b.addr, "head"); g.State != "Empty" || committed(t, b.addr, "head", 0) > 2 {
		t.Errorf("group = %+v", g)
	}
}

func TestLinesOfSeveralWritersAreWhole(t *testing.T) {
	var out bytes.Buffer
	shared := &sharedOutput{w: &out}
	a, b := &lineOutput{out: shared}, &lineOutput{out: shared}
	write := func(l *lineOutput, s string) {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", n, len(s), err)
		}
	}
	write(a, "a1")
	write(b, "b1\nb")
	write(a, "a2\na3")
	write(b, "2")
	b.end()
	a.end()
	a.end()
	if diff := cmp.Diff("b1\na1a2\nb2\na3\n", out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	out.Reset()
	long := strings.Repeat("x", longestLine)
	write(a, long)
	write(a, "y") // has the output for itself from here
	done := make(chan struct{})
	go func() { defer close(done); write(b, "b\n") }()
	write(a, "z\nrest")
	<-done
	a.end()
	if got, want := out.String(), long+"yz\n"; !strings.HasPrefix(got, want) || len(got) != len(want)+len("b\nrest\n") {
		t.Errorf("%d bytes, want %d and two lines", len(got), len(want))
	}
}
