// SPDX-License-Identifier: Apache-2.0

// Package testbroker runs a broker inside of a test, for the suites of those that may not know a broker's inside. It takes its metadata from an API server, as brokers in a cluster do.
package testbroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ringmaster-dev/ringmaster/broker/metadata/kubernetes"
	"github.com/ringmaster-dev/ringmaster/broker/server"
	"github.com/ringmaster-dev/ringmaster/broker/storage/local"
)

// heartbeatInterval is that of KIP-848's clients, which learn of each other by their heartbeats.
const heartbeatInterval = 50 * time.Millisecond

// Broker is a running broker with the node id 1.
type Broker struct {
	// Address is where it listens, on the machine's own address. The BrokerCluster's status has to name it.
	Address net.TCPAddr

	engine *local.Engine
	cancel context.CancelFunc
	done   chan error
}

// Start starts a broker of a BrokerCluster, with its data in dir and its log to log.
func Start(config *rest.Config, namespace, cluster, dir string, log io.Writer) (*Broker, error) {
	ctx, cancel := context.WithCancel(context.Background())
	b := &Broker{cancel: cancel, done: make(chan error, 1)}
	logger := slog.New(slog.NewTextHandler(log, nil))
	md, err := kubernetes.Open(ctx, kubernetes.Options{
		Config: config, Namespace: namespace, Cluster: cluster, CacheFile: filepath.Join(dir, "kubernetes.json"), Logger: logger,
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open the metadata: %w", err)
	}
	if b.engine, err = local.Open(filepath.Join(dir, "data"), local.Options{}); err != nil {
		cancel()
		return nil, fmt.Errorf("open the storage engine: %w", err)
	}
	if err := b.serve(ctx, md, logger); err != nil {
		cancel()
		return nil, errors.Join(err, b.engine.Close())
	}
	return b, nil
}

// serve listens on a free port.
func (b *Broker) serve(ctx context.Context, md *kubernetes.Metadata, logger *slog.Logger) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return errors.Join(fmt.Errorf("listen on %s, which is no TCP address", listener.Addr()), listener.Close())
	}
	b.Address = *address
	s, err := server.New(server.Config{
		NodeID: 1, Metadata: md, Engine: b.engine, Listener: listener, Logger: logger, ShutdownTimeout: time.Second,
		Groups: server.GroupConfig{ConsumerHeartbeatInterval: heartbeatInterval},
	})
	if err != nil {
		return errors.Join(fmt.Errorf("make the server: %w", err), listener.Close())
	}
	go func() { b.done <- s.Serve(ctx) }()
	return nil
}

// Stop stops the broker, and waits for its end. It may be called once.
func (b *Broker) Stop() error {
	b.cancel()
	return errors.Join(<-b.done, b.engine.Close())
}
