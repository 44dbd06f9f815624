// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// facts are the resources of one namespace as the watches have them.
type facts struct {
	cluster *v1alpha1.BrokerCluster
	topics  []*v1alpha1.Topic
	groups  []*v1alpha1.ConsumerGroup
}

// snapshotOf translates resources into what a broker knows. It depends on nothing but its arguments.
func snapshotOf(cluster string, f facts) *metadata.Snapshot {
	s := &metadata.Snapshot{
		Topics:            map[string]*metadata.Topic{},
		Groups:            map[string]*metadata.Group{},
		DefaultPartitions: 1,
	}
	if c := f.cluster; c != nil {
		s.ClusterID = encodeID(topicID(c.UID))
		s.AutoCreateTopics = c.Spec.Config.AutoCreateTopics == v1alpha1.TopicCreationEnabled
		s.DefaultPartitions = max(c.Spec.Config.DefaultPartitions, 1)
		for _, b := range c.Status.Brokers {
			s.Brokers = append(s.Brokers, metadata.Broker{ID: b.ID, Host: b.Host, Port: b.Port})
		}
		sort.Slice(s.Brokers, func(i, j int) bool { return s.Brokers[i].ID < s.Brokers[j].ID })
	}
	topics := slices.Clone(f.topics)
	slices.SortFunc(topics, func(a, b *v1alpha1.Topic) int {
		return olderFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a.Name, b.Name)
	})
	for _, t := range topics {
		if name := t.KafkaName(); t.Status.ClusterRef == cluster && len(t.Status.Leaders) > 0 && s.Topics[name] == nil {
			s.Topics[name] = topicOf(t)
		}
	}
	groups := slices.Clone(f.groups)
	slices.SortFunc(groups, func(a, b *v1alpha1.ConsumerGroup) int {
		return olderFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a.Name, b.Name)
	})
	for _, g := range groups {
		if id := g.KafkaID(); g.Status.ClusterRef == cluster && managed(g) && !groupIDTaken(g) && s.Groups[id] == nil {
			s.Groups[id] = groupOf(g)
		}
	}
	return s
}

// managed says whether the operator has decided who reads what in a group. The status of one that has no selector, or had none when it was written, mirrors what clients do.
func managed(g *v1alpha1.ConsumerGroup) bool {
	return g.Spec.Selector != nil && g.Status.Selector != ""
}

func olderFirst(a, b time.Time, aName, bName string) int {
	if c := a.Compare(b); c != 0 {
		return c
	}
	return strings.Compare(aName, bName)
}

func groupIDTaken(g *v1alpha1.ConsumerGroup) bool {
	c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == v1alpha1.ReasonGroupIDTaken
}

func topicOf(t *v1alpha1.Topic) *metadata.Topic {
	leaders := []int32{}
	for _, l := range t.Status.Leaders {
		for _, p := range l.Partitions {
			for int(p) >= len(leaders) {
				leaders = append(leaders, -1)
			}
			leaders[p] = l.Broker
		}
	}
	return &metadata.Topic{
		Name:       t.KafkaName(),
		ID:         topicID(t.UID),
		Leaders:    leaders,
		Config:     configOf(t.Spec),
		DeleteData: t.Spec.DeletionPolicy == v1alpha1.DeletionDelete,
		Internal:   t.Annotations[v1alpha1.AnnotationInternal] == "true",
	}
}

// configOf translates a spec; admission has checked it.
func configOf(s v1alpha1.TopicSpec) metadata.TopicConfig {
	c := metadata.DefaultTopicConfig
	if s.MaxMessageBytes > 0 {
		c.MaxMessageBytes = s.MaxMessageBytes
	}
	if s.Retention.Bytes != 0 {
		c.RetentionBytes = s.Retention.Bytes
	}
	if s.Retention.Time == "-1" {
		c.RetentionTime = -1
	} else if d, err := time.ParseDuration(s.Retention.Time); err == nil {
		c.RetentionTime = d
	}
	if d, err := time.ParseDuration(s.Retention.Tombstones); err == nil {
		c.TombstoneRetention = d
	}
	if p, ok := cleanupPolicies[s.CleanupPolicy]; ok {
		c.CleanupPolicy = p
	}
	c.FlushOS = s.Flush == v1alpha1.FlushOS
	if s.Segment.Bytes > 0 {
		c.SegmentBytes = s.Segment.Bytes
	}
	if d, err := time.ParseDuration(s.Segment.Time); err == nil {
		c.SegmentTime = d
	}
	c.LogAppendTime = s.Timestamps == v1alpha1.TimestampLogAppend
	return c
}

var cleanupPolicies = map[v1alpha1.CleanupPolicy]string{
	v1alpha1.CleanupDelete:        "delete",
	v1alpha1.CleanupCompact:       "compact",
	v1alpha1.CleanupCompactDelete: "compact,delete",
}

func groupOf(g *v1alpha1.ConsumerGroup) *metadata.Group {
	out := &metadata.Group{
		ID:             g.KafkaID(),
		UID:            string(g.UID),
		Generation:     g.Status.Generation,
		Assigner:       string(g.Spec.Assigner),
		Topics:         slices.Sorted(slices.Values(g.Spec.Topics)),
		HandoffTimeout: 30 * time.Second,
		InitialOffset:  string(g.Spec.Offsets.Initial),
	}
	if g.Spec.HandoffTimeout != nil {
		out.HandoffTimeout = g.Spec.HandoffTimeout.Duration
	}
	for _, m := range g.Status.Members {
		member := metadata.GroupMember{
			Pod: m.Name, UID: string(m.UID), IP: m.IP, Alive: m.Phase != v1alpha1.MemberGrace, Restarts: m.Restarts, Partitions: map[string][]int32{},
		}
		for _, a := range m.Assignments {
			member.Partitions[a.Topic] = slices.Clone(a.Partitions)
		}
		out.Members = append(out.Members, member)
	}
	sort.Slice(out.Members, func(i, j int) bool { return out.Members[i].Pod < out.Members[j].Pod })
	return out
}

// topicID turns a resource's uid into a topic id: its 16 bytes where it is a UUID, as every API server's are.
func topicID(uid types.UID) metadata.TopicID {
	var id metadata.TopicID
	digits := strings.ReplaceAll(string(uid), "-", "")
	if len(digits) != 2*len(id) {
		return id
	}
	raw, err := hex.DecodeString(digits)
	if err != nil {
		return id
	}
	copy(id[:], raw)
	return id
}

func encodeID(id metadata.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// purgeAfter returns the incarnations whose records must go when the resources are f and the last snapshot was prev: those that prev
// already lists, and prev's topics whose resource no longer exists and said last that its records go with it. finals holds what the
// resources that were seen to be deleted said last; a topic that was deleted unseen counts as prev has it.
func purgeAfter(prev *metadata.Snapshot, f facts, finals map[metadata.TopicID]bool) []metadata.Incarnation {
	exists := map[metadata.TopicID]bool{}
	for _, t := range f.topics {
		exists[topicID(t.UID)] = true
	}
	out := slices.Clone(prev.Purge)
	for name, t := range prev.Topics {
		remove, known := finals[t.ID]
		if !known {
			remove = t.DeleteData
		}
		i := metadata.Incarnation{Topic: name, ID: t.ID}
		if remove && !exists[t.ID] && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b metadata.Incarnation) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	return out
}
