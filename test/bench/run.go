// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// idleAfter is how long a server may settle before its idle memory is read.
const idleAfter = 3 * time.Second

// runner does works with peers.
type runner struct {
	dir     string
	window  window
	rounds  int
	peers   []peer
	fresh   map[string]func() *server
	out     io.Writer
	profile string
	// warmPeer and warmKafka are how long servers work before the first round.
	warmPeer, warmKafka time.Duration

	// loaded says what is there to be read.
	loaded  map[loading]bool
	samples []*sample
	started time.Time
}

// loading is what a work reads from a peer.
type loading struct{ work, peer string }

// run does all works; rounds alternate the peers.
func (r *runner) run(ctx context.Context, works []work) error {
	for i := range works {
		w := &works[i]
		if !slices.ContainsFunc(w.Peers, func(name string) bool { return r.peer(name) != nil }) {
			continue
		}
		r.say("%s (load average %.1f)", w.Name, loadAverage())
		if w.Kind == kindGroup {
			r.prepareGroups(ctx, w)
		}
		begin, rounds := time.Now(), r.rounds
		if w.Rounds > 0 {
			rounds = w.Rounds
		}
		for round := range rounds {
			if w.Limit > 0 && time.Since(begin) > w.Limit {
				break
			}
			for i := range w.Peers {
				// Each round begins with another, so that none has the place after the loading of what is read.
				name := w.Peers[(i+round)%len(w.Peers)]
				p := r.peer(name)
				if p == nil {
					continue
				}
				s, err := r.one(ctx, w, p, round)
				if ctx.Err() != nil {
					return fmt.Errorf("stopped: %w", context.Cause(ctx))
				}
				if err != nil {
					s = &sample{Error: err.Error()}
				}
				s.Work, s.Peer, s.Round, s.Load = w.Name, name, round, loadAverage()
				r.samples = append(r.samples, s)
				r.say("  round %d  %s", round+1, s)
			}
		}
		if err := r.clean(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// warm lets all peers produce and consume, so that the first round finds none of them new.
func (r *runner) warm(ctx context.Context) error {
	for _, p := range r.peers {
		if p.server() == nil {
			continue
		}
		r.say("warming %s", p.name())
		err := r.warmOne(ctx, p)
		if ctx.Err() != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		if err != nil { // the works will tell whether it stays so
			r.say("  %s: %v", p.name(), err)
		}
	}
	return nil
}

func (r *runner) warmOne(ctx context.Context, p peer) error {
	limit := r.warmPeer
	if title := p.server().title; title == kafkaTitle || title == kafkaGroups {
		limit = r.warmKafka
	}
	if slices.Contains(groupPeers, p.name()) {
		return r.warmGroups(ctx, p, limit)
	}
	w := work{
		Name: "warm-up", RecordBytes: kib, BatchBytes: 16 * kib, RequestBytes: 256 * kib, Acks: -1,
		Partitions: 16, Producers: 8, InFlight: 5, Consumers: 4,
	}
	_, err := r.withTopic(ctx, &w, p, 0, func(topic string) (*sample, error) {
		produce, cancel := endAfter(ctx, limit)
		defer cancel()
		if err := p.produce(produce, topic, &w, &meter{}, r.window.bytes); err != nil {
			return nil, err
		}
		consume, cancel := endAfter(ctx, limit/2)
		defer cancel()
		return nil, p.consume(consume, topic, &w, reading{again: true}, &meter{})
	})
	return err
}

// endAfter returns a context that ends after a while. It has no deadline, which a connection would take for its own.
func endAfter(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(limit, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// clean removes what a work left for its next round.
func (r *runner) clean(ctx context.Context, w *work) error {
	if w.LoadBytes == 0 {
		return nil
	}
	for _, name := range w.Peers {
		if p := r.peer(name); p != nil && r.loaded[loading{w.Name, name}] {
			if err := p.remove(ctx, w.slug()); err != nil {
				return fmt.Errorf("remove what %s read: %w", name, err)
			}
		}
	}
	return nil
}

func (r *runner) peer(name string) peer {
	for _, p := range r.peers {
		if p.name() == name {
			return p
		}
	}
	return nil
}

// one does a work with a peer once.
func (r *runner) one(ctx context.Context, w *work, p peer, round int) (*sample, error) {
	switch w.Kind {
	case kindStart:
		return r.start(ctx, p)
	case kindConsume, kindCold:
		return r.consume(ctx, w, p)
	case kindFanOut:
		return r.fanOut(ctx, w, p, round)
	case kindClient:
		return r.franz(ctx, w, p, round)
	case kindHalf:
		return r.half(ctx, w, p, round)
	case kindGroup:
		return r.rebalance(ctx, w, p, round)
	}
	return r.produce(ctx, w, p, round, r.window)
}

// start starts a server of its own and lets it idle.
func (r *runner) start(ctx context.Context, p peer) (*sample, error) {
	s := r.fresh[p.server().title]()
	dir, err := os.MkdirTemp(r.dir, "start-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	defer s.stop()
	if err := s.start(ctx, dir); err != nil {
		return nil, err
	}
	select {
	case <-time.After(idleAfter):
	case <-ctx.Done():
	}
	idle, err := memory(s.pid(), "VmRSS")
	if err != nil {
		return nil, err
	}
	anon, err := memory(s.pid(), "RssAnon")
	return &sample{FirstMs: float64(s.process.first) / float64(time.Millisecond), IdleBytes: idle, IdleAnonBytes: anon}, err
}

// produce makes a topic, produces, and removes it.
func (r *runner) produce(ctx context.Context, w *work, p peer, round int, during window) (*sample, error) {
	return r.withTopic(ctx, w, p, round, func(topic string) (*sample, error) {
		return measure(ctx, pidOf(p), during, func(ctx context.Context, m *meter) error { return p.produce(ctx, topic, w, m, 0) })
	})
}

// half produces at half of a rate that was measured before, for longer, so that there are enough requests for a p99.
func (r *runner) half(ctx context.Context, w *work, p peer, round int) (*sample, error) {
	of, ok := w.HalfOf[p.name()]
	if !ok {
		of = p.name()
	}
	top := medianOf(r.samples, rateWork, of, (*sample).mbps)
	if top == 0 {
		return nil, fmt.Errorf("needs %q of %s in the same run", rateWork, of)
	}
	open, during := *w, r.window
	open.Rate = top / 2 * 1e6
	during.duration *= 2
	s, err := r.produce(ctx, &open, p, round, during)
	if err == nil {
		s.Rate = open.Rate
	}
	return s, err
}

// withTopic does something with a new topic; whatever is to be written is on disk before.
func (r *runner) withTopic(ctx context.Context, w *work, p peer, round int, do func(topic string) (*sample, error)) (*sample, error) {
	topic := fmt.Sprintf("%s-%d-%s", w.slug(), round, p.name())
	if err := p.create(ctx, topic, w); err != nil {
		return nil, err
	}
	unix.Sync()
	stop := r.capture(p, topic)
	s, err := do(topic)
	stop()
	return s, errors.Join(err, p.remove(ctx, topic))
}

// pidOf is the process whose use is measured: for the disk, this one.
func pidOf(p peer) int {
	if s := p.server(); s != nil {
		return s.pid()
	}
	return os.Getpid()
}

// consume reads what was written for the work's first round.
func (r *runner) consume(ctx context.Context, w *work, p peer) (*sample, error) {
	topic := w.slug()
	if key := (loading{w.Name, p.name()}); !r.loaded[key] {
		if err := p.create(ctx, topic, w); err != nil {
			return nil, err
		}
		if err := p.produce(ctx, topic, w, &meter{}, w.LoadBytes); err != nil {
			return nil, errors.Join(fmt.Errorf("write what is to be read: %w", err), p.remove(ctx, topic))
		}
		r.loaded[key] = true
	}
	unix.Sync()
	window, how := r.window, reading{again: true}
	if w.Kind == kindCold {
		// It is read twice, and the second time counts: the memory that the kernel reads files into may be new to a virtual machine, which costs more
		// than the reading.
		if err := r.dropCaches(); err != nil {
			return nil, err
		}
		if err := p.consume(ctx, topic, w, reading{}, &meter{}); err != nil {
			return nil, err
		}
		if err := r.dropCaches(); err != nil {
			return nil, err
		}
		window.warmUp, window.duration, window.bytes, how.again = 0, time.Minute, 2*w.LoadBytes, false
	}
	stop := r.capture(p, topic)
	defer stop()
	return measure(ctx, pidOf(p), window, func(ctx context.Context, m *meter) error { return p.consume(ctx, topic, w, how, m) })
}

// dropCaches makes the kernel forget what it holds of the files in the benchmark's directory.
func (r *runner) dropCaches() error {
	return filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, openErr := os.Open(path)
		if openErr != nil {
			return nil // a server has just removed it
		}
		defer func() { _ = f.Close() }()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// fanOut produces while groups read along.
func (r *runner) fanOut(ctx context.Context, w *work, p peer, round int) (*sample, error) {
	kafka, ok := p.(*kafkaPeer)
	if !ok {
		return nil, errors.New("only what speaks Kafka's protocol has consumer groups")
	}
	return r.withTopic(ctx, w, p, round, func(topic string) (*sample, error) {
		return measure(ctx, pidOf(p), r.window, func(ctx context.Context, m *meter) error { return kafka.fanOut(ctx, topic, w, m) })
	})
}

// capture profiles a server while something is measured, if that is asked for.
func (r *runner) capture(p peer, topic string) (stop func()) {
	if r.profile == "" || p.server() == nil || !strings.HasPrefix(p.name(), "ringmaster") {
		return func() {}
	}
	path := filepath.Join(r.profile, topic+"-"+p.name()+".perf")
	cmd := exec.Command("perf", "record", "-q", "-F", "499", "-g", "-o", path, "-p", fmt.Sprint(p.server().pid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	spawns <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		r.say("  no profile: %v", err)
		return func() {}
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
}

// say reports progress.
func (r *runner) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, "bench: %5.0f s  %s\n", time.Since(r.started).Seconds(), fmt.Sprintf(format, args...))
}
