// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What happens when the command of --exec fails.
const (
	onErrorStop  = "stop"
	onErrorSkip  = "skip"
	onErrorRetry = "retry"
)

const (
	// outputGrace is how long processes that a command has left behind may hold its output.
	outputGrace = 5 * time.Second
	// firstRetry and longestRetry are the first and the longest wait before a command is tried again; each is twice the one before.
	firstRetry   = 100 * time.Millisecond
	longestRetry = 30 * time.Second
)

// Variables of a command's environment.
const (
	envTopic       = "RINGMASTER_TOPIC"
	envPartition   = "RINGMASTER_PARTITION"
	envOffset      = "RINGMASTER_OFFSET"
	envTimestamp   = "RINGMASTER_TIMESTAMP"
	envKey         = "RINGMASTER_KEY"
	envKeyEncoding = "RINGMASTER_KEY_ENCODING"
	envHeaders     = "RINGMASTER_HEADERS"
	envTombstone   = "RINGMASTER_TOMBSTONE"
)

// executor handles records with a command: a process for each.
type executor struct {
	command string
	onError string
	// base is our environment without the variables of a record.
	base     []string
	out, err *sharedOutput
	// warn prints a line about what does not end the consumer.
	warn func(string)

	// running holds the process groups that run. starting is held for reading while one is added, and for writing when all are killed.
	starting sync.RWMutex
	running  sync.Map
	killed   bool
}

func newExecutor(command, onError string, out, err *sharedOutput, warn func(string)) *executor {
	e := &executor{command: command, onError: onError, out: out, err: err, warn: warn}
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case envTopic, envPartition, envOffset, envTimestamp, envKey, envKeyEncoding, envHeaders, envTombstone:
		default:
			e.base = append(e.base, v)
		}
	}
	return e
}

// handle handles a record as --on-error says, and returns 1 if its offset may be committed.
func (e *executor) handle(w *work) (int, error) {
	r := w.records[0]
	for wait := firstRetry; ; wait = min(2*wait, longestRetry) {
		err := e.execute(r)
		var end endError
		switch {
		case err == nil:
			return 1, nil
		case errors.As(err, &end):
			return 0, err
		case e.onError == onErrorSkip:
			e.warn(oneLine(err) + "; it is skipped")
			return 1, nil
		case e.onError == onErrorStop:
			return 0, err
		}
		e.warn(fmt.Sprintf("%s; trying again in %s", oneLine(err), wait))
		if !w.sleep(wait) {
			return 0, nil
		}
	}
}

// endError is an error that ends the consumer whatever --on-error says: the record was not handled, and neither will others be.
type endError struct{ error }

func (e endError) Unwrap() error { return e.error }

// execute runs the command for a record.
func (e *executor) execute(r *kgo.Record) error {
	cmd := exec.Command("sh", "-c", e.command) //nolint:gosec // it is what the user asks for
	cmd.Env = slices.Concat(e.base, environment(r))
	cmd.Stdin = bytes.NewReader(r.Value)
	stdout, stderr := &lineOutput{out: e.out}, &lineOutput{out: e.err}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = outputGrace
	// A signal of the terminal is for the consumer alone: it waits for the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := e.start(cmd)
	if err == nil {
		err = cmd.Wait()
		e.running.Delete(cmd.Process.Pid)
	}
	stdout.end()
	stderr.end()
	if err != nil && cmd.Process != nil {
		killGroup(cmd.Process.Pid) // what is left of it must not meet the next attempt
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		e.warn(recordName(r) + ": the command has ended, but left processes behind that hold its output; they are killed")
		err = nil
	}
	return e.outcome(r, err)
}

