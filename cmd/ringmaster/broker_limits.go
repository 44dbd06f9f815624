// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmaster-dev/ringmaster/broker/server"
)

// limitFlags are the flags that bound what clients may take of a broker. A BrokerCluster's spec.config has the same ranges.
type limitFlags struct {
	connections      int
	connectionsPerIP int
	requestBytes     int
	idleTimeout      time.Duration
}

func (l *limitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&l.connections, "max-connections", server.DefaultMaxConnections, "how many connections may be open at once")
	flags.IntVar(&l.connectionsPerIP, "max-connections-per-ip", server.DefaultMaxConnectionsPerIP, "how many of them may come from one address")
	flags.IntVar(&l.requestBytes, "max-request-bytes", server.DefaultMaxRequestBytes, "the largest request, in bytes")
	flags.DurationVar(&l.idleTimeout, "idle-timeout", server.DefaultIdleTimeout, "how long a connection may be silent before it is closed")
	noFiles(cmd, "max-connections", "max-connections-per-ip", "max-request-bytes", "idle-timeout")
}

// check checks the flags' ranges.
func (l *limitFlags) check() error {
	for _, f := range []struct {
		flag       string
		value      int
		least, max int
	}{
		{"max-connections", l.connections, 10, 1000000},
		{"max-connections-per-ip", l.connectionsPerIP, 1, 1000000},
		{"max-request-bytes", l.requestBytes, 1 << 20, 1 << 30},
	} {
		if f.value < f.least || f.value > f.max {
			return usagef("--%s must be from %d to %d, not %d", f.flag, f.least, f.max, f.value)
		}
	}
	if l.idleTimeout < time.Second || l.idleTimeout > 24*time.Hour {
		return usagef("--idle-timeout must be from 1s to 24h, not %s", l.idleTimeout)
	}
	return nil
}
