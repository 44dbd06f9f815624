// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/bits"
	"time"
)

// A histogram's buckets are 1/32 of their value wide, so a quantile is at most 3 % too high.
const (
	subBuckets   = 32
	subBits      = 5
	bucketsInAll = 64 * subBuckets
)

// histogram counts durations. It belongs to one goroutine.
type histogram struct {
	counts [bucketsInAll]uint32
	n      uint64
}

// bucket is where a duration of ns nanoseconds is counted.
func bucket(ns uint64) int {
	if ns < subBuckets {
		return int(ns)
	}
	shift := bits.Len64(ns) - subBits - 1
	return (shift+1)*subBuckets + int(ns>>shift) - subBuckets
}

// upper is the end of a bucket, in nanoseconds.
func upper(bucket int) uint64 {
	if bucket < subBuckets {
		return uint64(bucket)
	}
	shift := bucket/subBuckets - 1
	return (uint64(bucket%subBuckets+subBuckets)+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.n++
}

func (h *histogram) merge(other *histogram) {
	for i, c := range &other.counts {
		h.counts[i] += c
	}
	h.n += other.n
}

// quantile returns the duration that the share q (0 to 1) of all is at most; 0 if there is none.
func (h *histogram) quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := max(uint64(q*float64(h.n)+0.999999), 1)
	var seen uint64
	for i, c := range &h.counts {
		if seen += uint64(c); seen >= rank {
			return time.Duration(upper(i))
		}
	}
	return time.Duration(upper(bucketsInAll - 1))
}
