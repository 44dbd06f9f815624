// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// a process's journal in a few words: times are milliseconds.
func process(pod string, events ...Event) *Process {
	for i := range events {
		events[i].At *= int64(time.Millisecond)
		events[i].Began *= int64(time.Millisecond)
	}
	return &Process{Pod: pod, Name: pod + ".1.jsonl", Events: append([]Event{{What: Start}}, events...)}
}

func given(at int64, partitions ...int32) Event {
	return Event{At: at, What: Given, Partitions: partitions}
}
func letGo(at int64, partitions ...int32) Event {
	return Event{At: at, What: LetGo, Partitions: partitions}
}
func read(at int64, partition int32, offset int64) Event {
	return Event{At: at, What: Read, Partition: partition, Offset: offset, Value: "v"}
}
func acked(at int64, partition int32, offset int64) Event {
	return Event{At: at, What: Acked, Partition: partition, Offset: offset, Value: "v"}
}
func commit(began, at int64, refusal string) Event {
	return Event{At: at, Began: began, What: Commit, Offset: 7, Error: refusal}
}

func TestOwnership(t *testing.T) {
	died := func(p *Process, at int64) *Process { p.Died = at * int64(time.Millisecond); return p }
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	tests := map[string]struct {
		processes []*Process
		fences    []Fence
		want      string // a part of what is found; empty for nothing
	}{
		"a partition that is let go before it is given": {processes: []*Process{process("a", given(1, 0), letGo(5, 0)), process("b", given(6, 0))}},
		"a partition that is given too early": {
			processes: []*Process{process("a", given(1, 0), letGo(7, 0)), process("b", given(6, 0))}, want: "partition 0 had two owners for 0.001 s: a",
		},
		"a partition that is never let go": {processes: []*Process{process("a", given(1, 0)), process("b", given(6, 0))}, want: "two owners"},
		"two clients of one pod": {
			processes: []*Process{process("a", given(1, 0), Event{At: 2, What: Given, Client: 1, Partitions: []int32{0}})}, want: "two owners",
		},
		"the first owner of three, who holds on": {
			processes: []*Process{process("a", given(1, 0)), process("b", given(2, 0), letGo(3, 0)), process("c", given(4, 0))}, want: "a (client 0, 00:00:00.001 to now) and c",
		},
		"another partition":                     {processes: []*Process{process("a", given(1, 0)), process("b", given(6, 1))}},
		"an owner that was killed":              {processes: []*Process{died(process("a", given(1, 0)), 5), process("b", given(6, 0))}},
		"an owner that was killed later":        {processes: []*Process{died(process("a", given(1, 0)), 7), process("b", given(6, 0))}, want: "two owners"},
		"an owner that stopped":                 {processes: []*Process{process("a", given(1, 0), Event{At: 5, What: Stop}), process("b", given(6, 0))}},
		"an owner that lost it":                 {processes: []*Process{process("a", given(1, 0), Event{At: 5, What: Lost, Partitions: []int32{0}}), process("b", given(6, 0))}},
		"a fenced owner":                        {processes: []*Process{process("a", given(1, 0)), process("b", given(6, 0))}, fences: []Fence{{"a", ms(5), ms(9)}}},
		"an owner that is fenced too late":      {processes: []*Process{process("a", given(1, 0)), process("b", given(6, 0))}, fences: []Fence{{"a", ms(7), ms(9)}}, want: "two owners"},
		"a fence of another pod":                {processes: []*Process{process("a", given(1, 0)), process("b", given(6, 0))}, fences: []Fence{{"b", ms(5), ms(9)}}, want: "two owners"},
		"a fenced owner that is given it again": {processes: []*Process{process("a", given(1, 0), letGo(8, 0), given(10, 0)), process("b", given(6, 0))}, fences: []Fence{{"a", ms(5), ms(9)}}, want: "two owners"},

		"a record of its own":               {processes: []*Process{process("a", given(1, 0), read(2, 0, 1), letGo(3, 0))}},
		"a record before it is given":       {processes: []*Process{process("a", read(1, 0, 9), given(2, 0))}, want: "a (client 0) read offset 9 of partition 0"},
		"a record after it is let go":       {processes: []*Process{process("a", given(1, 0), letGo(3, 0), read(4, 0, 1))}, want: "not its own"},
		"a record of its brother's":         {processes: []*Process{process("a", given(1, 0), Event{At: 4, What: Read, Client: 1})}, want: "not its own"},
		"a commit of the owner":             {processes: []*Process{process("a", given(1, 0), commit(2, 3, ""))}},
		"a commit before anybody had it":    {processes: []*Process{process("a", commit(2, 3, ""))}, want: "which nobody had been given"},
		"a commit of an earlier owner":      {processes: []*Process{process("a", given(1, 0), letGo(3, 0), commit(6, 7, "")), process("b", given(5, 0))}, want: "a (client 0) committed offset 7 of partition 0"},
		"a refused one of an earlier owner": {processes: []*Process{process("a", given(1, 0), letGo(3, 0), commit(6, 7, "ILLEGAL_GENERATION")), process("b", given(5, 0))}},
		"a commit that was sent before the partition was given away": {
			processes: []*Process{process("a", given(1, 0), letGo(3, 0), commit(2, 7, "")), process("b", given(5, 0))},
		},
		"a fenced owner's commit": {
			processes: []*Process{process("a", given(1, 0), commit(8, 8, "")), process("b", given(6, 0))}, fences: []Fence{{"a", ms(5), ms(9)}}, want: "and was believed",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tenures := Tenures(tc.processes)
			found := append(append(Overlaps(tenures, tc.fences), Strays(tc.processes)...), WrongCommits(tc.processes, tenures)...)
			if (tc.want == "") != (len(found) == 0) || !strings.Contains(strings.Join(found, "\n"), tc.want) {
				t.Errorf("found %q, want %q", found, tc.want)
			}
		})
	}
}

