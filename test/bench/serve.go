// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"
)

// The servers that are Go modules run in processes of their own: this program with "serve" before its flags.
const (
	serveWord  = "serve"
	serveKfake = "kfake"
	serveNATS  = "nats"
)

// serve runs one of them until ctx ends.
func serve(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say which to serve: %s or %s", serveKfake, serveNATS)
	}
	flags := flag.NewFlagSet(serveWord, flag.ContinueOnError)
	listen := flags.String("listen", "", "the `HOST:PORT` to listen on")
	dir := flags.String("dir", "", "the `DIR` of the data; none keeps them in memory")
	sync := flags.Bool("sync", false, "sync each write")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	host, number, err := net.SplitHostPort(*listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	port, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	if args[0] == serveNATS {
		return runNATS(ctx, host, port, *dir, *sync)
	}
	return runKfake(ctx, port, *dir, *sync)
}

func runKfake(ctx context.Context, port int, dir string, sync bool) error {
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(port)}
	if dir != "" {
		opts = append(opts, kfake.DataDir(dir))
	}
	if sync {
		opts = append(opts, kfake.SyncWrites())
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		return fmt.Errorf("start kfake: %w", err)
	}
	<-ctx.Done()
	c.Close()
	return nil
}

func runNATS(ctx context.Context, host string, port int, dir string, sync bool) error {
	s, err := nats.NewServer(&nats.Options{
		ServerName: "bench", Host: host, Port: port, JetStream: true, StoreDir: dir, SyncAlways: sync, NoSigs: true,
	})
	if err != nil {
		return fmt.Errorf("start nats: %w", err)
	}
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return fmt.Errorf("nats does not listen")
	}
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// newKfake returns franz-go's fake broker, in memory or on disk with each write synced.
func newKfake(title, self string, sync bool) *server {
	return &server{
		title: title,
		command: func(dir, address string) *exec.Cmd {
			args := []string{serveWord, serveKfake, "-listen", address}
			if sync {
				args = append(args, "-sync", "-dir", filepath.Join(dir, "data"))
			}
			return exec.Command(self, args...)
		},
		ask: askKafka,
	}
}

// newNATS returns a NATS server with JetStream.
func newNATS(title, self string, sync bool) *server {
	return &server{
		title: title,
		command: func(dir, address string) *exec.Cmd {
			return exec.Command(self, serveWord, serveNATS, "-listen", address, "-dir", filepath.Join(dir, "data"), "-sync="+strconv.FormatBool(sync))
		},
		ask: func(ctx context.Context, address string) error {
			c, err := dialNATS(ctx, address)
			if err != nil {
				return err
			}
			defer c.close()
			return c.api(ctx, "INFO", nil, nil)
		},
	}
}
