// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"context"
	"fmt"

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
const ControllerName = "topic"

// indexKafkaName is the cache's index of Topics by the name that Kafka clients see.
const indexKafkaName = "topic.kafkaName"

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Topic{}, indexKafkaName, func(obj client.Object) []string {
		topic, ok := obj.(*v1alpha1.Topic)
		if !ok {
			return nil
		}
		return []string{topic.KafkaName()}
	})
	if err != nil {
		return fmt.Errorf("index Topics: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		For(&v1alpha1.Topic{}).
		Watches(&v1alpha1.Topic{}, handler.EnqueueRequestsFromMapFunc(r.namesakes)).
		Watches(&v1alpha1.BrokerCluster{}, handler.EnqueueRequestsFromMapFunc(r.topicsOf), builder.WithPredicates(brokersChanged())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller %s: %w", ControllerName, err)
	}
	return nil
}

// namesakes are the other Topics of the same Kafka name: when the one that holds it goes, another one gets it.
func (r *Reconciler) namesakes(ctx context.Context, obj client.Object) []reconcile.Request {
	topic, ok := obj.(*v1alpha1.Topic)
	if !ok {
		return nil
	}
	requests := r.requests(ctx, client.InNamespace(topic.Namespace), client.MatchingFields{indexKafkaName: topic.KafkaName()})
	var others []reconcile.Request
	for _, request := range requests {
		if request.Name != topic.Name {
			others = append(others, request)
		}
	}
	return others
}

// topicsOf are the Topics that may belong to a BrokerCluster: all of its namespace, for one without clusterRef depends on
// which BrokerClusters there are.
func (r *Reconciler) topicsOf(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(obj.GetNamespace()))
}

func (r *Reconciler) requests(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	topics := &v1alpha1.TopicList{}
	if err := r.Client.List(ctx, topics, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list Topics")
		return nil
	}
	var requests []reconcile.Request
	for i := range topics.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&topics.Items[i])})
	}
	return requests
}

// brokersChanged passes changes of the brokers that a cluster has or should have; that one of them comes or goes moves no
// partition.
func brokersChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.BrokerCluster)
		if !ok {
			return false
		}
		is, ok := e.ObjectNew.(*v1alpha1.BrokerCluster)
		return ok && (was.Generation != is.Generation || len(was.Status.Brokers) != len(is.Status.Brokers))
	}}
}
