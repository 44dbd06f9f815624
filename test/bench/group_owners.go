// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// nobody owns a partition that no member reads.
const nobody = -1

// owners is who reads which partition of a group, as its members have it from the broker. Members are numbered, and so are the partitions of all topics
// together.
type owners struct {
	mu sync.Mutex
	// of is each partition's member, or nobody; owned counts those that have one.
	of    []int
	owned int
	// load is how many partitions each member reads that is to stay.
	load map[int]int
	// twice counts partitions that a member got while another still had them.
	twice int

	// since is when the present phase began, and before the owners then.
	since  time.Time
	before []int
	// freed is when a partition lost its owner; idle sums, over partitions, the time that they had none in this phase.
	freed []time.Time
	idle  time.Duration
	// changed, rejoined and heard are the members that lost or gained a partition, joined again, and had a heartbeat answered in this phase.
	changed, rejoined, heard map[int]bool
	// planning is how long leaders planned in this phase.
	planning time.Duration
	// all says that each member must have been heard of before the group counts as stable; at is when it became so, zero if it is not; settled is closed then,
	// if somebody waits for it.
	all     bool
	at      time.Time
	settled chan struct{}
}

// newOwners returns the owners of a group that nobody has joined.
func newOwners(partitions int) *owners {
	o := &owners{of: make([]int, partitions), freed: make([]time.Time, partitions), load: make(map[int]int)}
	for i := range o.of {
		o.of[i] = nobody
	}
	o.begin(false)
	return o
}

// begin begins a phase. With heard, the group is not stable before each member has had a heartbeat answered in it.
func (o *owners) begin(heard bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = heard
	o.since, o.before, o.idle, o.planning = time.Now(), slices.Clone(o.of), 0, 0
	o.changed, o.rejoined, o.heard = make(map[int]bool), make(map[int]bool), make(map[int]bool)
	for i := range o.freed {
		o.freed[i] = o.since
	}
	o.check()
}

// add says that a member is to have its share from now on.
func (o *owners) add(member int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.load[member] = 0
	o.check()
}

// leave says that a member is to have no share any more; it says itself when it stops reading.
func (o *owners) leave(member int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.load, member)
	o.check()
}

// change says that a member reads less and more than before.
func (o *owners) change(member int, lost, gained []int) {
	if len(lost)+len(gained) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.changed[member] = true
	for _, p := range lost {
		if o.of[p] == member { // if not, another has got it already, which was counted
			o.of[p], o.freed[p] = nobody, now
			o.owned--
		}
		o.count(member, -1)
	}
	for _, p := range gained {
		if o.of[p] == nobody {
			o.owned++
			o.idle += now.Sub(o.freed[p])
		} else {
			o.twice++
		}
		o.of[p] = member
		o.count(member, 1)
	}
	o.check()
}

func (o *owners) count(member, by int) {
	if _, stays := o.load[member]; stays {
		o.load[member] += by
	}
}

// rejoin says that a member had to join again.
func (o *owners) rejoin(member int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rejoined[member] = true
}

// hear says that a heartbeat was answered without an error.
func (o *owners) hear(member int, sent time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.heard[member] || sent.Before(o.since) {
		return
	}
	o.heard[member] = true
	o.check()
}

// planned says how long a leader planned.
func (o *owners) planned(took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.planning += took
}

// check notes whether the group is stable by now. mu is held.
func (o *owners) check() {
	switch stable := o.stable(); {
	case !stable:
		o.at = time.Time{}
	case o.at.IsZero():
		o.at = time.Now()
		if o.settled != nil {
			close(o.settled)
			o.settled = nil
		}
	}
}

// stable says whether each partition has one owner and all members have the same share, or one partition more or less. Every plan that is used here
// ends so, and nothing moves after it. mu is held.
func (o *owners) stable() bool {
	if o.owned != len(o.of) || len(o.load) == 0 {
		return false
	}
	least, sum := len(o.of)/len(o.load), 0
	for member, n := range o.load {
		sum += n
		if n != least && n != least+1 || o.all && !o.heard[member] {
			return false
		}
	}
	return sum == len(o.of) // more if one was taken before it was given up
}

// await waits until the group is stable, and returns since when it is.
func (o *owners) await(ctx context.Context) (time.Time, error) {
	for {
		o.mu.Lock()
		at := o.at
		if at.IsZero() && o.settled == nil {
			o.settled = make(chan struct{})
		}
		settled := o.settled
		o.mu.Unlock()
		if !at.IsZero() {
			return at, nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%w; %s", context.Cause(ctx), o)
		}
	}
}

// String says how far a group is from stable.
func (o *owners) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	loads := make([]int, 0, len(o.load))
	for _, n := range o.load {
		loads = append(loads, n)
	}
	if len(loads) == 0 {
		return "the group has no members"
	}
	return fmt.Sprintf("%d of %d partitions have an owner, %d members have %d to %d each, %d were heard of", o.owned, len(o.of), len(loads),
		slices.Min(loads), slices.Max(loads), len(o.heard))
}

// phase sums up what happened since begin.
func (o *owners) phase(name string, took time.Duration) phase {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := phase{
		Name: name, Seconds: took.Seconds(), Changed: len(o.changed), Rejoined: len(o.rejoined), Idle: o.idle.Seconds(), Planning: o.planning.Seconds(), Twice: o.twice,
	}
	for i, was := range o.before {
		if o.of[i] != was {
			p.Moved++
		}
	}
	return p
}
