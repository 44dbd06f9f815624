// SPDX-License-Identifier: Apache-2.0

package brokercluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

func TestTroubleNamesWhatTheUserCanMend(t *testing.T) {
	container := func(change func(*corev1.ContainerStatus)) *corev1.Pod {
		s := corev1.ContainerStatus{Name: resources.BrokerContainer, Image: "nope:1"}
		change(&s)
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "other"}, s}}}
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	killed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	unschedulable := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/2 nodes are available: 2 Insufficient memory. preemption: 0/2 nodes are available: 2 No preemption victims found.",
	}}}}
	terminating := unschedulable.DeepCopy()
	terminating.DeletionTimestamp = &metav1.Time{}

	const noImage, oom = "cannot pull its image nope:1", "restarts; its container ended with exit code 137 (OOMKilled)"
	tests := map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a pod that has only just been made": {&corev1.Pod{}, ""},
		"a pod that no node can take":        {unschedulable, "cannot be scheduled: 0/2 nodes are available: 2 Insufficient memory"},
		"a pod that goes":                    {terminating, ""},
		"an image that cannot be pulled":     {container(func(s *corev1.ContainerStatus) { s.State = waiting("ErrImagePull", "try 1") }), noImage},
		"the same between two tries":         {container(func(s *corev1.ContainerStatus) { s.State = waiting("ImagePullBackOff", "10s") }), noImage},
		"an image whose name is wrong":       {container(func(s *corev1.ContainerStatus) { s.State = waiting("InvalidImageName", "") }), noImage},
		"a container that is being made":     {container(func(s *corev1.ContainerStatus) { s.State = waiting("ContainerCreating", "") }), ""},
		"a container that starts":            {container(func(s *corev1.ContainerStatus) { s.State = running }), ""},
		"a container that is ready":          {container(func(s *corev1.ContainerStatus) { s.Ready, s.LastTerminationState = true, killed }), ""},
		"a container that has just ended":    {container(func(s *corev1.ContainerStatus) { s.State = killed }), oom},
		"a container that waits to be started again": {container(func(s *corev1.ContainerStatus) {
			s.State, s.LastTerminationState = waiting("CrashLoopBackOff", "20s"), killed
		}), oom},
		"a container that was started again": {container(func(s *corev1.ContainerStatus) { s.State, s.LastTerminationState = running, killed }), oom},
		"a container that lacks something of its start": {container(func(s *corev1.ContainerStatus) {
			s.State = waiting("CreateContainerConfigError", `secret "x" not found`)
		}), `cannot start its container: secret "x" not found`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := trouble(tc.pod); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhyNotReady(t *testing.T) {
	c := cluster(3)
	set := resources.StatefulSet(c, resources.StatefulSetOptions{Replicas: 3})
	tests := map[string]struct {
		facts facts
		want  string
	}{
		"nothing is known yet":                       {facts{}, "to see why: kubectl --namespace shop describe pod web-1"},
		"the StatefulSet's controller makes no pod":  {facts{statefulSet: set}, "web-1 does not exist yet; to see why: kubectl --namespace shop describe statefulset web"},
		"the pod exists, and nobody reports trouble": {facts{statefulSet: set, troubles: map[string]string{"web-1": ""}}, "to see why: kubectl --namespace shop describe pod web-1"},
		"the first pod with trouble is named": {
			facts{statefulSet: set, troubles: map[string]string{"web-1": "", "web-3": "cannot pull its image x"}},
			"web-3 cannot pull its image x; to see more: kubectl --namespace shop describe pod web-3",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := whyNotReady(c, tc.facts, []string{"web-1", "web-3"}); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
