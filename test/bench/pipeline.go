// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// drainLimit is how long the last answers may take.
const drainLimit = 30 * time.Second

// budget is how many bytes of records a work's connections may still send together; nil for no end.
type budget struct{ left atomic.Int64 }

// newBudget returns a budget of limit bytes; 0 for no end.
func newBudget(limit int64) *budget {
	if limit == 0 {
		return nil
	}
	b := &budget{}
	b.left.Store(limit)
	return b
}

// take takes from the budget; false if nothing is left.
func (b *budget) take(bytes int64) bool { return b == nil || b.left.Add(-bytes) > -bytes }

// request is what is written at once: records, whose values are bytes long together.
type request struct {
	b              []byte
	records, bytes int64
}

// sent is a request that awaits its answer.
type sent struct {
	*request
	// at is when it was sent; in an open loop, when it was due.
	at time.Time
}

// pipeline sends over one connection, with several requests in flight.
type pipeline struct {
	nc       net.Conn
	inFlight int
	budget   *budget
	// interval makes an open loop: the n-th request is due n intervals after begin, and its latency counts from then, however late it is sent. So
	// a slow answer does not slow down what is asked, and hides nothing (no coordinated omission). With 0, the next is sent when there is room.
	interval time.Duration
	begin    time.Time
}

// run sends what next gives until ctx ends or the budget does, then waits for what is in flight; answer reads the answer to a request, in the
// order in which they were sent. Then it closes the connection.
func (p *pipeline) run(ctx context.Context, next func(n int) *request, answer func(sent) error) error {
	defer func() { _ = p.nc.Close() }()
	room, inFlight := make(chan struct{}, p.inFlight), make(chan sent, p.inFlight)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(inFlight)
		defer func() { _ = p.nc.SetReadDeadline(time.Now().Add(drainLimit)) }() // it fails only on a dead connection
		return p.send(ctx, next, room, inFlight)
	})
	g.Go(func() error {
		for s := range inFlight {
			if err := answer(s); err != nil {
				_ = p.nc.Close() // ends a write that waits
				return err
			}
			<-room
		}
		return nil
	})
	return g.Wait()
}

func (p *pipeline) send(ctx context.Context, next func(n int) *request, room chan<- struct{}, inFlight chan<- sent) error {
	for n := 0; ; n++ {
		at := p.begin.Add(time.Duration(n) * p.interval)
		if p.interval > 0 && !sleepUntil(ctx, at) {
			return nil
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		r := next(n)
		if !p.budget.take(r.bytes) {
			return nil
		}
		if p.interval == 0 {
			at = time.Now()
		}
		inFlight <- sent{r, at}
		if _, err := p.nc.Write(r.b); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// unlessOver drops the error of what was cut off because its time is over.
func unlessOver(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// sleepUntil waits until t; false if ctx ended before.
func sleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// spread says how a request covers a work's partitions: it has a batch for each of the partitions first to end-1. All requests from 0 to count-1
// together cover each partition equally often.
type spread struct{ perRequest, groups, count, partitions int }

func newSpread(w *work) spread {
	perRequest := min(w.Partitions, max(1, w.RequestBytes/w.BatchBytes))
	groups := (w.Partitions + perRequest - 1) / perRequest
	return spread{perRequest: perRequest, groups: groups, count: groups * max(1, requestsAtLeast/groups), partitions: w.Partitions}
}

// requestsAtLeast is how many different requests a producer has, so that not every one carries the same bytes. It is more than are in flight.
const requestsAtLeast = 8

func (s spread) of(n int) (first, end int) {
	first = n % s.groups * s.perRequest
	return first, min(first+s.perRequest, s.partitions)
}
