// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts what a work's lanes report while it is open.
type meter struct {
	open atomic.Bool
	// all counts bytes from the beginning, bytes those of the window.
	all, bytes atomic.Int64

	mu    sync.Mutex
	lanes []*lane
}

// lane is one connection's part of a meter. It belongs to one goroutine.
type lane struct {
	m       *meter
	records int64
	bytes   int64
	latency histogram
	// reader marks one that reads what others write meanwhile; it is counted apart.
	reader bool
}

// lane returns a new one.
func (m *meter) lane() *lane {
	l := &lane{m: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lanes = append(m.lanes, l)
	return l
}

// add counts records, with their bytes without any protocol's, and how long their request took.
func (l *lane) add(records, bytes int64, took time.Duration) {
	if !l.reader {
		l.m.all.Add(bytes)
	}
	if !l.m.open.Load() {
		return
	}
	l.records += records
	l.bytes += bytes
	if l.reader {
		return
	}
	l.m.bytes.Add(bytes)
	l.latency.add(took)
}

// load works until its context ends or it has nothing left to do, and reports to the meter.
type load func(ctx context.Context, m *meter) error

// window is how long and how much is measured.
type window struct {
	warmUp   time.Duration
	duration time.Duration
	// warmUpBytes and bytes end it early.
	warmUpBytes, bytes int64
}

// measure runs a load and returns what was counted in its window, and the processes' use in it.
func measure(ctx context.Context, pid int, w window, l load) (*sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &meter{}
	done := make(chan error, 1)
	go func() { done <- l(ctx, m) }()
	if w.warmUp > 0 {
		// The clients may need a while to make what they send.
		ended, err := wait(ctx, startLimit, done, func() bool { return m.all.Load() > 0 })
		if err == nil && !ended {
			ended, err = wait(ctx, w.warmUp, done, func() bool { return m.all.Load() >= w.warmUpBytes })
		}
		if err != nil {
			return nil, err
		}
		if ended {
			return nil, errors.New("the load ended before it was warm")
		}
	}
	before, err := readUse(pid, true)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	m.open.Store(true)
	ended, err := wait(ctx, w.duration, done, func() bool { return m.bytes.Load() >= w.bytes })
	m.open.Store(false)
	took := time.Since(begin)
	if err != nil {
		return nil, err
	}
	after, err := readUse(pid, false)
	if err != nil {
		return nil, err
	}
	cancel()
	if !ended {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	s := m.sample(took, before, after)
	if s.Records == 0 {
		return nil, fmt.Errorf("nothing was answered in %v", took.Round(time.Millisecond))
	}
	return s, nil
}

// wait waits for a load's end or error, until limit or enough.
func wait(ctx context.Context, limit time.Duration, done <-chan error, enough func() bool) (ended bool, err error) {
	end := time.NewTimer(limit)
	defer end.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-done:
			return true, err
		case <-end.C:
			return false, nil
		case <-poll.C:
			if enough() {
				return false, nil
			}
		case <-ctx.Done():
			return false, fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
	}
}

// sample sums up; the load must have ended.
func (m *meter) sample(took time.Duration, before, after use) *sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &sample{
		Seconds: took.Seconds(), ServerCPU: (after.server - before.server).Seconds(), ClientCPU: (after.client - before.client).Seconds(),
		PeakBytes: after.peak, DiskReadBytes: after.read - before.read,
	}
	var all histogram
	for _, l := range m.lanes {
		if l.reader {
			s.ReadBytes += l.bytes
			continue
		}
		s.Records += l.records
		s.Bytes += l.bytes
		all.merge(&l.latency)
	}
	ms := func(q float64) float64 { return float64(all.quantile(q)) / float64(time.Millisecond) }
	s.P50, s.P99, s.P999 = ms(0.5), ms(0.99), ms(0.999)
	return s
}
