// SPDX-License-Identifier: Apache-2.0

// Package compaction holds what compaction has to know of a log: the newest record of each key, and when tombstones may go. The storage engines share it.
package compaction

import (
	"hash/maphash"
	"math/bits"
)

// KeyMap knows the newest offset of every key, by a hash of 128 bits, in a table that does not grow. Its seeds are random, so that nobody can
// make two keys of the same hash, and by chance a map of five million keys has two with a probability of 1 in 10^25.
type KeyMap struct {
	seeds [2]maphash.Seed
	slots []keySlot
	used  int
}

// keySlot is 24 bytes.
type keySlot struct {
	hash [2]uint64
	next int64 // the offset after the newest record; 0: the slot is free
}

const (
	// KeySlotSize is how many bytes of memory a key takes.
	KeySlotSize = 24
	// keyMapFull is up to how much the table is filled, in percent: beyond it a lookup takes too many steps.
	keyMapFull = 85
)

// NewKeyMap returns a map without room; see Reset.
func NewKeyMap() *KeyMap {
	return &KeyMap{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// Reset empties the map and makes room for as many keys, but for no more than bytes allow.
func (m *KeyMap) Reset(keys, bytes int64) {
	slots := max(min(keys*100/keyMapFull+1, bytes/KeySlotSize), 2)
	if int64(cap(m.slots)) < slots {
		m.slots = make([]keySlot, slots)
	}
	m.slots = m.slots[:slots]
	clear(m.slots)
	m.used = 0
}

// Put notes that a record at the offset has the key; ok is false where there is no room for another key.
func (m *KeyMap) Put(key []byte, offset int64) (ok bool) {
	h := m.hash(key)
	s := m.slot(h)
	if s.next == 0 {
		if m.used > 0 && (m.used+1)*100 > len(m.slots)*keyMapFull {
			return false
		}
		m.used++
		s.hash = h
	}
	s.next = max(s.next, offset+1)
	return true
}

// Newest is the offset of the key's newest record that was put in, -1 where there is none.
func (m *KeyMap) Newest(key []byte) int64 { return m.slot(m.hash(key)).next - 1 }

func (m *KeyMap) hash(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
}

// slot returns the slot of the key with the hash, or the free one that it may have.
func (m *KeyMap) slot(h [2]uint64) *keySlot {
	i, _ := bits.Mul64(h[0], uint64(len(m.slots)))
	for {
		s := &m.slots[i]
		if s.next == 0 || s.hash == h {
			return s
		}
		i++
		if i == uint64(len(m.slots)) {
			i = 0
		}
	}
}
