// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

func TestStalls(t *testing.T) {
	t.Parallel()
	const (
		unknown = "unknown"
		reads   = "reads"
		stalled = "stalled"
	)
	type reading struct {
		// at is the time in seconds. The member has partition 0, which starts at 0.
		at, end, committed int64
		clients            int
		change             func(*v1alpha1.ConsumerGroup)
		want               string
	}
	another := func(g *v1alpha1.ConsumerGroup) { g.Status.Members[0].UID = "another" }
	paused := func(g *v1alpha1.ConsumerGroup) { g.Status.Paused = true }
	resumed := func(g *v1alpha1.ConsumerGroup) { g.Status.Paused = false }
	inGrace := func(g *v1alpha1.ConsumerGroup) { g.Status.Members[0].Phase = v1alpha1.MemberGrace }
	standby := func(g *v1alpha1.ConsumerGroup) { g.Status.Members[0].Phase = v1alpha1.MemberStandby }
	moreShare := func(g *v1alpha1.ConsumerGroup) { g.Status.Members[0].Assignments = orders(0, 1) }
	earliest := func(g *v1alpha1.ConsumerGroup) { g.Spec.Offsets.Initial = v1alpha1.InitialEarliest }
	tests := map[string][]reading{
		"a member that commits nothing for a minute is stalled": {
			{0, 10, 5, 1, nil, unknown}, {30, 12, 5, 1, nil, unknown}, {59, 13, 5, 1, nil, unknown}, {60, 13, 5, 1, nil, stalled}, {70, 13, 5, 1, nil, stalled},
		},
		"and reads when it commits again": {
			{0, 10, 5, 1, nil, unknown}, {30, 10, 5, 1, nil, unknown}, {60, 10, 5, 1, nil, stalled}, {70, 10, 6, 1, nil, reads}, {80, 10, 6, 1, nil, unknown}, {130, 10, 6, 1, nil, unknown}, {140, 10, 6, 1, nil, stalled},
		},
		"three readings it takes": {{0, 10, 5, 1, nil, unknown}, {100, 10, 5, 1, nil, unknown}, {200, 10, 5, 1, nil, stalled}},
		"without lag it reads":    {{0, 10, 10, 1, nil, reads}, {60, 10, 10, 1, nil, reads}, {120, 10, 10, 1, nil, reads}, {130, 11, 10, 1, nil, unknown}},
		"without a client commits of others do not count": {
			{0, 10, 5, 0, nil, unknown}, {30, 10, 6, 0, nil, unknown}, {60, 10, 7, 0, nil, stalled},
		},
		"without a client what was never committed counts from the start": {
			{0, 10, -1, 0, nil, unknown}, {30, 10, -1, 0, nil, unknown}, {60, 10, -1, 0, nil, stalled},
		},
		"a client that never committed may have begun at the end": {
			{0, 10, -1, 1, nil, reads}, {60, 10, -1, 1, nil, reads}, {120, 11, -1, 1, nil, unknown}, {150, 11, -1, 1, nil, unknown}, {180, 11, -1, 1, nil, stalled},
		},
		"unless the group begins at the start": {
			{0, 10, -1, 1, earliest, unknown}, {30, 10, -1, 1, nil, unknown}, {60, 10, -1, 1, nil, stalled},
		},
		"another pod of the name begins anew": {
			{0, 10, 5, 1, nil, unknown}, {30, 10, 5, 1, nil, unknown}, {60, 10, 5, 1, another, unknown}, {90, 10, 5, 1, nil, unknown}, {120, 10, 5, 1, nil, stalled},
		},
		"so does another share": {
			{0, 10, 5, 1, nil, unknown}, {30, 10, 5, 1, nil, unknown}, {60, 10, 5, 1, moreShare, reads}, {90, 10, 5, 1, nil, unknown}, {120, 10, 5, 1, nil, unknown}, {150, 10, 5, 1, nil, stalled},
		},
		"a pause ends it": {
			{0, 10, 5, 1, nil, unknown}, {30, 10, 5, 1, paused, unknown}, {60, 10, 5, 1, nil, unknown}, {90, 10, 5, 1, resumed, unknown}, {120, 10, 5, 1, nil, unknown}, {150, 10, 5, 1, nil, stalled},
		},
		"a member in its grace period is not":        {{0, 10, 5, 1, inGrace, unknown}, {60, 10, 5, 1, nil, unknown}, {120, 10, 5, 1, nil, unknown}},
		"nor is a standby, which is to read nothing": {{0, 10, 5, 1, standby, unknown}, {60, 10, 5, 1, nil, unknown}, {120, 10, 5, 1, nil, unknown}},
	}
	for name, readings := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := &v1alpha1.ConsumerGroup{}
			group.Status.Members = []v1alpha1.GroupMember{{Name: "web-0", UID: "u", Phase: v1alpha1.MemberActive, Assignments: orders(0)}}
			var w stallWatch
			for _, r := range readings {
				if r.change != nil {
					r.change(group)
				}
				offsets := map[assigner.Partition]partitionOffsets{
					{Topic: "orders", Partition: 0}: {end: r.end, committed: r.committed}, {Topic: "orders", Partition: 1}: {end: 9, committed: 3},
				}
				stalls := w.note(time.Unix(r.at, 0), time.Minute, group, offsets, map[string]int{"web-0": r.clients})
				got := unknown
				if found, known := stalls["web-0"]; known {
					if got = reads; found.stalled {
						got = stalled
					}
				}
				if got != r.want {
					t.Errorf("after %d s it is %s, want %s", r.at, got, r.want)
				}
			}
		})
	}
}
