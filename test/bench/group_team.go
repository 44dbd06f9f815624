// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

const (
	// groupLimit is how long a group may take to become stable.
	groupLimit = 90 * time.Second
	// leaveLimit is how long all members together may take to leave.
	leaveLimit = 30 * time.Second
	// dialsAtOnce is how many members connect at the same time: more would fill the queue of Kafka's listener, 50 long, and wait a second each.
	dialsAtOnce = 16
	// sessionTimeout and rebalanceTimeout are franz-go's defaults.
	sessionTimeout   = 45 * time.Second
	rebalanceTimeout = time.Minute
)

// The assignment protocols of groups.
const (
	protocolRange       = "range"
	protocolCooperative = "cooperative-sticky"
	protocolConsumer    = "KIP-848"
)

// consumer is a member of a team.
type consumer interface {
	// connect does what needs no group.
	connect(ctx context.Context) error
	// start joins the group and stays in it, in the background, until leave or the context's end; it reports to the team.
	start(ctx context.Context) error
	// leave stops reading and leaves the group.
	leave(ctx context.Context) error
}

// team is the members of a group.
type team struct {
	w       *work
	address string
	group   string
	topics  *topicSet
	owners  *owners
	// members are those that were ever made; a member's number is its place.
	members []consumer
	cancel  context.CancelCauseFunc
}

// topicSet is the topics that a group reads.
type topicSet struct {
	names []string
	// partitions is how many each of them has.
	partitions int
	place      map[string]int
	ids        map[[16]byte]int
	byPlace    [][16]byte
}

// number is a partition's place among all of them.
func (s *topicSet) number(topic int, partition int32) int { return topic*s.partitions + int(partition) }

// numbers are the places of partitions by topic.
func (s *topicSet) numbers(assigned map[string][]int32) []int {
	var all []int
	for name, partitions := range assigned {
		for _, p := range partitions {
			all = append(all, s.number(s.place[name], p))
		}
	}
	return all
}

// byName is the opposite of numbers; in order, if the numbers are.
func (s *topicSet) byName(numbers []int) map[string][]int32 {
	all := make(map[string][]int32)
	for _, n := range numbers {
		name := s.names[n/s.partitions]
		all[name] = append(all[name], int32(n%s.partitions))
	}
	return all
}

// counts is how many partitions each topic has.
func (s *topicSet) counts() map[string]int32 {
	all := make(map[string]int32, len(s.names))
	for _, name := range s.names {
		all[name] = int32(s.partitions)
	}
	return all
}

// add makes members, connects them, and lets them join. It returns when they began to.
func (t *team) add(ctx context.Context, n int) (time.Time, error) {
	fresh := make([]consumer, n)
	for i := range fresh {
		fresh[i] = t.member(len(t.members) + i)
	}
	g, dialing := errgroup.WithContext(ctx)
	g.SetLimit(dialsAtOnce)
	for _, m := range fresh {
		g.Go(func() error { return m.connect(dialing) })
	}
	if err := g.Wait(); err != nil {
		return time.Time{}, fmt.Errorf("connect: %w", err)
	}
	t.owners.begin(false)
	for range fresh {
		t.owners.add(len(t.members))
		t.members = append(t.members, nil)
	}
	copy(t.members[len(t.members)-n:], fresh)
	begin := time.Now()
	for _, m := range fresh {
		if err := m.start(ctx); err != nil {
			return time.Time{}, err
		}
	}
	return begin, nil
}

// member makes one.
func (t *team) member(number int) consumer {
	if t.w.Thin {
		return newThin(t, number)
	}
	return &franzConsumer{t: t, number: number}
}

// fail ends what waits for the team.
func (t *team) fail(err error) { t.cancel(err) }

// drop lets a member leave. It returns when it began to.
func (t *team) drop(ctx context.Context, number int) (time.Time, error) {
	t.owners.begin(false)
	begin := time.Now()
	t.owners.leave(number)
	err := t.members[number].leave(ctx)
	t.members[number] = nil
	return begin, err
}

