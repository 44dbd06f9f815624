// SPDX-License-Identifier: Apache-2.0

// Package brokercluster makes a BrokerCluster real: the StatefulSet that runs its brokers and what they need around them,
// and the Topic that keeps the committed offsets.
//
// Nothing has a finalizer. What the operator makes has an owner reference to its BrokerCluster, and Kubernetes removes it.
package brokercluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// Reconciler reconciles BrokerClusters.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Recorder records events on BrokerClusters.
	Recorder events.EventRecorder
	// BrokerImage is the container image of brokers whose BrokerCluster names none.
	BrokerImage string
}

// The rights on topics, consumergroups and brokerclusters are those that the brokers get, too: the API server lets nobody
// grant what he does not hold.
//
// +kubebuilder:rbac:groups=ringmaster.dev,resources=brokerclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=ringmaster.dev,resources=brokerclusters/status,verbs=patch
// +kubebuilder:rbac:groups=ringmaster.dev,resources=brokerclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=ringmaster.dev,resources=topics,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ringmaster.dev,resources=consumergroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services;configmaps;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings one BrokerCluster's children and status to what its spec says.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &v1alpha1.BrokerCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cluster.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	f, err := r.gather(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := decide(cluster, f)
	o := outcome{apply: r.ensureChildren(ctx, cluster, p), grow: r.growClaims(ctx, cluster, p)}
	return ctrl.Result{}, errors.Join(o.apply, o.grow, r.setStatus(ctx, cluster, f, p, o))
}

// outcome is what became of a plan.
type outcome struct {
	// apply says which children could not be written, nil if all were.
	apply error
	// grow says which volumes could not be grown, nil if all were.
	grow error
}

// ensureChildren writes every child object that is not as it should be. One that fails keeps none of the others from being written.
func (r *Reconciler) ensureChildren(ctx context.Context, c *v1alpha1.BrokerCluster, p plan) error {
	children := []client.Object{
		resources.ServiceAccount(c),
		resources.Role(c),
		resources.RoleBinding(c),
		resources.ConfigMap(c),
		resources.BrokersService(c),
		resources.BootstrapService(c),
		resources.DisruptionBudget(c),
		resources.StatefulSet(c, resources.StatefulSetOptions{Image: r.BrokerImage, Replicas: p.replicas, Size: p.templateSize}),
		resources.OffsetsTopic(c),
	}
	var errs []error
	for _, child := range children {
		wrote, err := apply.Object(ctx, r.Client, child)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if wrote {
			ctrl.LoggerFrom(ctx).Info("applied", "kind", child.GetObjectKind().GroupVersionKind().Kind, "child", child.GetName())
		}
	}
	return errors.Join(errs...)
}

// growClaims asks for larger volumes. It patches the claims themselves: a StatefulSet's claim template cannot change.
func (r *Reconciler) growClaims(ctx context.Context, c *v1alpha1.BrokerCluster, p plan) error {
	var errs []error
	for i := range p.grow {
		claim := &p.grow[i]
		larger := claim.DeepCopy()
		larger.Spec.Resources.Requests["storage"] = resources.StorageSize(c)
		err := r.Client.Patch(ctx, larger, client.MergeFrom(claim), apply.FieldOwner)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("grow volume %s: %w", claim.Name, err))
		}
	}
	return errors.Join(errs...)
}
