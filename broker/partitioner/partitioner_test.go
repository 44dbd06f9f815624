// SPDX-License-Identifier: Apache-2.0

package partitioner

import (
	"fmt"
	"strings"
	"testing"
)

// The values are those of Kafka's own test of Utils.murmur2.
func TestMurmur2IsKafkas(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := Murmur2([]byte(key)); got != want {
			t.Errorf("Murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestKeyHashIsKafkasDefault(t *testing.T) {
	// murmur2("21") has the sign bit: Kafka clears it and does not negate.
	if got := NewKeyHash().Partition([]byte("21"), 100); got != (-973932308&0x7fffffff)%100 {
		t.Errorf("partition = %d", got)
	}
	// An empty key is a key.
	k := NewKeyHash()
	first := k.Partition([]byte{}, 64)
	for range 10 {
		k.NewBatch()
		if got := k.Partition([]byte{}, 64); got != first {
			t.Fatalf("an empty key went to %d and to %d", first, got)
		}
	}
}

// Where keys live is a promise to every topic that holds some.
func TestConsistentHashNeverChanges(t *testing.T) {
	for key, want := range map[string]int32{"": 11, "a": 9, "orders": 5, "customer-42": 4, "\x00\xff": 10} {
		if got := NewConsistentHash().Partition([]byte(key), 12); got != want {
			t.Errorf("%q: partition %d, want %d", key, got, want)
		}
	}
}

func TestEveryPartitionerStaysInRange(t *testing.T) {
	for _, name := range Names {
		t.Run(name, func(t *testing.T) {
			p, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Name() != name {
				t.Errorf("name = %q", p.Name())
			}
			for i := range 20000 {
				var key []byte
				if i%3 != 0 {
					key = fmt.Append(nil, i)
				}
				n := int32(i%17 + 1)
				if i%1000 == 0 {
					n = 10000
				}
				if got := p.Partition(key, n); got < 0 || got >= n {
					t.Fatalf("record %d: partition %d of %d", i, got, n)
				}
				if i%5 == 0 {
					p.NewBatch()
				}
			}
		})
	}
}

func TestKeysAreSpreadEvenly(t *testing.T) {
	for _, name := range []string{"KeyHash", "ConsistentHash"} {
		t.Run(name, func(t *testing.T) {
			p, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			const keys, partitions = 120000, 12
			counts := make([]int, partitions)
			for i := range keys {
				counts[p.Partition(fmt.Appendf(nil, "key-%d", i), partitions)]++
			}
			for part, n := range counts {
				if mean := keys / partitions; n < mean*95/100 || n > mean*105/100 {
					t.Errorf("partition %d has %d keys, mean %d", part, n, mean)
				}
			}
		})
	}
}

func TestConsistentHashMovesKeysToNewPartitionsOnly(t *testing.T) {
	const keys, before, after = 100000, 12, 16
	p := NewConsistentHash()
	moved := 0
	for i := range keys {
		key := fmt.Appendf(nil, "key-%d", i)
		old, now := p.Partition(key, before), p.Partition(key, after)
		if old == now {
			continue
		}
		moved++
		if now < before {
			t.Fatalf("%s moved from %d to %d, which is no new partition", key, old, now)
		}
	}
	if want := keys * (after - before) / after; moved < want*97/100 || moved > want*103/100 {
		t.Errorf("%d keys moved, want about %d", moved, want)
	}
}

// A producer asks again for each record that begins a batch.
func TestRoundRobinPassesNobodyOver(t *testing.T) {
	p, counts := NewRoundRobin(), make([]int, 12)
	for range 120 {
		p.Partition(nil, 12)
		p.NewBatch()
		counts[p.Partition(nil, 12)]++
	}
	for i, n := range counts {
		if n != 10 {
			t.Errorf("partition %d got %d records, want 10", i, n)
		}
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	p := NewRoundRobin()
	first := p.Partition([]byte("same"), 5)
	for i := range int32(20) {
		if got, want := p.Partition([]byte("same"), 5), (first+1+i)%5; got != want {
			t.Fatalf("record %d went to %d, want %d", i+1, got, want)
		}
	}
	wrapping := &RoundRobin{next: 1<<32 - 1}
	for range 3 {
		if got := wrapping.Partition(nil, 7); got < 0 || got >= 7 {
			t.Errorf("partition %d of 7 around the end of the counter", got)
		}
	}
}

func TestStickyStaysUntilTheBatchIsFull(t *testing.T) {
	p := NewSticky()
	last := p.Partition(nil, 8)
	for range 100 {
		for range 10 {
			if got := p.Partition([]byte("any"), 8); got != last {
				t.Fatalf("moved from %d to %d within a batch", last, got)
			}
		}
		p.NewBatch()
		got := p.Partition(nil, 8)
		if got == last {
			t.Fatalf("stayed at %d for another batch", got)
		}
		last = got
	}
	p.NewBatch()
	if got := p.Partition(nil, 1); got != 0 {
		t.Errorf("partition %d of 1", got)
	}
}

func TestConsistentRecordsAreThoseWithAKey(t *testing.T) {
	for name, want := range map[string]bool{"KeyHash": true, "ConsistentHash": true, "RoundRobin": false, "Sticky": false} {
		p, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Consistent([]byte("k")); got != want {
			t.Errorf("%s: a record with a key: consistent = %v, want %v", name, got, want)
		}
		if p.Consistent(nil) {
			t.Errorf("%s: a record without a key is consistent", name)
		}
	}
}

func TestAnUnknownNameIsRefusedWithTheNamesThereAre(t *testing.T) {
	_, err := ByName("keyhash")
	if err == nil || !strings.Contains(err.Error(), "KeyHash, RoundRobin, Sticky, ConsistentHash") {
		t.Errorf("error = %v", err)
	}
}

func BenchmarkKeyHash(b *testing.B) {
	p, key := NewKeyHash(), []byte("customer-000042")
	for b.Loop() {
		p.Partition(key, 12)
	}
}

func BenchmarkConsistentHash(b *testing.B) {
	p, key := NewConsistentHash(), []byte("customer-000042")
	for b.Loop() {
		p.Partition(key, 12)
	}
}
