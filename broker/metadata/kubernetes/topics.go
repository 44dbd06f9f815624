// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// fieldManager owns the fields of the Topic resources that brokers write.
const fieldManager = "ringmaster-broker"

// CreateTopic makes a Topic resource that nobody owns, so that only its user deletes it. The topic can be used when it appears in a snapshot.
func (m *Metadata) CreateTopic(ctx context.Context, n metadata.NewTopic) error {
	s := m.Snapshot()
	if s.Topics[n.Name] != nil {
		return fmt.Errorf("%w: %s", metadata.ErrTopicExists, n.Name)
	}
	partitions := n.Partitions
	if partitions == -1 {
		partitions = s.DefaultPartitions
	}
	if partitions < 1 || partitions > 10000 {
		return fmt.Errorf("%w: %d; ask for 1 to 10000", metadata.ErrInvalidPartitions, partitions)
	}
	if n.Config.RetentionBytes == 0 { // in a resource that would be left out, and mean the default
		return fmt.Errorf("%w: retention.bytes must be -1 (no limit) or at least 1048576, not 0", metadata.ErrInvalidConfig)
	}
	t := &v1alpha1.Topic{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Topic"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      ResourceName(n.Name),
			Namespace: m.opts.Namespace,
			Labels:    map[string]string{v1alpha1.LabelCluster: m.opts.Cluster},
		},
		Spec: specOf(m.opts.Cluster, n, partitions),
	}
	err := m.client.Post().Namespace(m.opts.Namespace).Resource("topics").
		Param("fieldManager", fieldManager).Body(t).Do(ctx).Error()
	return refusal("create", n.Name, err)
}

func specOf(cluster string, n metadata.NewTopic, partitions int32) v1alpha1.TopicSpec {
	spec := configSpec(n.Config)
	spec.ClusterRef, spec.Partitions = cluster, partitions
	if ResourceName(n.Name) != n.Name {
		spec.TopicName = n.Name
	}
	return spec
}

// configSpec is the part of a spec that says what a configuration does.
func configSpec(c metadata.TopicConfig) v1alpha1.TopicSpec {
	spec := v1alpha1.TopicSpec{
		Retention:       v1alpha1.RetentionSpec{Time: "-1", Bytes: c.RetentionBytes, Tombstones: formatDuration(c.TombstoneRetention)},
		MaxMessageBytes: c.MaxMessageBytes,
		Flush:           v1alpha1.FlushSync,
		Segment:         v1alpha1.SegmentSpec{Bytes: c.SegmentBytes, Time: formatDuration(c.SegmentTime)},
		Timestamps:      v1alpha1.TimestampCreate,
	}
	if c.RetentionTime >= 0 {
		spec.Retention.Time = formatDuration(c.RetentionTime)
	}
	if c.FlushOS {
		spec.Flush = v1alpha1.FlushOS
	}
	if c.LogAppendTime {
		spec.Timestamps = v1alpha1.TimestampLogAppend
	}
	for policy, name := range cleanupPolicies {
		if name == c.CleanupPolicy {
			spec.CleanupPolicy = policy
		}
	}
	if c.CleanupPolicy == "delete,compact" { // the order is not kept
		spec.CleanupPolicy = v1alpha1.CleanupCompactDelete
	}
	return spec
}

// formatDuration writes a duration in one unit, as a person would.
func formatDuration(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// ResourceName returns the name of the Topic resource for a topic that a Kafka client creates: the topic's own name where that is a legal resource
// name, else its legal part and a short hash, so that two topics never share a resource.
func ResourceName(topic string) string {
	if len(validation.IsDNS1123Subdomain(topic)) == 0 {
		return topic
	}
	legal := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '-'
		}
	}, topic)
	legal = strings.Trim(legal[:min(len(legal), 200)], "-")
	if legal == "" {
		legal = "topic"
	}
	sum := sha256.Sum256([]byte(topic))
	return legal + "-" + hex.EncodeToString(sum[:4])
}

// CreatePartitions makes a topic's resource ask for total partitions.
func (m *Metadata) CreatePartitions(ctx context.Context, topic string, total int32) error {
	t, resource, err := m.find(topic)
	if err != nil {
		return err
	}
	if total <= int32(len(t.Leaders)) || total > 10000 {
		return fmt.Errorf("%w: %s has %d; ask for more, at most 10000", metadata.ErrInvalidPartitions, topic, len(t.Leaders))
	}
	return refusal("add partitions to", topic, m.patch(ctx, resource, map[string]any{"partitions": total}))
}

