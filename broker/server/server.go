// SPDX-License-Identifier: Apache-2.0

// Package server is the Kafka listener: it takes requests off connections, answers them in order, and has one file per API key.
//
// A handler is thin: it checks, translates the wire's types to values, calls the storage engine, the metadata source or the groups'
// coordinator, and translates back. What a handler may do is written at request and api; how a connection works is written at conn.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// Defaults of Config.
const (
	// DefaultMaxRequestBytes is Kafka's socket.request.max.bytes.
	DefaultMaxRequestBytes = 100 << 20
	// DefaultMaxConnections bounds what the connections' buffers and goroutines may take.
	DefaultMaxConnections = 10000
	// DefaultMaxConnectionsPerIP leaves room for many clients behind one address.
	DefaultMaxConnectionsPerIP = 2000
	// DefaultIdleTimeout is Kafka's connections.max.idle.ms.
	DefaultIdleTimeout = 10 * time.Minute
	// DefaultShutdownTimeout is how long requests in flight may take when the server stops.
	DefaultShutdownTimeout = 10 * time.Second
)

// Metadata is where topics, brokers and managed groups come from, and what changes topics. Its methods may be called from several goroutines.
type Metadata interface {
	// Snapshot returns what is known now. It is never changed.
	Snapshot() *metadata.Snapshot
	// Changed returns a channel that is closed at the next change. To miss none, take it before Snapshot.
	Changed() <-chan struct{}
	// CreateTopic creates a topic. It may return before the topic is in the snapshot.
	CreateTopic(ctx context.Context, t metadata.NewTopic) error
	// CreatePartitions raises a topic's number of partitions to total.
	CreatePartitions(ctx context.Context, topic string, total int32) error
	// AlterTopicConfig changes a topic's configuration to what change makes of it. It may return before that is in the snapshot.
	AlterTopicConfig(ctx context.Context, topic string, change metadata.ConfigChange) error
	// DeleteTopic deletes a topic.
	DeleteTopic(ctx context.Context, topic string) error
	// Purged notes that the records of deleted topics, which the snapshot listed in Purge, are removed.
	Purged(ctx context.Context, gone []metadata.Incarnation) error
}

// Config is what a Server needs. The zero value of a field means its default.
type Config struct {
	// NodeID is the broker's Kafka node id.
	NodeID int32
	// Metadata is required. Its Brokers tell clients where this broker is reached.
	Metadata Metadata
	// Engine is required. It is used, but not closed, by the server.
	Engine storage.Engine
	// LogDir is the absolute path of the directory where the engine keeps its logs, for DescribeLogDirs; empty where it has none.
	LogDir string
	// Volume tells how many bytes the volume of LogDir has, and how many of them can still be used; nil where nobody knows.
	Volume func() (total, usable int64, err error)
	// Logger takes what operators are to know. Default: slog.Default().
	Logger *slog.Logger
	// Listener takes the connections. Where it is nil, Listen is listened on.
	Listener net.Listener
	// Listen is the address to listen on, HOST:PORT.
	Listen string
	// MaxRequestBytes is the largest request in bytes. Default DefaultMaxRequestBytes.
	MaxRequestBytes int32
	// MaxConnections is how many connections may be open at once. Default DefaultMaxConnections.
	MaxConnections int
	// MaxConnectionsPerIP is how many of them may come from one address. Default DefaultMaxConnectionsPerIP.
	MaxConnectionsPerIP int
	// IdleTimeout is how long a connection may be silent with no request under way. Default DefaultIdleTimeout.
	IdleTimeout time.Duration
	// ShutdownTimeout is how long requests in flight may take when the server stops. Default DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// Groups are the settings of consumer groups.
	Groups GroupConfig
}

