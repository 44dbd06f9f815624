// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
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
		wantError          string
	}{
		"everything is read":                                   {starts: listed(0, 0), ends: listed(10, 5), committed: committed(10, 5)},
		"what is not read counts":                              {starts: listed(0, 0), ends: listed(10, 5), committed: committed(7, 1), wantTotal: 7, wantMax: 4},
		"without a commit the log counts from its start":       {starts: listed(2, 0), ends: listed(10, 5), committed: committed(-1, 5), wantTotal: 8, wantMax: 8},
		"records that retention removed are not to be read":    {starts: listed(8, 0), ends: listed(10, 5), committed: committed(3, 5), wantTotal: 2, wantMax: 2},
		"a commit beyond the end is no negative lag":           {starts: listed(0, 0), ends: listed(10, 5), committed: committed(12, 4), wantTotal: 1, wantMax: 1},
		"a partition whose end is not known hides the figures": {starts: listed(0, 0), ends: broken, committed: committed(0, 0), wantError: "list the offsets of topic orders: no leader"},
		"a partition whose start is not known, too":            {starts: broken, ends: listed(10, 5), committed: committed(0, 0), wantError: "list the offsets of topic orders: no leader"},
		"and one that is not in the list of starts":            {starts: listed(0), ends: listed(10, 5), committed: committed(0, 0), wantError: "list the offsets of topic orders: partition 1 has no start"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			offsets, err := groupOffsets([]string{"orders"}, test.starts, test.ends, test.committed)
			if fmt.Sprint(cmp.Or(err, errors.New(""))) != test.wantError {
				t.Fatalf("error %v, want %q", err, test.wantError)
			}
			if lag := lagOf(time.Unix(0, 0), offsets); lag.Total != test.wantTotal || lag.Max != test.wantMax {
				t.Errorf("lag = %d, %d, want %d, %d", lag.Total, lag.Max, test.wantTotal, test.wantMax)
			}
		})
	}
}

func TestLagOfAGroupThatBeginsAtTheEnd(t *testing.T) {
	t.Parallel()
	g := &v1alpha1.ConsumerGroup{}
	a, b := assigner.Partition{Topic: "orders"}, assigner.Partition{Topic: "orders", Partition: 1}
	steps := []struct {
		name    string
		initial v1alpha1.InitialOffset
		offsets map[assigner.Partition]partitionOffsets
		want    int64
	}{
		{"by default what is there counts", "", map[assigner.Partition]partitionOffsets{a: {end: 10, committed: -1}}, 10},
		{"with Latest it does not", v1alpha1.InitialLatest, map[assigner.Partition]partitionOffsets{a: {end: 10, committed: -1}}, 0},
		{"but what comes since", v1alpha1.InitialLatest, map[assigner.Partition]partitionOffsets{a: {end: 13, committed: -1}, b: {end: 7, committed: -1}}, 3},
		{"of each", v1alpha1.InitialLatest, map[assigner.Partition]partitionOffsets{a: {end: 13, committed: -1}, b: {end: 9, committed: -1}}, 5},
		{"until it is committed", v1alpha1.InitialLatest, map[assigner.Partition]partitionOffsets{a: {end: 13, committed: 12}, b: {end: 9, committed: -1}}, 3},
	}
	var w beginWatch
	for _, step := range steps {
		g.Spec.Offsets.Initial = step.initial
		if got := lagOf(time.Unix(0, 0), w.note(g, step.offsets)); got.Total != step.want {
			t.Errorf("%s: lag %d, want %d", step.name, got.Total, step.want)
		}
	}
}

func TestListRequestsNameEachTopicOnce(t *testing.T) {
	t.Parallel()
	req := listRequest([]assigner.Partition{{Topic: "a", Partition: 8}, {Topic: "a", Partition: 9}, {Topic: "b", Partition: 0}}, timeEnd)
	if len(req.Topics) != 2 || len(req.Topics[0].Partitions) != 2 || req.Topics[0].Partitions[1].Partition != 9 || req.Topics[1].Topic != "b" || req.Topics[1].Partitions[0].Timestamp != timeEnd {
		t.Errorf("the request is %+v", req)
	}
}
