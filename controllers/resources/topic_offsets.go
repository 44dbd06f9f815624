// SPDX-License-Identifier: Apache-2.0

package resources

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// defaultOffsetsPartitions is used where a BrokerCluster was stored without config.
const defaultOffsetsPartitions = 16

// OffsetsTopic is the Topic that keeps the committed offsets of consumer groups. It is kept for ever and compacted, as in Kafka.
//
// It goes with its BrokerCluster only where the volumes do. Where they stay it stays, like every other Topic, for its status is all that says
// which broker's volume has which partition: a cluster of the same name that finds its volumes again must find the offsets again, however
// many brokers it had when the Topic was placed.
func OffsetsTopic(c *v1alpha1.BrokerCluster) *v1alpha1.Topic {
	partitions := c.Spec.Config.OffsetsPartitions
	if partitions == 0 {
		partitions = defaultOffsetsPartitions
	}
	meta := childMeta(c, OffsetsTopicName(c))
	meta.Annotations = map[string]string{v1alpha1.AnnotationInternal: "true"}
	if c.Spec.Storage.WhenDeleted != v1alpha1.DeletionDelete {
		meta.OwnerReferences = nil
	}
	return &v1alpha1.Topic{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Topic"},
		ObjectMeta: meta,
		Spec: v1alpha1.TopicSpec{
			ClusterRef:     c.Name,
			TopicName:      v1alpha1.TopicConsumerOffsets,
			Partitions:     partitions,
			Retention:      v1alpha1.RetentionSpec{Time: "-1", Bytes: -1},
			CleanupPolicy:  v1alpha1.CleanupCompact,
			DeletionPolicy: v1alpha1.DeletionRetain,
		},
	}
}
