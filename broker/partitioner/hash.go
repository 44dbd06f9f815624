// SPDX-License-Identifier: Apache-2.0

package partitioner

import "encoding/binary"

// Murmur2 is the 32-bit MurmurHash2 (Austin Appleby, public domain) with the seed 0x9747b28c that Kafka's clients use for keys.
func Murmur2(key []byte) int32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h)
}

// positive clears the sign bit, as Kafka's Utils.toPositive: not the absolute value.
func positive(h int32) int32 { return h & 0x7fffffff }

// hash64 is the 64-bit FNV-1a hash of a key, mixed by the finaliser of SplitMix64 (Steele, Lea and Flood 2014), because FNV's high
// bits say little about a key's last bytes, and jump looks at high bits first. The hash decides where keys live: it never changes.
func hash64(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range key {
		h ^= uint64(b)
		h *= 1099511628211
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// jump is the jump consistent hash (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014): a bucket in [0, n),
// which, when n grows, stays or becomes one of the new buckets.
func jump(key uint64, n int32) int32 {
	b, j := int64(-1), int64(0)
	for j < int64(n) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64((key>>33)+1)))
	}
	return int32(b)
}
