// SPDX-License-Identifier: Apache-2.0

package brokers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// Pod is a member of a managed group. All clients have the loopback address here, and so a client is of the pod whose name is its client.id.
type Pod struct {
	Name string
	// Share are the partitions that it is to read, by topic, ascending.
	Share map[string][]int32
}

// errNoAPI is what a broker on its own is asked in vain.
var errNoAPI = errors.New("these brokers have no API server, and so no managed groups")

// Plans says whether the brokers have an API server, which holds the plans of managed groups.
func (w *World) Plans() bool { return w.kube != nil }

// Manage makes a group one whose members are pods. It has none yet.
func (w *World) Manage(ctx context.Context, group string, topics []string) error {
	if !w.Plans() {
		return errNoAPI
	}
	g := &v1alpha1.ConsumerGroup{ObjectMeta: metav1.ObjectMeta{Name: group, Namespace: w.namespace}}
	g.Spec.ClusterRef, g.Spec.Topics = clusterName, topics
	g.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"group": group}}
	if err := w.kube.Create(ctx, g); err != nil {
		return fmt.Errorf("create ConsumerGroup %s: %w", group, err)
	}
	return nil
}

// Plan writes which pod reads which partitions into a group's status, as the operator does, in the generation that follows the one before.
func (w *World) Plan(ctx context.Context, group string, pods []Pod) error {
	if !w.Plans() {
		return errNoAPI
	}
	g := &v1alpha1.ConsumerGroup{}
	if err := w.kube.Get(ctx, kube.ObjectKey{Namespace: w.namespace, Name: group}, g); err != nil {
		return fmt.Errorf("read ConsumerGroup %s: %w", group, err)
	}
	g.Status.ObservedGeneration, g.Status.ClusterRef, g.Status.GroupID = g.Generation, clusterName, group
	g.Status.Selector = "group=" + group
	g.Status.Generation++
	g.Status.State, g.Status.Replicas, g.Status.Members = v1alpha1.GroupStable, int32(len(pods)), nil
	for _, pod := range pods {
		m := v1alpha1.GroupMember{Name: pod.Name, UID: types.UID("uid-of-" + pod.Name), Phase: v1alpha1.MemberActive}
		for _, topic := range slices.Sorted(maps.Keys(pod.Share)) {
			m.Assignments = append(m.Assignments, v1alpha1.TopicAssignment{Topic: topic, Partitions: pod.Share[topic]})
		}
		g.Status.Members = append(g.Status.Members, m)
	}
	if err := w.kube.Status().Update(ctx, g); err != nil {
		return fmt.Errorf("write the plan of ConsumerGroup %s: %w", group, err)
	}
	return nil
}
