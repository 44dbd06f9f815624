// SPDX-License-Identifier: Apache-2.0

package compaction

import (
	"testing"
	"time"
)

func TestPassesTellWhichTombstonesMayGo(t *testing.T) {
	start := time.UnixMilli(1_000_000)
	var p Passes
	for i := range int64(1000) {
		p.Add(Pass{UpTo: 10 * (i + 1), At: start.Add(time.Duration(i) * time.Minute).UnixMilli()}, 0, i)
	}
	if len(p.Done) > MaxPasses+1 {
		t.Fatal(len(p.Done))
	}
	for minute := range int64(1000) {
		got := p.Expired(start.Add(time.Duration(minute)*time.Minute+time.Hour), time.Hour)
		if got > 10*(minute+1) || got < 10*(minute-512) {
			t.Fatalf("minute %d: tombstones below %d may go", minute, got)
		}
	}
	p.Add(Pass{UpTo: 10_010, At: 1}, 9000, 0)
	if p.Done[0].UpTo < 9000 || p.Gone != 9000 {
		t.Fatal(p.Done[0])
	}
	p.Cut(9500)
	if p.UpTo() > 9500 || p.Gone > p.UpTo() {
		t.Fatal(p)
	}
}
