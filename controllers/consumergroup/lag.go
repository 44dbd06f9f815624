// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// The times for which ListOffsets tells where a partition starts and ends, as Kafka has them.
const (
	timeStart int64 = -2
	timeEnd   int64 = -1
)

// readOffsets reads where the partitions of the groups' topics start and end, and what each group has committed. What is not told in time has an error of its own.
func readOffsets(ctx context.Context, kafka *kgo.Client, questions []question) (starts, ends kadm.ListedOffsets, committed kadm.FetchOffsetsResponses, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var topics []string
	ids := make([]string, 0, len(questions))
	for _, q := range questions {
		topics = append(topics, q.group.Spec.Topics...)
		ids = append(ids, q.group.KafkaID())
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	var wg sync.WaitGroup
	wg.Go(func() { committed = kadm.NewClient(kafka).FetchManyOffsets(ctx, ids...) })
	lists, err := listOffsets(ctx, kafka, topics, timeStart, timeEnd)
	wg.Wait()
	if err != nil {
		return nil, nil, nil, err
	}
	return lists[0], lists[1], committed, nil
}

// listOffsets asks for one offset of every partition of the topics at each of some times: timeStart, timeEnd, or a time in milliseconds since 1970, for the offset of the first record
// at or after it (-1 if there is none). A partition of which the brokers do not tell it has an error, and a topic that there is not has one as its partition -1.
func listOffsets(ctx context.Context, kafka *kgo.Client, topics []string, times ...int64) ([]kadm.ListedOffsets, error) {
	details, err := kadm.NewClient(kafka).ListTopics(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("ask for the partitions of the topics: %w", unanswered(unknownBroker, err))
	}
	lists := make([]kadm.ListedOffsets, len(times))
	var wg sync.WaitGroup
	for i, at := range times {
		wg.Go(func() { lists[i] = listAt(ctx, kafka, details, at) })
	}
	wg.Wait()
	return lists, nil
}

// maxListed is how many partitions one request asks for: brokers refuse requests of very many elements.
const maxListed = 10_000

// listAt asks for one offset of every partition of the topics.
func listAt(ctx context.Context, kafka *kgo.Client, topics kadm.TopicDetails, at int64) kadm.ListedOffsets {
	list := kadm.ListedOffsets{}
	set := func(topic string, partition int32, o kadm.ListedOffset) {
		if list[topic] == nil {
			list[topic] = map[int32]kadm.ListedOffset{}
		}
		o.Topic, o.Partition = topic, partition
		list[topic][partition] = o
	}
	var asked []assigner.Partition
	for _, topic := range topics.Sorted() {
		if topic.Err != nil {
			set(topic.Topic, -1, kadm.ListedOffset{Err: topic.Err})
			continue
		}
		for _, partition := range topic.Partitions.Sorted() {
			asked = append(asked, assigner.Partition{Topic: topic.Topic, Partition: partition.Partition})
			set(topic.Topic, partition.Partition, kadm.ListedOffset{Err: silence{unknownBroker}})
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for partitions := range slices.Chunk(asked, maxListed) { // at once, so that none waits for a broker that only another one asks
		wg.Go(func() {
			shards := kafka.RequestSharded(ctx, listRequest(partitions, at))
			mu.Lock()
			defer mu.Unlock()
			for i := range shards {
				readShard(&shards[i], set)
			}
		})
	}
	wg.Wait()
	return list
}

// listRequest asks for one offset of each of some partitions, which are sorted by topic.
func listRequest(partitions []assigner.Partition, at int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	for _, tp := range partitions {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = tp.Topic
			req.Topics = append(req.Topics, topic)
		}
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = tp.Partition, at
		topic := &req.Topics[len(req.Topics)-1]
		topic.Partitions = append(topic.Partitions, partition)
	}
	return req
}

// readShard reads what a leader has answered, or that it has not.
func readShard(shard *kgo.ResponseShard, set func(topic string, partition int32, o kadm.ListedOffset)) {
	if resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse); ok && shard.Err == nil {
		for i := range resp.Topics {
			for _, p := range resp.Topics[i].Partitions {
				set(resp.Topics[i].Topic, p.Partition, kadm.ListedOffset{Timestamp: p.Timestamp, Offset: p.Offset, Err: kerr.ErrorForCode(p.ErrorCode)})
			}
		}
		return
	}
	if asked, ok := shard.Req.(*kmsg.ListOffsetsRequest); ok {
		for _, t := range asked.Topics {
			for _, p := range t.Partitions {
				set(t.Topic, p.Partition, kadm.ListedOffset{Err: unanswered(shard.Meta.NodeID, shard.Err)})
			}
		}
	}
}

// groupOffsets are the offsets of the partitions of a group's topics, or why some are not known.
func groupOffsets(topics []string, starts, ends kadm.ListedOffsets, committed kadm.OffsetResponses) (map[assigner.Partition]partitionOffsets, error) {
	offsets := map[assigner.Partition]partitionOffsets{}
	for _, topic := range topics {
		for partition, end := range ends[topic] {
			start, known := starts.Lookup(topic, partition)
			switch {
			case end.Err != nil:
				return nil, fmt.Errorf("list the offsets of topic %s: %w", topic, end.Err)
			case !known:
				return nil, fmt.Errorf("list the offsets of topic %s: partition %d has no start", topic, partition)
			case start.Err != nil:
				return nil, fmt.Errorf("list the offsets of topic %s: %w", topic, start.Err)
			}
			at := partitionOffsets{start: start.Offset, end: end.Offset, committed: -1}
			if c, found := committed.Lookup(topic, partition); found && c.Err == nil {
				at.committed = c.At
			}
			offsets[assigner.Partition{Topic: topic, Partition: partition}] = at
		}
	}
	return offsets, nil
}

// beginWatch remembers, of a group that begins to read at the ends of partitions, where those without a committed offset ended when they were first seen: there its members begin.
type beginWatch map[assigner.Partition]int64

// note returns the offsets of a group as its lag counts them.
func (w *beginWatch) note(g *v1alpha1.ConsumerGroup, offsets map[assigner.Partition]partitionOffsets) map[assigner.Partition]partitionOffsets {
	before := *w
	*w = nil
	if g.Spec.Offsets.Initial != v1alpha1.InitialLatest {
		return offsets
	}
	out := maps.Clone(offsets)
	for tp, at := range offsets {
		if at.committed >= 0 {
			continue
		}
		end, known := before[tp]
		if !known {
			end = at.end
		}
		if *w == nil {
			*w = beginWatch{}
		}
		(*w)[tp], at.committed = end, end
		out[tp] = at
	}
	return out
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
