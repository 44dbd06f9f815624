// SPDX-License-Identifier: Apache-2.0

// Package runs writes lists of partitions for people.
package runs

import (
	"strconv"
	"strings"
)

// most is how many runs are written before the rest is counted: what fits into a terminal beside others.
const most = 8

// Write writes ascending numbers with runs shortened, 0-2,4,7-9, and counts those that come after the first eight runs: 0,3,6,9,12,15,18,21,+992.
func Write(b *strings.Builder, numbers []int32) {
	written := 0
	for i := 0; i < len(numbers); written++ {
		if i > 0 {
			b.WriteByte(',')
		}
		if written == most {
			b.WriteByte('+')
			b.WriteString(strconv.Itoa(len(numbers) - i))
			return
		}
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		b.WriteString(strconv.Itoa(int(numbers[i])))
		if end > i+1 {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(int(numbers[end-1])))
		}
		i = end
	}
}
