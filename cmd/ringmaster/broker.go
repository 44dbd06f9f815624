// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/metadata/file"
	redismetadata "github.com/ringmaster-dev/ringmaster/broker/metadata/redis"
	"github.com/ringmaster-dev/ringmaster/broker/server"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/local"
)

// Sources of metadata.
const (
	metadataFile       = "file"
	metadataKubernetes = "kubernetes"
	metadataRedis      = "redis"
)

// Storage engines.
const (
	storageLocal = "local"
	storageRedis = "redis"
)

// logsDir is where the storage engine lies in the data directory; beside it lie the metadata.
const logsDir = "logs"

// brokerFlags are the flags of "broker".
type brokerFlags struct {
	dataDir           string
	listen            string
	advertise         string
	metadata          *enum
	storage           *enum
	autoCreate        bool
	defaultPartitions int
	nodeID            int32
	healthListen      string
	metricsListen     string
	limits            limitFlags
	groups            groupFlags
	logLevel          *enum
	logFormat         *enum
	kubernetes        kubernetesFlags
	redis             redisFlags
}

func newBrokerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker",
		Long: `Run a broker that any Kafka client can use, until SIGTERM or SIGINT; then requests in flight are answered and what was written is
synced to disk.

With --metadata file it is one broker on its own: topics live in topics.json in the data directory. With --metadata redis brokers that share a
Redis are one cluster: they share the partitions, and take over those of a broker that is gone. With --metadata kubernetes it is a broker of a
BrokerCluster: topics are Topic resources and managed groups are ConsumerGroup resources; the operator starts it so.

Records are kept in the data directory (--storage local), or in Redis or Valkey (--storage redis); then --metadata redis needs no data
directory.

Clients are told to reach the broker at --advertise. Without it that is the address that it listens on; where it listens on all addresses
(0.0.0.0 or ::), the machine's host name if that can be looked up, else 127.0.0.1.

--health-listen serves /healthz (200 while the process lives) and /readyz (200 while clients are served, else 503), --metrics-listen serves
/metrics for Prometheus; both may be the same address.`,
		Example: `  ringmaster broker --data-dir ./data
  ringmaster broker --data-dir /var/lib/ringmaster --listen 0.0.0.0:9092 --advertise broker.example.com:9092
  ringmaster broker --metadata redis --storage redis --redis-url redis://127.0.0.1:6379 --listen 127.0.0.1:9092
  ringmaster broker --data-dir ./data --listen 127.0.0.1:0 --auto-create-topics=false --health-listen :8080 --metrics-listen :8080`,
		Args: nothing,
	}
	f := &brokerFlags{
		metadata: newEnum(metadataFile, metadataFile, metadataKubernetes, metadataRedis), storage: newEnum(storageLocal, storageLocal, storageRedis),
		logLevel: newEnum("info", "debug", "info", "warn", "error"), logFormat: newEnum("text", "text", "json"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dataDir, "data-dir", "", "the `DIR` that holds records and metadata; it is made if there is none")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:9092", "the `HOST:PORT` to listen on; port 0 takes a free one, and the log says which")
	flags.StringVar(&f.advertise, "advertise", "", "the `HOST:PORT` that clients are told (default: the address listened on)")
	addEnum(cmd, f.metadata, "metadata", "", "where topics and managed groups come from")
	addEnum(cmd, f.storage, "storage", "", "where records are kept")
	flags.BoolVar(&f.autoCreate, "auto-create-topics", true, "create a topic when a client first names it (not with --metadata kubernetes)")
	flags.IntVar(&f.defaultPartitions, "default-partitions", 1, "partitions of a topic that is created without saying how many (not with --metadata kubernetes)")
	flags.Int32Var(&f.nodeID, "node-id", 1, "the broker's Kafka node id, at least 1 (with --metadata kubernetes: default from --pod-name; with --metadata redis: the lowest that is free)")
	flags.StringVar(&f.healthListen, "health-listen", "", "the `HOST:PORT` to serve /healthz and /readyz on (default: none)")
	flags.StringVar(&f.metricsListen, "metrics-listen", "", "the `HOST:PORT` to serve /metrics on (default: none)")
	f.limits.add(cmd)
	f.groups.add(cmd)
	addEnum(cmd, f.logLevel, "log-level", "", "the least level that is logged")
	addEnum(cmd, f.logFormat, "log-format", "", "how log lines are written, to standard error")
	f.kubernetes.add(cmd)
	f.redis.add(cmd)
	noFiles(cmd, "listen", "advertise", "default-partitions", "node-id", "health-listen", "metrics-listen")
	if err := cmd.MarkFlagDirname("data-dir"); err != nil {
		panic(err) // only for a flag that was never added
	}
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		log := newLogger(cmd.ErrOrStderr(), f.logLevel.value, f.logFormat.value)
		err := f.run(cmd.Context(), log)
		if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
			return nil // stopped before it had started
		}
		return err
	})
	return cmd
}

