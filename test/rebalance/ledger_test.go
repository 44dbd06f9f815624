// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// start is when the tests' journals begin.
var start = time.Unix(1000, 0)

// journals writes journals, each as lines "MILLISECONDS EVENT REST", and returns a ledger that has read them. A journal's name is POD or POD/RUN.
func journals(t *testing.T, partitions int, all map[string][]string) *ledger {
	t.Helper()
	l := newLedger(t.TempDir(), partitions)
	for name, lines := range all {
		pod, run, _ := strings.Cut(name, "/")
		var b strings.Builder
		for _, line := range lines {
			var ms int64
			var rest string
			if _, err := fmt.Sscanf(line, "%d", &ms); err != nil {
				t.Fatal(err)
			}
			_, rest, _ = strings.Cut(line, " ")
			fmt.Fprintf(&b, "%d %s\n", start.Add(time.Duration(ms)*time.Millisecond).UnixNano(), rest)
		}
		b.WriteString("123 D") // the line that a killed process did not end
		if err := os.WriteFile(filepath.Join(l.dir, fmt.Sprintf("%s.%d.log", pod, len(run)+1)), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing new
		if err := l.look(); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// handover is a topic of two partitions, of which b takes over partition 1 from a.
func handover(t *testing.T) *ledger {
	return journals(t, 2, map[string][]string{
		"a": {"0 G 0,1", "100 D 0 1", "100 D 1 1", "1000 D 0 2", "1000 D 1 2", "1100 R 1", "1900 D 0 3", "2800 D 0 4", "3700 D 0 5"},
		"b": {"1700 G 1", "1800 D 1 3", "2700 D 1 4", "3600 D 1 5"},
	})
}

func TestAJournalSaysWhoReadWhatAndWhen(t *testing.T) {
	l := handover(t)
	if got := l.moves(1, at(0), at(4000)); got != 1 {
		t.Errorf("partition 1 moved %d times, want 1", got)
	}
	if got := l.moves(0, at(0), at(4000)); got != 0 {
		t.Errorf("partition 0 moved %d times, want 0", got)
	}
	if got := l.pause(1, at(1000), at(1900)); got != 800*time.Millisecond {
		t.Errorf("partition 1 paused for %s, want 800ms", got)
	}
	first, ok := l.firstBy(1, at(1000), l.processes["a.1.log"])
	if !ok || first.by.pod != "b" || first.at != at(1800).UnixNano() {
		t.Errorf("partition 1 was next read by %+v, %t; want b after 1.8 s", first, ok)
	}
	if got := l.tellings(at(1000), at(1800)); len(got) != 2 || got[0].event != 'R' || got[1].event != 'G' {
		t.Errorf("consumers were told %+v, want that one lost and the other was given a partition", got)
	}
}

func TestAGroupIsStableWhenEachPartitionHasHadOneReaderForAWhile(t *testing.T) {
	l := handover(t)
	for name, c := range map[string]struct {
		now  int
		pods int
		want bool
	}{
		"all calm":                            {now: 3700, pods: 2, want: true},
		"a partition has just changed hands":  {now: 2800, pods: 2},
		"another pod is still to come":        {now: 3700, pods: 3},
		"nothing has been read for some time": {now: 9000, pods: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := l.stable(at(c.now), c.pods); got != c.want {
				t.Errorf("stable after %d ms with %d pods: %t, want %t", c.now, c.pods, got, c.want)
			}
		})
	}
}

func TestAStepTellsWhoGaveUpAndWhoPaused(t *testing.T) {
	l := handover(t)
	a, b := l.processes["a.1.log"], l.processes["b.1.log"]
	s := &step{}
	s.compare(l, owners{a, a}, owners{a, b}, at(1000), at(2000))
	want := step{Moved: 1, Minimum: 1, Losers: 1, Paused: 1, KeptPause: 900 * time.Millisecond, MovedPause: 800 * time.Millisecond}
	if *s != want {
		t.Errorf("the step is %+v, want %+v", *s, want)
	}
}

func TestTheLeastThatMustMove(t *testing.T) {
	a, b, c := &process{pod: "a"}, &process{pod: "b"}, &process{pod: "c"}
	for name, test := range map[string]struct {
		before owners
		pods   []string
		want   int
	}{
		"nobody comes or goes":           {before: owners{a, a, b, b}, pods: []string{"a", "b"}},
		"one comes":                      {before: owners{a, a, b, b}, pods: []string{"a", "b", "c"}, want: 1},
		"one goes":                       {before: owners{a, a, b, b, c, c}, pods: []string{"a", "b"}, want: 2},
		"one has more than its share":    {before: owners{a, a, a, b}, pods: []string{"a", "b"}, want: 1},
		"one takes the place of other":   {before: owners{a, a, b, b}, pods: []string{"b", "c"}, want: 2},
		"the rest stays where it was":    {before: owners{a, a, b}, pods: []string{"a", "b"}},
		"there are more than partitions": {before: owners{a, b}, pods: []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := leastMoves(test.before, test.pods); got != test.want {
				t.Errorf("%d must move, want %d", got, test.want)
			}
		})
	}
}

func TestQuantilesAreValuesThatWereSeen(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(i+1)*time.Millisecond)
	}
	slices.Sort(times)
	if middle(times) != 100*time.Millisecond || quantile(times, 0.99) != 198*time.Millisecond || last(times) != 200*time.Millisecond || middle(nil) != 0 {
		t.Errorf("median %s, p99 %s, largest %s, of none %s", middle(times), quantile(times, 0.99), last(times), middle(nil))
	}
}