// withDefaults checks a configuration and fills in what is missing.
func (c Config) withDefaults() (Config, error) {
	if c.Metadata == nil || c.Engine == nil {
		return c, errors.New("the broker's server needs a metadata source and a storage engine")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	setDefault(&c.MaxRequestBytes, DefaultMaxRequestBytes)
	setDefault(&c.MaxConnections, DefaultMaxConnections)
	setDefault(&c.MaxConnectionsPerIP, DefaultMaxConnectionsPerIP)
	setDefault(&c.IdleTimeout, DefaultIdleTimeout)
	setDefault(&c.ShutdownTimeout, DefaultShutdownTimeout)
	c.Groups = c.Groups.withDefaults()
	return c, nil
}

func setDefault[T int | int32 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Server is a broker's Kafka listener.
type Server struct {
	cfg     Config
	log     *slog.Logger
	engine  storage.Engine
	apis    map[int16]*api
	metrics *metrics
	logs    *openLogs
	groups  *groups
	pids    *producerIDs
	// sessions are what consumers read.
	sessions *fetchSessions
	conns    *connections
	view     view
	// requests bounds the memory of requests, fetched that of records on their way to consumers.
	requests, fetched *memory
	// decoding is held while a large request is decoded.
	decoding sync.Mutex

	listener net.Listener
	// closings bounds the lines about connections that are closed for what clients did.
	closings lineLimit
	// unstored bounds the lines about changes to topics that could not be stored.
	unstored lineLimit
	// unasked bounds those about brokers that do not say where their logs begin.
	unasked lineLimit
	// refusalTold is when a refused connection was last logged; it belongs to accept.
	refusalTold time.Time
	serving     atomic.Bool
	// stopping is closed when the server is to stop: handlers that wait end their wait.
	stopping chan struct{}
	stopOnce sync.Once
}

// New makes a server and listens, so that an address in use is an error here.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Listener == nil {
		cfg.Listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", cfg.Listen)
		if err != nil {
			return nil, fmt.Errorf("listen for Kafka clients: %w", err)
		}
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, engine: cfg.Engine, listener: cfg.Listener, stopping: make(chan struct{}),
		apis: make(map[int16]*api), metrics: newMetrics(), conns: newConnections(cfg.MaxConnections, cfg.MaxConnectionsPerIP),
		pids: newProducerIDs(cfg.NodeID), sessions: newFetchSessions(),
		requests: newMemory(max(maxRequestMemory, 2*int64(cfg.MaxRequestBytes))), fetched: newMemory(maxFetchMemory),
	}
	for _, a := range apiTable() {
		s.apis[a.key] = &a
	}
	s.logs = newOpenLogs(s)
	s.view.init(cfg.Metadata.Snapshot())
	s.groups = newGroups(s)
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Ready says whether the server takes connections and knows its topics.
func (s *Server) Ready() bool { return s.serving.Load() && s.snapshot() != nil }

// Collectors returns the server's metrics, for a Prometheus registry.
func (s *Server) Collectors() []prometheus.Collector { return s.metrics.collectors(s) }

// Serve answers requests until ctx ends. Then it takes no more connections and requests, ends the waits of those that wait, lets the
// requests in flight finish for Config.ShutdownTimeout, and returns nil. It can be called once.
func (s *Server) Serve(ctx context.Context) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var background sync.WaitGroup
	background.Go(func() { s.watchMetadata(inner) })
	background.Go(func() { s.groups.run(inner) })
	background.Go(func() { s.openLed(inner) })

	stop := context.AfterFunc(ctx, s.stop)
	defer stop()
	s.log.Info("the broker serves Kafka clients", "address", s.listener.Addr().String(), "node", s.cfg.NodeID)
	s.serving.Store(true)
	err := s.accept(inner)
	s.serving.Store(false)
	s.stop()
	s.conns.drain(s.cfg.ShutdownTimeout)
	cancel()
	background.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("accept connections: %w", err)
}

// stop ends the waits of handlers, the listener, and the reading of requests.
func (s *Server) stop() { s.stopOnce.Do(s.stopNow) }

func (s *Server) stopNow() {
	close(s.stopping)
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("cannot close the listener", "error", err)
	}
	s.conns.stopReading()
}

// accept takes connections until the listener is closed.
func (s *Server) accept(ctx context.Context) error {
	var delay time.Duration
	for {
		nc, err := s.listener.Accept()
		if err == nil {
			delay = 0
			s.admit(ctx, nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// No file descriptors, or the like: it passes, and clients try again.
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		s.log.Warn("cannot accept a connection; trying again", "error", err, "after", delay)
		select {
		case <-time.After(delay):
		case <-s.stopping:
			return err
		}
	}
}

// admit starts a connection, or closes it where there are too many.
func (s *Server) admit(ctx context.Context, nc net.Conn) {
	c := newConn(s, nc)
	if err := s.conns.add(c); err != nil {
		s.metrics.refused.Inc()
		if now := time.Now(); now.Sub(s.refusalTold) >= reportEvery { // a storm of connections must not become one of lines
			s.refusalTold = now
			s.log.Warn("connection refused", "client", nc.RemoteAddr().String(), "reason", err)
		}
		c.close()
		return
	}
	go func() {
		defer s.conns.remove(c)
		c.run(ctx)
	}()
}
