// SPDX-License-Identifier: Apache-2.0

package thin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Team is the members of a group that reads one topic.
type Team struct {
	Address, Group, Topic string
	Partitions            int
	// Consumer says that they speak KIP-848's protocol, not the classic one with the range assignor.
	Consumer bool

	topicID [16]byte
	members []*member

	mu sync.Mutex
	// holders is by how many members each partition is held, held how many partitions have one at least, twice how many have more.
	holders     []int
	held, twice int
	// readers is how many members hold something.
	readers int
	// changed is when a member was last given or let go something.
	changed time.Time
	err     error
	leaving chan struct{}
	done    sync.WaitGroup
}

// Connect connects a member for each name, which is its client id; they do not join yet.
func (t *Team) Connect(ctx context.Context, names []string) error {
	t.holders, t.leaving = make([]int, t.Partitions), make(chan struct{})
	if err := t.find(ctx); err != nil {
		return err
	}
	for _, name := range names {
		c, err := dial(ctx, t.Address, name)
		if err != nil {
			return err
		}
		t.members = append(t.members, &member{t: t, conn: c, epoch: -1})
	}
	return nil
}

// find learns the topic's id, and waits until it and the group's coordinator are there: Kafka makes a topic for that first.
func (t *Team) find(ctx context.Context) error {
	for {
		err := t.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("find the topic and the coordinator: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (t *Team) ready(ctx context.Context) error {
	c, err := dial(ctx, t.Address, "rebalance")
	if err != nil {
		return err
	}
	defer c.nc.Close()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &t.Topic
	req.Topics = append(req.Topics, topic)
	resp, err := ask[*kmsg.MetadataResponse](c, req, 12)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics[0].Partitions) != t.Partitions {
		return errors.New("not every partition is there")
	}
	t.topicID = resp.Topics[0].TopicID
	if err := t.open(c); err != nil {
		return err
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = t.Group
	found, err := ask[*kmsg.FindCoordinatorResponse](c, find, 1)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(found.ErrorCode)
}

// open asks each partition for its end: a broker makes the logs of thousands of new partitions for some time, and that is not to be measured.
func (t *Team) open(c *conn) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = t.Topic
	for p := range int32(t.Partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, -1
		topic.Partitions = append(topic.Partitions, partition)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := ask[*kmsg.ListOffsetsResponse](c, req, 5)
	if err != nil {
		return err
	}
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, err)
		}
	}
	return nil
}

// Join has all members join, and returns when.
func (t *Team) Join(ctx context.Context) time.Time {
	begin := time.Now()
	for _, m := range t.members {
		t.done.Go(func() {
			defer m.conn.nc.Close()
			undo := context.AfterFunc(ctx, func() { _ = m.conn.nc.Close() })
			defer undo()
			if err := m.run(ctx); err != nil && ctx.Err() == nil {
				t.mu.Lock()
				t.err = errors.Join(t.err, err)
				t.mu.Unlock()
			}
		})
	}
	return begin
}

// Stable waits until every partition has had one holder, and every member a partition, for as long as calm, and returns when the last change was.
func (t *Team) Stable(ctx context.Context, calm time.Duration) (time.Time, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		t.mu.Lock()
		held, twice, readers, changed, err := t.held, t.twice, t.readers, t.changed, t.err
		t.mu.Unlock()
		if err != nil {
			return time.Time{}, err
		}
		if held == t.Partitions && twice == 0 && readers == len(t.members) && time.Since(changed) >= calm {
			return changed, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d partitions are held, %d more than once, by %d of %d members: %w", held, t.Partitions, twice, readers, len(t.members), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Leave has all members leave.
func (t *Team) Leave() {
	close(t.leaving)
	t.done.Wait()
}

// change writes down that a member has other partitions than before; both ascend.
func (t *Team) change(before, after []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(before, -1)
	t.add(after, 1)
	t.readers += min(len(after), 1) - min(len(before), 1)
	t.changed = time.Now()
}

func (t *Team) add(partitions []int32, n int) {
	for _, p := range partitions {
		was := t.holders[p]
		now := was + n
		t.holders[p] = now
		t.held += min(now, 1) - min(was, 1)
		t.twice += min(max(now-1, 0), 1) - min(max(was-1, 0), 1)
	}
}
