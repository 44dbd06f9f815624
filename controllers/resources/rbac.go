// SPDX-License-Identifier: Apache-2.0

package resources

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// ServiceAccount is the brokers' identity.
func ServiceAccount(c *v1alpha1.BrokerCluster) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: childMeta(c, ServiceAccountName(c)),
	}
}

// Role lets the brokers watch what they serve, and act on Topics for Kafka's admin clients. The operator must hold every
// right of it itself, or the API server refuses the Role: the RBAC markers of controllers/brokercluster grant them.
func Role(c *v1alpha1.BrokerCluster) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"},
		ObjectMeta: childMeta(c, ServiceAccountName(c)),
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{v1alpha1.GroupVersion.Group},
				Resources: []string{"topics"},
				Verbs:     []string{"get", "list", "watch", "create", "patch", "delete"},
			},
			{
				APIGroups: []string{v1alpha1.GroupVersion.Group},
				Resources: []string{"brokerclusters", "consumergroups"},
				Verbs:     []string{"get", "list", "watch"},
			},
		},
	}
}

// RoleBinding gives the brokers their Role.
func RoleBinding(c *v1alpha1.BrokerCluster) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
		ObjectMeta: childMeta(c, ServiceAccountName(c)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: ServiceAccountName(c)},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: ServiceAccountName(c), Namespace: c.Namespace}},
	}
}
