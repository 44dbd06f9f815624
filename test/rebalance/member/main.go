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
	if args[0] == "sarama-eager" {
		return a.sarama(ctx)
	}
	return a.franz(ctx, strings.TrimPrefix(args[0], "franz-"))
}
