// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// forever is the end of what has not ended.
const forever = math.MaxInt64

// Tenure is a time in which a client believed that a partition was its own: from the moment that its callback for assigned partitions was called with it to
// the end of its callback for revoked ones (or the beginning of that for lost ones), to its last words, or to the death of its process. A client reads
// and commits in no other time, or Strays finds it.
type Tenure struct {
	Pod       string
	Process   *Process
	Client    int
	Partition int32
	From, To  int64
}

func (t Tenure) holder() holder { return holder{t.Process, t.Client} }

func (t Tenure) String() string {
	to := "now"
	if t.To != forever {
		to = clock(t.To)
	}
	return fmt.Sprintf("%s (client %d, %s to %s)", t.Pod, t.Client, clock(t.From), to)
}

// holder is a client of a process.
type holder struct {
	process *Process
	client  int
}

// Fence is a moment from which on a pod's belief does not count: see Overlaps.
type Fence struct {
	Pod string
	At  int64
	// Until is when the pod can know of it: what it is given from then on counts again.
	Until int64
}

// Tenures returns the tenures of processes, by partition and start.
func Tenures(processes []*Process) []Tenure {
	var out []Tenure
	for _, p := range processes {
		out = append(out, tenuresOf(p)...)
	}
	slices.SortFunc(out, func(a, b Tenure) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.From, b.From), cmp.Compare(a.Process.Name, b.Process.Name), cmp.Compare(a.Client, b.Client))
	})
	return out
}

func tenuresOf(p *Process) []Tenure {
	type key struct {
		client    int
		partition int32
	}
	open := map[key]int{} // index in out
	var out []Tenure
	end := func(k key, at int64) {
		if i, ok := open[k]; ok {
			out[i].To = at
			delete(open, k)
		}
	}
	for _, e := range p.Events {
		switch e.What {
		case Given:
			for _, partition := range e.Partitions {
				k := key{e.Client, partition}
				if _, ok := open[k]; ok {
					continue // told twice of what it has
				}
				open[k] = len(out)
				out = append(out, Tenure{Pod: p.Pod, Process: p, Client: e.Client, Partition: partition, From: e.At, To: forever})
			}
		case LetGo, Lost:
			for _, partition := range e.Partitions {
				end(key{e.Client, partition}, e.At)
			}
		case Stop:
			for k := range open {
				if k.client == e.Client {
					end(k, e.At)
				}
			}
		}
	}
	if p.Died != 0 {
		for k := range open {
			end(k, p.Died)
		}
	}
	return out
}

// Holds says whether a client of the process still believes that a partition is its own.
func (p *Process) Holds() bool {
	return slices.ContainsFunc(tenuresOf(p), func(t Tenure) bool { return t.To == forever })
}

// Holdings returns what the clients of each pod hold at the end of the evidence, sorted.
func Holdings(processes []*Process) map[string][]int32 {
	out := map[string][]int32{}
	for _, t := range Tenures(processes) {
		if t.To == forever {
			out[t.Pod] = append(out[t.Pod], t.Partition)
		}
	}
	return out
}

// Overlaps finds partitions that two clients believed to be their own at one time. It fails where a partition is given before its old owner has let go of
// it, be it by a microsecond: all journals have one clock, and the callback for assigned partitions comes after the answer in which the broker gave them.
//
// A pod that is cut off cannot be told. It may believe on, and what counts is that nobody listens to it: its belief ends at its fence, the earliest moment at
// which the coordinator may give its partitions to others (the run says when that is). An overlap before the fence is found here, and a commit that is accepted
// after somebody else was given the partition is found by WrongCommits.
func Overlaps(tenures []Tenure, fences []Fence) []string {
	var found []string
	counted := make([]Tenure, 0, len(tenures))
	for _, t := range tenures {
		for _, f := range fences {
			if f.Pod == t.Pod && t.From < f.Until && t.To > f.At {
				t.To = max(f.At, t.From)
			}
		}
		counted = append(counted, t)
	}
	for i, a := range counted {
		for _, b := range counted[i+1:] {
			if b.Partition != a.Partition {
				break
			}
			if b.From < a.To && a.From < b.To {
				found = append(found, fmt.Sprintf("partition %d had two owners for %.3f s: %v and %v", a.Partition, float64(min(a.To, b.To)-max(a.From, b.From))/1e9, a, b))
			}
		}
	}
	return found
}

// Strays finds records that a client read at a time at which it did not believe that their partition was its own.
func Strays(processes []*Process) []string {
	var found []string
	for _, p := range processes {
		byPartition := map[int32][]Tenure{}
		for _, t := range tenuresOf(p) {
			byPartition[t.Partition] = append(byPartition[t.Partition], t)
		}
		for _, e := range p.Events {
			if e.What != Read {
				continue
			}
			own := func(t Tenure) bool { return t.Client == e.Client && t.From <= e.At && e.At <= t.To }
			if !slices.ContainsFunc(byPartition[e.Partition], own) {
				found = append(found, fmt.Sprintf("%s (client %d) read offset %d of partition %d at %s, which was not its own", p.Pod, e.Client, e.Offset, e.Partition, clock(e.At)))
			}
		}
	}
	return found
}

// WrongCommits finds commits that were accepted from a client that was not the last one that the partition was given to before it sent them. It fails where the
// coordinator listens to an owner that it has fenced, such as a pod that was cut off and is back.
func WrongCommits(processes []*Process, tenures []Tenure) []string {
	byPartition := map[int32][]Tenure{}
	for _, t := range tenures {
		byPartition[t.Partition] = append(byPartition[t.Partition], t)
	}
	var found []string
	for _, p := range processes {
		for _, e := range p.Events {
			if e.What != Commit || e.Error != "" {
				continue
			}
			given := byPartition[e.Partition] // by start
			n, _ := slices.BinarySearchFunc(given, e.Began, func(t Tenure, at int64) int { return cmp.Compare(t.From, at+1) })
			switch {
			case n == 0:
				found = append(found, fmt.Sprintf("%s committed offset %d of partition %d at %s, which nobody had been given", p.Pod, e.Offset, e.Partition, clock(e.Began)))
			case given[n-1].holder() != holder{p, e.Client}:
				found = append(found, fmt.Sprintf("%s (client %d) committed offset %d of partition %d at %s, and was believed, after it had been given to %v",
					p.Pod, e.Client, e.Offset, e.Partition, clock(e.Began), given[n-1]))
			}
		}
	}
	return found
}

// ReadSinceGiven returns, by pod, the partitions that its clients hold and have read a record of since they were given them.
func ReadSinceGiven(processes []*Process) map[string][]int32 {
	out := map[string][]int32{}
	for _, p := range processes {
		type key struct {
			client    int
			partition int32
		}
		last := map[key]int64{}
		for _, e := range p.Events {
			if e.What == Read {
				last[key{e.Client, e.Partition}] = e.At
			}
		}
		for _, t := range tenuresOf(p) {
			if t.To == forever && last[key{t.Client, t.Partition}] >= t.From {
				out[t.Pod] = append(out[t.Pod], t.Partition)
			}
		}
	}
	return out
}
