// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// alive reports whether a pod can be a member: running, ready, not terminating, and reachable.
func alive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" && isReady(pod)
}

func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// address is the address that tells a pod's clients from others'; empty if there is none. With the host's network it is the node's: clients of pods that
// are no members, or no members any more, have the same one, and would be taken for the member's.
func address(pod *corev1.Pod) string {
	if pod.Spec.HostNetwork {
		return ""
	}
	return pod.Status.PodIP
}

// ended reports whether a pod will never run again.
func ended(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// restarts is how often the pod's containers were started again.
func restarts(pod *corev1.Pod) int32 {
	var n int32
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			n += statuses[i].RestartCount
		}
	}
	return n
}

// ordinals are those of the pods that a StatefulSet keeps, from first up to end, exclusive; none if it does not exist.
type ordinals struct {
	first, end int
	// labels are those that its pods are made with.
	labels labels.Set
}

// statefulSets answers, for one reconciliation, whether StatefulSets will make a pod again.
type statefulSets struct {
	client    client.Client
	namespace string
	known     map[string]ordinals
}

// pod returns what the coordinator needs to know of a pod. One that ended may return if its StatefulSet makes it again.
func (s *statefulSets) pod(ctx context.Context, pod *corev1.Pod) (coordinator.Pod, error) {
	out := coordinator.Pod{
		Name: pod.Name, UID: string(pod.UID), IP: address(pod), Node: pod.Spec.NodeName,
		Zone: pod.Labels[corev1.LabelTopologyZone], Alive: alive(pod), Workload: workloadOf(pod), Restarts: restarts(pod),
	}
	if out.Alive || !ended(pod) {
		out.MayReturn = !out.Alive
		return out, nil
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "StatefulSet" || !strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/") {
		return out, nil
	}
	var err error
	out.MayReturn, err = s.makesAgain(ctx, pod.Name, nil)
	return out, err
}

// makesAgain reports whether a StatefulSet keeps a pod of this name, with labels that the selector matches; a nil selector matches all.
// A StatefulSet names its pods after itself, with the ordinal behind.
func (s *statefulSets) makesAgain(ctx context.Context, pod string, selector labels.Selector) (bool, error) {
	dash := strings.LastIndexByte(pod, '-')
	if dash < 1 {
		return false, nil
	}
	ordinal, err := strconv.Atoi(pod[dash+1:])
	if err != nil || strconv.Itoa(ordinal) != pod[dash+1:] {
		return false, nil //nolint:nilerr // not the name of a StatefulSet's pod
	}
	kept, err := s.ordinals(ctx, pod[:dash])
	if err != nil {
		return false, err
	}
	return ordinal >= kept.first && ordinal < kept.end && (selector == nil || selector.Matches(kept.labels)), nil
}

func (s *statefulSets) ordinals(ctx context.Context, name string) (ordinals, error) {
	if kept, ok := s.known[name]; ok {
		return kept, nil
	}
	set := &appsv1.StatefulSet{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, set)
	if client.IgnoreNotFound(err) != nil {
		return ordinals{}, fmt.Errorf("read StatefulSet %s: %w", name, err)
	}
	var kept ordinals
	if !apierrors.IsNotFound(err) && set.DeletionTimestamp == nil {
		replicas := 1
		if set.Spec.Replicas != nil {
			replicas = int(*set.Spec.Replicas)
		}
		if set.Spec.Ordinals != nil {
			kept.first = int(set.Spec.Ordinals.Start)
		}
		kept.end = kept.first + replicas
		kept.labels = set.Spec.Template.Labels
	}
	s.known[name] = kept
	return kept, nil
}
