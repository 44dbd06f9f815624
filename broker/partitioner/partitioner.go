// SPDX-License-Identifier: Apache-2.0

// Package partitioner decides which partition of a topic a record goes to.
//
// The package imports the standard library alone.
package partitioner

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Partitioner chooses partitions for the records of one topic. RoundRobin and Sticky have a state: use one Partitioner for each
// topic, and from one goroutine at a time.
type Partitioner interface {
	// Name is the partitioner's name, as in Topic.spec.partitioner.
	Name() string
	// Partition returns the partition of a record with this key (nil: no key) among partitions of them, which is at least 1. The
	// result is at least 0 and less than partitions.
	Partition(key []byte, partitions int32) int32
	// NewBatch says that the record that was last given a partition needs a batch of its own there, and will be given one again (KIP-480). Sticky moves on, since
	// the batch that was being filled is full; RoundRobin takes the turn back, or every other partition would be passed over (KAFKA-9965).
	NewBatch()
	// Consistent says that a record with this key must go to its partition even where that partition cannot take it now.
	Consistent(key []byte) bool
}

// Names are the names of the partitioners, in the order of the documentation.
var Names = []string{"KeyHash", "RoundRobin", "Sticky", "ConsistentHash"}

// ByName returns a new partitioner. The error lists the names there are.
func ByName(name string) (Partitioner, error) {
	switch name {
	case "KeyHash":
		return NewKeyHash(), nil
	case "RoundRobin":
		return NewRoundRobin(), nil
	case "Sticky":
		return NewSticky(), nil
	case "ConsistentHash":
		return NewConsistentHash(), nil
	default:
		return nil, fmt.Errorf("unknown partitioner %q: use %s", name, strings.Join(Names, ", "))
	}
}

// KeyHash sends equal keys to the same partition, murmur2(key) modulo the number of partitions, so that records land where
// Kafka's own clients put them. Records without a key go as Sticky's.
type KeyHash struct{ sticky *Sticky }

// NewKeyHash returns a KeyHash.
func NewKeyHash() *KeyHash { return &KeyHash{sticky: NewSticky()} }

// Name implements Partitioner.
func (*KeyHash) Name() string { return "KeyHash" }

// Partition implements Partitioner.
func (k *KeyHash) Partition(key []byte, partitions int32) int32 {
	if key == nil {
		return k.sticky.Partition(nil, partitions)
	}
	return positive(Murmur2(key)) % partitions
}

// NewBatch implements Partitioner.
func (k *KeyHash) NewBatch() { k.sticky.NewBatch() }

// Consistent implements Partitioner.
func (*KeyHash) Consistent(key []byte) bool { return key != nil }

// RoundRobin sends records to the partitions in turn, whatever their keys.
type RoundRobin struct{ next uint32 }

// NewRoundRobin returns a RoundRobin. It starts at a random partition, so that many short-lived producers do not all begin with
// partition 0.
func NewRoundRobin() *RoundRobin { return &RoundRobin{next: rand.Uint32()} } //nolint:gosec // spreads load, keeps no secret

// Name implements Partitioner.
func (*RoundRobin) Name() string { return "RoundRobin" }

// Partition implements Partitioner.
func (r *RoundRobin) Partition(_ []byte, partitions int32) int32 {
	p := int32(r.next % uint32(partitions))
	r.next++
	return p
}

// NewBatch implements Partitioner.
func (r *RoundRobin) NewBatch() { r.next-- }

// Consistent implements Partitioner.
func (*RoundRobin) Consistent([]byte) bool { return false }

// Sticky fills one batch after the other, each for another partition, whatever the records' keys: fewer and larger batches than
// RoundRobin makes (KIP-480).
type Sticky struct {
	// last is the partition being filled, -1 before the first.
	last int32
	// full says that its batch is full.
	full bool
}

// NewSticky returns a Sticky. It starts at a random partition.
func NewSticky() *Sticky { return &Sticky{last: -1} }

// Name implements Partitioner.
func (*Sticky) Name() string { return "Sticky" }

// Partition implements Partitioner.
func (s *Sticky) Partition(_ []byte, partitions int32) int32 {
	switch {
	case s.last < 0 || s.last >= partitions:
		s.last = rand.Int32N(partitions) //nolint:gosec // spreads load, keeps no secret
	case s.full && partitions > 1:
		// Any partition but the last one, each as likely.
		s.last = (s.last + 1 + rand.Int32N(partitions-1)) % partitions //nolint:gosec // spreads load, keeps no secret
	}
	s.full = false
	return s.last
}

// NewBatch implements Partitioner.
func (s *Sticky) NewBatch() { s.full = true }

// Consistent implements Partitioner.
func (*Sticky) Consistent([]byte) bool { return false }

// ConsistentHash sends equal keys to the same partition, and moves as few keys as can be when partitions are added: going from n to m
// partitions, the fraction (m-n)/m of the keys moves, all of it to new partitions. KeyHash moves nearly all. Records without a key go as Sticky's.
type ConsistentHash struct{ sticky *Sticky }

// NewConsistentHash returns a ConsistentHash.
func NewConsistentHash() *ConsistentHash { return &ConsistentHash{sticky: NewSticky()} }

// Name implements Partitioner.
func (*ConsistentHash) Name() string { return "ConsistentHash" }

// Partition implements Partitioner.
func (c *ConsistentHash) Partition(key []byte, partitions int32) int32 {
	if key == nil {
		return c.sticky.Partition(nil, partitions)
	}
	return jump(hash64(key), partitions)
}

// NewBatch implements Partitioner.
func (c *ConsistentHash) NewBatch() { c.sticky.NewBatch() }

// Consistent implements Partitioner.
func (*ConsistentHash) Consistent(key []byte) bool { return key != nil }
