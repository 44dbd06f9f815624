// SPDX-License-Identifier: Apache-2.0

package resources

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// DisruptionBudget lets one broker at a time be evicted. A maximum rather than a minimum: with a single broker a node can
// still be drained.
func DisruptionBudget(c *v1alpha1.BrokerCluster) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: childMeta(c, DisruptionBudgetName(c)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one,
			Selector:       &metav1.LabelSelector{MatchLabels: SelectorLabels(c)},
		},
	}
}
