// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// gatherZones returns the zones of the leaders of the group's topics, by partition; nil if the zone of no pod is known, for then it makes no difference. A
// zone is what a pod's label says, which Kubernetes sets from the pod's node: the operator need not read nodes.
func (r *Reconciler) gatherZones(
	ctx context.Context, cluster *v1alpha1.BrokerCluster, group *v1alpha1.ConsumerGroup, pods []coordinator.Pod,
) (map[string][]string, error) {
	if !slices.ContainsFunc(pods, func(p coordinator.Pod) bool { return p.Zone != "" }) {
		return nil, nil
	}
	topics := &v1alpha1.TopicList{}
	if err := r.Client.List(ctx, topics, client.InNamespace(group.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Topics: %w", err)
	}
	brokers := brokerZones{client: r.Client, cluster: cluster, known: make(map[int32]string)}
	zones := make(map[string][]string)
	for i := range topics.Items {
		topic := &topics.Items[i]
		if topic.Status.ClusterRef != cluster.Name || !slices.Contains(group.Spec.Topics, topic.KafkaName()) {
			continue
		}
		of := make([]string, topic.Status.Partitions)
		for _, leader := range topic.Status.Leaders {
			zone, err := brokers.zone(ctx, leader.Broker)
			if err != nil {
				return nil, err
			}
			for _, p := range leader.Partitions {
				if int(p) < len(of) {
					of[p] = zone
				}
			}
		}
		zones[topic.KafkaName()] = of
	}
	return zones, nil
}

// brokerZones answers, for one reconciliation, in which zone a broker runs.
type brokerZones struct {
	client  client.Client
	cluster *v1alpha1.BrokerCluster
	known   map[int32]string
}

// zone returns a broker's zone, empty if it is not known.
func (b *brokerZones) zone(ctx context.Context, broker int32) (string, error) {
	if zone, ok := b.known[broker]; ok {
		return zone, nil
	}
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: b.cluster.Namespace, Name: resources.PodName(b.cluster, broker)}
	err := b.client.Get(ctx, key, pod)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read pod %s: %w", key.Name, err)
	}
	zone := pod.Labels[corev1.LabelTopologyZone]
	b.known[broker] = zone
	return zone, nil
}
