// SPDX-License-Identifier: Apache-2.0

// Command member is a consumer of "make rebalance" built around a Go client as its authors publish it: it joins a group, and keeps a journal of the partitions that it
// is given and loses and of each record that it reads.
//
//	member KIND BOOTSTRAP GROUP TOPIC
//
// KIND is franz-eager, franz-cooperative, franz-848 or sarama-eager. The environment names the pod (POD_NAME), the journal's folder (JOURNAL), and the session timeout in
// milliseconds (SESSION_MS; the client's default if it is 0), a third of which is then the time between heartbeats.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(1)
	}
}

// asked is what a member is to do.
type asked struct {
	bootstrap, group, topic string
	// session is 0 for the client's default.
	session time.Duration
	journal *journal
}

func run(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("usage: member KIND BOOTSTRAP GROUP TOPIC")
	}
	session, err := strconv.Atoi(os.Getenv("SESSION_MS"))
	if err != nil {
		return fmt.Errorf("SESSION_MS: %w", err)
	}
	j, err := openJournal(os.Getenv("JOURNAL"), os.Getenv("POD_NAME"))
	if err != nil {
		return err
	}
	a := &asked{bootstrap: args[1], group: args[2], topic: args[3], session: time.Duration(session) * time.Millisecond, journal: j}
	ready, err := new(net.ListenConfig).Listen(ctx, "tcp", ":8080") // the pod's readiness probe
	if err != nil {
		return fmt.Errorf("listen for the readiness probe: %w", err)
	}
	defer ready.Close()
	go answer(ready)
	if args[0] == "sarama-eager" {
		return a.sarama(ctx)
	}
	return a.franz(ctx, strings.TrimPrefix(args[0], "franz-"))
}

// answer takes connections, and closes them: those that nobody takes would fill the queue, and the pod would not be ready any more.
func answer(ready net.Listener) {
	for {
		c, err := ready.Accept()
		if err != nil {
			return // it was closed
		}
		_ = c.Close() // nothing was written
	}
}
