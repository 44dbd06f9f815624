// SPDX-License-Identifier: Apache-2.0

// Package testredis runs real Redis servers for tests.
package testredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a redis-server on loopback. Its data are in a directory of the test.
type Server struct {
	// Address is HOST:PORT.
	Address string
	t       testing.TB
	dir     string
	args    []string
	process *exec.Cmd
	// bus is the port by which the servers of a cluster speak to each other; empty where it is none's.
	bus string
}

// Start starts a server with more arguments, such as "--appendfsync", "always"; it ends with the test. It has an append-only file, synced every second.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is missing: run hack/install-deps.sh test")
	}
	port := FreePort(t)
	s := &Server{t: t, Address: net.JoinHostPort("127.0.0.1", port), dir: t.TempDir()}
	s.args = append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0",
		"--logfile", filepath.Join(s.dir, "redis.log"),
	}, args...)
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// URL is where clients reach it.
func (s *Server) URL() string { return "redis://" + s.Address }

// Run starts a server that was killed or stopped, with the data that it had, and waits until it answers.
func (s *Server) Run() {
	s.t.Helper()
	s.process = exec.Command("redis-server", s.args...)
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		out, err := s.CLI("ping")
		if err == nil && out == "PONG" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("redis-server does not answer: %s, %v; its log is in %s", out, err, s.dir)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Kill ends the server as kill -9 does, and returns when it has gone.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Freeze stops the server from doing anything (SIGSTOP), and Thaw lets it go on.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	if s.process != nil {
		_ = s.process.Process.Signal(sig) // it may have ended
	}
}

func (s *Server) end(sig syscall.Signal) {
	if s.process == nil {
		return
	}
	s.signal(sig)
	_ = s.process.Wait() // it was killed
	s.process = nil
}

// CLI asks the server by redis-cli, and returns what that prints, without the last newline.
func (s *Server) CLI(args ...string) (string, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	text := strings.TrimSuffix(string(out), "\n")
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return text, fmt.Errorf("redis-cli %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, err
}

// FreePort is a port of loopback that nobody listens on.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
