// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// Labels that every child object carries beside v1alpha1.LabelCluster. They and the selectors made of them never change
// after a release: a StatefulSet's selector is immutable, and a PodDisruptionBudget with another one would lose its pods.
const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelComponent = "app.kubernetes.io/component"
	labelManagedBy = "app.kubernetes.io/managed-by"

	appName         = "ringmaster"
	componentBroker = "broker"
	managedBy       = "ringmaster-operator"
)

// BrokerContainer is the name of the container in a broker's pod.
const BrokerContainer = "broker"

// Names within a broker's pod.
const (
	dataVolume = "data"
	dataDir    = "/data"

	healthPortName  = "health"
	metricsPortName = "metrics"
)

// Ports of a broker beside its listeners. A listener cannot have them: v1alpha1.Listener refuses that at admission.
const (
	// HealthPort is the TCP port that serves /healthz and /readyz.
	HealthPort = 8080
	// MetricsPort is the TCP port that serves /metrics.
	MetricsPort = 8081
)

// FirstBrokerID is the id of a cluster's first broker, and the ordinal of its pod; see docs/adr/0002-broker-ids-start-at-one.md.
const FirstBrokerID = 1

// defaultListener is used where a BrokerCluster was stored without listeners.
var defaultListener = v1alpha1.Listener{Name: "plain", Port: 9092}

// StatefulSetName is the name of the brokers' StatefulSet.
func StatefulSetName(c *v1alpha1.BrokerCluster) string { return c.Name }

// BrokersServiceName is the name of the headless Service that gives every broker its DNS name.
func BrokersServiceName(c *v1alpha1.BrokerCluster) string { return c.Name + "-brokers" }

// BootstrapServiceName is the name of the Service that clients bootstrap from.
func BootstrapServiceName(c *v1alpha1.BrokerCluster) string { return c.Name + "-bootstrap" }

// ConfigMapName is the name of the ConfigMap with the clients' connection settings.
func ConfigMapName(c *v1alpha1.BrokerCluster) string { return c.Name + "-config" }

// DisruptionBudgetName is the name of the brokers' PodDisruptionBudget.
func DisruptionBudgetName(c *v1alpha1.BrokerCluster) string { return c.Name + "-brokers" }

// ServiceAccountName is the name of the brokers' ServiceAccount, Role and RoleBinding.
func ServiceAccountName(c *v1alpha1.BrokerCluster) string { return c.Name + "-broker" }

// OffsetsTopicName is the name of the Topic resource that keeps the groups' committed offsets.
func OffsetsTopicName(c *v1alpha1.BrokerCluster) string { return c.Name + "-consumer-offsets" }

// PodName is the name of the pod of the broker with the given id.
func PodName(c *v1alpha1.BrokerCluster, id int32) string {
	return StatefulSetName(c) + "-" + strconv.Itoa(int(id))
}

// ClaimName is the name of the PersistentVolumeClaim of the broker with the given id.
func ClaimName(c *v1alpha1.BrokerCluster, id int32) string { return dataVolume + "-" + PodName(c, id) }

// BrokerOfClaim returns the id of the broker that a claim of the cluster belongs to; ok is false if it is no broker's.
func BrokerOfClaim(c *v1alpha1.BrokerCluster, claim string) (id int32, ok bool) {
	ordinal, found := strings.CutPrefix(claim, dataVolume+"-"+StatefulSetName(c)+"-")
	if !found {
		return 0, false
	}
	n, err := strconv.ParseInt(ordinal, 10, 32)
	if err != nil || n < FirstBrokerID {
		return 0, false
	}
	return int32(n), true
}

// BrokerHost is the DNS name of the broker with the given id, resolvable in every namespace of the Kubernetes cluster.
func BrokerHost(c *v1alpha1.BrokerCluster, id int32) string {
	return fmt.Sprintf("%s.%s.%s.svc", PodName(c, id), BrokersServiceName(c), c.Namespace)
}

// BootstrapServers is what a Kafka client takes as its bootstrap address, HOST:PORT.
func BootstrapServers(c *v1alpha1.BrokerCluster) string {
	return fmt.Sprintf("%s.%s.svc:%d", BootstrapServiceName(c), c.Namespace, ClientPort(c))
}

// ClientListener is the listener that clients connect to.
func ClientListener(c *v1alpha1.BrokerCluster) v1alpha1.Listener {
	if len(c.Spec.Listeners) == 0 {
		return defaultListener
	}
	return c.Spec.Listeners[0]
}

// ClientPort is the TCP port that clients connect to.
func ClientPort(c *v1alpha1.BrokerCluster) int32 { return ClientListener(c).Port }

// SelectorLabels select the brokers' pods, and nothing else. They never change.
func SelectorLabels(c *v1alpha1.BrokerCluster) map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: c.Name,
		labelComponent:        componentBroker,
	}
}

// IsBroker tells whether labels are those of a broker's pod or claim, and returns the name of its cluster.
func IsBroker(labels map[string]string) (cluster string, ok bool) {
	cluster = labels[v1alpha1.LabelCluster]
	return cluster, cluster != "" && labels[labelComponent] == componentBroker
}

// commonLabels are the labels of every child object.
func commonLabels(c *v1alpha1.BrokerCluster) map[string]string {
	labels := SelectorLabels(c)
	labels[labelName] = appName
	labels[labelInstance] = c.Name
	labels[labelManagedBy] = managedBy
	return labels
}

// podLabels are the labels of the brokers' pods: the user's, then the operator's, which win.
func podLabels(c *v1alpha1.BrokerCluster) map[string]string {
	labels := map[string]string{}
	if c.Spec.Template != nil {
		maps.Copy(labels, c.Spec.Template.Labels)
	}
	maps.Copy(labels, commonLabels(c))
	return labels
}

// childMeta is the metadata of a child object of the given name. The owner reference makes Kubernetes remove the child
// with its BrokerCluster; no child has a finalizer, so that nothing keeps a namespace from going.
func childMeta(c *v1alpha1.BrokerCluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: c.Namespace,
		Labels:    commonLabels(c),
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(c, v1alpha1.GroupVersion.WithKind("BrokerCluster")),
		},
	}
}
