// SPDX-License-Identifier: Apache-2.0

package assigner

// The ring's hash is FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/) followed by MurmurHash3's 64-bit finalizer. Every process
// that computes an assignment must find the same points, today and after an upgrade, so hash/maphash, which is seeded anew in
// each process, cannot serve. FNV-1a alone leaves the high bits of short names that differ in their last character nearly equal
// (web-0, web-1, …), and the ring is ordered by the high bits: the finalizer spreads them. Names come from pods of one
// namespace, so a hash that resists chosen collisions is not needed: colliding names share points, and are told apart by name.

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
	// golden is 2^64 divided by the golden ratio, odd: its multiples are spread evenly (Knuth, volume 3, section 6.4).
	golden = 0x9e3779b97f4a7c15
	// memberSeed and topicSeed keep a member's points apart from those of a topic of the same name.
	memberSeed = 0x6d656d626572
	topicSeed  = 0x746f706963
)

// hashString returns the FNV-1a hash of s, started from seed.
func hashString(seed uint64, s string) uint64 {
	h := fnvOffset ^ seed
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// finalize is MurmurHash3's fmix64: every bit of h bears on every bit of the result.
func finalize(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// memberPoint returns the place on the ring of a member's virtual node.
func memberPoint(memberHash uint64, node int) uint64 {
	return finalize(memberHash + uint64(node)*golden)
}

// partitionPoint returns the place on the ring of a partition, the high half of its hash.
func partitionPoint(topicHash uint64, partition int) uint32 {
	return uint32(finalize(topicHash+uint64(partition)*golden) >> 32)
}
