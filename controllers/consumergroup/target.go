// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// target is the workload that spec.targetRef names.
type target struct {
	workload client.Object
	replicas int32
}

// findTarget reads the workload from the cache, nil if the group names none or it does not exist.
func (r *Reconciler) findTarget(ctx context.Context, group *v1alpha1.ConsumerGroup) (*target, error) {
	ref := group.Spec.TargetRef
	if ref == nil {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	key := client.ObjectKey{Namespace: group.Namespace, Name: ref.Name}
	deployment, set := &appsv1.Deployment{}, &appsv1.StatefulSet{}
	var workload client.Object = deployment
	if ref.Kind == "StatefulSet" {
		workload = set
	}
	err := r.Client.Get(ctx, key, workload)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	replicas := deployment.Spec.Replicas
	if ref.Kind == "StatefulSet" {
		replicas = set.Spec.Replicas
	}
	found := &target{workload: workload, replicas: 1}
	if replicas != nil {
		found.replicas = *replicas
	}
	return found, nil
}

// scaleTarget gives the workload the replicas that the group asks for, through its scale subresource. A group that does not hold its id
// scales nothing, for it has no members, nor does one whose workload an older group scales.
func (r *Reconciler) scaleTarget(ctx context.Context, group *v1alpha1.ConsumerGroup, f facts) error {
	want := group.Spec.Replicas
	if want == nil || f.target == nil || f.holder != "" || f.scaler != "" || f.target.replicas == *want {
		return nil
	}
	ref := group.Spec.TargetRef
	what := ref.Kind + " " + ref.Name
	scale := &autoscalingv1.Scale{}
	err := r.Client.SubResource("scale").Get(ctx, f.target.workload, scale)
	if apierrors.IsNotFound(err) {
		return nil // it went, which wakes the reconciler again
	}
	if err != nil {
		return fmt.Errorf("read the scale of %s: %w", what, err)
	}
	was := scale.Spec.Replicas
	if was == *want {
		return nil // the cache is behind
	}
	scale.Spec.Replicas = *want
	err = r.Client.SubResource("scale").Update(ctx, f.target.workload, client.WithSubResourceBody(scale))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it changed, which wakes the reconciler again
	}
	if err != nil {
		return fmt.Errorf("scale %s: %w", what, err)
	}
	r.Recorder.Eventf(group, nil, corev1.EventTypeNormal, eventScaled, actionScale, "scaled %s from %d to %d", what, was, *want)
	return nil
}
