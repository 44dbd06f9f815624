// SPDX-License-Identifier: Apache-2.0

package resources

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// Keys of the ConfigMap.
const (
	// ConfigBootstrapServers holds the bootstrap address, HOST:PORT, for an environment variable.
	ConfigBootstrapServers = "bootstrap.servers"
	// ConfigClientProperties holds the same as a properties file, for a Kafka client's command line.
	ConfigClientProperties = "client.properties"
)

// ConfigMap holds what a Kafka client needs to connect, for workloads of the namespace to mount or to take their environment
// from. The brokers do not read it: what they need at their start is in their arguments, and the rest they watch in the
// BrokerCluster itself, so that a change of configuration restarts no broker.
func ConfigMap(c *v1alpha1.BrokerCluster) *corev1.ConfigMap {
	servers := BootstrapServers(c)
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: childMeta(c, ConfigMapName(c)),
		Data: map[string]string{
			ConfigBootstrapServers: servers,
			ConfigClientProperties: "bootstrap.servers=" + servers + "\nsecurity.protocol=PLAINTEXT\n",
		},
	}
}
