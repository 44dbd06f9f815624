// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// checkLifeAfter checks that two brokers that share a Redis go on with what they had after something happened to it, and hear of changes again.
func checkLifeAfter(t *testing.T, url string, happens func()) {
	t.Helper()
	one, two := openMember(t, url, node(1)), openMember(t, url, node(2))
	create(t, one.Metadata, "orders", 6)
	before := await(t, two.Metadata, "leaders", ledBy(2, 1, 2))
	happens()
	begun := time.Now()
	waitFor(t, "a Redis that takes changes", func() bool {
		err := one.CreateTopic(t.Context(), metadata.NewTopic{Name: "clicks", Partitions: 3})
		return err == nil || errors.Is(err, metadata.ErrTopicExists)
	})
	for _, m := range []*member{one, two} {
		s := await(t, m.Metadata, "leaders again", func(s *metadata.Snapshot) bool { return ledBy(3, 1, 2)(s) })
		if s.ClusterID != before.ClusterID || s.Topics["orders"].ID != before.Topics["orders"].ID {
			t.Errorf("broker %d: another cluster, or another topic", m.NodeID())
		}
		for p, epoch := range s.Topics["orders"].LeaderEpochs {
			if epoch < before.Topics["orders"].LeaderEpochs[p] {
				t.Errorf("broker %d: the epoch of partition %d fell to %d", m.NodeID(), p, epoch)
			}
		}
	}
	t.Logf("a topic was made and led in %v", time.Since(begun))
	two.kill()
	await(t, one.Metadata, "the dead broker's partitions", ledBy(3, 1))
}

// replicationOffset is how far a server's data are.
func replicationOffset(t *testing.T, server *testredis.Server) int {
	t.Helper()
	out, err := server.CLI("info", "replication")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`master_repl_offset:(\d+)`).FindStringSubmatch(out)
	if match == nil {
		t.Fatalf("info replication: %s", out)
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAClusterOfRedisFailsOver(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t)
	slot, err := cluster.Servers[0].CLI("cluster", "keyslot", newKeys("test").id)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(slot)
	if err != nil {
		t.Fatal(err)
	}
	primary := n * 3 / 16384
	checkLifeAfter(t, cluster.URL(), func() {
		offset := replicationOffset(t, cluster.Servers[primary])
		waitFor(t, "a replica that has all", func() bool { return replicationOffset(t, cluster.Servers[primary+3]) >= offset })
		cluster.Servers[primary].Kill()
		cluster.Servers[primary+3].WaitPrimary()
	})
}

func TestAWatchedRedisFailsOver(t *testing.T) {
	t.Parallel()
	watched := testredis.StartWatched(t)
	checkLifeAfter(t, watched.URL(), func() {
		watched.Failover()
		// Until then, the old primary takes changes, which are lost.
		waitFor(t, "the old primary as a replica", func() bool {
			out, err := watched.Primary.CLI("info", "replication")
			return err == nil && strings.Contains(out, "role:slave")
		})
	})
}
