// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond)
	}
	cases := map[string]struct {
		list []time.Duration
		want string
	}{
		"nothing was measured":                         {nil, "–"},
		"one is all of them":                           {[]time.Duration{1500 * time.Microsecond}, "1.5, 1.5, 1.5"},
		"of two the median is the smaller one":         {[]time.Duration{2 * time.Second, time.Second}, "1000, 2000, 2000"},
		"of a hundred, in whatever order":              {hundred, "50, 99, 100"},
		"of twenty the 99th percentile is the largest": {hundred[:20], "90, 100, 100"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := times(tc.list, 0.99, 1); got != tc.want {
				t.Errorf("times = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{10 * time.Minute: "10m", 20 * time.Second: "20s", 90 * time.Second: "1m30s", 10*time.Minute + 5*time.Second: "10m5s"} {
		if got := duration(d); got != want {
			t.Errorf("duration(%s) = %q, want %q", d, got, want)
		}
	}
}
