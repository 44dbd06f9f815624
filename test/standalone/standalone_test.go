// SPDX-License-Identifier: Apache-2.0

// Package standalone runs the broker as users run it, as a process of its own, and talks to it with clients that are not ours.
package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"
)

// patience is how long tests wait for what must come.
const patience = 60 * time.Second

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ringmaster-standalone-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ringmaster")
	build := exec.Command("go", "build", "-o", binary, "github.com/ringmaster-dev/ringmaster/cmd/ringmaster")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build ringmaster:", err)
		return 1
	}
	return m.Run()
}

// output is what a process writes; it can be waited on.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// broker is a broker in a process of its own.
type broker struct {
	addr string
	log  *output
	cmd  *exec.Cmd
	done chan struct{}
}

var started = regexp.MustCompile(`msg="ringmaster broker" listen=(\S+)`)

// startBroker starts a broker on a data directory and waits until it says where it listens.
func startBroker(t *testing.T, dir string, args ...string) *broker {
	t.Helper()
	b := &broker{log: &output{grown: make(chan struct{}, 1)}, done: make(chan struct{})}
	b.cmd = exec.Command(binary, append([]string{"broker", "--data-dir", dir, "--listen", "127.0.0.1:0"}, args...)...)
	b.cmd.Stderr = b.log
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.done)
		_ = b.cmd.Wait()
	}()
	t.Cleanup(func() {
		b.kill(t)
		if t.Failed() {
			t.Logf("the broker's log:\n%s", b.log)
		}
	})
	deadline := time.After(patience)
	for {
		if m := started.FindStringSubmatch(b.log.String()); m != nil {
			b.addr = m[1]
			return b
		}
		select {
		case <-b.log.grown:
		case <-b.done:
			t.Fatal("the broker ended")
		case <-deadline:
			t.Fatal("the broker does not say where it listens")
		}
	}
}

// kill ends the broker as kill -9 does, and waits until it is gone.
func (b *broker) kill(t *testing.T) {
	t.Helper()
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	<-b.done
}

// ringmaster runs a command against the broker, with input, and returns its standard output.
func (b *broker) ringmaster(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := program(t, input, binary, append(args, "--bootstrap", b.addr)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// program runs a program with input and returns its standard output.
func program(t *testing.T, input, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader([]byte(input))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %q: %w\n%s", name, args, err, &errs)
	}
	return out.String(), nil
}

// kcat is the path of kcat. Without it the test is skipped, or fails where CI is set: a skipped test there would look like a passed one.
func kcat(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("kcat")
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("kcat is missing (%v): install the Debian package kcat", err)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		t.Skip("kcat is not installed; the Debian package kcat has it")
	default:
		t.Fatal(err)
	}
	return ""
}
