// SPDX-License-Identifier: Apache-2.0

package brokercluster

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// ControllerName is the name of the controller, in logs, metrics and events.
const ControllerName = "brokercluster"

// CacheByObject restricts a manager's cache to the child objects of BrokerClusters, where only those are read, so that the
// operator does not hold every ConfigMap and Service of a Kubernetes cluster in memory.
func CacheByObject() (map[client.Object]cache.ByObject, error) {
	isChild, err := labels.NewRequirement(v1alpha1.LabelCluster, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select child objects: %w", err)
	}
	only := cache.ByObject{Label: labels.NewSelector().Add(*isChild)}
	return map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}:             only,
		&corev1.PersistentVolumeClaim{}: only,
		&corev1.Service{}:               only,
		&corev1.ServiceAccount{}:        only,
		&policyv1.PodDisruptionBudget{}: only,
		&rbacv1.Role{}:                  only,
		&rbacv1.RoleBinding{}:           only,
	}, nil
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		For(&v1alpha1.BrokerCluster{}).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Owns(&rbacv1.Role{}).
		Owns(&rbacv1.RoleBinding{}).
		Watches(&v1alpha1.Topic{}, handler.EnqueueRequestsFromMapFunc(clusterOfTopic)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(clusterOfBroker)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(clusterOfBroker)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller %s: %w", ControllerName, err)
	}
	return nil
}

// clusterOfBroker is the cluster that a broker's pod or claim belongs to.
func clusterOfBroker(_ context.Context, obj client.Object) []reconcile.Request {
	cluster, ok := resources.IsBroker(obj.GetLabels())
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: cluster}}}
}

// clusterOfTopic is the cluster whose brokers lead a topic's partitions: they cannot go while they do. One that is not placed yet may be the one
// of committed offsets, which the operator makes again if it is deleted.
func clusterOfTopic(_ context.Context, obj client.Object) []reconcile.Request {
	topic, ok := obj.(*v1alpha1.Topic)
	if !ok {
		return nil
	}
	cluster := cmp.Or(topic.Status.ClusterRef, topic.Spec.ClusterRef)
	if cluster == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: topic.Namespace, Name: cluster}}}
}