// check checks the flags that can be checked without touching anything.
func (f *brokerFlags) check(cmd *cobra.Command) error {
	if f.metadata.value == metadataRedis && f.storage.value != storageRedis {
		return usagef("--metadata redis needs --storage redis: a partition that another broker leads would leave its records behind")
	}
	if f.dataDir == "" && f.metadata.value != metadataRedis {
		return usagef("give --data-dir, the directory that holds %s", map[bool]string{true: "metadata", false: "records and metadata"}[f.storage.value == storageRedis])
	}
	if f.dataDir != "" && f.metadata.value == metadataRedis {
		return usagef("--metadata redis and --storage redis keep nothing in a directory: leave --data-dir out")
	}
	if err := f.redis.check(cmd, f.storage.value == storageRedis); err != nil {
		return err
	}
	if f.nodeID < 1 {
		return usagef("--node-id must be at least 1, not %d", f.nodeID)
	}
	if err := partitionsInRange("default-partitions", f.defaultPartitions); err != nil {
		return err
	}
	if err := f.limits.check(); err != nil {
		return err
	}
	if err := f.groups.check(); err != nil {
		return err
	}
	for _, a := range []struct {
		flag, value string
		optional    bool
	}{{"listen", f.listen, false}, {"health-listen", f.healthListen, true}, {"metrics-listen", f.metricsListen, true}} {
		if a.value == "" && a.optional {
			continue
		}
		if _, _, err := parseHostPort(a.value); err != nil {
			return usagef("--%s: %v", a.flag, err)
		}
	}
	if cmd.Flags().Changed("advertise") {
		host, port, err := parseHostPort(f.advertise)
		if err != nil {
			return usagef("--advertise: %v", err)
		}
		if ip := net.ParseIP(host); host == "" || port == 0 || ip != nil && ip.IsUnspecified() {
			return usagef("--advertise: clients cannot reach %q; give a host and a port, such as broker.example.com:9092", f.advertise)
		}
	}
	if f.metadata.value != metadataKubernetes {
		if f.metadata.value == metadataRedis && !cmd.Flags().Changed("node-id") {
			f.nodeID = 0 // a free one
		}
		return f.kubernetes.refuse(cmd)
	}
	if err := f.kubernetes.check(cmd); err != nil {
		return err
	}
	id, err := f.kubernetes.nodeID(cmd, f.nodeID)
	f.nodeID = id
	return err
}

// run runs the broker until ctx ends. Health is served from the first moment on, so that a broker that waits for its metadata is not taken for
// one that hangs.
func (f *brokerFlags) run(ctx context.Context, log *slog.Logger) error {
	if f.dataDir != "" {
		if err := makeDataDir(f.dataDir); err != nil {
			return err
		}
	}
	ln, err := listen(ctx, "listen", f.listen)
	if err != nil {
		return err
	}
	defer closeQuietly(ln) // the server closes it; this is for the ways out before
	web, err := newWeb(ctx, f.healthListen, f.metricsListen)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	webCtx, stopWeb := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error {
		defer stopWeb() // last, so that /readyz says 503 while the server drains
		return f.serve(ctx, log, ln, web)
	})
	g.Go(func() error { return web.serve(webCtx) })
	return g.Wait()
}

