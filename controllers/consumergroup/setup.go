// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// ControllerName is the name of the controller, in logs, metrics and events.
const ControllerName = "consumergroup"

// SetupWithManager adds the controller to a manager.
//
// Every change of a ConsumerGroup wakes it, those of its status too: a verdict that was computed from an older status is not written, and the
// arrival of the newer one in the cache is what makes it be computed again.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		For(&v1alpha1.ConsumerGroup{}).
		Watches(&v1alpha1.ConsumerGroup{}, r.wake(rivals), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, r.wake(selects), builder.WithPredicates(podChanged())).
		Watches(&v1alpha1.Topic{}, r.wake(readsTopic), builder.WithPredicates(topicChanged())).
		Watches(&v1alpha1.BrokerCluster{}, r.wake(anyGroup), builder.WithPredicates(comesOrGoes())).
		Watches(&appsv1.Deployment{}, r.wake(targetsOrMakes), builder.WithPredicates(deploymentChanged())).
		Watches(&appsv1.StatefulSet{}, r.wake(targetsOrMakes), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	if r.Observer != nil {
		b = b.WatchesRawSource(r.Observer.source())
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up controller %s: %w", ControllerName, err)
	}
	return nil
}

// concerns tells whether a change of an object may change what becomes of a group of the same namespace.
type concerns func(group *v1alpha1.ConsumerGroup, obj client.Object) bool

// wake enqueues the groups that an object concerns.
func (r *Reconciler) wake(concerned concerns) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		groups := &v1alpha1.ConsumerGroupList{}
		if err := r.Client.List(ctx, groups, client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "list ConsumerGroups")
			return nil
		}
		var requests []reconcile.Request
		for i := range groups.Items {
			if group := &groups.Items[i]; concerned(group, obj) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(group)})
			}
		}
		return requests
	})
}

func anyGroup(*v1alpha1.ConsumerGroup, client.Object) bool { return true }

// rivals concerns the other groups of the same id or with the same workload: when the one that holds it lets go, another one gets it.
func rivals(group *v1alpha1.ConsumerGroup, obj client.Object) bool {
	other, ok := obj.(*v1alpha1.ConsumerGroup)
	if !ok || other.Name == group.Name {
		return false
	}
	a, b := group.Spec.TargetRef, other.Spec.TargetRef
	return other.KafkaID() == group.KafkaID() || a != nil && b != nil && *a == *b
}

func selects(group *v1alpha1.ConsumerGroup, obj client.Object) bool {
	return selectsLabels(group, obj.GetLabels())
}

func selectsLabels(group *v1alpha1.ConsumerGroup, set labels.Set) bool {
	if group.Spec.Selector == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(group.Spec.Selector)
	return err == nil && selector.Matches(set)
}

func readsTopic(group *v1alpha1.ConsumerGroup, obj client.Object) bool {
	topic, ok := obj.(*v1alpha1.Topic)
	return ok && slices.Contains(group.Spec.Topics, topic.KafkaName())
}

func targets(group *v1alpha1.ConsumerGroup, obj client.Object) bool {
	ref := group.Spec.TargetRef
	if ref == nil || ref.Name != obj.GetName() {
		return false
	}
	_, isSet := obj.(*appsv1.StatefulSet)
	return (ref.Kind == "StatefulSet") == isSet
}

// targetsOrMakes concerns the groups whose members a workload makes, too: its replicas tell which of them come back, or are too many.
func targetsOrMakes(group *v1alpha1.ConsumerGroup, obj client.Object) bool {
	kind, template := kindDeployment, labels.Set{}
	switch workload := obj.(type) {
	case *appsv1.Deployment:
		template = workload.Spec.Template.Labels
	case *appsv1.StatefulSet:
		kind, template = kindStatefulSet, workload.Spec.Template.Labels
	}
	return targets(group, obj) || selectsLabels(group, template) || slices.ContainsFunc(group.Status.Members, func(m v1alpha1.GroupMember) bool {
		return m.Workload == kind+"/"+obj.GetName()
	})
}

// deploymentChanged passes the changes of what a Deployment is to be, and of whether it is there yet.
func deploymentChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*appsv1.Deployment)
		if !ok {
			return false
		}
		is, ok := e.ObjectNew.(*appsv1.Deployment)
		return ok && (was.Generation != is.Generation || rolling(was) != rolling(is))
	}}
}

// comesOrGoes passes an object's creation and deletion alone.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// podChanged passes the changes of a pod that can make it a member or end its membership.
func podChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*corev1.Pod)
		if !ok {
			return false
		}
		is, ok := e.ObjectNew.(*corev1.Pod)
		return ok && (was.UID != is.UID || alive(was) != alive(is) || ended(was) != ended(is) ||
			restarts(was) != restarts(is) || was.Status.PodIP != is.Status.PodIP || was.Spec.NodeName != is.Spec.NodeName || !maps.Equal(was.Labels, is.Labels))
	}}
}

// topicChanged passes the changes of a Topic's partitions and cluster.
func topicChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.Topic)
		if !ok {
			return false
		}
		is, ok := e.ObjectNew.(*v1alpha1.Topic)
		return ok && (was.Generation != is.Generation || was.Status.Partitions != is.Status.Partitions || was.Status.ClusterRef != is.Status.ClusterRef)
	}}
}
