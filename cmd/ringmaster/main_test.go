// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// envRunMain makes the test binary run the command line itself, so that tests have a process to send signals to.
const envRunMain = "RINGMASTER_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envRunMain) != "" {
		os.Exit(mainCode())
	}
	for _, name := range []string{envBootstrap, "KUBECONFIG", "POD_NAME", "POD_NAMESPACE", "RINGMASTER_CLUSTER"} {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// patience is how long tests wait for what must come.
const patience = 30 * time.Second

// result is what a command did.
type result struct {
	code     int
	out, err string
}

// cli runs a command in this process.
func cli(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, args, streams{in: strings.NewReader(stdin), out: &out, err: &errs})
	return result{code: code, out: out.String(), err: errs.String()}
}

// at adds the broker to ask to a command.
func at(addr string, args ...string) []string { return append(args, "--bootstrap", addr) }

// must runs a command that must succeed, and returns its output.
func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := cli(t, stdin, args...)
	if r.code != exitOK {
		t.Fatalf("%q: exit code %d: %s", args, r.code, r.err)
	}
	return r.out
}

// decoded decodes a command's JSON.
func decoded[T any](t *testing.T, out string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return v
}

// watched is an output that tests can wait on.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func newWatched() *watched { return &watched{grown: make(chan struct{}, 1)} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.text.Write(p)
	select {
	case w.grown <- struct{}{}:
	default:
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits until the output matches, and returns the submatches.
func (w *watched) await(t *testing.T, re string) []string {
	t.Helper()
	pattern := regexp.MustCompile(re)
	deadline := time.After(patience)
	for {
		if m := pattern.FindStringSubmatch(w.String()); m != nil {
			return m
		}
		select {
		case <-w.grown:
		case <-deadline:
			t.Fatalf("no %q in\n%s", re, w)
		}
	}
}

// runningBroker is a broker in this process.
type runningBroker struct {
	addr string
	log  *watched
	stop func() int
}

// startBroker runs a broker in this process until the test ends.
func startBroker(t *testing.T, dir string, args ...string) *runningBroker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := newWatched()
	done := make(chan int, 1)
	args = append([]string{"broker", "--data-dir", dir, "--listen", "127.0.0.1:0"}, args...)
	go func() { done <- run(ctx, args, streams{in: strings.NewReader(""), out: io.Discard, err: log}) }()
	var once sync.Once
	code := -1
	stop := func() int {
		once.Do(func() {
			cancel()
			select {
			case code = <-done:
			case <-time.After(patience):
				t.Errorf("the broker does not stop:\n%s", log)
			}
		})
		return code
	}
	t.Cleanup(func() { stop() })
	m := log.await(t, `msg="ringmaster broker" listen=(\S+)|^ringmaster: .*`)
	if m[1] == "" {
		t.Fatalf("the broker does not start: %s", log)
	}
	return &runningBroker{addr: m[1], log: log, stop: stop}
}

// child is this binary, run as the command line in a process of its own.
type child struct {
	cmd      *exec.Cmd
	out, err *watched
}

// startChild starts a command in a process of its own, which dies with the test.
func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], args...), out: newWatched(), err: newWatched()}
	c.cmd.Env = append(os.Environ(), envRunMain+"=1")
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.err
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// wait waits for the end and returns the exit code.
func (c *child) wait(t *testing.T) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	select {
	case <-done:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("the command does not end; output\n%s\n%s", c.out, c.err)
		return -1
	}
}

// lines splits output into lines.
func lines(s string) []string {
	var ls []string
	sc := bufio.NewScanner(strings.NewReader(s))
	sc.Buffer(nil, 8<<20)
	for sc.Scan() {
		ls = append(ls, sc.Text())
	}
	return ls
}
