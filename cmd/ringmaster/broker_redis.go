// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	redismetadata "github.com/ringmaster-dev/ringmaster/broker/metadata/redis"
	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
	redisstorage "github.com/ringmaster-dev/ringmaster/broker/storage/redis"
)

// redisFlags are the flags of "broker" about Redis.
type redisFlags struct {
	url          string
	username     string
	passwordFile string
	caFile       string
	certFile     string
	keyFile      string
	prefix       string
	minReplicas  int
	lease        time.Duration
}

// redisOnly are the flags that go with Redis alone.
var redisOnly = []string{
	"redis-url", "redis-username", "redis-password-file", "redis-ca-file", "redis-cert-file", "redis-key-file", "redis-prefix", "redis-min-replicas", "redis-lease",
}

// add adds the flags.
func (r *redisFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.url, "redis-url", "", "the `URL` of Redis or Valkey: redis://HOST:PORT, rediss:// over TLS, ?addr=HOST:PORT for further servers of a cluster, or of Sentinels with &master_set=NAME (default: $RINGMASTER_REDIS_URL)")
	flags.StringVar(&r.username, "redis-username", "", "the user in Redis")
	flags.StringVar(&r.passwordFile, "redis-password-file", "", "the `FILE` with the password, read anew for each connection")
	flags.StringVar(&r.caFile, "redis-ca-file", "", "the `FILE` of the certificates (PEM) by which Redis's is signed (default: the system's)")
	flags.StringVar(&r.certFile, "redis-cert-file", "", "the `FILE` of the client's certificate (PEM)")
	flags.StringVar(&r.keyFile, "redis-key-file", "", "the `FILE` of its key (PEM)")
	flags.StringVar(&r.prefix, "redis-prefix", redismetadata.DefaultPrefix, "what the names of all keys begin with: brokers with the same Redis and prefix are one cluster")
	flags.IntVar(&r.minReplicas, "redis-min-replicas", 0, "how many replicas of Redis must have a record before it is acknowledged with acks=all")
	flags.DurationVar(&r.lease, "redis-lease", redismetadata.DefaultLease, "with --metadata redis: how long a broker that is not heard of keeps its partitions")
	noFiles(cmd, "redis-url", "redis-username", "redis-prefix", "redis-min-replicas", "redis-lease")
}

// check fills in what the environment says. used says that something is to be kept in Redis.
func (r *redisFlags) check(cmd *cobra.Command, used bool) error {
	for _, name := range redisOnly {
		if !used && cmd.Flags().Changed(name) {
			return usagef("--%s goes with --storage redis", name)
		}
	}
	if !used {
		return nil
	}
	if r.url = cmp.Or(r.url, os.Getenv("RINGMASTER_REDIS_URL")); r.url == "" {
		return usagef("--storage redis needs to know where Redis is: give --redis-url, such as redis://127.0.0.1:6379")
	}
	if (r.certFile == "") != (r.keyFile == "") {
		return usagef("give --redis-cert-file and --redis-key-file together")
	}
	if r.minReplicas < 0 {
		return usagef("--redis-min-replicas must be at least 0, not %d", r.minReplicas)
	}
	if _, err := redisconn.Configure(r.conn("")); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// conn is how to reach Redis.
func (r *redisFlags) conn(name string) redisconn.Options {
	return redisconn.Options{
		URL: r.url, Username: r.username, PasswordFile: r.passwordFile, CAFile: r.caFile, CertFile: r.certFile, KeyFile: r.keyFile, ClientName: name,
	}
}

// openStorage opens the storage engine.
func (r *redisFlags) openStorage(ctx context.Context, log *slog.Logger, nodeID int32) (*redisstorage.Engine, error) {
	instance := "broker-" + strconv.Itoa(int(nodeID))
	engine, err := redisstorage.Open(ctx, redisstorage.Options{
		Conn: r.conn("ringmaster-" + instance), Prefix: r.prefix, Instance: instance, MinReplicas: r.minReplicas, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return engine, nil
}

// openMetadata makes the broker a member of the cluster that Redis has.
func (r *redisFlags) openMetadata(ctx context.Context, o redismetadata.Options) (*redismetadata.Metadata, error) {
	o.Conn, o.Prefix, o.Lease = r.conn("ringmaster-metadata"), r.prefix, r.lease
	md, err := redismetadata.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open the metadata in Redis: %w", err)
	}
	return md, nil
}
