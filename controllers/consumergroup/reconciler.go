// SPDX-License-Identifier: Apache-2.0

// Package consumergroup decides which pods are the members of a ConsumerGroup and which partitions each of them reads.
//
// The status of the ConsumerGroup is the decision: the brokers watch it and act on it. The controller writes nothing else, but for
// the number of replicas of the workload that spec.targetRef names. A ConsumerGroup has no finalizer.
package consumergroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

// eventRebalanced is the reason of the event that every rebalance records; the refusals' events have the condition's reasons.
const (
	eventRebalanced = "Rebalanced"
	eventScaled     = "Scaled"
)

// The actions of the events.
const (
	actionAssign = "Assign"
	actionScale  = "Scale"
)

// Reconciler reconciles ConsumerGroups.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Recorder records events on ConsumerGroups.
	Recorder events.EventRecorder
	// Clock tells the time; nil is time.Now.
	Clock func() time.Time
	// Observer asks the brokers; nil for none, as in tests without brokers: then status.state says what was decided.
	Observer *Observer

	arrivals arrivals
}

// The rights that the controller needs; controller-gen makes the operator's role from them.
//
// +kubebuilder:rbac:groups=ringmaster.dev,resources=consumergroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=ringmaster.dev,resources=consumergroups/status,verbs=patch
// +kubebuilder:rbac:groups=ringmaster.dev,resources=topics;brokerclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments/scale;statefulsets/scale,verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile decides the members and the assignment of one ConsumerGroup.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	group := &v1alpha1.ConsumerGroup{}
	if err := r.Client.Get(ctx, req.NamespacedName, group); err != nil {
		r.arrivals.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if group.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	f, err := r.gather(ctx, group)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.now()
	v := decide(now, group, f)
	err = errors.Join(r.setStatus(ctx, group, v), r.scaleTarget(ctx, group, f))
	if err != nil || v.deadline.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: v.deadline.Sub(now)}, nil
}

func (r *Reconciler) now() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock()
}

// setStatus writes the verdict into the status, if that changes it, and records events for what is new in it. The write is refused
// where the verdict was computed from an older status than the last one, so that a generation can never be given twice.
func (r *Reconciler) setStatus(ctx context.Context, group *v1alpha1.ConsumerGroup, v verdict) error {
	if equality.Semantic.DeepEqual(group.Status, v.status) {
		return nil
	}
	before := group.DeepCopy()
	group.Status = v.status
	if is, was := group.Status.OffsetsReset, before.Status.OffsetsReset; is != nil && is.Phase == v1alpha1.ResetInProgress &&
		(was == nil || was.ID != is.ID || was.Phase != v1alpha1.ResetInProgress) {
		r.Observer.began(group, is.ID)
	}
	wrote, err := apply.Status(ctx, r.Client, group, before)
	if err != nil || !wrote {
		return err
	}
	r.announce(group, before, v)
	r.notify(group, v.notices)
	return nil
}

// announce records an event for a rebalance, and one for a condition that has changed.
func (r *Reconciler) announce(group, before *v1alpha1.ConsumerGroup, v verdict) {
	if v.rebalanced {
		rebalance := v.status.LastRebalance
		r.Recorder.Eventf(group, nil, corev1.EventTypeNormal, eventRebalanced, actionAssign, "%s", apply.Note(fmt.Sprintf(
			"generation %d: moved %d of %d partitions (minimum %d): %s",
			v.status.Generation, rebalance.Moved, v.status.Partitions, rebalance.Minimum, rebalance.Message)))
	}
	is, was := ready(group), ready(before)
	if is == nil || was != nil && was.Reason == is.Reason && was.Message == is.Message {
		return
	}
	switch {
	case refusals[is.Reason]:
		r.Recorder.Eventf(group, nil, corev1.EventTypeWarning, is.Reason, actionAssign, "%s", apply.Note(is.Message))
	case is.Reason == v1alpha1.ReasonTopicsPending:
		r.Recorder.Eventf(group, nil, corev1.EventTypeNormal, is.Reason, actionAssign, "%s", apply.Note(is.Message))
	}
}
