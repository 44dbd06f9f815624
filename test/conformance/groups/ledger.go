// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringmaster-dev/ringmaster/test/conformance/member"
)

// interval is a range of offsets, last included.
type interval struct{ first, last int64 }

// missing says what of the offsets 0 to end-1 is not in the intervals.
func missing(read []interval, end int64) error {
	slices.SortFunc(read, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	next := int64(0)
	for _, i := range read {
		if i.first > next {
			break
		}
		next = max(next, i.last+1)
	}
	if next < end {
		return fmt.Errorf("offset %d of %d was not read", next, end)
	}
	return nil
}

// readAgain says whether, by the events' times, a record was read after a commit that covers it had been acknowledged.
func readAgain(events []member.Event) error {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b member.Event) int { return cmp.Compare(a.Time, b.Time) })
	committed := map[member.Partition]int64{}
	for _, e := range events {
		switch next := committed[e.Partition]; {
		case e.Kind == member.Read && e.First < next:
			return fmt.Errorf("%s-%d: offset %d was read after offset %d was committed", e.Topic, e.Number, e.First, next)
		case e.Kind == member.Committed:
			committed[e.Partition] = max(next, e.Next)
		}
	}
	return nil
}
