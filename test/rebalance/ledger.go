// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// process is a run of a pod's container.
type process struct {
	pod  string
	born time.Time
	// file is its journal, read up to at.
	file string
	at   int64
}

// read is a record that was read. Times are nanoseconds since 1970, by the machine's only clock.
type read struct {
	at        int64
	partition int
	by        *process
}

// told is what a consumer was told: 'G' for partitions that it was given, 'R' for those that it let go, 'L' for those that it lost.
type told struct {
	at         int64
	event      byte
	partitions []int
	by         *process
}

// ledger is what the journals of a folder say.
type ledger struct {
	dir        string
	partitions int

	mu        sync.Mutex
	processes map[string]*process
	// reads are by partition, in the order in which they were found: that of the time, but for what processes write within one look.
	reads [][]read
	told  []told
}

func newLedger(dir string, partitions int) *ledger {
	return &ledger{dir: dir, partitions: partitions, processes: make(map[string]*process), reads: make([][]read, partitions)}
}

// look reads what is new in the journals.
func (l *ledger) look() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("list the journals: %w", err)
	}
	for _, e := range entries {
		p := l.processes[e.Name()]
		if p == nil {
			parts := strings.Split(e.Name(), ".")
			if len(parts) != 3 {
				continue
			}
			born, err := strconv.ParseInt(parts[1], 10, 64)
			if err != nil {
				return fmt.Errorf("the journal's name %s: %w", e.Name(), err)
			}
			p = &process{pod: parts[0], born: time.Unix(0, born), file: filepath.Join(l.dir, e.Name())}
			l.processes[e.Name()] = p
		}
		if err := l.follow(p); err != nil {
			return err
		}
	}
	return nil
}

// follow reads what is new in one.
func (l *ledger) follow(p *process) error {
	f, err := os.Open(p.file)
	if err != nil {
		return fmt.Errorf("open a journal: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(p.at, io.SeekStart); err != nil {
		return fmt.Errorf("read a journal: %w", err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read a journal: %w", err)
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	p.at += int64(len(b))
	for line := range strings.Lines(string(b)) {
		if err := l.line(p, strings.Fields(line)); err != nil {
			return fmt.Errorf("%s: %q: %w", p.file, line, err)
		}
	}
	return nil
}

func (l *ledger) line(p *process, f []string) error {
	if len(f) < 3 || len(f[1]) != 1 {
		return errors.New("not a journal's line")
	}
	at, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return err
	}
	var numbers []int
	for s := range strings.SplitSeq(f[2], ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		if n < 0 || n >= l.partitions {
			return fmt.Errorf("partition %d", n)
		}
		numbers = append(numbers, n)
	}
	if f[1] == "D" {
		l.reads[numbers[0]] = append(l.reads[numbers[0]], read{at: at, partition: numbers[0], by: p})
		return nil
	}
	l.told = append(l.told, told{at: at, event: f[1][0], partitions: numbers, by: p})
	return nil
}

// owners is which process read each partition last.
type owners []*process

// pods are the names of those that own something, sorted.
func (o owners) pods() []string {
	names := make([]string, 0, len(o))
	for _, p := range o {
		names = append(names, p.pod)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// of are the partitions of a pod.
func (o owners) of(pod string) []int {
	var all []int
	for n, p := range o {
		if p.pod == pod {
			all = append(all, n)
		}
	}
	return all
}

// calm is how long nothing may have changed for a group to count as stable.
const calm = 1500 * time.Millisecond

// stable returns the owners if each partition was read within the last part of calm, all that was read within it by one process each, and by n pods together.
func (l *ledger) stable(now time.Time, n int) (owners, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, fresh := now.Add(-calm).UnixNano(), now.Add(-calm/2).UnixNano()
	all := make(owners, l.partitions)
	for number, reads := range l.reads {
		for _, r := range slices.Backward(reads) {
			if r.at < since {
				break
			}
			if all[number] == nil {
				if r.at < fresh {
					return nil, false
				}
				all[number] = r.by
			}
			if all[number] != r.by {
				return nil, false
			}
		}
		if all[number] == nil {
			return nil, false
		}
	}
	for _, t := range slices.Backward(l.told) {
		if t.at < since {
			break
		}
		return nil, false
	}
	return all, len(all.pods()) == n
}

// firstBy returns when a partition was first read after a time by another process than one that was killed.
func (l *ledger) firstBy(partition int, after time.Time, but *process) (read, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reads := l.reads[partition]
	i := len(reads)
	for i > 0 && reads[i-1].at > after.Add(-time.Second).UnixNano() {
		i--
	}
	var first read
	for _, r := range reads[i:] {
		if r.by != but && r.at > after.UnixNano() && (first.by == nil || r.at < first.at) {
			first = r
		}
	}
	return first, first.by != nil
}

// between returns a partition's records in a time, in its order.
func (l *ledger) between(partition int, from, to time.Time) []read {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []read
	for _, r := range l.reads[partition] {
		if r.at >= from.UnixNano() && r.at <= to.UnixNano() {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b read) int { return int(a.at - b.at) })
	return all
}

// pause is the longest time in which no record of a partition was read.
func (l *ledger) pause(partition int, from, to time.Time) time.Duration {
	longest, last := time.Duration(0), from.UnixNano()
	for _, r := range l.between(partition, from, to) {
		longest, last = max(longest, time.Duration(r.at-last)), r.at
	}
	return max(longest, time.Duration(to.UnixNano()-last))
}

// moves is how often a partition went from one pod to another.
func (l *ledger) moves(partition int, from, to time.Time) int {
	n, last := 0, ""
	for _, r := range l.between(partition, from, to) {
		if last != "" && r.by.pod != last {
			n++
		}
		last = r.by.pod
	}
	return n
}

// tellings are what consumers were told in a time.
func (l *ledger) tellings(from, to time.Time) []told {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []told
	for _, t := range l.told {
		if t.at >= from.UnixNano() && t.at <= to.UnixNano() {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b told) int { return int(a.at - b.at) })
	return all
}
