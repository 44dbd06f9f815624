// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
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
)

// shortSession is the session timeout of the tests that outlast it.
const shortSession = time.Second

// startShortBroker starts a broker that lets members have that session timeout, and a topic.
func startShortBroker(t *testing.T, partitions int) *runningBroker {
	t.Helper()
	b := startBroker(t, t.TempDir(), "--min-session-timeout", "100ms")
	must(t, "", at(b.addr, "topic", "create", "orders", "--partitions", strconv.Itoa(partitions))...)
	return b
}

// member starts a member of the group g that runs a command for each record.
func (b *runningBroker) member(t *testing.T, command string, args ...string) *child {
	t.Helper()
	args = append([]string{"consume", "orders", "--group", "g", "--from-beginning", "--session-timeout", shortSession.String(), "--exec", command}, args...)
	return startChild(t, at(b.addr, args...)...)
}

// outlast asks for the group until several sessions have passed; it must have the same member all the time.
func outlast(t *testing.T, addr string) {
	t.Helper()
	first := group(t, addr, "g")
	for start := time.Now(); time.Since(start) < 4*shortSession; {
		g := group(t, addr, "g")
		if g.State != "Stable" || len(g.Members) != 1 || g.Members[0].MemberID != first.Members[0].MemberID {
			t.Fatalf("group = %+v, was %+v", g, first)
		}
	}
}

func TestACommandMayTakeLongerThanTheSession(t *testing.T) {
	g, b := newGate(t), startShortBroker(t, 2)
	must(t, numbers(3), at(b.addr, "produce", "orders", "--partition", "0")...)
	c := b.member(t, `read n; [ "$n" != 1 ] || cat "$GATE"; echo "$RINGMASTER_PARTITION $n"`, "--concurrency", "2", "--max", "5")
	c.out.await(t, "0 0\n")
	outlast(t, b.addr)
	// It has gone on to fetch and to commit, too.
	must(t, numbers(1), at(b.addr, "produce", "orders", "--partition", "1")...)
	c.out.await(t, "1 0\n")
	awaitGroup(t, b.addr, "g", func(groupDetailJSON) bool {
		return committed(t, b.addr, "g", 0) == 1 && committed(t, b.addr, "g", 1) == 1
	})
	must(t, numbers(1), at(b.addr, "produce", "orders", "--partition", "1")...)
	g.open(t)
	if code := c.wait(t); code != exitOK || c.err.String() != "" {
		t.Errorf("exit code %d, %s", code, c.err)
	}
	got := lines(c.out.String())
	slices.Sort(got)
	if diff := cmp.Diff([]string{"0 0", "0 1", "0 2", "1 0", "1 0"}, got); diff != "" {
		t.Errorf("handled (-want +got):\n%s", diff)
	}
}

// A reader that takes its time holds up nothing but the records.
func TestAReaderMayTakeLongerThanTheSession(t *testing.T) {
	b := startShortBroker(t, 1)
	must(t, strings.Repeat(strings.Repeat("x", 999)+"\n", 3000), at(b.addr, "produce", "orders")...)
	cmd := exec.Command(os.Args[0], at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--session-timeout", shortSession.String(),
		"--shutdown-timeout", "100ms")...)
	cmd.Env = append(os.Environ(), envRunMain+"=1")
	c := &child{cmd: cmd, out: newWatched(), err: newWatched()}
	cmd.Stderr = c.err
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
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.State == "Stable" })
	outlast(t, b.addr)
	c.signal(t, syscall.SIGTERM)
	if code := c.wait(t); code != exitFailed || c.err.String() != "ringmaster: what had begun did not end within 100ms (--shutdown-timeout)\n" {
		t.Errorf("exit code %d, %s", code, c.err)
	}
	if g := group(t, b.addr, "g"); g.State != "Empty" {
		t.Errorf("group = %+v", g)
	}
}

