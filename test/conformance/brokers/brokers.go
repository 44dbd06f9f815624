// SPDX-License-Identifier: Apache-2.0

// Package brokers starts the brokers that clients are tried with: one on its own, several that share a cluster in a real API server, or several that share a Redis.
package brokers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// startLimit is how long brokers may take until they answer.
	startLimit = 2 * time.Minute
	// stopLimit is how long a broker may take to stop.
	stopLimit = 30 * time.Second
)

// World is the brokers that clients are run against.
type World struct {
	// Name is "1 broker", "3 brokers" or "2 brokers that share a Redis".
	Name string
	// Bootstrap is where clients begin, HOST:PORT.
	Bootstrap string
	// Addresses are where the brokers listen, by node id from 1.
	Addresses []string
	// Advertised is the proxy in front of the broker, whose address clients are told; nil where there is none.
	Advertised *Proxy

	// kube and namespace are the API server's, where there is one.
	kube      kube.Client
	namespace string

	external bool
	// shared says that the brokers keep everything in Redis.
	shared    bool
	processes []*process
	closers   []func() error
}

// process is a broker.
type process struct {
	dir  string
	args []string
	cmd  *exec.Cmd
	log  string
	done chan error
	// killed says that Crash has ended it.
	killed bool
}

// shortSessions are flags for KIP-848 groups, whose sessions are the broker's: a check that kills a member waits for the session's end.
var shortSessions = []string{"--consumer-session-timeout", "15s", "--consumer-heartbeat-interval", "300ms"}

// startBroker starts bin/ringmaster broker with the arguments; its log goes to a file of DIR.
func (w *World) startBroker(bin, dir string, env []string, args ...string) (*process, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make a broker's directory: %w", err)
	}
	log, err := os.CreateTemp(dir, "broker-*.log")
	if err != nil {
		return nil, fmt.Errorf("make a broker's log: %w", err)
	}
	defer log.Close()
	p := &process{dir: dir, args: args, log: log.Name(), done: make(chan error, 1)}
	where := []string{"broker"}
	if !w.shared {
		where = append(where, "--data-dir", filepath.Join(dir, "data"))
	}
	p.cmd = exec.Command(bin, slices.Concat(where, shortSessions, args)...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a broker: %w", err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	w.processes = append(w.processes, p)
	return p, nil
}

// Crash kills the only broker, which has no time to write anything, and starts it again with the same data and address.
func (w *World) Crash() error {
	old := w.processes[len(w.processes)-1]
	if err := old.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill a broker: %w", err)
	}
	<-old.done
	old.killed = true
	p, err := w.startBroker(old.cmd.Path, old.dir, nil, append(slices.Clone(old.args), "--listen", w.Addresses[0])...)
	if err != nil {
		return err
	}
	_, err = p.address()
	return err
}

// Slug begins the name of what clients make here: no two worlds at one address have the same.
func (w *World) Slug() string {
	if w.external {
		return strconv.FormatInt(time.Now().Unix(), 36) // they may hold what an earlier run made
	}
	return strings.Fields(w.Name)[0]
}

// Running are brokers that others have started, of whatever make.
func Running(bootstrap string) *World {
	return &World{Name: "brokers at " + bootstrap, Bootstrap: bootstrap, external: true}
}

// Single says whether it is one broker on its own, of ours.
func (w *World) Single() bool { return w.Advertised != nil }

// OnStop has something done after the brokers have been stopped.
func (w *World) OnStop(f func() error) { w.closers = append(w.closers, f) }

// Stop ends the brokers as Kubernetes would, and says what went wrong with them meanwhile.
func (w *World) Stop() error {
	var errs []error
	for _, p := range w.processes {
		errs = append(errs, p.stop(), complaints(p.log))
	}
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	return errors.Join(errs...)
}

func (p *process) stop() error {
	if p.killed {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop a broker: %w", err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("a broker ended with %w; its log: %s", err, p.log)
		}
		return nil
	case <-time.After(stopLimit):
		return errors.Join(fmt.Errorf("a broker did not stop within %s; its log: %s", stopLimit, p.log), p.cmd.Process.Kill())
	}
}

// complaints are the lines of a broker's log that no client may cause.
func complaints(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read a broker's log: %w", err)
	}
	defer f.Close()
	var errs []error
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			errs = append(errs, errors.New("a broker logged: "+line))
		}
	}
	return errors.Join(append(errs, lines.Err())...)
}

var listening = regexp.MustCompile(`msg="ringmaster broker" listen=(\S+)`)

// address waits for the line of a broker's log that says where it listens.
func (p *process) address() (string, error) {
	deadline := time.Now().Add(startLimit)
	for time.Now().Before(deadline) {
		select {
		case err := <-p.done:
			p.done <- err
			return "", fmt.Errorf("the broker ended at once with %w; its log: %s", err, p.log)
		case <-time.After(20 * time.Millisecond):
		}
		log, err := os.ReadFile(p.log)
		if err != nil {
			return "", fmt.Errorf("read the broker's log: %w", err)
		}
		if m := listening.FindSubmatch(log); m != nil {
			return string(m[1]), nil
		}
	}
	return "", fmt.Errorf("the broker did not say within %s where it listens; its log: %s", startLimit, p.log)
}

// StartOne starts one broker on its own, behind a proxy: clients are told the proxy's address, which is not the one that the broker listens on. The flags are the broker's, besides
// those that all have.
func StartOne(bin, dir string, flags ...string) (w *World, err error) {
	w = &World{Name: "1 broker"}
	defer func(started *World) {
		if err != nil {
			err = errors.Join(err, started.Stop())
		}
	}(w)
	if w.Advertised, err = newProxy(); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, w.Advertised.Close)
	p, err := w.startBroker(bin, dir, nil, append([]string{"--listen", "127.0.0.1:0", "--advertise", w.Advertised.Addr()}, flags...)...)
	if err != nil {
		return nil, err
	}
	if w.Bootstrap, err = p.address(); err != nil {
		return nil, err
	}
	w.Advertised.Start(w.Bootstrap)
	w.Addresses = []string{w.Bootstrap}
	return w, answers(w.Bootstrap, 1)
}

// StartAt starts one broker on its own that listens on an address and tells clients another one, or the same. The flags are the broker's, besides those
// that all have.
func StartAt(bin, dir, listen, advertise string, flags ...string) (w *World, err error) {
	w = &World{Name: "1 broker"}
	defer func(started *World) {
		if err != nil {
			err = errors.Join(err, started.Stop())
		}
	}(w)
	p, err := w.startBroker(bin, dir, nil, append([]string{"--listen", listen, "--advertise", advertise}, flags...)...)
	if err != nil {
		return nil, err
	}
	if w.Bootstrap, err = p.address(); err != nil {
		return nil, err
	}
	w.Addresses = []string{w.Bootstrap}
	return w, answers(w.Bootstrap, 1)
}

// answers waits until the brokers name n of themselves.
func answers(bootstrap string, n int) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		brokers, err := admin.ListBrokers(ctx)
		if err == nil && len(brokers) == n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the brokers at %s do not answer after %s: %d of %d, %w", bootstrap, startLimit, len(brokers), n, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// FreePorts returns ports that were free a moment ago.
func FreePorts(n int) (ports []int32, err error) {
	var listeners []net.Listener // held until the end, so that no port comes twice
	defer func() {
		for _, ln := range listeners {
			err = errors.Join(err, ln.Close())
		}
	}()
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		listeners = append(listeners, ln)
		if address, ok := ln.Addr().(*net.TCPAddr); ok {
			ports = append(ports, int32(address.Port))
		}
	}
	return ports, nil
}
