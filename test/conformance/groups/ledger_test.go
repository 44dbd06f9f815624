// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"testing"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

func TestMissing(t *testing.T) {
	tests := map[string]struct {
		read []interval
		want bool
	}{
		"nothing was read":                   {read: nil, want: true},
		"all at once":                        {read: []interval{{0, 9}}},
		"in parts, out of order":             {read: []interval{{5, 9}, {0, 4}}},
		"some twice":                         {read: []interval{{0, 6}, {3, 9}, {4, 5}}},
		"more than is asked for":             {read: []interval{{0, 20}}},
		"one is missing in the middle":       {read: []interval{{0, 4}, {6, 9}}, want: true},
		"the last one is missing":            {read: []interval{{0, 8}}, want: true},
		"the first one is missing":           {read: []interval{{1, 9}}, want: true},
		"one is missing, others came before": {read: []interval{{0, 3}, {0, 2}, {5, 9}}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := missing(tc.read, 10); (err != nil) != tc.want {
				t.Errorf("missing = %v, want an error %t", err, tc.want)
			}
		})
	}
}

func TestReadAgain(t *testing.T) {
	p, q := member.Partition{Topic: "t"}, member.Partition{Topic: "t", Number: 1}
	read := func(time int64, p member.Partition, first, last int64) member.Event {
		return member.Event{Time: time, Kind: member.Read, Partition: p, First: first, Last: last}
	}
	commit := func(time int64, p member.Partition, next int64) member.Event {
		return member.Event{Time: time, Kind: member.Committed, Partition: p, Next: next}
	}
	tests := map[string]struct {
		events []member.Event
		want   bool
	}{
		"read and committed":                 {events: []member.Event{read(1, p, 0, 4), commit(2, p, 5), read(3, p, 5, 9)}},
		"read again before the commit":       {events: []member.Event{read(1, p, 0, 4), read(2, p, 0, 4), commit(3, p, 5)}},
		"read again after the commit":        {events: []member.Event{read(1, p, 0, 4), commit(2, p, 5), read(3, p, 4, 9)}, want: true},
		"the events come in another order":   {events: []member.Event{commit(2, p, 5), read(3, p, 5, 9), read(1, p, 0, 4)}},
		"an older commit comes later":        {events: []member.Event{commit(1, p, 5), commit(2, p, 3), read(3, p, 4, 4)}, want: true},
		"the commit is of another partition": {events: []member.Event{commit(1, q, 5), read(2, p, 0, 4)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := readAgain(tc.events); (err != nil) != tc.want {
				t.Errorf("readAgain = %v, want an error %t", err, tc.want)
			}
		})
	}
}

func TestEveryScenarioHasItsRowAndANameOfItsOwn(t *testing.T) {
	slugs := map[string]bool{}
	for i, s := range Scenarios() {
		if i >= len(check.Groups) || s.Check != check.Groups[i] {
			t.Errorf("scenario %d is %q, which is not row %d of check.Groups", i, s.Check, i)
		}
		if slugs[s.Slug] {
			t.Errorf("two scenarios are named %q", s.Slug)
		}
		slugs[s.Slug] = true
	}
	if len(slugs) != len(check.Groups) {
		t.Errorf("%d scenarios for %d rows", len(slugs), len(check.Groups))
	}
}
