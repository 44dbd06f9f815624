// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// peer is a system, in one of its settings, that works are done with.
type peer interface {
	// name is what the tables call it.
	name() string
	// server is what runs it; peers that differ in a topic's settings alone share one. It is nil for the disk.
	server() *server
	// create makes the place for a work's records.
	create(ctx context.Context, topic string, w *work) error
	// remove removes it and its data.
	remove(ctx context.Context, topic string) error
	// produce writes until ctx ends, or limit bytes are written if that is not 0.
	produce(ctx context.Context, topic string, w *work, m *meter, limit int64) error
	// consume reads from the beginning to the end; then again, if how says so.
	consume(ctx context.Context, topic string, w *work, how reading, m *meter) error
}

// server is a program that is run as a child.
type server struct {
	title string
	// prepare, if there is one, makes what must be in the directory before the first start.
	prepare func(ctx context.Context, dir, address string) error
	command func(dir, address string) *exec.Cmd
	// ask asks the smallest thing that the server answers only when it serves clients.
	ask func(ctx context.Context, address string) error

	dir, address string
	process      *process
}

// start starts it in a new directory.
func (s *server) start(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make a directory for %s: %w", s.title, err)
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	s.dir, s.address = dir, address
	if s.prepare != nil {
		if err := s.prepare(ctx, dir, address); err != nil {
			return fmt.Errorf("prepare %s: %w", s.title, err)
		}
	}
	s.process, err = startProcess(ctx, dir, s.command(dir, address), func(ctx context.Context) error { return s.ask(ctx, s.address) })
	if err != nil {
		return fmt.Errorf("start %s: %w", s.title, err)
	}
	return nil
}

// restart kills it and starts it again with its data, at its address.
func (s *server) restart(ctx context.Context) error {
	s.process.kill()
	process, err := startProcess(ctx, s.dir, s.command(s.dir, s.address), func(ctx context.Context) error { return s.ask(ctx, s.address) })
	if err != nil {
		return fmt.Errorf("start %s again: %w", s.title, err)
	}
	s.process = process
	return nil
}

// stop stops it, if it runs.
func (s *server) stop() {
	if s.process != nil {
		s.process.stop()
		s.process = nil
	}
}

func (s *server) pid() int { return s.process.pid() }

// The titles of the servers that several peers share.
const (
	ringmasterTitle = "ringmaster"
	kafkaTitle      = "kafka"
)

// servers returns what makes each server, by title.
func (o *options) servers() (map[string]func() *server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return map[string]func() *server{
		ringmasterTitle: func() *server { return newRingmaster(ringmasterTitle, o.ringmaster) },
		kafkaTitle:      func() *server { return newKafka(kafkaTitle, o.kafka, "") },
		// Groups have brokers of their own: thousands of partitions and a killed broker are nothing that the other works should notice.
		ringmasterGroups: func() *server { return newRingmaster(ringmasterGroups, o.ringmaster, ringmasterGroupFlags...) },
		kafkaGroups:      func() *server { return newKafka(kafkaGroups, o.kafka, kafkaGroupConfig) },
		kfakeMemory:      func() *server { return newKfake(kfakeMemory, self, false) },
		kfakeFlush:       func() *server { return newKfake(kfakeFlush, self, true) },
		redisAlways:      func() *server { return newRedis(redisAlways, "always") },
		redisEverysec:    func() *server { return newRedis(redisEverysec, "everysec") },
		natsAlways:       func() *server { return newNATS(natsAlways, self, true) },
		natsDefault:      func() *server { return newNATS(natsDefault, self, false) },
	}, nil
}

// flushNever leaves it to the operating system when a topic's records are written to disk.
const flushNever = "9223372036854775807"

// open starts the servers of the chosen peers that the works are done with.
func (r *runner) open(ctx context.Context, chosen *regexp.Regexp, works []work) error {
	servers := make(map[string]*server)
	get := func(title string) *server {
		if servers[title] == nil {
			servers[title] = r.fresh[title]()
		}
		return servers[title]
	}
	all := map[string]func(name string) peer{
		ringmasterFlush: func(n string) peer { return &kafkaPeer{n, get(ringmasterTitle), nil} },
		ringmasterOS: func(n string) peer {
			return &kafkaPeer{n, get(ringmasterTitle), map[string]string{"flush.messages": flushNever}}
		},
		kafkaFlush:    func(n string) peer { return &kafkaPeer{n, get(kafkaTitle), map[string]string{"flush.messages": "1"}} },
		kafkaOS:       func(n string) peer { return &kafkaPeer{n, get(kafkaTitle), nil} },
		kfakeMemory:   func(n string) peer { return &kafkaPeer{n, get(n), nil} },
		kfakeFlush:    func(n string) peer { return &kafkaPeer{n, get(n), nil} },
		redisAlways:   func(n string) peer { return &redisPeer{n, get(n)} },
		redisEverysec: func(n string) peer { return &redisPeer{n, get(n)} },
		natsAlways:    func(n string) peer { return &natsPeer{n, get(n)} },
		natsDefault:   func(n string) peer { return &natsPeer{n, get(n)} },
		diskFlush:     func(n string) peer { return &diskPeer{n, filepath.Join(r.dir, "disk"), true} },
		diskOS:        func(n string) peer { return &diskPeer{n, filepath.Join(r.dir, "disk"), false} },

		ringmasterGroups: func(n string) peer { return &kafkaPeer{n, get(n), nil} },
		kafkaGroups:      func(n string) peer { return &kafkaPeer{n, get(n), nil} },
	}
	names := slices.Concat(everyone, groupPeers)
	for _, name := range names {
		worked := slices.ContainsFunc(works, func(w work) bool { return slices.Contains(w.Peers, name) })
		if worked && chosen.MatchString(name) {
			r.peers = append(r.peers, all[name](name))
		}
	}
	if len(r.peers) == 0 {
		return fmt.Errorf("-peers and -works leave nothing to do; the peers are %s", strings.Join(names, ", "))
	}
	for _, title := range sortedKeys(servers) {
		r.say("starting %s", title)
		if err := servers[title].start(ctx, filepath.Join(r.dir, title)); err != nil {
			return fmt.Errorf("%w; leave it out with -peers, a regular expression of the peers to measure", err)
		}
	}
	return nil
}

// sortedKeys returns a map's keys in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