func TestASignalWaitsForCommands(t *testing.T) {
	const command = `read n; [ "$n" != 3 ] || { echo waiting; cat "$GATE"; }; echo $n`
	for name, send := range map[string]func(t *testing.T, c *child){
		"SIGTERM": func(t *testing.T, c *child) { c.signal(t, syscall.SIGTERM) },
		"SIGINT":  func(t *testing.T, c *child) { c.signal(t, os.Interrupt) },
		"SIGINT of the terminal": func(t *testing.T, c *child) {
			if err := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, b := newGate(t), startShortBroker(t, 1)
			must(t, numbers(6), at(b.addr, "produce", "orders")...)
			c := &child{cmd: exec.Command(os.Args[0], at(b.addr, "consume", "orders", "--group", "g", "--from-beginning", "--exec", command)...), out: newWatched(), err: newWatched()}
			c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = append(os.Environ(), envRunMain+"=1"), c.out, c.err
			c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := c.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.cmd.Process.Kill() })
			c.out.await(t, "waiting\n")
			send(t, c)
			g.open(t)
			if code := c.wait(t); code != exitOK || c.out.String() != "0\n1\n2\nwaiting\n3\n" || c.err.String() != "" {
				t.Errorf("exit code %d, output %q, error %s", code, c.out, c.err)
			}
			if g := group(t, b.addr, "g"); g.State != "Empty" || committed(t, b.addr, "g", 0) != 4 {
				t.Errorf("group = %+v", g)
			}
			if got := must(t, "", at(b.addr, "consume", "orders", "--group", "g", "--max", "2", "--exec", "cat")...); got != "4\n5\n" {
				t.Errorf("then %q is handled", got)
			}
		})
	}
}

func TestASecondSignalKillsCommands(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			newGate(t)
			b := startShortBroker(t, 1)
			must(t, numbers(2), at(b.addr, "produce", "orders")...)
			c := b.member(t, `read n; [ "$n" = 0 ] || { trap '' INT TERM; echo "pid $$"; cat "$GATE"; }`)
			pid := c.out.await(t, `pid (\d+)`)[1]
			c.signal(t, sig)
			// It tells its end by leaving nothing to be begun; that cannot be seen, so the second signal is sent until it is taken.
			done := make(chan struct{})
			go func() { _ = c.cmd.Wait(); close(done) }()
			for ended := false; !ended; {
				_ = c.cmd.Process.Signal(sig)
				select {
				case <-done:
					ended = true
				case <-time.After(10 * time.Millisecond):
				}
			}
			status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !ok || !status.Signaled() || status.Signal() != sig {
				t.Errorf("it ended with %s, want %s", c.cmd.ProcessState, sig)
			}
			awaitEnd(t, pid)
			if got := committed(t, b.addr, "g", 0); got > 1 {
				t.Errorf("offset %d is committed", got)
			}
		})
	}
}

func TestTheShutdownTimeoutKillsCommands(t *testing.T) {
	newGate(t)
	b := startShortBroker(t, 1)
	must(t, numbers(2), at(b.addr, "produce", "orders")...)
	for _, policy := range []string{onErrorStop, onErrorSkip, onErrorRetry} {
		c := b.member(t, `read n; [ "$n" = 0 ] || { trap '' INT TERM; echo "pid $$"; cat "$GATE"; }`, "--shutdown-timeout", "50ms", "--on-error", policy)
		pid := c.out.await(t, `pid (\d+)`)[1]
		c.signal(t, syscall.SIGTERM)
		const want = "ringmaster: warning: orders[0] offset 1: the command was killed\nringmaster: what had begun did not end within 50ms (--shutdown-timeout)\n"
		if code := c.wait(t); code != exitFailed || c.err.String() != want {
			t.Errorf("%s: exit code %d, error %s", policy, code, c.err)
		}
		awaitEnd(t, pid)
		if g := group(t, b.addr, "g"); g.State != "Empty" || committed(t, b.addr, "g", 0) != 1 {
			t.Errorf("%s: group = %+v", policy, g)
		}
	}
}

// A signal ends the wait before a command is tried again.
func TestASignalEndsRetries(t *testing.T) {
	b := startShortBroker(t, 1)
	must(t, numbers(1), at(b.addr, "produce", "orders")...)
	c := b.member(t, "false", "--on-error", "retry")
	c.err.await(t, "trying again in 200ms")
	c.signal(t, syscall.SIGTERM)
	if code := c.wait(t); code != exitOK || committed(t, b.addr, "g", 0) != 0 {
		t.Errorf("exit code %d, %s", code, c.err)
	}
}

