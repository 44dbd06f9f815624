// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/clusterref"
)

// facts are what the operator sees around a ConsumerGroup.
type facts struct {
	// cluster is the name of the BrokerCluster; problem says why there is none.
	cluster string
	problem *clusterref.Problem
	// holder is the name of the older ConsumerGroup of the same cluster that has the same group id, empty for none.
	holder string
	// topics holds the number of partitions of the group's topics; 0 where the brokers have not taken a topic up yet.
	topics map[string]int32
	// zones holds the zones of the topics' leaders by partition, empty ones where they are not known; nil if none is.
	zones map[string][]string
	// missing are the group's topics that no Topic of the cluster has, sorted.
	missing []string
	// selector selects the members' pods; nil if the group has none, or invalid says what is wrong with it.
	selector labels.Selector
	invalid  error
	// pods are the selector's pods, and those that are to be made again under a member's name.
	pods []coordinator.Pod
	// workloads are those that made the pods.
	workloads map[string]coordinator.Workload
	// observes says whether somebody asks the brokers, and observed what they said; nil while nothing is known.
	observes bool
	observed *Observation
	// target is the workload to scale, nil if the group names none or it does not exist.
	target *target
	// scaler is the name of the older ConsumerGroup that scales the same workload, empty for none.
	scaler string
}

// selectorString returns the selector as the scale subresource wants it, empty for none.
func (f *facts) selectorString() string {
	if f.selector == nil {
		return ""
	}
	return f.selector.String()
}

