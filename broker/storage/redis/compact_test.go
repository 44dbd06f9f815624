// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// TestCompactionOfALogThatIsAppendedTo compacts a log again and again while it grows and is read, with a map of keys that does not hold them all.
func TestCompactionOfALogThatIsAppendedTo(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := testredis.Start(t)
	t.Run("over connections that hold", func(t *testing.T) { compactWhileAppending(t, s.URL(), s.URL(), seed) })
	t.Run("over connections that are cut", func(t *testing.T) {
		c, address := startCutter(t, s.Address, seed, 300_000)
		compactWhileAppending(t, s.URL(), "redis://"+address, seed)
		t.Logf("%d connections cut", c.cuts.Load())
	})
}

// compactWhileAppending reaches Redis by one of two ways while it appends, and by the other to see what has become of it.
func compactWhileAppending(t *testing.T, direct, url string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	o := quick(url)
	o.CompactionMemoryBytes = 24 * 500
	e := openEngine(t, o)
	config := storage.Config{Compact: true}
	l := openWith(t, e, config)
	newest := map[string]string{}
	stop := make(chan struct{})
	compacted := 0
	var all sync.WaitGroup
	all.Go(func() {
		for {
			switch err := e.Compact(time.Now()); {
			case err == nil:
				compacted++
			case !isRetriable(err):
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	all.Go(func() { readAgainAndAgain(t, l, stop) })
	const batches, perBatch = 1500, 5
	for i := range batches {
		b := enginetest.Batch{First: 1000, Gzip: i%3 == 0, Producer: 5, Sequence: int32(perBatch * i)}
		for j := range perBatch {
			key := fmt.Sprintf("k%d", rng.IntN(1000))
			value := fmt.Sprintf("%d/%d/%s", i, j, strings.Repeat("v", rng.IntN(400)))
			newest[key] = value
			b.Records = append(b.Records, enginetest.Record{Key: []byte(key), Value: []byte(value), Delta: int64(j)})
		}
		eventually(t, "it is appended", func() error {
			base, err := l.Append(context.Background(), b.Encode(), storage.Synced)
			if err == nil && base != int64(perBatch*i) || err != nil && !isRetriable(err) {
				t.Fatal(base, err)
			}
			return err
		})
	}
	close(stop)
	all.Wait()
	t.Logf("compacted %d times", compacted)
	o.Conn.URL = direct
	e = openEngine(t, o)
	l = openWith(t, e, config)
	if err := e.Compact(time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		if again {
			l = openWith(t, openEngine(t, o), config)
		}
		got := map[string]string{}
		records := 0
		for next := int64(0); next < l.EndOffset(); {
			b, err := l.Read(context.Background(), next, 5000)
			if err != nil {
				t.Fatal(err)
			}
			data, err := b.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			list, err := enginetest.Records(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				got[string(r.Key)] = string(r.Value)
				records++
			}
			next = b.Next
		}
		if diff := cmp.Diff(newest, got); diff != "" {
			t.Fatalf("newest records (-want +got):\n%.2000s", diff)
		}
		if records > len(newest)+perBatch {
			t.Errorf("%d records of %d keys are left", records, len(newest))
		}
		if got, want := l.Size(), storedSize(t, l); got != want {
			t.Errorf("the log says that it has %d bytes, and has %d", got, want)
		}
	}
	left, err := e.client.Do(context.Background(), e.client.B().Exists().Key(l.keys.clean, l.keys.cleanTimes).Build()).AsInt64()
	if err != nil || left != 0 {
		t.Errorf("%d keys of compaction are left, %v", left, err)
	}
}

// readAgainAndAgain reads a log from its start to its end, and wants every read to go on where the one before ended.
func readAgainAndAgain(t *testing.T, l storage.Log, stop <-chan struct{}) {
	for next := int64(0); ; {
		select {
		case <-stop:
			return
		default:
		}
		b, err := l.Read(context.Background(), next, 3000)
		switch {
		case isRetriable(err):
			continue
		case err != nil:
			t.Error(err)
			return
		case b.Len() == 0:
			next = 0
			continue
		case b.Next <= next:
			t.Errorf("a read from %d ends at %d", next, b.Next)
			return
		}
		next = b.Next
	}
}