// While a record of a partition that moves is handled, it stays with its old member, and then is committed before the new one begins.
func TestAPartitionMovesOnceItsRecordIsHandled(t *testing.T) {
	g, b := newGate(t), startShortBroker(t, 2)
	for p := range 2 {
		must(t, numbers(3), at(b.addr, "produce", "orders", "--partition", strconv.Itoa(p))...)
	}
	const command = `read n; echo "begin $RINGMASTER_PARTITION $n"; cat "$GATE"; echo "end $RINGMASTER_PARTITION $n"`
	first := b.member(t, command, "--concurrency", "2", "--client-id", "one")
	first.out.await(t, `(?s)begin . 0.*begin . 0`)
	second := b.member(t, `read n; echo "begin $RINGMASTER_PARTITION $n"`, "--client-id", "two")
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.State == "Stable" && len(g.Members) == 2 })
	// The first member still has both partitions, and no session ends, for as long as the commands take.
	for start := time.Now(); time.Since(start) < 4*shortSession; {
		if d := group(t, b.addr, "g"); len(d.Members) != 2 || second.out.String() != "" {
			t.Fatalf("group = %+v, the second member: %s", d, second.out)
		}
	}
	g.open(t)
	g.open(t) // a second command may not have been at the gate
	moved := second.out.await(t, `begin (\d) (\d)\nbegin \d 2\n`)
	partition, offset := moved[1], moved[2]
	if ended := strings.Count(first.out.String(), "end "+partition+" "); offset != strconv.Itoa(ended) {
		t.Errorf("the second member began at offset %s of partition %s; the first printed\n%s", offset, partition, first.out)
	}
	for _, c := range []*child{second, first} {
		c.signal(t, syscall.SIGTERM)
		c.waitAt(t, g)
		if c.err.String() != "" {
			t.Error(c.err)
		}
	}
}

// waitAt waits for a member's end, which must be a good one, and lets its commands through the gate.
func (c *child) waitAt(t *testing.T, g *gate) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	for deadline := time.After(patience); ; {
		g.release()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%v: %s", err, c.err)
			}
			return
		case <-deadline:
			t.Fatalf("the command does not end; output\n%s\n%s", c.out, c.err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A member that is told to end while the group waits for another one's command ends nevertheless, and commits what it has handled meanwhile.
func TestAMemberEndsWhileTheGroupWaits(t *testing.T) {
	g, b := newGate(t), startShortBroker(t, 4)
	must(t, "", at(b.addr, "topic", "create", "other")...)
	for p := range 4 {
		must(t, numbers(1), at(b.addr, "produce", "orders", "--partition", strconv.Itoa(p))...)
	}
	first := b.member(t, `echo "begin $(cat)"; cat "$GATE"`, "--concurrency", "4")
	first.out.await(t, `(?s)(begin 0.*){4}`)
	second := b.member(t, "cat", "other", "--timeout", "2s")
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.State == "Stable" && len(g.Members) == 2 })
	third := b.member(t, "cat", "--timeout", "2s")
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.State == "PreparingRebalance" && len(g.Members) == 3 })
	sent := int64(0)
	for start := time.Now(); time.Since(start) < shortSession; sent++ { // by then its heartbeats have told it to join again
		must(t, fmt.Sprintf("number %d\n", sent), at(b.addr, "produce", "other")...)
		second.out.await(t, fmt.Sprintf("number %d\n", sent))
	}
	for _, c := range []*child{second, third} {
		c.signal(t, syscall.SIGTERM)
		if code := c.wait(t); code != exitOK || c.err.String() != "" {
			t.Errorf("exit code %d, %s", code, c.err)
		}
	}
	if g := group(t, b.addr, "g"); len(g.Members) != 1 {
		t.Errorf("members = %+v", g.Members)
	}
	other := slices.DeleteFunc(group(t, b.addr, "g").Partitions, func(p groupPositionJSON) bool { return p.Topic != "other" })
	if len(other) != 1 || other[0].Committed == nil || *other[0].Committed != sent {
		t.Errorf("of the %d records of the other topic: %+v", sent, other)
	}
	first.signal(t, syscall.SIGTERM)
	first.waitAt(t, g)
}

