// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

const (
	uidA = types.UID("0a0a0a0a-0000-0000-0000-00000000000a")
	uidB = types.UID("0b0b0b0b-0000-0000-0000-00000000000b")
)

func topic(name string, uid types.UID, change func(*v1alpha1.Topic)) *v1alpha1.Topic {
	t := &v1alpha1.Topic{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
		Spec:       v1alpha1.TopicSpec{Partitions: 3, Retention: v1alpha1.RetentionSpec{Time: "1h", Bytes: -1}},
		Status: v1alpha1.TopicStatus{ClusterRef: "events", Leaders: []v1alpha1.PartitionLeader{
			{Broker: 1, Partitions: []int32{0, 2}}, {Broker: 2, Partitions: []int32{1}},
		}},
	}
	if change != nil {
		change(t)
	}
	return t
}

func TestSnapshotOf(t *testing.T) {
	t.Parallel()
	old := metav1.NewTime(time.Unix(1, 0))
	young := metav1.NewTime(time.Unix(2, 0))
	tests := map[string]struct {
		facts      facts
		wantTopics map[string]metadata.TopicID
		wantGroups []string
	}{
		"a topic of another cluster is left out": {
			facts: facts{topics: []*v1alpha1.Topic{topic("orders", uidA, func(t *v1alpha1.Topic) { t.Status.ClusterRef = "other" })}},
		},
		"a topic without a leader is left out": {
			facts: facts{topics: []*v1alpha1.Topic{topic("orders", uidA, func(t *v1alpha1.Topic) { t.Status.Leaders = nil })}},
		},
		"of two topics of one name the older counts": {
			facts: facts{topics: []*v1alpha1.Topic{
				topic("b", uidB, func(t *v1alpha1.Topic) { t.Spec.TopicName = "orders"; t.CreationTimestamp = young }),
				topic("a", uidA, func(t *v1alpha1.Topic) { t.Spec.TopicName = "orders"; t.CreationTimestamp = old }),
			}},
			wantTopics: map[string]metadata.TopicID{"orders": topicID(uidA)},
		},
		"a group without a selector is not managed": {
			facts: facts{groups: []*v1alpha1.ConsumerGroup{{ObjectMeta: metav1.ObjectMeta{Name: "wire"}, Status: v1alpha1.ConsumerGroupStatus{ClusterRef: "events"}}}},
		},
		"nor is one whose selector the operator has not seen yet: its status mirrors clients": {
			facts: facts{groups: []*v1alpha1.ConsumerGroup{{
				ObjectMeta: metav1.ObjectMeta{Name: "was-wire"},
				Spec:       v1alpha1.ConsumerGroupSpec{Selector: &metav1.LabelSelector{}},
				Status:     v1alpha1.ConsumerGroupStatus{ClusterRef: "events", Generation: 4, Members: []v1alpha1.GroupMember{{Name: "client-1"}}},
			}}},
		},
		"a group whose id is taken is left out, the other counts": {
			facts: facts{groups: []*v1alpha1.ConsumerGroup{
				{
					ObjectMeta: metav1.ObjectMeta{Name: "taken"},
					Spec:       v1alpha1.ConsumerGroupSpec{Selector: &metav1.LabelSelector{}},
					Status: v1alpha1.ConsumerGroupStatus{ClusterRef: "events", Selector: "app=billing", Conditions: []metav1.Condition{
						{Type: v1alpha1.ConditionReady, Reason: v1alpha1.ReasonGroupIDTaken},
					}},
				},
				{
					ObjectMeta: metav1.ObjectMeta{Name: "billing"},
					Spec:       v1alpha1.ConsumerGroupSpec{Selector: &metav1.LabelSelector{}},
					Status:     v1alpha1.ConsumerGroupStatus{ClusterRef: "events", Selector: "app=billing"},
				},
			}},
			wantGroups: []string{"billing"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := snapshotOf("events", test.facts)
			got := map[string]metadata.TopicID{}
			for name, topic := range s.Topics {
				got[name] = topic.ID
			}
			if test.wantTopics == nil {
				test.wantTopics = map[string]metadata.TopicID{}
			}
			if diff := cmp.Diff(test.wantTopics, got); diff != "" {
				t.Errorf("topics (-want +got):\n%s", diff)
			}
			var groups []string
			for id := range s.Groups {
				groups = append(groups, id)
			}
			if diff := cmp.Diff(test.wantGroups, groups); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTopicOf(t *testing.T) {
	t.Parallel()
	got := topicOf(topic("orders", uidA, func(t *v1alpha1.Topic) {
		t.Spec.CleanupPolicy = v1alpha1.CleanupCompactDelete
		t.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		t.Spec.MaxMessageBytes = 2048
		t.Spec.Retention.Tombstones = "90s"
		t.Spec.Flush = v1alpha1.FlushOS
		t.Spec.Segment = v1alpha1.SegmentSpec{Bytes: 14, Time: "1ms"}
		t.Spec.Timestamps = v1alpha1.TimestampLogAppend
	}))
	want := &metadata.Topic{
		Name: "orders", ID: metadata.TopicID{10, 10, 10, 10, 15: 10}, Leaders: []int32{1, 2, 1}, DeleteData: true,
		Config: metadata.TopicConfig{
			RetentionTime: time.Hour, RetentionBytes: -1, CleanupPolicy: "compact,delete", MaxMessageBytes: 2048,
			TombstoneRetention: 90 * time.Second, FlushOS: true, SegmentBytes: 14, SegmentTime: time.Millisecond, LogAppendTime: true,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topicOf (-want +got):\n%s", diff)
	}
}

func TestASpecSaysWhatItsConfigurationSays(t *testing.T) {
	t.Parallel()
	changed := func(f func(*metadata.TopicConfig)) metadata.TopicConfig {
		c := metadata.DefaultTopicConfig
		f(&c)
		return c
	}
	tests := map[string]struct {
		config metadata.TopicConfig
		// wantChanged is what differs from the default's spec.
		wantChanged map[string]any
	}{
		"the default":                   {metadata.DefaultTopicConfig, map[string]any{}},
		"records kept for ever":         {changed(func(c *metadata.TopicConfig) { c.RetentionTime = -1 }), map[string]any{"retention": map[string]any{"time": "-1"}}},
		"records that may go at once":   {changed(func(c *metadata.TopicConfig) { c.RetentionTime = 0 }), map[string]any{"retention": map[string]any{"time": "0h"}}},
		"odd times":                     {changed(func(c *metadata.TopicConfig) { c.RetentionTime = 1500 * time.Millisecond }), map[string]any{"retention": map[string]any{"time": "1500ms"}}},
		"tombstones kept for a year":    {changed(func(c *metadata.TopicConfig) { c.TombstoneRetention = 8760 * time.Hour }), map[string]any{"retention": map[string]any{"tombstones": "8760h"}}},
		"tombstones that may go":        {changed(func(c *metadata.TopicConfig) { c.TombstoneRetention = 0 }), map[string]any{"retention": map[string]any{"tombstones": "0h"}}},
		"a flush by the system, and so": {changed(func(c *metadata.TopicConfig) { c.FlushOS, c.RetentionBytes = true, 1<<20 }), map[string]any{"flush": v1alpha1.FlushOS, "retention": map[string]any{"bytes": int64(1 << 20)}}},
		"small segments":                {changed(func(c *metadata.TopicConfig) { c.SegmentBytes = 14 }), map[string]any{"segment": map[string]any{"bytes": int32(14)}}},
		"short-lived segments":          {changed(func(c *metadata.TopicConfig) { c.SegmentTime = 50 * time.Millisecond }), map[string]any{"segment": map[string]any{"time": "50ms"}}},
		"timestamps of the broker":      {changed(func(c *metadata.TopicConfig) { c.LogAppendTime = true }), map[string]any{"timestamps": v1alpha1.TimestampLogAppend}},
		"compaction": {changed(func(c *metadata.TopicConfig) { c.CleanupPolicy, c.MaxMessageBytes = "compact,delete", 2048 }),
			map[string]any{"cleanupPolicy": v1alpha1.CleanupCompactDelete, "maxMessageBytes": int32(2048)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := configSpec(test.config)
			if diff := cmp.Diff(test.config, configOf(spec)); diff != "" {
				t.Errorf("the configuration that the spec says (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantChanged, changedFields(configSpec(metadata.DefaultTopicConfig), spec)); diff != "" {
				t.Errorf("changed fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestASpecDoesNotKeepTheOrderOfCleanupPolicies(t *testing.T) {
	t.Parallel()
	a, b := metadata.DefaultTopicConfig, metadata.DefaultTopicConfig
	a.CleanupPolicy, b.CleanupPolicy = "compact,delete", "delete,compact"
	if diff := cmp.Diff(map[string]any{}, changedFields(configSpec(a), configSpec(b))); diff != "" {
		t.Errorf("changed fields (-want +got):\n%s", diff)
	}
	if got := configOf(configSpec(b)); got != a {
		t.Errorf("the spec of %+v says %+v", b, got)
	}
}

func TestPurgeAfter(t *testing.T) {
	t.Parallel()
	a := metadata.Incarnation{Topic: "orders", ID: topicID(uidA)}
	with := func(deleteData bool) *metadata.Snapshot {
		return &metadata.Snapshot{Topics: map[string]*metadata.Topic{"orders": {Name: "orders", ID: a.ID, DeleteData: deleteData}}}
	}
	tests := map[string]struct {
		prev   *metadata.Snapshot
		facts  facts
		finals map[metadata.TopicID]bool
		want   []metadata.Incarnation
	}{
		"a topic that is gone and said so is purged":          {prev: with(true), want: []metadata.Incarnation{a}},
		"a topic that is gone and is retained is not":         {prev: with(false)},
		"what a deleted topic said last counts":               {prev: with(false), finals: map[metadata.TopicID]bool{a.ID: true}, want: []metadata.Incarnation{a}},
		"a topic that changed its mind before it went stays":  {prev: with(true), finals: map[metadata.TopicID]bool{a.ID: false}},
		"a topic that exists is never purged":                 {prev: with(true), facts: facts{topics: []*v1alpha1.Topic{topic("orders", uidA, func(t *v1alpha1.Topic) { t.Status.Leaders = nil })}}},
		"a later topic of the name does not hide the earlier": {prev: with(true), facts: facts{topics: []*v1alpha1.Topic{topic("orders", uidB, nil)}}, want: []metadata.Incarnation{a}},
		"what was listed before stays listed":                 {prev: &metadata.Snapshot{Purge: []metadata.Incarnation{a}}, want: []metadata.Incarnation{a}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, purgeAfter(test.prev, test.facts, test.finals)); diff != "" {
				t.Errorf("purge (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCacheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubernetes.json")
	if _, err := load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("load without a file: %v, want fs.ErrNotExist", err)
	}
	want := snapshotOf("events", facts{topics: []*v1alpha1.Topic{topic("orders", uidA, nil)}})
	want.Purge = []metadata.Incarnation{{Topic: "gone", ID: topicID(uidB)}}
	for range 2 {
		if err := save(path, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
	if left, _ := filepath.Glob(path + ".tmp-*"); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
	for name, content := range map[string]string{"damaged": `{"version":`, "of another version": `{"version":99,"snapshot":{}}`, "empty": ``} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(path); err == nil {
			t.Errorf("a file that is %s was loaded", name)
		}
	}
}

func TestResourceName(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{
		"orders":    "orders",
		"eu.orders": "eu.orders",
		"My_Topic":  "my-topic-36e68ddf",
		"_":         "topic-d2e2adf7",
	} {
		if got := ResourceName(topic); got != want {
			t.Errorf("ResourceName(%q) = %q, want %q", topic, got, want)
		}
	}
	if ResourceName("My_Topic") == ResourceName("my-topic") || ResourceName("A") == ResourceName("a") || ResourceName("a_b") == ResourceName("a-b") {
		t.Error("two topics share a resource name")
	}
}
