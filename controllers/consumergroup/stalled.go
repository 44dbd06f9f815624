// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

const (
	// defaultStallAfter is how long a member's partitions must have had lag without a commit. Kafka's clients commit every 5 s by default.
	defaultStallAfter = time.Minute
	// minStallReadings is how many readings in a row must have found that.
	minStallReadings = 3
)

// partitionOffsets are the offsets of a partition: where it starts and ends, and what the group has committed, -1 for nothing.
type partitionOffsets struct{ start, end, committed int64 }

// behind is the number of records between what is committed, or the start of the log where that is later, and the end.
func (o partitionOffsets) behind() int64 { return max(o.end-max(o.start, o.committed), 0) }

// stallWatch finds the members of one group that do not read. It remembers what the readings before have seen.
type stallWatch struct {
	members map[string]*memberWatch
}

// memberWatch is what is remembered of a member.
type memberWatch struct {
	uid types.UID
	// since is when the member was first seen as it is now: with lag, and without a commit since. readings is how often it was.
	since    time.Time
	readings int
	// committed are the offsets of the last reading, of the member's partitions alone.
	committed map[assigner.Partition]int64
	// ends are where the partitions ended that had no committed offset when the member was first seen with them: its client may have begun there.
	ends map[assigner.Partition]int64
}

// note takes a reading, and returns the members of which it is known whether they read. clients is the number of clients of each member. A member whose
// partitions, uid or pause have changed is looked at anew.
func (w *stallWatch) note(
	now time.Time, after time.Duration, group *v1alpha1.ConsumerGroup, offsets map[assigner.Partition]partitionOffsets, clients map[string]int,
) map[string]stall {
	before := w.members
	w.members = make(map[string]*memberWatch, len(group.Status.Members))
	stalls := make(map[string]stall, len(group.Status.Members))
	for i := range group.Status.Members {
		m := &group.Status.Members[i]
		if group.Status.Paused || m.Phase != v1alpha1.MemberActive && m.Phase != v1alpha1.MemberStalled {
			continue
		}
		next := watchMember(now, m, offsets, before[m.Name])
		w.members[m.Name] = next
		lag := next.lag(offsets, clients[m.Name] == 0 || group.Spec.Offsets.Initial == v1alpha1.InitialEarliest)
		was := before[m.Name]
		moved := was != nil && clients[m.Name] > 0 && !maps.Equal(was.committed, next.committed)
		switch {
		case lag == 0 || moved:
			next.readings = 0
			stalls[m.Name] = stall{uid: m.UID}
			continue
		case next.readings == 0:
			next.since = now
		}
		next.readings++
		if next.readings >= minStallReadings && now.Sub(next.since) >= after {
			stalls[m.Name] = stall{uid: m.UID, stalled: true, client: clients[m.Name] > 0, lag: lag}
		}
	}
	return stalls
}

// watchMember is what is to be remembered of a member, after what was remembered before.
func watchMember(now time.Time, m *v1alpha1.GroupMember, offsets map[assigner.Partition]partitionOffsets, before *memberWatch) *memberWatch {
	next := &memberWatch{uid: m.UID, since: now, committed: map[assigner.Partition]int64{}, ends: map[assigner.Partition]int64{}}
	for _, a := range m.Assignments {
		for _, p := range a.Partitions {
			tp := assigner.Partition{Topic: a.Topic, Partition: p}
			at, known := offsets[tp]
			if !known {
				continue
			}
			next.committed[tp] = at.committed
			if at.committed < 0 {
				next.ends[tp] = at.end
			}
		}
	}
	if before == nil || before.uid != m.UID || !sameKeys(before.committed, next.committed) {
		return next
	}
	next.since, next.readings = before.since, before.readings
	for tp := range next.ends {
		if end, ok := before.ends[tp]; ok {
			next.ends[tp] = end
		}
	}
	return next
}

// lag is how far the member's partitions are behind. Of one without a committed offset that is only known where it is read from its start; else what came since it was first
// seen counts.
func (w *memberWatch) lag(offsets map[assigner.Partition]partitionOffsets, fromStart bool) int64 {
	var lag int64
	for tp := range w.committed {
		at := offsets[tp]
		if end, ok := w.ends[tp]; ok && !fromStart {
			at.committed = end
		}
		lag += at.behind()
	}
	return lag
}

func sameKeys[K comparable, V any](a, b map[K]V) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			return false
		}
	}
	return true
}
