// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAGroupIsStableWhenEachPartitionHasOneOwnerAndSharesAreEven(t *testing.T) {
	cases := map[string]struct {
		members int
		do      func(o *owners)
		want    bool
	}{
		"nobody has joined":                         {0, func(*owners) {}, false},
		"one member reads all":                      {1, func(o *owners) { o.change(0, nil, []int{0, 1, 2, 3}) }, true},
		"a partition has no owner":                  {1, func(o *owners) { o.change(0, nil, []int{0, 1, 2}) }, false},
		"one member reads all and another nothing":  {2, func(o *owners) { o.change(0, nil, []int{0, 1, 2, 3}) }, false},
		"two members read half each":                {2, func(o *owners) { o.change(0, nil, []int{0, 1}); o.change(1, nil, []int{2, 3}) }, true},
		"a partition was taken before it was given": {2, func(o *owners) { o.change(0, nil, []int{0, 1, 2}); o.change(1, nil, []int{2, 3}) }, false},
		"and is given up afterwards": {2, func(o *owners) {
			o.change(0, nil, []int{0, 1, 2})
			o.change(1, nil, []int{2, 3})
			o.change(0, []int{2}, nil)
		}, true},
		"three members read two, one and one": {3, func(o *owners) { o.change(0, nil, []int{0}); o.change(1, nil, []int{1}); o.change(2, nil, []int{2, 3}) }, true},
		"one that leaves still reads":         {2, func(o *owners) { o.change(0, nil, []int{0, 1}); o.change(1, nil, []int{2, 3}); o.leave(1) }, false},
		"the other has taken over from one that left": {2, func(o *owners) {
			o.change(1, nil, []int{2, 3})
			o.leave(1)
			o.change(1, []int{2, 3}, nil)
			o.change(0, nil, []int{0, 1, 2, 3})
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := newOwners(4)
			for i := range c.members {
				o.add(i)
			}
			c.do(o)
			if got := o.stable(); got != c.want {
				t.Errorf("stable is %v, want %v: %s", got, c.want, o)
			}
		})
	}
}

func TestAPhaseCountsWhatChangedInIt(t *testing.T) {
	o := newOwners(4)
	for i := range 2 {
		o.add(i)
	}
	o.change(0, nil, []int{0, 1, 2, 3})
	o.begin(false)
	o.rejoin(0)
	o.change(0, []int{2, 3}, nil)
	o.change(1, nil, []int{2, 3})
	got := o.phase("one joins", time.Second)
	if got.Changed != 2 || got.Rejoined != 1 || got.Moved != 2 || got.Idle <= 0 || got.Twice != 0 {
		t.Errorf("got %+v", got)
	}
	o.change(0, nil, []int{2})
	if got := o.phase("", 0); got.Twice != 1 {
		t.Errorf("%d partitions were read twice, want 1", got.Twice)
	}
}

func TestWhoWaitsForAllMembersIsToldWhenTheLastIsHeardOf(t *testing.T) {
	o := newOwners(2)
	for i := range 2 {
		o.add(i)
		o.change(i, nil, []int{i})
	}
	if _, err := o.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.begin(true)
	o.hear(0, time.Now())
	o.hear(1, time.Now().Add(-time.Minute)) // sent before
	stopped := errors.New("it took too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := o.await(ctx); !errors.Is(err, stopped) {
		t.Fatalf("%v, want %v: the second was not heard of", err, stopped)
	}
	o.hear(1, time.Now())
	if _, err := o.await(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPartitionsHaveNumbers(t *testing.T) {
	s := &topicSet{names: []string{"a", "b"}, partitions: 10, place: map[string]int{"a": 0, "b": 1}}
	numbers := []int{3, 4, 12}
	got := s.numbers(s.byName(numbers))
	slices.Sort(got)
	if !slices.Equal(got, numbers) {
		t.Errorf("%v came back as %v", numbers, got)
	}
}

func TestQuantilesAreValuesThatWereSeen(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %g of %v is %g, want %g", q, values, got, want)
		}
	}
}

func TestTheReportShowsTheRoundsOfAGroup(t *testing.T) {
	work := smallGroup + protocolCooperative
	round := func(peer string, n int, seconds float64) *sample {
		return &sample{Work: work, Peer: peer, Round: n, Phases: []phase{{Name: phaseStart, Seconds: seconds, Changed: 10}}}
	}
	r := &report{section: sections[1], Works: groupWorks(), Samples: []*sample{
		round(ringmasterGroups, 0, 0.5), round(ringmasterGroups, 1, 2), round(ringmasterGroups, 2, 0.4), round(kafkaGroups, 0, 1),
	}}
	text := string(r.markdown())
	for _, want := range []string{
		"| from nothing to stable | ringmaster-groups | 3 | 0.50 | 2.00 | 2.00 |", "over it by 100 %", "| 0.50 : 1.00 s | 0.50 | ≤ 1 | PASS |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