// A slow record holds up its own partition alone, however much there is of it.
func TestASlowPartitionHoldsUpNoOther(t *testing.T) {
	const many = readAhead + 300
	g, b := newGate(t), startShortBroker(t, 2)
	must(t, numbers(many), at(b.addr, "produce", "orders", "--partition", "0")...)
	c := b.member(t, `read n; [ "$RINGMASTER_PARTITION $n" != "0 0" ] || { echo waiting; cat "$GATE"; }; echo "$RINGMASTER_PARTITION $n"`,
		"--concurrency", "2", "--messages", "100", "--max", strconv.Itoa(many+20), "--session-timeout", "10s")
	c.out.await(t, "waiting\n")
	for i := range 2 {
		must(t, numbers(10), at(b.addr, "produce", "orders", "--partition", "1")...)
		c.out.await(t, `(?s)`+strings.Repeat("1 9\n.*", i+1))
	}
	g.open(t)
	if code := c.wait(t); code != exitOK || c.err.String() != "" {
		t.Errorf("exit code %d, %s", code, c.err)
	}
	var got strings.Builder
	for _, l := range lines(c.out.String()) {
		if n, ok := strings.CutPrefix(l, "0 "); ok {
			fmt.Fprintln(&got, n)
		}
	}
	if diff := cmp.Diff(numbers(many), got.String()); diff != "" {
		t.Errorf("of the slow partition was handled (-want +got):\n%.500s", diff)
	}
}

// A command that takes longer than the rebalance may is one that the partition does not wait for: another member handles its record too, and the late
// end commits nothing.
func TestALateCommandCommitsNothing(t *testing.T) {
	g, b := newGate(t), startShortBroker(t, 2)
	for p := range 2 {
		must(t, numbers(3), at(b.addr, "produce", "orders", "--partition", strconv.Itoa(p))...)
	}
	first := b.member(t, `echo "begin $RINGMASTER_PARTITION $(cat)"; cat "$GATE"; echo "end $RINGMASTER_PARTITION"`, "--concurrency", "2", "--rebalance-timeout", "1s")
	first.out.await(t, `(?s)begin . 0.*begin . 0`)
	second := b.member(t, `echo "$RINGMASTER_PARTITION $(cat)"`)
	partition := second.out.await(t, `(\d) 0\n\d 1\n\d 2\n`)[1]
	number, err := strconv.Atoi(partition)
	if err != nil {
		t.Fatal(err)
	}
	awaitGroup(t, b.addr, "g", func(groupDetailJSON) bool { return committed(t, b.addr, "g", int32(number)) == 3 })
	g.open(t)
	first.out.await(t, "end "+partition)
	first.signal(t, syscall.SIGTERM)
	first.waitAt(t, g)
	if strings.Contains(first.out.String(), "begin "+partition+" 1") {
		t.Errorf("another record was begun:\n%s", first.out)
	}
	if got := committed(t, b.addr, "g", int32(number)); got != 3 {
		t.Errorf("offset %d is committed, want 3", got)
	}
}

// A member that the group takes for dead ends the record that it handles, commits nothing, and is a member again.
func TestAMemberThatWasTakenForDead(t *testing.T) {
	g, b := newGate(t), startShortBroker(t, 1)
	must(t, numbers(3), at(b.addr, "produce", "orders")...)
	first := b.member(t, `n=$(cat); echo "begin $n"; [ "$n" != 0 ] || cat "$GATE"; echo "end $n"`)
	first.out.await(t, "begin 0")
	first.signal(t, syscall.SIGSTOP)
	second := b.member(t, `cat`)
	second.out.await(t, "0\n1\n2\n")
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.Lag == 0 && len(g.Members) == 1 })
	first.signal(t, syscall.SIGCONT)
	first.err.await(t, "UNKNOWN_MEMBER_ID")
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.State == "Stable" && len(g.Members) == 2 })
	g.open(t)
	first.out.await(t, "end 0")
	second.signal(t, syscall.SIGTERM)
	second.waitAt(t, g)
	must(t, "3\n", at(b.addr, "produce", "orders")...)
	first.out.await(t, "^begin 0\nend 0\nbegin 3\nend 3\n$")
	first.signal(t, syscall.SIGTERM)
	first.waitAt(t, g)
	if got := committed(t, b.addr, "g", 0); got != 4 {
		t.Errorf("offset %d is committed, want 4", got)
	}
}

