// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Owned are the partitions that a member has, for those that commit without reading. The zero value is ready for use.
type Owned struct {
	mu   sync.Mutex
	list []Partition
}

// Moved notes that partitions came (Assigned) or went.
func (o *Owned) Moved(kind string, topics map[string][]int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for topic, partitions := range topics {
		for _, n := range partitions {
			p := Partition{topic, n}
			o.list = slices.DeleteFunc(o.list, func(had Partition) bool { return had == p })
			if kind == Assigned {
				o.list = append(o.list, p)
			}
		}
	}
}

// Any is one of them; false if there is none.
func (o *Owned) Any() (Partition, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) == 0 {
		return Partition{}, false
	}
	return o.list[0], true
}

// Commit commits one of them over and over until ctx ends, for clients that do so beside what reads, and prints how long each commit took. commit is
// given the partition and how many there have been.
func (o *Owned) Commit(ctx context.Context, out *Output, asked *Config, commit func(p Partition, n int64) error) {
	tick := time.NewTicker(time.Duration(asked.CommitMillis) * time.Millisecond)
	defer tick.Stop()
	for n := int64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p, ok := o.Any()
		if !ok {
			continue
		}
		out.Time(func() {
			if err := commit(p, n); err != nil && ctx.Err() == nil {
				out.Fail(err)
			}
		})
	}
}

// Time prints how long a commit took.
func (o *Output) Time(commit func()) {
	begin := time.Now()
	commit()
	o.Print(Event{Kind: Timed, Micros: time.Since(begin).Microseconds()})
}
