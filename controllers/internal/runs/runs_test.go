// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"strings"
	"testing"
)

// every lists n numbers, a step apart.
func every(step, n int32) []int32 {
	var numbers []int32
	for i := range n {
		numbers = append(numbers, i*step)
	}
	return numbers
}

func TestWrite(t *testing.T) {
	tests := map[string]struct {
		numbers []int32
		want    string
	}{
		"nothing":                     {nil, ""},
		"one":                         {[]int32{7}, "7"},
		"one run, however long":       {every(1, 10_000), "0-9999"},
		"runs and single ones":        {[]int32{0, 1, 2, 4, 7, 8}, "0-2,4,7-8"},
		"as many runs as are shown":   {every(3, 8), "0,3,6,9,12,15,18,21"},
		"more runs: the rest counted": {every(3, 9), "0,3,6,9,12,15,18,21,+1"},
		"the rest counts partitions":  {append(every(3, 8), 30, 31, 32, 40), "0,3,6,9,12,15,18,21,+4"},
		"a thousand of ten thousand":  {every(10, 1000), "0,10,20,30,40,50,60,70,+992"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			Write(&b, tc.numbers)
			if b.String() != tc.want {
				t.Errorf("%q, want %q", b.String(), tc.want)
			}
		})
	}
}