// Members come and go while commands run. Every record is handled, those of a partition in their order and one at a time, and nothing is committed that
// was not handled.
func TestMembersComeAndGo(t *testing.T) {
	const partitions, records, rounds = 6, 600, 8
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := startShortBroker(t, partitions)
	must(t, numbers(records), at(b.addr, "produce", "orders", "--partitioner", "RoundRobin")...)
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("LOG", log)
	const command = `echo "begin $RINGMASTER_PARTITION $RINGMASTER_OFFSET " >> "$LOG"; sleep 0.0$(($RINGMASTER_OFFSET % 7)); echo "end $RINGMASTER_PARTITION $RINGMASTER_OFFSET " >> "$LOG"`
	var members []*child
	putOut := false
	leave := func(m *child) {
		m.signal(t, syscall.SIGTERM)
		if code := m.wait(t); code != exitOK {
			t.Errorf("exit code %d, %s", code, m.err)
		}
		putOut = putOut || m.err.String() != "" // a machine that is slow enough makes a member miss its session
	}
	join := func() {
		members = append(members, b.member(t, command, "--concurrency", strconv.Itoa(1+random.IntN(3)), "--messages", strconv.Itoa(1+random.IntN(20))))
		awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return len(g.Members) >= len(members) }) // a process that begins dies of a signal
	}
	join()
	for round := range rounds {
		if len(members) > 1 && random.IntN(2) == 0 {
			i := random.IntN(len(members))
			leaving := members[i]
			members = slices.Delete(members, i, i+1)
			leave(leaving)
		} else {
			join()
		}
		awaitHandled(t, log, (round+1)*records/(2*rounds))
		checkCommits(t, b.addr, log)
	}
	awaitGroup(t, b.addr, "g", func(g groupDetailJSON) bool { return g.Lag == 0 })
	for _, m := range members {
		leave(m)
	}
	checkOrder(t, log, records, putOut)
}

// awaitHandled waits until so many commands have ended.
func awaitHandled(t *testing.T, log string, n int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < patience; time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(log); err == nil && strings.Count(string(text), "end ") >= n {
			return
		}
	}
	t.Fatalf("fewer than %d records were handled", n)
}

// checkCommits says that what is committed was handled: the log is read after the offsets.
func checkCommits(t *testing.T, addr, log string) {
	t.Helper()
	g := group(t, addr, "g")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range g.Partitions {
		if p.Committed == nil {
			continue
		}
		for offset := range *p.Committed {
			if !strings.Contains(string(text), fmt.Sprintf("end %d %d ", p.Partition, offset)) {
				t.Errorf("offset %d of partition %d is committed, and %d was not handled", *p.Committed, p.Partition, offset)
			}
		}
	}
}

// checkOrder says that each partition's records were handled in their order, and, unless a member was put out of the group, one after the other and once.
func checkOrder(t *testing.T, log string, records int, putOut bool) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	next, busy, again := map[string]int{}, map[string]string{}, 0
	for _, l := range lines(string(text)) {
		f := strings.Fields(l)
		what, partition, number := f[0], f[1], f[2]
		if what == "end" {
			delete(busy, partition)
			continue
		}
		offset, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := busy[partition]; ok && !putOut {
			t.Errorf("offset %d of partition %s began while %s was handled", offset, partition, other)
		}
		busy[partition] = number
		switch {
		case offset > next[partition]:
			t.Errorf("offset %d of partition %s came where %d was next", offset, partition, next[partition])
		case offset < next[partition]:
			again++
		}
		next[partition] = max(next[partition], offset+1)
	}
	handled := 0
	for _, n := range next {
		handled += n
	}
	if handled != records || again > 0 && !putOut {
		t.Errorf("%d records were handled, %d of them again, want %d", handled, again, records)
	}
}