func TestRecords(t *testing.T) {
	feeds := []*Process{process("feed", acked(10, 0, 0), acked(510, 0, 1), acked(2510, 0, 2))}
	tests := map[string]struct {
		readers []*Process
		want    []string
	}{
		"every record": {readers: []*Process{process("a", read(11, 0, 0), read(511, 0, 1)), process("b", read(500, 0, 1), read(2511, 0, 2))}},
		"all but one": {
			readers: []*Process{process("a", read(11, 0, 0), read(2511, 0, 2), read(3, 1, 1))},
			want:    []string{"nobody read offset 1 of partition 0, acknowledged at 00:00:00.510"},
		},
		"one that is not what was written": {
			readers: []*Process{process("a", read(11, 0, 0), read(511, 0, 1), Event{What: Read, Offset: 2, Value: "w"})},
			want:    []string{`offset 2 of partition 0 was written as "v" and read as "w"`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Unread(feeds, tc.readers)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if n := Acknowledged(feeds); n != 3 {
		t.Errorf("%d were acknowledged, not 3", n)
	}
}

func TestLongestGap(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	feeds := []*Process{process("feed", acked(10, 0, 0), acked(510, 0, 1), acked(1010, 0, 2), acked(3010, 0, 3))}
	regular := process("a", read(11, 0, 0), read(511, 0, 1), read(1011, 0, 2), read(3011, 0, 3))
	tests := map[string]struct {
		process  *Process
		from, to int64
		want     time.Duration
	}{
		"as they are written":                             {process: regular, from: 0, to: 1100, want: 500 * time.Millisecond},
		"a record that came late is no gap":               {process: regular, from: 0, to: 3100, want: 500 * time.Millisecond},
		"a record that is read late":                      {process: process("a", read(11, 0, 0), read(1000, 0, 1), read(1011, 0, 2)), from: 0, to: 1100, want: 989 * time.Millisecond},
		"a gap that began before":                         {process: process("a", read(11, 0, 0), read(1000, 0, 1), read(1011, 0, 2)), from: 800, to: 1100, want: 989 * time.Millisecond},
		"a gap that was before":                           {process: process("a", read(11, 0, 0), read(1000, 0, 1), read(1011, 0, 2)), from: 1005, to: 1020, want: 11 * time.Millisecond},
		"records that are not read until the window ends": {process: process("a", read(11, 0, 0)), from: 0, to: 2011, want: 2 * time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := LongestGap([]*Process{tc.process}, feeds, "a", []int32{0}, 500*time.Millisecond, ms(tc.from), ms(tc.to))
			if got.Length != tc.want {
				t.Errorf("the longest gap is %v, not %v: %v", got.Length, tc.want, got)
			}
		})
	}
}

func TestHoldings(t *testing.T) {
	processes := []*Process{
		process("a", given(1, 0, 1), read(2, 0, 1), letGo(3, 1), Event{At: 4, What: Given, Client: 1, Partitions: []int32{3}}),
		process("b", read(1, 1, 4), given(4, 1)),
	}
	if diff := cmp.Diff(map[string][]int32{"a": {0, 3}, "b": {1}}, Holdings(processes)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string][]int32{"a": {0}}, ReadSinceGiven(processes)); diff != "" {
		t.Error(diff)
	}
	if !processes[0].Holds() || process("c", given(1, 0), letGo(2, 0)).Holds() {
		t.Error("a process holds what it was given and has not let go of")
	}
	if got := Callbacks(processes, "a", 0, int64(3*time.Millisecond)); len(got) != 2 {
		t.Errorf("the callbacks are %q, and were to be two", got)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
		}
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f := NewFolder(dir)
	refresh := func() []Event {
		t.Helper()
		if err := f.Refresh(); err != nil {
			t.Fatal(err)
		}
		return f.Newest("a-1").Events
	}
	write("a-1.10.jsonl", `{"at":1,"what":"start"}`+"\n"+`{"at":2,"what":"gi`)
	if n := len(refresh()); n != 1 {
		t.Errorf("%d events of a journal whose second line is not whole", n)
	}
	write("a-1.10.jsonl", `ven","partitions":[3]}`+"\n")
	if diff := cmp.Diff([]Event{{At: 1, What: Start}, {At: 2, What: Given, Partitions: []int32{3}}}, refresh()); diff != "" {
		t.Error(diff)
	}
	write("a-1.20.jsonl", `{"at":9,"what":"start"}`+"\n")
	if diff := cmp.Diff([]Event{{At: 9, What: Start}}, refresh()); diff != "" {
		t.Errorf("the newest journal is not the second: %s", diff)
	}
	if n := len(f.Processes(func(pod string) bool { return pod == "a-1" })); n != 2 {
		t.Errorf("%d processes, not 2", n)
	}
	write("a-1.20.jsonl", "nonsense\n")
	if err := f.Refresh(); err == nil {
		t.Error("nonsense is no error")
	}
}