// AlterTopicConfig changes the fields of a topic's resource that say what its configuration is, and no others. It reads the resource first and changes
// it only as it was read: where somebody else changes it in between, it begins anew. A resource that is kept in step with manifests elsewhere is put back
// by what does that.
func (m *Metadata) AlterTopicConfig(ctx context.Context, topic string, change metadata.ConfigChange) error {
	t, resource, err := m.find(topic)
	if err != nil {
		return err
	}
	if t.Internal {
		return fmt.Errorf("%w: %s holds the brokers' own records", metadata.ErrDenied, topic)
	}
	var unwanted error // what change says
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var now v1alpha1.Topic
		err := m.client.Get().Namespace(m.opts.Namespace).Resource("topics").Name(resource).Do(ctx).Into(&now)
		if err != nil {
			return err
		}
		before := configOf(now.Spec)
		var after metadata.TopicConfig
		if after, unwanted = change(before); unwanted != nil {
			return unwanted
		}
		fields := changedFields(configSpec(before), configSpec(after))
		if len(fields) == 0 {
			return nil
		}
		return m.patchAt(ctx, resource, now.ResourceVersion, fields)
	})
	if unwanted != nil {
		return unwanted
	}
	return refusal("change", topic, err)
}

// changedFields returns the fields in which two specs' configurations differ, as the second has them.
func changedFields(before, after v1alpha1.TopicSpec) map[string]any {
	fields, retention, segment := map[string]any{}, map[string]any{}, map[string]any{}
	set := func(to map[string]any, name string, before, after any) {
		if before != after {
			to[name] = after
		}
	}
	set(retention, "time", before.Retention.Time, after.Retention.Time)
	set(retention, "bytes", before.Retention.Bytes, after.Retention.Bytes)
	set(retention, "tombstones", before.Retention.Tombstones, after.Retention.Tombstones)
	set(segment, "bytes", before.Segment.Bytes, after.Segment.Bytes)
	set(segment, "time", before.Segment.Time, after.Segment.Time)
	set(fields, "cleanupPolicy", before.CleanupPolicy, after.CleanupPolicy)
	set(fields, "flush", before.Flush, after.Flush)
	set(fields, "maxMessageBytes", before.MaxMessageBytes, after.MaxMessageBytes)
	set(fields, "timestamps", before.Timestamps, after.Timestamps)
	if len(retention) > 0 {
		fields["retention"] = retention
	}
	if len(segment) > 0 {
		fields["segment"] = segment
	}
	return fields
}

// DeleteTopic deletes a topic's resource, and its records with it, since a Kafka client that deletes a topic asks for both.
func (m *Metadata) DeleteTopic(ctx context.Context, topic string) error {
	t, resource, err := m.find(topic)
	if err != nil {
		return err
	}
	if t.Internal {
		return fmt.Errorf("%w: %s holds the brokers' own records", metadata.ErrInvalidTopic, topic)
	}
	if err := m.patch(ctx, resource, map[string]any{"deletionPolicy": v1alpha1.DeletionDelete}); err != nil {
		return refusal("delete", topic, err)
	}
	err = m.client.Delete().Namespace(m.opts.Namespace).Resource("topics").Name(resource).Do(ctx).Error()
	return refusal("delete", topic, err)
}

func (m *Metadata) find(topic string) (*metadata.Topic, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, resource := m.current.Topics[topic], m.resource[topic]
	switch {
	case t == nil:
		return nil, "", fmt.Errorf("%w: %s", metadata.ErrUnknownTopic, topic)
	case resource == "":
		return nil, "", fmt.Errorf("%w: the API server has not answered since this broker started", metadata.ErrUnavailable)
	}
	return t, resource, nil
}

// patch sets fields of a Topic resource's spec.
func (m *Metadata) patch(ctx context.Context, resource string, spec map[string]any) error {
	return m.patchAt(ctx, resource, "", spec)
}

// patchAt sets fields of a Topic resource's spec, if the resource still has this version; an empty one is any.
func (m *Metadata) patchAt(ctx context.Context, resource, version string, spec map[string]any) error {
	change := map[string]any{"spec": spec}
	if version != "" {
		change["metadata"] = map[string]any{"resourceVersion": version}
	}
	raw, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return m.client.Patch(types.MergePatchType).Namespace(m.opts.Namespace).Resource("topics").Name(resource).
		Param("fieldManager", fieldManager).Body(raw).Do(ctx).Error()
}

// refusal translates an API server's error into one of metadata's, and keeps its message.
func refusal(verb, topic string, err error) error {
	if err == nil {
		return nil
	}
	kind := metadata.ErrUnavailable
	switch {
	case apierrors.IsAlreadyExists(err):
		kind = metadata.ErrTopicExists
	case apierrors.IsNotFound(err):
		kind = metadata.ErrUnknownTopic
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		kind = metadata.ErrDenied
	}
	return fmt.Errorf("%w: %s topic %s: %w", kind, verb, topic, err)
}
