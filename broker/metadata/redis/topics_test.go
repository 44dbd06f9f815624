// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

func TestEveryBrokerHearsOfAChangedTopic(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), node(2))
	config := metadata.TopicConfig{
		RetentionTime: time.Hour, RetentionBytes: 1 << 20, CleanupPolicy: "delete,compact", MaxMessageBytes: 2048, TombstoneRetention: time.Minute, FlushOS: true,
		SegmentBytes: 14, SegmentTime: time.Millisecond, LogAppendTime: true,
	}
	if err := one.CreateTopic(t.Context(), metadata.NewTopic{Name: "orders", Partitions: -1, Config: config}); err != nil {
		t.Fatal(err)
	}
	led := func(name string, n int) func(*metadata.Snapshot) bool {
		return func(s *metadata.Snapshot) bool {
			topic := s.Topics[name]
			return topic != nil && len(topic.Leaders) == n && !slices.Contains(topic.Leaders, -1)
		}
	}
	before := await(t, two.Metadata, "the topic", led("orders", 3)).Topics["orders"]
	if diff := cmp.Diff(config, before.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if err := two.CreatePartitions(t.Context(), "orders", 7); err != nil {
		t.Fatal(err)
	}
	if after := await(t, one.Metadata, "the new partitions", led("orders", 7)).Topics["orders"]; after.ID != before.ID {
		t.Errorf("the topic's id went from %v to %v", before.ID, after.ID)
	}
	err := one.AlterTopicConfig(t.Context(), "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
		if diff := cmp.Diff(config, c); diff != "" {
			t.Errorf("the change is given (-want +got):\n%s", diff)
		}
		c.RetentionTime = -1
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, two.Metadata, "the new configuration", func(s *metadata.Snapshot) bool { return s.Topics["orders"].Config.RetentionTime == -1 })
	if err := two.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	await(t, one.Metadata, "its deletion", func(s *metadata.Snapshot) bool { return s.Topics["orders"] == nil })
}

