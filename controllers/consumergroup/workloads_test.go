// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

func TestWorkloadOf(t *testing.T) {
	cases := map[string]struct {
		owner metav1.OwnerReference
		hash  string
		want  string
	}{
		"nobody made it":                              {},
		"a StatefulSet":                               {owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}, want: "StatefulSet/db"},
		"a Deployment, by its ReplicaSet":             {owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-api-5d4f"}, hash: "5d4f", want: "Deployment/web-api"},
		"a ReplicaSet of its own":                     {owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f"}, want: "ReplicaSet/web-5d4f"},
		"a ReplicaSet of its own, with a label":       {owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f"}, hash: "other", want: "ReplicaSet/web-5d4f"},
		"something else that is called the same":      {owner: metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "ReplicaSet", Name: "web-5d4f"}, hash: "5d4f", want: "ReplicaSet/web-5d4f"},
		"an owner whose name is none of Kubernetes's": {owner: metav1.OwnerReference{APIVersion: "x/v1", Kind: "Y", Name: strings.Repeat("n", 254)}},
		"the longest name":                            {owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: strings.Repeat("n", 253)}, want: "StatefulSet/" + strings.Repeat("n", 253)},
		"an owner whose kind is no name":              {owner: metav1.OwnerReference{APIVersion: "x/v1", Kind: strings.Repeat("K", 64), Name: "y"}},
		"a Job":                                       {owner: metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "import"}, want: "Job/import"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Labels = map[string]string{"app": "web"}
			if tc.hash != "" {
				pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = tc.hash
			}
			if tc.owner.Name != "" {
				yes := true
				tc.owner.Controller = &yes
				pod.OwnerReferences = []metav1.OwnerReference{tc.owner}
			}
			if got := workloadOf(pod); got != tc.want {
				t.Errorf("workload %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRolling(t *testing.T) {
	replicas, never := int32(3), int32(math.MaxInt32)
	cases := map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"complete":                                        {change: func(*appsv1.Deployment) {}},
		"complete, and a pod has failed since":            {change: func(d *appsv1.Deployment) { d.Status.AvailableReplicas, d.Status.ReadyReplicas = 2, 2 }},
		"complete, and a pod was deleted":                 {change: func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 2, 2 }},
		"its controller has not seen the newest template": {change: func(d *appsv1.Deployment) { d.Generation++ }, want: true},
		"pods of an older template are there":             {change: func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 2 }, want: true},
		"new pods start":                                  {change: func(d *appsv1.Deployment) { d.Status.Conditions[1].Reason = "ReplicaSetUpdated" }, want: true},
		"new pods do not start in time":                   {change: func(d *appsv1.Deployment) { d.Status.Conditions[1].Reason = "ProgressDeadlineExceeded" }, want: true},
		"paused when it was complete": {change: func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Status.Conditions[1].Reason = true, "DeploymentPaused"
		}},
		"paused half way": {change: func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Status.Conditions[1].Reason, d.Status.UpdatedReplicas = true, "DeploymentPaused", 1
		}, want: true},
		"without a progress deadline, all there": {change: func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds, d.Status.Conditions = &never, nil
		}},
		"without a progress deadline, and not all there": {change: func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds, d.Status.Conditions, d.Status.AvailableReplicas = &never, nil, 2
		}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 4}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
				Conditions: []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
					{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
				},
			}
			tc.change(d)
			if got := rolling(d); got != tc.want {
				t.Errorf("rolling: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestArrivalsAreRememberedUntilThereIsASeat(t *testing.T) {
	var a arrivals
	group := newGroup()
	pods := func(alive ...bool) []coordinator.Pod {
		var pods []coordinator.Pod
		for i, yes := range alive {
			pods = append(pods, coordinator.Pod{Name: string(rune('a' + i)), UID: string(rune('A' + i)), Alive: yes})
		}
		return pods
	}
	look := func(second int, pods []coordinator.Pod) []int {
		a.note(now.Add(time.Duration(second)*time.Second), group, pods)
		var since []int
		for i := range pods {
			if pods[i].Since.IsZero() {
				since = append(since, -1)
				continue
			}
			since = append(since, int(pods[i].Since.Sub(now).Seconds()))
		}
		return since
	}
	var got [][]int
	got = append(got, look(0, pods(true, false)), look(1, pods(true, true)), look(2, pods(false, true)), look(3, pods(true, true)))
	group.Status.Members = []v1alpha1.GroupMember{{Name: "a", UID: "A"}}
	got = append(got, look(4, pods(true, true)))
	group.Status.Members = nil
	got = append(got, look(5, pods(true, true)))
	want := [][]int{{0, -1}, {0, 1}, {-1, 1}, {3, 1}, {-1, 1}, {5, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first seen, in seconds, look by look (-want +got):\n%s", diff)
	}
	look(6, nil)
	if len(a.times) != 0 {
		t.Errorf("%d groups are remembered although no pod waits", len(a.times))
	}
}
