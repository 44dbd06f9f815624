// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

func TestLag(t *testing.T) {
	t.Parallel()
	listed := func(offsets ...int64) kadm.ListedOffsets {
		l := kadm.ListedOffsets{"orders": {}}
		for p, o := range offsets {
			l["orders"][int32(p)] = kadm.ListedOffset{Topic: "orders", Partition: int32(p), Offset: o}
		}
		return l
	}
	committed := func(offsets ...int64) kadm.OffsetResponses {
		r := kadm.OffsetResponses{}
		for p, o := range offsets {
			if o >= 0 {
				r.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "orders", Partition: int32(p), At: o}})
			}
		}
		return r
	}
	broken := listed(10, 10)
	broken["orders"][1] = kadm.ListedOffset{Topic: "orders", Partition: 1, Err: errors.New("no leader")}
	tests := map[string]struct {
		starts, ends       kadm.ListedOffsets
		committed          kadm.OffsetResponses
		wantTotal, wantMax int64
		wantOK             bool
	}{
		"everything is read":                                   {starts: listed(0, 0), ends: listed(10, 5), committed: committed(10, 5), wantOK: true},
		"what is not read counts":                              {starts: listed(0, 0), ends: listed(10, 5), committed: committed(7, 1), wantTotal: 7, wantMax: 4, wantOK: true},
		"without a commit the log counts from its start":       {starts: listed(2, 0), ends: listed(10, 5), committed: committed(-1, 5), wantTotal: 8, wantMax: 8, wantOK: true},
		"records that retention removed are not to be read":    {starts: listed(8, 0), ends: listed(10, 5), committed: committed(3, 5), wantTotal: 2, wantMax: 2, wantOK: true},
		"a commit beyond the end is no negative lag":           {starts: listed(0, 0), ends: listed(10, 5), committed: committed(12, 4), wantTotal: 1, wantMax: 1, wantOK: true},
		"a partition whose end is not known hides the figures": {starts: listed(0, 0), ends: broken, committed: committed(0, 0)},
		"a partition whose start is not known, too":            {starts: broken, ends: listed(10, 5), committed: committed(0, 0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			offsets, ok := groupOffsets([]string{"orders"}, test.starts, test.ends, test.committed)
			lag := lagOf(time.Unix(0, 0), offsets)
			if lag.Total != test.wantTotal || lag.Max != test.wantMax || ok != test.wantOK {
				t.Errorf("lag = %d, %d, %t, want %d, %d, %t", lag.Total, lag.Max, ok, test.wantTotal, test.wantMax, test.wantOK)
			}
		})
	}
}
