// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestABucketHoldsWhatItSays(t *testing.T) {
	last := -1
	for ns := uint64(0); ns < 1<<40; ns += 1 + ns/50 {
		b := bucket(ns)
		if b < last {
			t.Fatalf("%d ns is in bucket %d, below the one before", ns, b)
		}
		last = b
		if up := upper(b); up < ns || float64(up) > float64(ns)*1.04+1 {
			t.Errorf("%d ns is in bucket %d, which ends at %d", ns, b, up)
		}
		if b > 0 && upper(b-1) >= ns {
			t.Errorf("%d ns is in bucket %d, and the one before ends at %d", ns, b, upper(b-1))
		}
	}
}

func TestQuantilesAreCloseToTheSortedValues(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	var a, b histogram
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			a.add(d)
		} else {
			b.add(d)
		}
	}
	a.merge(&b)
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.99, 0.999} {
		want := all[int(q*float64(len(all)))-1]
		if got := a.quantile(q); got < want || float64(got) > 1.05*float64(want) {
			t.Errorf("seed %d: quantile %v is %v, want %v", seed, q, got, want)
		}
	}
	if got := (&histogram{}).quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}