// serve opens storage and metadata, and serves clients until ctx ends.
func (f *brokerFlags) serve(ctx context.Context, log *slog.Logger, ln net.Listener, web *web) (err error) {
	var engine storage.Engine
	if f.storage.value == storageLocal { // first, for it is held by one broker alone
		if engine, err = local.Open(f.logDir(), local.Options{Logger: log}); err != nil {
			return fmt.Errorf("open storage: %w", err)
		}
		defer func() { err = closed(engine, err) }()
	}
	md, leave, err := f.openMetadata(ctx, log, ln.Addr())
	if err != nil {
		return err
	}
	defer leave()
	if engine == nil {
		if engine, err = f.redis.openStorage(ctx, log, f.nodeID); err != nil {
			return err
		}
		defer func() { err = closed(engine, err) }()
	}
	srv, err := server.New(f.config(md, engine, log, ln))
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	if err := web.attach(srv); err != nil {
		return err
	}
	log.Info("ringmaster broker", "listen", ln.Addr().String(), "advertise", clientAddress(md.Snapshot(), f.nodeID),
		"dataDir", f.dataDir, "nodeID", f.nodeID, "metadata", f.metadata.value, "storage", f.storage.value, "version", version)
	if err := f.answer(ctx, srv, leave); err != nil {
		return err
	}
	log.Info("ringmaster broker stopped")
	return nil
}

// answer serves clients until ctx ends; leave tells the other brokers so first, that they lead the partitions from then on.
func (f *brokerFlags) answer(ctx context.Context, srv *server.Server, leave func()) error {
	g, ctx := errgroup.WithContext(ctx)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		leave()
		stop()
	})()
	watchCtx, stopWatch := context.WithCancel(ctx)
	g.Go(func() error {
		defer stopWatch()
		return srv.Serve(serving)
	})
	if f.storage.value == storageLocal {
		logs, err := os.Stat(f.logDir())
		if err != nil {
			stop()
			return errors.Join(fmt.Errorf("open storage: %w", err), g.Wait())
		}
		g.Go(func() error { return watchDataDir(watchCtx, f.dataDir, logs) })
	}
	return g.Wait()
}

// closed closes an engine; its error counts where there is none so far.
func closed(engine storage.Engine, err error) error {
	if closeErr := engine.Close(); closeErr != nil && err == nil {
		return fmt.Errorf("close storage: %w", closeErr)
	}
	return err
}

// logDir is where the local storage engine lies.
func (f *brokerFlags) logDir() string { return filepath.Join(f.dataDir, logsDir) }

// config is what the server is told.
func (f *brokerFlags) config(md server.Metadata, engine storage.Engine, log *slog.Logger, ln net.Listener) server.Config {
	c := server.Config{
		NodeID: f.nodeID, Metadata: md, Engine: engine, Logger: log, Listener: ln,
		MaxRequestBytes: clampInt32(int64(f.limits.requestBytes)), MaxConnections: f.limits.connections, MaxConnectionsPerIP: f.limits.connectionsPerIP,
		IdleTimeout: f.limits.idleTimeout, Groups: f.groups.config(),
	}
	if f.storage.value != storageLocal {
		return c
	}
	c.LogDir = f.logDir()
	if abs, err := filepath.Abs(c.LogDir); err == nil {
		c.LogDir = abs
	}
	c.Volume = func() (total, usable int64, err error) { return volumeBytes(c.LogDir) }
	return c
}

// dataDirInterval is how often the data directory is looked for.
const dataDirInterval = time.Second

// watchDataDir returns an error when the directory of the logs is no longer the one that was opened: files that are open can be written and
// synced after they are removed, so a broker that went on would acknowledge records that are nowhere. It returns nil when ctx ends.
func watchDataDir(ctx context.Context, dataDir string, logs os.FileInfo) error {
	ticker := time.NewTicker(dataDirInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := os.Stat(filepath.Join(dataDir, logsDir))
		if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(now, logs) {
			return fmt.Errorf("the data directory %s was removed or replaced while the broker ran, and what was written since is lost; "+
				"restore it from a backup, or start again with an empty one", dataDir)
		}
	}
}

