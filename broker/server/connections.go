// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync"
	"time"
)

// connections are the open connections, within their limits.
type connections struct {
	mu       sync.Mutex
	max      int
	maxPerIP int
	open     map[*conn]struct{}
	perIP    map[string]int
	stopping bool
	// empty is closed when the server stops and the last connection has gone.
	empty chan struct{}
}

func newConnections(limit, perIP int) *connections {
	return &connections{
		max: limit, maxPerIP: perIP, open: make(map[*conn]struct{}), perIP: make(map[string]int), empty: make(chan struct{}),
	}
}

// add takes a connection in, or says why not.
func (cs *connections) add(c *conn) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case cs.stopping:
		return fmt.Errorf("the broker is stopping")
	case len(cs.open) >= cs.max:
		return fmt.Errorf("%d connections are open, which is the limit", len(cs.open))
	case cs.perIP[c.host] >= cs.maxPerIP:
		return fmt.Errorf("%d connections from this address are open, which is the limit", cs.perIP[c.host])
	}
	cs.open[c] = struct{}{}
	cs.perIP[c.host]++
	return nil
}

func (cs *connections) remove(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.open, c)
	cs.perIP[c.host]--
	if cs.perIP[c.host] == 0 {
		delete(cs.perIP, c.host)
	}
	if cs.stopping && len(cs.open) == 0 {
		close(cs.empty)
	}
}

func (cs *connections) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// stopReading lets no connection in any more, and no request; those that are read already are still answered.
func (cs *connections) stopReading() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.stopping {
		return
	}
	cs.stopping = true
	if len(cs.open) == 0 {
		close(cs.empty)
	}
	for c := range cs.open {
		c.stopReading()
	}
}

// drain waits until every connection is done, closes those that are not within the timeout, and waits for them.
func (cs *connections) drain(timeout time.Duration) {
	cs.stopReading()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-cs.empty:
		return
	case <-timer.C:
	}
	cs.mu.Lock()
	for c := range cs.open {
		c.abort()
	}
	cs.mu.Unlock()
	select {
	case <-cs.empty:
	case <-time.After(timeout):
	}
}

// lineBurst is how many lines about clients that misbehave are logged within reportEvery: a storm of connections must not become one of lines.
const lineBurst = 50

// lineLimit bounds how often something is logged.
type lineLimit struct {
	mu    sync.Mutex
	since time.Time
	said  int
	left  int
}

// allow says whether a line may be logged now, and how many were left out since the last time that one was logged after a pause.
func (l *lineLimit) allow(now time.Time) (ok bool, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= reportEvery {
		left = l.left
		l.since, l.said, l.left = now, 0, 0
	}
	if l.said >= lineBurst {
		l.left++
		return false, left
	}
	l.said++
	return true, left
}
