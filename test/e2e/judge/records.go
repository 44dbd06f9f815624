// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// Unread finds records that were acknowledged and that nobody has read, or not as they were written.
func Unread(feeds, readers []*Process) []string {
	read := map[place]string{}
	for _, p := range readers {
		for _, e := range p.Events {
			if e.What == Read {
				read[place{e.Partition, e.Offset}] = e.Value
			}
		}
	}
	var found []string
	for _, p := range feeds {
		for _, e := range p.Events {
			if e.What != Acked {
				continue
			}
			switch value, ok := read[place{e.Partition, e.Offset}]; {
			case !ok:
				found = append(found, fmt.Sprintf("nobody read offset %d of partition %d, acknowledged at %s", e.Offset, e.Partition, clock(e.At)))
			case value != e.Value:
				found = append(found, fmt.Sprintf("offset %d of partition %d was written as %q and read as %q", e.Offset, e.Partition, e.Value, value))
			}
		}
	}
	return found
}

// Acknowledged counts the records that were acknowledged.
func Acknowledged(feeds []*Process) int {
	n := 0
	for _, p := range feeds {
		for _, e := range p.Events {
			if e.What == Acked {
				n++
			}
		}
	}
	return n
}

// Callbacks finds the callbacks of a pod's clients between two times, empty ones too.
func Callbacks(processes []*Process, pod string, from, to int64) []string {
	var found []string
	for _, p := range processes {
		if p.Pod != pod {
			continue
		}
		for _, e := range p.Events {
			if (e.What == Given || e.What == LetGo || e.What == Lost) && e.At >= from && e.At <= to {
				found = append(found, fmt.Sprintf("%s (client %d) was told %s %v at %s", pod, e.Client, e.What, e.Partitions, clock(e.At)))
			}
		}
	}
	return found
}

// Gap is a time in which a pod read nothing of a partition.
type Gap struct {
	Pod       string
	Partition int32
	From      int64
	// Length is how long it was; Late is how much later than its period the record that ended it was acknowledged, which is not in Length.
	Length, Late time.Duration
}

func (g Gap) String() string {
	return fmt.Sprintf("%s read nothing of partition %d for %v from %s on (and the record came %v late)", g.Pod, g.Partition, g.Length, clock(g.From), g.Late)
}

// LongestGap returns the longest time between two consecutive records of one of the partitions that a pod read between two times. A record that was
// acknowledged later than period after the one before it is that much late, and nobody could have read it: that much is taken off.
func LongestGap(processes, feeds []*Process, pod string, partitions []int32, period time.Duration, from, to int64) Gap {
	acked := acknowledged(feeds)
	longest := Gap{Pod: pod}
	for _, partition := range partitions {
		var reads []Event
		for _, p := range processes {
			if p.Pod != pod {
				continue
			}
			for _, e := range p.Events {
				if e.What == Read && e.Partition == partition {
					reads = append(reads, e)
				}
			}
		}
		slices.SortFunc(reads, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
		for i := 1; i < len(reads); i++ {
			a, b := reads[i-1], reads[i]
			if b.At < from || a.At > to {
				continue
			}
			g := Gap{Pod: pod, Partition: partition, From: a.At, Length: time.Duration(b.At - a.At)}
			before, after := acked[place{partition, b.Offset - 1}], acked[place{partition, b.Offset}]
			if before != 0 && after != 0 {
				g.Late = max(0, time.Duration(after-before)-period)
				g.Length -= min(g.Late, g.Length)
			}
			if g.Length > longest.Length {
				longest = g
			}
		}
		if n := len(reads); n > 0 && reads[n-1].At < to {
			if g := (Gap{Pod: pod, Partition: partition, From: reads[n-1].At, Length: time.Duration(to - reads[n-1].At)}); g.Length > longest.Length {
				longest = g
			}
		}
	}
	return longest
}

// acknowledged is when each record was acknowledged.
func acknowledged(feeds []*Process) map[place]int64 {
	out := map[place]int64{}
	for _, p := range feeds {
		for _, e := range p.Events {
			if e.What == Acked {
				out[place{e.Partition, e.Offset}] = e.At
			}
		}
	}
	return out
}