// gather reads the facts from the cache.
func (r *Reconciler) gather(ctx context.Context, group *v1alpha1.ConsumerGroup) (facts, error) {
	var f facts
	clusters := &v1alpha1.BrokerClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(group.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("list BrokerClusters: %w", err)
	}
	var err error
	if f.target, err = r.findTarget(ctx, group); err != nil {
		return facts{}, err
	}
	groups := &v1alpha1.ConsumerGroupList{}
	if err := r.Client.List(ctx, groups, client.InNamespace(group.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("list ConsumerGroups: %w", err)
	}
	f.scaler = findScaler(group, groups.Items)
	cluster, problem := clusterref.Resolve("ConsumerGroup", group.Spec.ClusterRef, group.Status.ClusterRef, clusters.Items)
	if problem != nil {
		f.problem = problem
		return f, nil
	}
	f.cluster = cluster.Name
	f.holder = findHolder(group, groups.Items, cluster.Name, clusters.Items)
	if err := r.gatherTopics(ctx, group, &f); err != nil {
		return facts{}, err
	}
	f.observes = r.Observer != nil
	if seen := r.Observer.Observation(client.ObjectKeyFromObject(group)); seen != nil && seen.uid == group.UID {
		f.observed = seen
	}
	if group.Spec.Selector == nil {
		return f, nil
	}
	f.selector, f.invalid = metav1.LabelSelectorAsSelector(group.Spec.Selector)
	if f.invalid == nil {
		err = r.gatherMembers(ctx, cluster, group, &f)
	}
	return f, err
}

// gatherMembers finds the pods of the group, and where they and the leaders run.
func (r *Reconciler) gatherMembers(ctx context.Context, cluster *v1alpha1.BrokerCluster, group *v1alpha1.ConsumerGroup, f *facts) error {
	var err error
	if f.pods, err = r.gatherPods(ctx, group, f.selector); err != nil {
		return err
	}
	if f.workloads, err = r.gatherWorkloads(ctx, group, f.pods); err != nil {
		return err
	}
	r.arrivals.note(r.now(), group, f.pods)
	f.zones, err = r.gatherZones(ctx, cluster, group, f.pods)
	return err
}

// findHolder returns the name of the ConsumerGroup that holds the group's id in the cluster, unless it is the group itself: the older
// one, then the first by name.
func findHolder(group *v1alpha1.ConsumerGroup, groups []v1alpha1.ConsumerGroup, cluster string, clusters []v1alpha1.BrokerCluster) string {
	return oldest(group, groups, func(rival *v1alpha1.ConsumerGroup) bool {
		if rival.KafkaID() != group.KafkaID() {
			return false
		}
		c, problem := clusterref.Resolve("ConsumerGroup", rival.Spec.ClusterRef, rival.Status.ClusterRef, clusters)
		return problem == nil && c.Name == cluster
	})
}

// findScaler returns the name of the ConsumerGroup that scales the group's workload, unless it is the group itself. Two that ask for
// different replicas would undo each other's without end.
func findScaler(group *v1alpha1.ConsumerGroup, groups []v1alpha1.ConsumerGroup) string {
	if group.Spec.TargetRef == nil || group.Spec.Replicas == nil {
		return ""
	}
	return oldest(group, groups, func(rival *v1alpha1.ConsumerGroup) bool {
		return rival.Spec.Replicas != nil && rival.Spec.TargetRef != nil && *rival.Spec.TargetRef == *group.Spec.TargetRef
	})
}

// oldest returns the name of the oldest of the group and its rivals, the first by name of those of the same age; empty if that is the group
// itself.
func oldest(group *v1alpha1.ConsumerGroup, groups []v1alpha1.ConsumerGroup, isRival func(*v1alpha1.ConsumerGroup) bool) string {
	first := group
	for i := range groups {
		if rival := &groups[i]; older(rival, first) && isRival(rival) {
			first = rival
		}
	}
	if first.Name == group.Name {
		return ""
	}
	return first.Name
}

func older(a, b *v1alpha1.ConsumerGroup) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// gatherTopics finds the partitions of the group's topics among the Topics of its cluster. A Topic belongs to the cluster that its own
// controller found for it, which is also where its partitions are; until then it has none.
func (r *Reconciler) gatherTopics(ctx context.Context, group *v1alpha1.ConsumerGroup, f *facts) error {
	topics := &v1alpha1.TopicList{}
	if err := r.Client.List(ctx, topics, client.InNamespace(group.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Topics: %w", err)
	}
	f.topics = make(map[string]int32, len(group.Spec.Topics))
	for i := range topics.Items {
		topic := &topics.Items[i]
		name := topic.KafkaName()
		ours := topic.Status.ClusterRef == f.cluster || topic.Status.ClusterRef == "" && (topic.Spec.ClusterRef == "" || topic.Spec.ClusterRef == f.cluster)
		if ours && slices.Contains(group.Spec.Topics, name) {
			// Of two Topics of one name, the one that was refused has no partitions.
			f.topics[name] = max(f.topics[name], topic.Status.Partitions)
		}
	}
	for _, name := range group.Spec.Topics {
		if _, ok := f.topics[name]; !ok {
			f.missing = append(f.missing, name)
		}
	}
	slices.Sort(f.missing)
	return nil
}

// gatherPods returns the selector's pods, and for each member whose pod does not exist any more whether it will be made again.
func (r *Reconciler) gatherPods(ctx context.Context, group *v1alpha1.ConsumerGroup, selector labels.Selector) ([]coordinator.Pod, error) {
	list := &corev1.PodList{}
	if err := r.Client.List(ctx, list, client.InNamespace(group.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	sets := statefulSets{client: r.Client, namespace: group.Namespace, known: make(map[string]ordinals)}
	pods := make([]coordinator.Pod, 0, len(list.Items))
	exists := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		pod, err := sets.pod(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
		exists[pod.Name] = true
	}
	for _, member := range group.Status.Members {
		if exists[member.Name] {
			continue
		}
		again, err := sets.makesAgain(ctx, member.Name, selector)
		if err != nil {
			return nil, err
		}
		if again {
			pods = append(pods, coordinator.Pod{Name: member.Name, MayReturn: true})
		}
	}
	return pods, nil
}
