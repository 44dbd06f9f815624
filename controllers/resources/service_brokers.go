// SPDX-License-Identifier: Apache-2.0

package resources

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// BrokersService is the headless Service that gives every broker its own DNS name. It publishes brokers that are not ready
// too: a client that was told to go to a broker must be able to resolve it as soon as it starts.
func BrokersService(c *v1alpha1.BrokerCluster) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: childMeta(c, BrokersServiceName(c)),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 SelectorLabels(c),
			Ports: []corev1.ServicePort{
				clientPort(c),
				{Name: metricsPortName, Port: MetricsPort, TargetPort: intstr.FromString(metricsPortName), Protocol: corev1.ProtocolTCP},
			},
		},
	}
}

// clientPort is the service port of the clients' listener.
func clientPort(c *v1alpha1.BrokerCluster) corev1.ServicePort {
	l := ClientListener(c)
	return corev1.ServicePort{Name: l.Name, Port: l.Port, TargetPort: intstr.FromString(l.Name), Protocol: corev1.ProtocolTCP}
}
