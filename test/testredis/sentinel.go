// SPDX-License-Identifier: Apache-2.0

package testredis

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// primaryName is the name by which the Sentinels know the primary.
const primaryName = "ringmaster"

// Watched is a primary and its replica, watched by three Sentinels, which make the replica the primary when the primary has not answered for a second.
type Watched struct {
	Primary, Replica *Server
	Sentinels        []*Server
}

// StartWatched starts a primary, a replica and three Sentinels; the arguments are for the first two. They end with the test.
func StartWatched(t testing.TB, args ...string) *Watched {
	t.Helper()
	w := &Watched{Primary: Start(t, args...)}
	host, port, err := net.SplitHostPort(w.Primary.Address)
	if err != nil {
		t.Fatal(err)
	}
	w.Replica = Start(t, append([]string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"}, args...)...)
	w.Replica.wait("it is linked to the primary", func() bool {
		info, _ := w.Replica.CLI("info", "replication")
		return strings.Contains(info, "master_link_status:up")
	})
	for range 3 {
		w.Sentinels = append(w.Sentinels, startSentinel(t, host, port))
	}
	for _, s := range w.Sentinels {
		s.wait("it knows the others and the replica", func() bool {
			info, _ := s.CLI("info", "sentinel")
			return strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=1,sentinels=3")
		})
	}
	return w
}

func startSentinel(t testing.TB, host, port string) *Server {
	t.Helper()
	own := FreePort(t)
	s := &Server{t: t, Address: net.JoinHostPort("127.0.0.1", own), dir: t.TempDir()}
	file := filepath.Join(s.dir, "sentinel.conf")
	config := fmt.Sprintf(`bind 127.0.0.1
port %s
dir %s
logfile %s
sentinel monitor %s %s %s 2
sentinel down-after-milliseconds %s 1000
sentinel failover-timeout %s 3000
`, own, s.dir, filepath.Join(s.dir, "redis.log"), primaryName, host, port, primaryName, primaryName)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{file, "--sentinel"}
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// URL is where clients reach it.
func (w *Watched) URL() string {
	more := make([]string, 0, len(w.Sentinels))
	for _, s := range w.Sentinels[1:] {
		more = append(more, "addr="+s.Address)
	}
	return fmt.Sprintf("redis://%s?%s&master_set=%s", w.Sentinels[0].Address, strings.Join(more, "&"), primaryName)
}

// Failover has the Sentinels make the replica the primary, and waits until it is.
func (w *Watched) Failover() {
	w.Sentinels[0].must("sentinel", "failover", primaryName)
	w.Replica.WaitPrimary()
}

// WaitReplica waits until a server is a replica that is linked to its primary, and has all that it had.
func (w *Watched) WaitReplica(s *Server) {
	s.wait("it is a replica with all of its primary's data", func() bool {
		info, _ := s.CLI("info", "replication")
		return strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
	})
}
