// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "measure anew and write the tables of docs/assigners.md")

const (
	manual      = "../../docs/assigners.md"
	manualBegin = "<!-- written by make assigners: begin -->\n"
	manualEnd   = "<!-- written by make assigners: end -->"
)

// TestTheManualsTables checks the tables of docs/assigners.md, all but times and allocations; with -update it measures and writes them.
func TestTheManualsTables(t *testing.T) {
	page, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), manualBegin)
	old, after, ended := strings.Cut(rest, manualEnd)
	if !ok || !ended {
		t.Fatal("the marked lines are missing")
	}
	tables := planTable() + "\n"
	if *update {
		tables += timeTable() + "\n" + machine() + "\n"
		if err := os.WriteFile(manual, []byte(before+manualBegin+"\n"+tables+manualEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !strings.HasPrefix(old, "\n"+tables) {
		t.Errorf("the first table is out of date; run make assigners. It should be\n%s", tables)
	}
}

// planTable measures plans: how even they are, and what moves.
func planTable() string {
	const partitions, members = 10_000, 1000
	var b strings.Builder
	fmt.Fprintf(&b, "%s partitions, %s members that all read the one topic:\n\n", grouped(partitions), grouped(members))
	b.WriteString("| | most / mean | least / mean | moved when one joins | when one leaves | when 40 join and 20 leave |\n|---|---|---|---|---|---|\n")
	var minimum [3]int
	for _, p := range peers() {
		plan := func(in Input) Assignment { return p.prepare(in)() }
		s := situations(benchInput(partitions, members, 1), plan)
		largest, smallest := shape(s[1].in.Previous)
		many := s[1].in
		many.Members = append(slices.Clone(many.Members[20:]), benchInput(1, members+40, 1).Members[members:]...)
		for i := range many.Members {
			many.Members[i].Topics = s[1].in.Members[0].Topics
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f |", p.name, largest, smallest)
		for i, in := range []Input{s[2].in, s[3].in, many} {
			fmt.Fprintf(&b, " %d |", Moves(in.Previous, plan(in)))
			if p.name == (ConsistentHash{}).Name() {
				minimum[i] = Minimum(in)
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "| *least that a balanced plan moves* | | | %d | %d | %d |\n", minimum[0], minimum[1], minimum[2])
	return b.String()
}

// timeTable measures how long plans take.
func timeTable() string {
	var b strings.Builder
	b.WriteString("Time for a plan, the least of the runs of two seconds, and allocations:\n\n")
	b.WriteString("| partitions x members | | fresh | nothing changed | one joins | one leaves |\n|---|---|---|---|---|---|\n")
	for _, size := range []struct {
		name  string
		fresh func() Input
		peers int // how many of the peers are measured
	}{
		{"1,000 x 100", func() Input { return benchInput(1000, 100, 1) }, 7},
		{"10,000 x 1,000", func() Input { return benchInput(10_000, 1000, 1) }, 7},
		{"10,000 x 1,000, 100 topics", func() Input { return benchInput(10_000, 1000, 100) }, 3},
		{"10,000 x 1,000, 5 subscriptions", func() Input { return unequalInput(10_000, 1000) }, 3},
		{"10,000 x 1,000, 3 zones", func() Input { return zonedInput(10_000, 1000) }, 2},
		{"1,000,000 x 10,000", func() Input { return benchInput(1_000_000, 10_000, 1) }, 3},
	} {
		for _, p := range peers()[:size.peers] {
			fmt.Fprintf(&b, "| %s | %s |", size.name, p.name)
			for _, s := range situations(size.fresh(), func(in Input) Assignment { return p.prepare(in)() }) {
				least, allocs := timed(p.prepare(s.in))
				fmt.Fprintf(&b, " %.3g ms, %s |", float64(least.Microseconds())/1000, grouped(allocs))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// timed runs f for two seconds, at least three times, and returns the shortest time and the allocations of a run.
func timed(f func() Assignment) (time.Duration, int) {
	allocs := testing.AllocsPerRun(1, func() { f() })
	least := time.Hour
	for start, runs := time.Now(), 0; runs < 3 || time.Since(start) < 2*time.Second; runs++ {
		begin := time.Now()
		f()
		least = min(least, time.Since(begin))
	}
	return least, int(allocs)
}

// machine says where the times were measured.
func machine() string {
	model := "an unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			model = strings.TrimLeft(line, "\t :")
		}
	}
	return fmt.Sprintf("Measured with %s on %d cores of %s, %s/%s.\n", runtime.Version(), runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH)
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
