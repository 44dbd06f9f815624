// SPDX-License-Identifier: Apache-2.0

package brokercluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// facts are what the operator sees around a BrokerCluster.
type facts struct {
	// statefulSet is the brokers' StatefulSet, nil if there is none.
	statefulSet *appsv1.StatefulSet
	// ready holds the names of the broker pods that are ready and not terminating.
	ready map[string]bool
	// troubles say, by name, what is wrong with a broker pod that is not ready; empty where nothing is reported. A pod that does not exist is not
	// in it.
	troubles map[string]string
	// claims are the brokers' claims, by broker id.
	claims map[int32]corev1.PersistentVolumeClaim
	// topics are the topics whose partitions the cluster has. They are the cache's own: nobody may change them.
	topics []v1alpha1.Topic
}

// gather reads the facts from the cache.
func (r *Reconciler) gather(ctx context.Context, c *v1alpha1.BrokerCluster) (facts, error) {
	f := facts{ready: map[string]bool{}, troubles: map[string]string{}, claims: map[int32]corev1.PersistentVolumeClaim{}}

	set := &appsv1.StatefulSet{}
	key := client.ObjectKey{Namespace: c.Namespace, Name: resources.StatefulSetName(c)}
	if err := r.Client.Get(ctx, key, set); err == nil {
		f.statefulSet = set
	} else if !apierrors.IsNotFound(err) {
		return facts{}, fmt.Errorf("read StatefulSet %s: %w", key.Name, err)
	}

	brokers := []client.ListOption{client.InNamespace(c.Namespace), client.MatchingLabels(resources.SelectorLabels(c))}
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, brokers...); err != nil {
		return facts{}, fmt.Errorf("list broker pods: %w", err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil && isReady(p) {
			f.ready[p.Name] = true
		} else {
			f.troubles[p.Name] = trouble(p)
		}
	}

	claims := &corev1.PersistentVolumeClaimList{}
	if err := r.Client.List(ctx, claims, brokers...); err != nil {
		return facts{}, fmt.Errorf("list broker volumes: %w", err)
	}
	for _, claim := range claims.Items {
		if id, ok := resources.BrokerOfClaim(c, claim.Name); ok && claim.DeletionTimestamp == nil {
			f.claims[id] = claim
		}
	}

	topics := &v1alpha1.TopicList{}
	if err := r.Client.List(ctx, topics, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("list topics: %w", err)
	}
	for _, topic := range topics.Items {
		if topic.Status.ClusterRef == c.Name {
			f.topics = append(f.topics, topic)
		}
	}
	return f, nil
}

func isReady(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
