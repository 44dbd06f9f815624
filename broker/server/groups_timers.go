// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/heap"
	"sync"
	"time"
)

// groupTimers holds the deadlines of all groups, so that one goroutine waits for all of them.
type groupTimers struct {
	// wake holds one item when the earliest deadline may have moved forward.
	wake chan struct{}

	mu   sync.Mutex
	heap timerHeap
}

// groupTimer is a group's deadline; it lives in the group and belongs to groupTimers.mu.
type groupTimer struct {
	at time.Time
	// index is the place in the heap, plus one; zero says that it is not there.
	index int
	group *hosted
}

// set moves a group's deadline; the zero time removes it.
func (t *groupTimers) set(timer *groupTimer, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.earliest()
	switch {
	case at.IsZero():
		if timer.index > 0 {
			heap.Remove(&t.heap, timer.index-1)
		}
		return
	case timer.index > 0:
		timer.at = at
		heap.Fix(&t.heap, timer.index-1)
	default:
		timer.at = at
		heap.Push(&t.heap, timer)
	}
	if earliest := t.earliest(); before.IsZero() || earliest.Before(before) { // where it is later, whoever waits finds nothing due and goes on waiting
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// earliest is the earliest deadline, zero if there is none. mu is held.
func (t *groupTimers) earliest() time.Time {
	if len(t.heap) == 0 {
		return time.Time{}
	}
	return t.heap[0].at
}

// wait returns how long it is until the earliest deadline. It is at least a millisecond, so that a deadline in the past that stands cannot
// take all of a processor.
func (t *groupTimers) wait(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 {
		return time.Hour
	}
	return max(t.heap[0].at.Sub(now), time.Millisecond)
}

// due takes the groups out whose deadline has come.
func (t *groupTimers) due(now time.Time) []*hosted {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due []*hosted
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		timer, _ := heap.Pop(&t.heap).(*groupTimer)
		due = append(due, timer.group)
	}
	return due
}

// timerHeap is a container/heap by deadline.
type timerHeap []*groupTimer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push is heap.Interface's.
func (h *timerHeap) Push(x any) {
	timer, _ := x.(*groupTimer)
	*h = append(*h, timer)
	timer.index = len(*h)
}

// Pop is heap.Interface's.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	timer := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	timer.index = 0
	return timer
}
