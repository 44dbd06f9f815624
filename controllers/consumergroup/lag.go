// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// readOffsets reads where the partitions of the groups' topics start and end, and what each group has committed.
func readOffsets(ctx context.Context, adm *kadm.Client, groups []*v1alpha1.ConsumerGroup) (starts, ends kadm.ListedOffsets, committed kadm.FetchOffsetsResponses, err error) {
	var topics []string
	ids := make([]string, 0, len(groups))
	for _, g := range groups {
		topics = append(topics, g.Spec.Topics...)
		ids = append(ids, g.KafkaID())
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	if starts, err = adm.ListStartOffsets(ctx, topics...); err != nil {
		return nil, nil, nil, fmt.Errorf("list start offsets: %w", err)
	}
	if ends, err = adm.ListEndOffsets(ctx, topics...); err != nil {
		return nil, nil, nil, fmt.Errorf("list end offsets: %w", err)
	}
	return starts, ends, adm.FetchManyOffsets(ctx, ids...), nil
}

// groupOffsets are the offsets of the partitions of a group's topics; ok is false if some are not known.
func groupOffsets(topics []string, starts, ends kadm.ListedOffsets, committed kadm.OffsetResponses) (offsets map[assigner.Partition]partitionOffsets, ok bool) {
	offsets = map[assigner.Partition]partitionOffsets{}
	for _, topic := range topics {
		for partition, end := range ends[topic] {
			start, known := starts.Lookup(topic, partition)
			if end.Err != nil || !known || start.Err != nil {
				return nil, false
			}
			at := partitionOffsets{start: start.Offset, end: end.Offset, committed: -1}
			if c, found := committed.Lookup(topic, partition); found && c.Err == nil {
				at.committed = c.At
			}
			offsets[assigner.Partition{Topic: topic, Partition: partition}] = at
		}
	}
	return offsets, true
}

// lagOf is how far a group is behind: in all, and of the partition that is most behind.
func lagOf(now time.Time, offsets map[assigner.Partition]partitionOffsets) *v1alpha1.LagSummary {
	lag := &v1alpha1.LagSummary{Time: metav1.NewTime(now.UTC().Truncate(time.Second))}
	for _, at := range offsets {
		lag.Total += at.behind()
		lag.Max = max(lag.Max, at.behind())
	}
	return lag
}