// close lets all members leave, so that the broker has nothing to do with them any more.
func (t *team) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	var g errgroup.Group
	for _, m := range t.members {
		if m != nil {
			g.Go(func() error { return m.leave(ctx) })
		}
	}
	return g.Wait()
}

// franzConsumer is a client of franz-go as an application has it.
type franzConsumer struct {
	t      *team
	number int
	client *kgo.Client
}

func (c *franzConsumer) connect(context.Context) error { return nil }

func (c *franzConsumer) start(context.Context) error {
	took := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		c.t.owners.change(c.number, c.t.topics.numbers(lost), nil)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.t.address), kgo.ConsumerGroup(c.t.group), kgo.ConsumeTopics(c.t.topics.names...), kgo.HeartbeatInterval(c.t.w.Heartbeat),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
			c.t.owners.change(c.number, nil, c.t.topics.numbers(gained))
		}),
		kgo.OnPartitionsRevoked(took), kgo.OnPartitionsLost(took),
	}
	switch c.t.w.Protocol {
	case protocolRange:
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case protocolCooperative:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case protocolConsumer:
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	c.client = client
	return nil
}

func (c *franzConsumer) leave(ctx context.Context) error {
	err := c.client.LeaveGroupContext(ctx)
	c.client.Close()
	if err != nil {
		return fmt.Errorf("leave the group: %w", err)
	}
	return nil
}

// describeTopics returns topics when all their partitions have a leader, and a log: brokers make these after the topic, and that is not what is measured.
func describeTopics(ctx context.Context, address string, names []string, partitions int) (*topicSet, error) {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer c.closeWith(ctx)()
	for {
		set, err := askTopics(c, names, partitions)
		for i := 0; err == nil && i < len(names); i++ {
			_, err = endOffsets(c, names[i], partitions)
		}
		if err == nil {
			return set, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the topics are not ready: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func askTopics(c *kafkaConn, names []string, partitions int) (*topicSet, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := as[*kmsg.MetadataResponse](c.ask(req, versionMetadata))
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	set := &topicSet{names: names, partitions: partitions, place: make(map[string]int), ids: make(map[[16]byte]int), byPlace: make([][16]byte, len(names))}
	for i, name := range names {
		set.place[name] = i
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, fmt.Errorf("topic %s: %w", deref(t.Topic), err)
		}
		led := 0
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				led++
			}
		}
		place, ours := set.place[deref(t.Topic)]
		if !ours || led != partitions {
			return nil, fmt.Errorf("%d of %d partitions of topic %s have a leader", led, partitions, deref(t.Topic))
		}
		set.ids[t.TopicID], set.byPlace[place] = place, t.TopicID
	}
	if len(set.ids) != len(names) {
		return nil, errors.New("topics are missing")
	}
	return set, nil
}

// awaitCoordinator waits until a broker coordinates a group: Kafka makes a topic for that first.
func awaitCoordinator(ctx context.Context, address, group string) error {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return err
	}
	defer c.close()
	defer c.closeWith(ctx)()
	for {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = group
		resp, err := as[*kmsg.FindCoordinatorResponse](c.ask(req, versionFindCoordinator))
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("find the coordinator of %s: %w", group, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// offersKIP848 returns an error if a broker does not: a client would fall back on the classic protocol.
func offersKIP848(ctx context.Context, address string) error {
	c, err := dialKafka(ctx, address)
	if err != nil {
		return err
	}
	defer c.close()
	defer c.closeWith(ctx)()
	resp, err := as[*kmsg.ApiVersionsResponse](c.ask(kmsg.NewPtrApiVersionsRequest(), versionAPIVersions))
	if err != nil {
		return fmt.Errorf("ask for the broker's versions: %w", err)
	}
	key := kmsg.NewPtrConsumerGroupHeartbeatRequest().Key()
	for _, k := range resp.ApiKeys {
		if k.ApiKey == key && k.MaxVersion >= versionConsumerGroupHeartbeat {
			return nil
		}
	}
	return errors.New("the broker does not offer ConsumerGroupHeartbeat")
}
