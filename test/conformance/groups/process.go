// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// leaveLimit is how long a member may take to leave.
const leaveLimit = 30 * time.Second

// process is a client's program that is a member of a group.
type process struct {
	name   string
	config member.Config

	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	log    *os.File // nil if what it prints is not kept
	done   chan struct{}
	exit   error // once done is closed

	mu     sync.Mutex
	events []member.Event
	owned  map[member.Partition]bool
}

// start runs the program.
func (p *process) start(ctx context.Context, s Setting) error {
	config, err := json.Marshal(p.config)
	if err != nil {
		return fmt.Errorf("write what member %s is to do: %w", p.name, err)
	}
	args := append(slices.Clone(s.Command[1:]), s.Bootstrap, s.Prefix, string(config))
	p.cmd = exec.CommandContext(ctx, s.Command[0], args...)
	p.cmd.WaitDelay = time.Second
	p.cmd.Stderr = &p.stderr
	if s.Logs != "" {
		log, err := os.Create(filepath.Join(s.Logs, p.config.Group+"-"+strings.ReplaceAll(p.name, " ", "-")+".log"))
		if err != nil {
			return fmt.Errorf("keep what member %s prints: %w", p.name, err)
		}
		p.log, p.cmd.Stderr = log, io.MultiWriter(&p.stderr, log)
	}
	p.owned, p.done = map[member.Partition]bool{}, make(chan struct{})
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start member %s: %w", p.name, err)
	}
	go p.follow(stdout)
	return nil
}

// follow reads what the program prints until it ends.
func (p *process) follow(stdout io.Reader) {
	in := stdout
	if p.log != nil {
		defer p.log.Close()
		in = io.TeeReader(stdout, p.log)
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e member.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = member.Event{Kind: member.Failed, Error: fmt.Sprintf("it printed %q", lines.Text())}
		}
		p.take(e)
	}
	_, _ = io.Copy(io.Discard, stdout) // a line that is too long must not stop the program
	p.exit = p.cmd.Wait()
	close(p.done)
}

// take notes an event.
func (p *process) take(e member.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	for _, partition := range e.Partitions {
		if e.Kind == member.Assigned {
			p.owned[partition] = true
		} else {
			delete(p.owned, partition)
		}
	}
}

// leave has the member leave as its client leaves when it is closed.
func (p *process) leave() error {
	_ = p.stdin.Close() // it may have ended
	select {
	case <-p.done:
	case <-time.After(leaveLimit):
		p.kill()
		return fmt.Errorf("member %s did not leave within %s", p.name, leaveLimit)
	}
	if p.exit != nil {
		lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
		return fmt.Errorf("member %s ended with %w: %s", p.name, p.exit, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	return nil
}

// kill ends the program at once; the coordinator is not told.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// forgetUncommitted drops what the member has read and not committed: another one had its place already, and it did not know yet.
func (p *process) forgetUncommitted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.events)
	for last > 0 && p.events[last-1].Kind != member.Committed {
		last--
	}
	p.events = p.events[:last]
}

// ended says whether the program has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// partitions are what the member has now.
func (p *process) partitions() map[member.Partition]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	owned := make(map[member.Partition]bool, len(p.owned))
	for partition := range p.owned {
		owned[partition] = true
	}
	return owned
}

// mark is a place in the member's events.
func (p *process) mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events)
}

// since are the events of the given kinds from a mark on.
func (p *process) since(mark int, kinds ...string) []member.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []member.Event
	for _, e := range p.events[mark:] {
		if slices.Contains(kinds, e.Kind) {
			some = append(some, e)
		}
	}
	return some
}

// state is how the member is now.
func (p *process) state() state {
	s := state{owned: p.partitions(), mark: p.mark()}
	if commits := p.since(0, member.Committed); len(commits) > 0 {
		last := commits[len(commits)-1]
		s.id, s.generation = last.Member, last.Generation
	}
	return s
}

// errors are what the client said was wrong, from a mark on.
func (p *process) errors(mark int) []string {
	var all []string
	for _, e := range p.since(mark, member.Failed) {
		all = append(all, e.Error)
	}
	return all
}
