// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

func TestNothingAcknowledgedIsLostWhereTheServerIsKilled(t *testing.T) {
	s := testredis.Start(t, "--appendfsync", "always")
	ld := startLoad(t, openLog(t, openEngine(t, quick(s.URL())), orders, 1), 4)
	for range 5 {
		ld.await(200)
		s.Kill()
		s.Run()
	}
	ld.await(100)
	ld.finish()
}

func TestAServerThatDoesNotAnswerForAWhile(t *testing.T) {
	s := testredis.Start(t)
	ld := startLoad(t, openLog(t, openEngine(t, quick(s.URL())), orders, 1), 4)
	for i := range 4 {
		ld.await(100)
		s.Freeze()
		// Half of the times the answers are lost, and what was sent is done late.
		time.Sleep(time.Duration(i%2) * 1500 * time.Millisecond)
		s.Thaw()
	}
	ld.await(100)
	ld.finish()
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	s := testredis.Start(t)
	ld := startLoad(t, openLog(t, openEngine(t, quick(s.URL())), orders, 1), 2)
	for range 20 {
		ld.await(20)
		if out, err := s.CLI("script", "flush"); err != nil {
			t.Fatal(out, err)
		}
	}
	ld.finish()
	if len(ld.errs) > 0 {
		t.Fatal(ld.errs)
	}
}

func TestAFullServerRefuses(t *testing.T) {
	ctx := context.Background()
	s := testredis.Start(t)
	e := openEngine(t, quick(s.URL()))
	l := openLog(t, e, orders, 1)
	batch := enginetest.Simple(strings.Repeat("x", 100_000))
	if _, err := s.CLI("config", "set", "maxmemory", "8mb"); err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for err := error(nil); err == nil; n++ {
		var base int64
		if base, err = l.Append(ctx, bytes.Clone(batch), storage.Synced); err != nil && !errors.Is(err, storage.ErrFull) || err == nil && base != n {
			t.Fatal(base, err)
		}
	}
	n--
	if l.EndOffset() != n || n < 10 {
		t.Fatal(n, l.EndOffset())
	}
	// Readers go on, another broker can take over, and what retention removes makes room.
	if got, err := enginetest.Read(ctx, l, n-1, 1); err != nil || len(got) != len(batch) {
		t.Fatal(len(got), err)
	}
	l = openLog(t, e, orders, 2)
	if _, err := l.Append(ctx, bytes.Clone(batch), storage.Synced); !errors.Is(err, storage.ErrFull) {
		t.Fatal(err)
	}
	if err := l.Trim(ctx, n/2); err != nil {
		t.Fatal(err)
	}
	if base, err := l.Append(ctx, bytes.Clone(batch), storage.Synced); err != nil || base != n {
		t.Fatal(base, err)
	}
	if l.StartOffset() != n/2 || l.Size() != (n-n/2+1)*int64(len(batch)) {
		t.Fatal(l.StartOffset(), l.Size())
	}
}

func TestADeposedOwnerDoesNotCompact(t *testing.T) {
	o := quick(testredis.Start(t).URL())
	l := openWith(t, openEngine(t, o), storage.Config{Compact: true})
	openWith(t, openEngine(t, o), storage.Config{Compact: true})
	if err := l.changeClean(context.Background(), []string{"P", "1-0", "x"}); !errors.Is(err, storage.ErrFenced) {
		t.Error(err)
	}
}

func TestAFailoverBySentinelLosesNothingThatAReplicaHas(t *testing.T) {
	w := testredis.StartWatched(t)
	o := quick(w.URL())
	o.MinReplicas = 1
	ld := startLoad(t, openLog(t, openEngine(t, o), orders, 1), 4)
	ld.await(300)
	w.Failover()
	ld.await(300)
	// Now the other way, by a death: the old primary has become a replica.
	w.WaitReplica(w.Primary)
	ld.await(100)
	w.Replica.Kill()
	w.Primary.WaitPrimary()
	w.Replica.Run()
	ld.await(300)
	ld.finish()
}

func TestAFailoverOfAClusterLosesNothing(t *testing.T) {
	c := testredis.StartCluster(t)
	e := openEngine(t, quick(c.URL()))
	var loads []*load
	for p := range int32(3) {
		loads = append(loads, startLoad(t, openLog(t, e, storage.Partition{Topic: "orders", Partition: p}, 1), 2))
	}
	for i := range 3 {
		for _, ld := range loads {
			ld.await(50)
		}
		c.Failover(c.Servers[3+i])
	}
	for _, ld := range loads {
		ld.await(50)
		ld.finish()
	}
}

func TestTheDeathOfAPrimaryOfAClusterLosesNothingThatItsReplicaHas(t *testing.T) {
	c := testredis.StartCluster(t)
	o := quick(c.URL())
	o.MinReplicas = 1
	e := openEngine(t, o)
	var loads []*load
	for p := range int32(6) {
		loads = append(loads, startLoad(t, openLog(t, e, storage.Partition{Topic: "orders", Partition: p}, 1), 1))
	}
	for _, ld := range loads {
		ld.await(50)
	}
	c.Servers[0].Kill()
	c.Servers[3].WaitPrimary()
	c.Servers[0].Run() // as a replica of the one that took over, which then has one again
	for _, ld := range loads {
		ld.await(50)
		ld.finish()
	}
}

func TestTooFewReplicas(t *testing.T) {
	ctx := context.Background()
	o := quick(testredis.Start(t).URL())
	o.MinReplicas, o.ReplicaTimeout = 1, 20*time.Millisecond
	l := openLog(t, openEngine(t, o), orders, 1)
	b := enginetest.Batch{Producer: 3, Records: enginetest.Values("a")}.Encode()
	for range 3 { // sent again, it is in the log, and the replica still has not got it
		if _, err := l.Append(ctx, bytes.Clone(b), storage.Synced); !errors.Is(err, storage.ErrNotReplicated) {
			t.Fatal(err)
		}
	}
	if base, err := l.Append(ctx, enginetest.Simple("b"), storage.Written); err != nil || base != 1 {
		t.Fatal(base, err)
	}
	if l.HighWatermark() != 2 {
		t.Fatal(l.HighWatermark())
	}
}

func TestAnAppendThatIsSentAgainIsAcknowledgedOnceAReplicaHasIt(t *testing.T) {
	ctx := context.Background()
	w := testredis.StartWatched(t)
	o := quick(w.URL())
	o.MinReplicas, o.ReplicaTimeout = 1, 50*time.Millisecond
	l := openLog(t, openEngine(t, o), orders, 1)
	w.Replica.Freeze()
	b := enginetest.Batch{Producer: 3, Records: enginetest.Values("a")}.Encode()
	for range 2 {
		if _, err := l.Append(ctx, bytes.Clone(b), storage.Synced); !errors.Is(err, storage.ErrNotReplicated) {
			t.Fatal(err)
		}
	}
	w.Replica.Thaw()
	eventually(t, "the replica has it", func() error {
		base, err := l.Append(ctx, bytes.Clone(b), storage.Synced)
		if err == nil && base != 0 {
			t.Fatal(base)
		}
		return err
	})
}
