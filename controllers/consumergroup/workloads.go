// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// The kinds of workloads whose replicas are known.
const (
	kindDeployment  = "Deployment"
	kindReplicaSet  = "ReplicaSet"
	kindStatefulSet = "StatefulSet"
)

// workloadOf names what made a pod, such as Deployment/web; empty for nothing. A Deployment names its ReplicaSets after itself, with the hash behind by which it
// also labels their pods, so that one need not be read to find the other.
func workloadOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || len(owner.Name) > validation.DNS1123SubdomainMaxLength || len(owner.Kind) > validation.DNS1123LabelMaxLength {
		return "" // the API server checks neither, and what has no such name is nothing that made the pod
	}
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok && hash != "" && owner.Kind == kindReplicaSet && isApps(owner.APIVersion) {
		return kindDeployment + "/" + name
	}
	return owner.Kind + "/" + owner.Name
}

func isApps(apiVersion string) bool { return strings.HasPrefix(apiVersion, appsv1.GroupName+"/") }

// gatherWorkloads returns the Deployments and StatefulSets that made the pods, and those that made the pods of members.
func (r *Reconciler) gatherWorkloads(ctx context.Context, group *v1alpha1.ConsumerGroup, pods []coordinator.Pod) (map[string]coordinator.Workload, error) {
	workloads := map[string]coordinator.Workload{}
	names := map[string]bool{}
	for i := range pods {
		names[pods[i].Workload] = true
	}
	for i := range group.Status.Members {
		names[group.Status.Members[i].Workload] = true
	}
	for workload := range names {
		kind, name, _ := strings.Cut(workload, "/")
		found, known, err := r.workload(ctx, kind, client.ObjectKey{Namespace: group.Namespace, Name: name})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", workload, err)
		}
		if known {
			workloads[workload] = found
		}
	}
	return workloads, nil
}

// workload reads one from the cache.
func (r *Reconciler) workload(ctx context.Context, kind string, key client.ObjectKey) (w coordinator.Workload, known bool, err error) {
	switch kind {
	case kindDeployment:
		d := &appsv1.Deployment{}
		if err := r.Client.Get(ctx, key, d, client.UnsafeDisableDeepCopy); err != nil {
			return w, false, client.IgnoreNotFound(err)
		}
		return coordinator.Workload{Replicas: replicasOf(d.Spec.Replicas), Rolling: rolling(d)}, d.DeletionTimestamp == nil, nil
	case kindStatefulSet:
		set := &appsv1.StatefulSet{}
		if err := r.Client.Get(ctx, key, set, client.UnsafeDisableDeepCopy); err != nil {
			return w, false, client.IgnoreNotFound(err)
		}
		return coordinator.Workload{Replicas: replicasOf(set.Spec.Replicas)}, set.DeletionTimestamp == nil, nil
	}
	return w, false, nil
}

func replicasOf(replicas *int32) int {
	if replicas == nil {
		return 1
	}
	return int(*replicas)
}

// newReplicaSetAvailable is the reason of the condition Progressing of a Deployment whose last rollout is complete. It stays when pods fail later.
const newReplicaSetAvailable = "NewReplicaSetAvailable"

// rolling says whether a Deployment is replacing its pods by others. One that is paused is not, unless it was half way. One without a progress deadline has no condition that
// tells: then it is, while fewer pods are available than are to be.
func rolling(d *appsv1.Deployment) bool {
	if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > d.Status.UpdatedReplicas {
		return true
	}
	for i := range d.Status.Conditions {
		if c := &d.Status.Conditions[i]; c.Type == appsv1.DeploymentProgressing {
			return c.Reason != newReplicaSetAvailable && !d.Spec.Paused
		}
	}
	return int(d.Status.AvailableReplicas) < replicasOf(d.Spec.Replicas)
}
