// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"slices"
	"testing"

	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

func TestPlan(t *testing.T) {
	at := func(n int32) member.Partition { return member.Partition{Topic: "t", Number: n} }
	a := &process{name: "a", owned: map[member.Partition]bool{at(0): true, at(1): true}}
	b := &process{name: "b", owned: map[member.Partition]bool{at(2): true}}
	before := plan{a: {at(0), at(1)}, b: {at(2)}}
	after := before.moved(at(1), a, b)
	for name, share := range map[string]struct{ got, want []member.Partition }{
		"the old member's, before": {before[a], []member.Partition{at(0), at(1)}},
		"the old member's":         {after[a], []member.Partition{at(0)}},
		"the new member's":         {after[b], []member.Partition{at(2), at(1)}},
	} {
		if !slices.Equal(share.got, share.want) {
			t.Errorf("the share is %v, want %v: %s", share.got, share.want, name)
		}
	}
	if err := before.holds(); err != nil {
		t.Errorf("the members have what the plan says: %v", err)
	}
	if after.holds() == nil {
		t.Error("a member that still has what is no more its own passed")
	}
	a.take(member.Event{Kind: member.Revoked, Partitions: []member.Partition{at(1)}})
	if after.holds() == nil {
		t.Error("a member that does not have its own yet passed")
	}
	b.take(member.Event{Kind: member.Assigned, Partitions: []member.Partition{at(1)}})
	if err := after.holds(); err != nil {
		t.Errorf("the members have what the plan says: %v", err)
	}
}