// start starts a process in a group of its own, unless all were killed.
func (e *executor) start(cmd *exec.Cmd) error {
	e.starting.RLock()
	defer e.starting.RUnlock()
	if e.killed {
		return syscall.EINTR
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	e.running.Store(cmd.Process.Pid, nil)
	return nil
}

// outcome puts into words how a command ended.
func (e *executor) outcome(r *kgo.Record, err error) error {
	if err := errors.Join(e.out.failure(), e.err.failure()); err != nil {
		return endError{fmt.Errorf("pass on the output of commands: %w", err)}
	}
	var exit *exec.ExitError
	e.starting.RLock()
	killed := e.killed
	e.starting.RUnlock()
	switch {
	case err == nil:
		return nil
	case killed:
		return endError{fmt.Errorf("%s: the command was killed", recordName(r))}
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return fmt.Errorf("%s: the command ended with exit code %d", recordName(r), exit.ExitCode())
	case errors.As(err, &exit):
		return fmt.Errorf("%s: the command was ended by a %s", recordName(r), exit.String())
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("%s: the command cannot be started: the record's key and headers are larger than an environment may be", recordName(r))
	case e.onError == onErrorRetry:
		return fmt.Errorf("%s: the command cannot be started: %w", recordName(r), err)
	}
	return endError{fmt.Errorf("%s: the command cannot be started: %w", recordName(r), err)}
}

// killAll kills the commands that run; no other one starts.
func (e *executor) killAll() {
	e.starting.Lock()
	defer e.starting.Unlock()
	e.killed = true
	e.running.Range(func(pid, _ any) bool {
		if pid, ok := pid.(int); ok {
			killGroup(pid)
		}
		return true
	})
}

func killGroup(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL) // an error says that it has ended
}

// watchSignals kills the commands at the second SIGINT or SIGTERM, and then lets the signal do what it does to a process.
func (e *executor) watchSignals() (stop func()) {
	// Commands inherit signals that are ignored, as SIGPIPE is; those that somebody is notified of they get as they should be. This is never undone:
	// writing to a closed pipe would then end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for second := false; ; second = true {
			select {
			case <-done:
				return
			case s := <-signals:
				if second {
					e.killAll()
					dieOf(s)
				}
			}
		}
	}()
	return func() { signal.Stop(signals); close(done) }
}

// dieOf ends this process as the signal does where nobody handles it.
func dieOf(s os.Signal) {
	signal.Reset(s)
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), number) // on an error the last line ends it
	}
	time.Sleep(time.Second) // the signal comes at once, but perhaps not to this thread
	os.Exit(exitFailed)
}

// recordName is how a record is named to users.
func recordName(r *kgo.Record) string {
	return fmt.Sprintf("%s[%d] offset %d", r.Topic, r.Partition, r.Offset)
}

// environment are the variables that describe a record.
func environment(r *kgo.Record) []string {
	env := []string{
		envTopic + "=" + r.Topic,
		envPartition + "=" + strconv.Itoa(int(r.Partition)),
		envOffset + "=" + strconv.FormatInt(r.Offset, 10),
		envTimestamp + "=" + r.Timestamp.UTC().Format(timeFormat),
	}
	switch {
	case r.Key == nil:
	case !utf8.Valid(r.Key) || bytes.IndexByte(r.Key, 0) >= 0:
		env = append(env, envKey+"="+base64.StdEncoding.EncodeToString(r.Key), envKeyEncoding+"=base64")
	default:
		env = append(env, envKey+"="+string(r.Key))
	}
	if r.Value == nil {
		env = append(env, envTombstone+"=true")
	}
	if len(r.Headers) > 0 {
		env = append(env, envHeaders+"="+headersOf(r))
	}
	return env
}

// headersOf are a record's headers as -o json prints them.
func headersOf(r *kgo.Record) string {
	headers := make([]headerJSON, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = headerJSON{Key: h.Key, Value: string(h.Value)}
		if !utf8.Valid(h.Value) {
			headers[i].Value, headers[i].Encoding = base64.StdEncoding.EncodeToString(h.Value), "base64"
		}
	}
	var text strings.Builder
	if err := printJSON(&text, headers); err != nil {
		panic(err) // strings can be encoded
	}
	return strings.TrimSuffix(text.String(), "\n")
}
