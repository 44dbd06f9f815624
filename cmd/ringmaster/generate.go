// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// largestRate bounds --generate, in records a second: more is what a load generator is for.
const largestRate = 10000

// makeLines makes up rate lines a second until ctx ends.
func makeLines(ctx context.Context, rate int) <-chan line {
	lines := make(chan line)
	go func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				l := line{number: n, text: fmt.Appendf(nil, "record %d, made at %s", n, now.UTC().Format(time.RFC3339Nano))}
				select {
				case lines <- l:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return lines
}
