// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// clockTick is the unit of CPU time in /proc, USER_HZ: 100 on every Linux that Go runs on.
	clockTick = time.Second / 100
	// startLimit is how long a server may take to answer for the first time.
	startLimit = time.Minute
	// stopLimit is how long a server may take to stop when it is asked to.
	stopLimit = 20 * time.Second
)

// process is a server that runs as a child of this program.
type process struct {
	cmd     *exec.Cmd
	logPath string
	// exited is closed when it has ended.
	exited chan struct{}
	// first is how long it took from its start to its first answer.
	first time.Duration
}

// spawns are run by a thread that ends with the program: the kernel sends a child its parent's death signal when the thread ends that made it.
var spawns = make(chan func())

func runSpawns() {
	runtime.LockOSThread()
	for f := range spawns {
		f()
	}
}

// startProcess starts a server and waits until ask, which is tried over and over, has an answer.
func startProcess(ctx context.Context, dir string, cmd *exec.Cmd, ask func(ctx context.Context) error) (*process, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the server's directory: %w", err)
	}
	p := &process{cmd: cmd, logPath: filepath.Join(dir, "server.log"), exited: make(chan struct{})}
	out, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the server's log: %w", err)
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	begin := time.Now()
	started := make(chan error, 1)
	spawns <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait() // its state says how it ended
		close(p.exited)
	}()
	if err := p.awaitAnswer(ctx, ask); err != nil {
		p.kill()
		return nil, err
	}
	p.first = time.Since(begin)
	return p, nil
}

func (p *process) awaitAnswer(ctx context.Context, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	pause := time.NewTicker(500 * time.Microsecond)
	defer pause.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended before it answered (%s); the end of its log:\n%s", p.cmd.Path, p.cmd.ProcessState, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w; the end of its log:\n%s", p.cmd.Path, errors.Join(err, context.Cause(ctx)), p.logTail())
		case <-pause.C:
		}
	}
}

// logTail returns the last lines that a server wrote.
func (p *process) logTail() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// stop asks a server to stop, and kills it if it does not.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// freeAddress returns a local address that nothing listens on.
func freeAddress(ctx context.Context) (string, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	address := ln.Addr().String()
	return address, ln.Close()
}

// use is what processes have used so far.
type use struct {
	server, client time.Duration
	// peak is the server's largest resident memory in bytes since it was last reset.
	peak int64
	// read is what the server had read from disk, in bytes.
	read int64
}

// readUse reads the use of the server pid and of this program. reset forgets the peak of memory.
func readUse(pid int, reset bool) (use, error) {
	if reset {
		if err := os.WriteFile(procPath(pid, "clear_refs"), []byte("5"), 0); err != nil {
			return use{}, fmt.Errorf("reset the peak of memory: %w", err)
		}
	}
	var u use
	var err error
	if u.server, err = cpuTime(pid); err != nil {
		return use{}, err
	}
	if u.client, err = cpuTime(os.Getpid()); err != nil {
		return use{}, err
	}
	if u.peak, err = memory(pid, "VmHWM"); err != nil {
		return use{}, err
	}
	if u.read, err = procField(pid, "io", "read_bytes"); err != nil {
		return use{}, err
	}
	return u, nil
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// cpuTime is the user and system time of a process and of its children that have ended.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read a server's CPU time: %w", err)
	}
	// The program's name, in parentheses, may hold spaces.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read a server's CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// memory reads a size from /proc/PID/status in bytes.
func memory(pid int, name string) (int64, error) {
	kib, err := procField(pid, "status", name)
	return kib << 10, err
}

// procField reads a number from a file of lines "name: number".
func procField(pid int, file, name string) (int64, error) {
	b, err := os.ReadFile(procPath(pid, file))
	if err != nil {
		return 0, fmt.Errorf("read what a server uses: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", procPath(pid, file), name)
}