// openMetadata opens the source of metadata that the flags name. leave ends the broker's part in the cluster; it may be called more than once.
func (f *brokerFlags) openMetadata(ctx context.Context, log *slog.Logger, bound net.Addr) (md server.Metadata, leave func(), err error) {
	if f.metadata.value == metadataKubernetes {
		md, err = f.kubernetes.open(ctx, log, f.dataDir, f.nodeID)
		return md, func() {}, err
	}
	host, port, err := f.advertised(ctx, bound, log)
	if err != nil {
		return nil, nil, err
	}
	if f.metadata.value == metadataRedis {
		shared, err := f.redis.openMetadata(ctx, redismetadata.Options{
			NodeID: f.nodeID, Host: host, Port: port, AutoCreateTopics: f.autoCreate, DefaultPartitions: clampInt32(int64(f.defaultPartitions)), Logger: log,
		})
		if err != nil {
			return nil, nil, err
		}
		f.nodeID = shared.NodeID()
		return shared, func() {
			if err := shared.Close(); err != nil {
				log.Warn("cannot tell the other brokers that this one stops", "error", err)
			}
		}, nil
	}
	own, err := file.Open(f.dataDir, file.Options{
		NodeID: f.nodeID, Host: host, Port: port, AutoCreateTopics: f.autoCreate, DefaultPartitions: clampInt32(int64(f.defaultPartitions)),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open the topics of data directory %s: %w", f.dataDir, err)
	}
	return own, func() {}, nil
}

// clientAddress is where clients are told to reach a broker.
func clientAddress(s *metadata.Snapshot, nodeID int32) string {
	for _, b := range s.Brokers {
		if b.ID == nodeID {
			return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
	}
	return ""
}

// makeDataDir makes the data directory and tries to write in it, so that the error comes now and names it.
func makeDataDir(dir string) error {
	fail := func(err error) error {
		var path *os.PathError
		if errors.As(err, &path) {
			err = fmt.Errorf("%s: %w", path.Path, path.Err)
		}
		return fmt.Errorf("cannot write to the data directory %s: %w; give a directory that this user can write to with --data-dir", dir, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fail(err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fail(err)
	}
	return nil
}

// listen listens on the address that a flag gives.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		return ln, nil
	}
	var errno syscall.Errno
	var dns *net.DNSError
	why, advice := err.Error(), "give another --"+flag
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why, advice = "the address is in use", fmt.Sprintf("stop what uses it, or give another --%s (port 0 takes a free one)", flag)
	case errors.As(err, &dns):
		why = fmt.Sprintf("the host %q cannot be looked up", dns.Name)
	case errors.As(err, &errno):
		why = errno.Error()
	}
	return nil, fmt.Errorf("cannot listen on %s: %s; %s", address, why, advice)
}

// advertised is the address that clients are told.
func (f *brokerFlags) advertised(ctx context.Context, bound net.Addr, log *slog.Logger) (host string, port int32, err error) {
	tcp, ok := bound.(*net.TCPAddr)
	if !ok {
		return "", 0, fmt.Errorf("listening on %s, which is not a TCP address", bound)
	}
	if f.advertise != "" {
		return parseHostPort(f.advertise)
	}
	port = int32(tcp.Port)
	if !tcp.IP.IsUnspecified() {
		return cmp.Or(hostOf(f.listen), tcp.IP.String()), port, nil
	}
	host = reachableHost(ctx)
	log.Warn("listening on all addresses, and clients are told to use one host; set --advertise if they cannot reach it", "host", host, "port", port)
	return host, port, nil
}

// hostOf is the host of HOST:PORT as the user wrote it: a name stays a name.
func hostOf(address string) string {
	host, _, err := parseHostPort(address)
	if err != nil {
		return ""
	}
	return host
}
