// SPDX-License-Identifier: Apache-2.0

package testredis

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

const slots = 16384

// Cluster is a Redis Cluster: of its servers the first half began as primaries, and each of the others as the replica of one of them.
type Cluster struct {
	// Servers are the servers, a primary n and its replica n+len/2.
	Servers []*Server
}

// StartCluster starts a cluster of six servers with more arguments, and waits until all of it is reachable; it ends with the test.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	const primaries = 3
	c := &Cluster{}
	for range 2 * primaries {
		bus := FreePort(t)
		c.Servers = append(c.Servers, Start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000", "--cluster-replica-validity-factor", "0",
			"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
		}, args...)...))
		c.Servers[len(c.Servers)-1].bus = bus
	}
	first := c.Servers[0]
	for _, s := range c.Servers[1:] {
		host, port, err := net.SplitHostPort(first.Address)
		if err != nil {
			t.Fatal(err)
		}
		s.must("cluster", "meet", host, port, first.bus)
	}
	for i, s := range c.Servers[:primaries] {
		s.must("cluster", "addslotsrange", strconv.Itoa(i*slots/primaries), strconv.Itoa((i+1)*slots/primaries-1))
	}
	for i, s := range c.Servers[:primaries] {
		id := s.must("cluster", "myid")
		replica := c.Servers[primaries+i]
		replica.wait("the replica knows its primary", func() bool { return strings.Contains(replica.must("cluster", "nodes"), id) })
		replica.must("cluster", "replicate", id)
	}
	c.WaitHealthy()
	return c
}

// URL is where clients reach it.
func (c *Cluster) URL() string {
	more := make([]string, 0, len(c.Servers)-1)
	for _, s := range c.Servers[1:] {
		more = append(more, "addr="+s.Address)
	}
	return fmt.Sprintf("redis://%s?%s", c.Servers[0].Address, strings.Join(more, "&"))
}

// WaitHealthy waits until every server that runs knows all slots to be served, and every replica that runs is linked to its primary.
func (c *Cluster) WaitHealthy() {
	for _, s := range c.Servers {
		if s.process == nil {
			continue
		}
		s.t.Helper()
		s.wait("the cluster is whole", func() bool {
			info, _ := s.CLI("cluster", "info")
			replication, _ := s.CLI("info", "replication")
			linked := strings.Contains(replication, "role:master") || strings.Contains(replication, "master_link_status:up")
			return linked && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.Servers)))
		})
	}
}

// Failover makes a replica the primary of its slots in the place of the one that is, both working together so that nothing is lost, and waits until it is.
func (c *Cluster) Failover(replica *Server) {
	replica.must("cluster", "failover")
	replica.WaitPrimary()
}

// WaitPrimary waits until the server is a primary.
func (s *Server) WaitPrimary() {
	s.wait("it is a primary", func() bool {
		replication, _ := s.CLI("info", "replication")
		return strings.Contains(replication, "role:master")
	})
}

// must asks the server by redis-cli.
func (s *Server) must(args ...string) string {
	s.t.Helper()
	out, err := s.CLI(args...)
	if err != nil || strings.HasPrefix(out, "ERR") || strings.HasPrefix(out, "(error)") {
		s.t.Fatalf("redis-cli %s at %s: %s, %v", strings.Join(args, " "), s.Address, out, err)
	}
	return out
}

// wait waits until something is so.
func (s *Server) wait(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(60 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("the server at %s: waited in vain until %s; its log is in %s", s.Address, what, s.dir)
		}
	}
}