func TestChangesThatAreRefused(t *testing.T) {
	server := start(t)
	m := openMember(t, server.URL(), nil)
	create(t, m.Metadata, "orders", 3)
	errOwn := errors.New("the caller's own")
	alter := func(name string, f metadata.ConfigChange) func() error {
		return func() error { return m.AlterTopicConfig(t.Context(), name, f) }
	}
	for name, c := range map[string]struct {
		change func() error
		want   error
	}{
		"a topic that is there": {func() error {
			return m.CreateTopic(t.Context(), metadata.NewTopic{Name: "orders", Partitions: 1})
		}, metadata.ErrTopicExists},
		"a name with a slash": {func() error {
			return m.CreateTopic(t.Context(), metadata.NewTopic{Name: "a/b", Partitions: 1})
		}, metadata.ErrInvalidTopic},
		"no partitions": {func() error {
			return m.CreateTopic(t.Context(), metadata.NewTopic{Name: "other", Partitions: 0})
		}, metadata.ErrInvalidPartitions},
		"too many partitions": {func() error {
			return m.CreateTopic(t.Context(), metadata.NewTopic{Name: "other", Partitions: 10001})
		}, metadata.ErrInvalidPartitions},
		"a policy that there is not": {func() error {
			return m.CreateTopic(t.Context(), metadata.NewTopic{Name: "other", Partitions: 1, Config: metadata.TopicConfig{CleanupPolicy: "burn", MaxMessageBytes: 2000}})
		}, metadata.ErrInvalidConfig},
		"as many partitions as before":        {func() error { return m.CreatePartitions(t.Context(), "orders", 3) }, metadata.ErrInvalidPartitions},
		"partitions of no topic":              {func() error { return m.CreatePartitions(t.Context(), "none", 3) }, metadata.ErrUnknownTopic},
		"partitions of committed offsets":     {func() error { return m.CreatePartitions(t.Context(), v1alpha1.TopicConsumerOffsets, 9) }, metadata.ErrDenied},
		"deletion of no topic":                {func() error { return m.DeleteTopic(t.Context(), strings.Repeat("x", 1000)) }, metadata.ErrUnknownTopic},
		"deletion of committed offsets":       {func() error { return m.DeleteTopic(t.Context(), v1alpha1.TopicConsumerOffsets) }, metadata.ErrDenied},
		"a configuration that nobody may set": {alter("orders", func(metadata.TopicConfig) (metadata.TopicConfig, error) { return metadata.TopicConfig{}, nil }), metadata.ErrInvalidConfig},
		"a change that the caller refuses":    {alter("orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) { return c, errOwn }), errOwn},
		"a configuration of no topic":         {alter("none", func(c metadata.TopicConfig) (metadata.TopicConfig, error) { return c, nil }), metadata.ErrUnknownTopic},
		"a turn in no topic": {func() error {
			_, err := m.NextPartition(t.Context(), "none")
			return err
		}, metadata.ErrUnknownTopic},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.change()
			mustBe(t, err, c.want)
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestConcurrentChangesOfOneTopicAllCount(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), node(2))
	create(t, one.Metadata, "orders", 1)
	const each = 10
	var work sync.WaitGroup
	for _, m := range []*member{one, two} {
		work.Go(func() {
			for range each {
				if err := m.AlterTopicConfig(t.Context(), "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
					c.MaxMessageBytes++
					return c, nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	want := metadata.DefaultTopicConfig.MaxMessageBytes + 2*each
	await(t, one.Metadata, "all changes", func(s *metadata.Snapshot) bool { return s.Topics["orders"].Config.MaxMessageBytes == want })
}

func TestATopicIsLedOnlyOnceTheRecordsOfAnEarlierOneAreRemoved(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), node(2))
	create(t, one.Metadata, "other", 2)
	old := create(t, one.Metadata, "orders", 4)
	openMember(t, server.URL(), node(3))
	await(t, two.Metadata, "new epochs", func(s *metadata.Snapshot) bool { return slices.Max(s.Topics["orders"].LeaderEpochs) > 0 })
	oldest := slices.Max(await(t, two.Metadata, "leaders", func(s *metadata.Snapshot) bool { return !slices.Contains(s.Topics["orders"].Leaders, -1) }).Topics["orders"].LeaderEpochs)
	if err := two.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if err := one.CreateTopic(t.Context(), metadata.NewTopic{Name: "orders", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	gone := []metadata.Incarnation{{Topic: "orders", ID: old.ID}}
	renewed := func(s *metadata.Snapshot) bool { return s.Topics["orders"] != nil && s.Topics["orders"].ID != old.ID }
	for _, m := range []*member{one, two} {
		s := await(t, m.Metadata, "the new topic", renewed)
		if leaders := s.Topics["orders"].Leaders; slices.Max(leaders) != -1 {
			t.Errorf("broker %d: the new topic has the leaders %v", m.NodeID(), leaders)
		}
		if want := gone; m == two && !slices.Equal(s.Purge, want) || m == one && len(s.Purge) > 0 {
			t.Errorf("broker %d is to remove %v", m.NodeID(), s.Purge)
		}
	}
	if err := one.Purged(t.Context(), gone); err != nil { // it is not this broker's to say
		t.Fatal(err)
	}
	two.kill() // before it has removed anything
	s := await(t, one.Metadata, "another broker that removes the records", func(s *metadata.Snapshot) bool { return len(s.Purge) > 0 || len(s.Brokers) == 1 })
	if len(s.Purge) == 0 {
		t.Fatal("nobody removes the records")
	}
	if err := one.Purged(t.Context(), s.Purge); err != nil {
		t.Fatal(err)
	}
	s = await(t, one.Metadata, "leaders of the new topic", func(s *metadata.Snapshot) bool { return !slices.Contains(s.Topics["orders"].Leaders, -1) })
	if first := slices.Min(s.Topics["orders"].LeaderEpochs); first <= oldest {
		t.Errorf("the new topic's epochs begin at %d, and the old one's had reached %d", first, oldest)
	}
}

func TestPartitionsAreTakenInTurn(t *testing.T) {
	server := start(t)
	one, two := openMember(t, server.URL(), node(1)), openMember(t, server.URL(), node(2))
	create(t, one.Metadata, "orders", 3)
	create(t, one.Metadata, "clicks", 2)
	next := func(m *member, topic string) int32 {
		t.Helper()
		p, err := m.NextPartition(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var got []int32
	for range 2 {
		got = append(got, next(one, "orders"), next(two, "orders"), next(one, "clicks"))
	}
	if err := two.CreatePartitions(t.Context(), "orders", 5); err != nil {
		t.Fatal(err)
	}
	two.Close()
	server.Kill()
	server.Run()
	three := openMember(t, server.URL(), node(3))
	got = append(got, next(three, "orders"), next(three, "orders"), next(three, "clicks"))
	if want := []int32{0, 1, 0, 2, 0, 1, 4, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("partitions %v, want %v", got, want)
	}
}
