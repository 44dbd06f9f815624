// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BrokerCluster is a set of brokers that share topics and consumer groups.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=bc,categories=ringmaster
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="BROKERS",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="READY",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="BOOTSTRAP",type=string,JSONPath=`.status.bootstrapServers`,priority=1
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="a BrokerCluster's name may have at most 40 characters, so that the names of its pods and services stay legal; choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="a BrokerCluster's name may have lower-case letters, digits and '-' only, starts with a letter and ends with a letter or digit, so that the names of its services are legal; choose another name"
type BrokerCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user asks for.
	// +kubebuilder:default={}
	Spec BrokerClusterSpec `json:"spec,omitempty"`
	// status is what the operator sees.
	Status BrokerClusterStatus `json:"status,omitempty"`
}

// BrokerClusterSpec is what the user asks of a BrokerCluster.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.storage) || !has(self.storage) || self.storage.type == oldSelf.storage.type",message="storage.type cannot be changed: the records would stay behind; create another BrokerCluster and move the topics"
type BrokerClusterSpec struct {
	// replicas is the number of brokers. Default 3, from 1 to 999. It may not fall below a broker that still leads partitions: such a
	// change is held back, and the Ready condition says which partitions are in the way.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=999
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image is the container image of the brokers. Default: the operator's own image.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1000
	// +optional
	Image string `json:"image,omitempty"`

	// imagePullPolicy is the pull policy of image: Always, IfNotPresent or Never. Default IfNotPresent.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +kubebuilder:default=IfNotPresent
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// storage is where the records are kept.
	// +kubebuilder:default={}
	// +optional
	Storage StorageSpec `json:"storage,omitempty"`

	// listeners are the ports that Kafka clients connect to. Default: one, named plain, on port 9092. One at most.
	// +kubebuilder:default={{name: plain, port: 9092}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	// +listType=map
	// +listMapKey=name
	// +optional
	Listeners []Listener `json:"listeners,omitempty"`

	// config is the brokers' configuration.
	// +kubebuilder:default={}
	// +optional
	Config BrokerConfig `json:"config,omitempty"`

	// resources are the compute resources of each broker's container. Default: requests of 100m CPU and 128Mi memory.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// template overrides parts of the broker pods.
	// +optional
	Template *BrokerPodTemplate `json:"template,omitempty"`
}

// StorageType names a storage engine.
//
// +kubebuilder:validation:Enum=Local
type StorageType string

// StorageLocal keeps each partition in a segmented log on the volume of the broker that leads it.
const StorageLocal StorageType = "Local"

// StorageSpec says where a BrokerCluster keeps its records.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.size) || !has(self.size) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",message="storage.size may only grow; leave it as it is, or ask for more"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.className) == has(self.className) && (!has(self.className) || self.className == oldSelf.className)",message="storage.className cannot be changed once the cluster exists; create another BrokerCluster"
type StorageSpec struct {
	// type is the storage engine: Local. Default Local. Immutable.
	// +kubebuilder:default=Local
	// +optional
	Type StorageType `json:"type,omitempty"`

	// size is the size of each broker's volume, in bytes. Default 10Gi, at least 1Mi. It may only grow.
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0",message="storage.size must be at least 1Mi"
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// className is the StorageClass of the volumes. Default: the cluster's default class. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClassName *string `json:"className,omitempty"`

	// whenDeleted says what becomes of the volumes when the BrokerCluster is deleted: Retain or Delete. Default Retain.
	// +kubebuilder:default=Retain
	// +optional
	WhenDeleted DeletionPolicy `json:"whenDeleted,omitempty"`
}

// DeletionPolicy says what becomes of data when the resource that describes it is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

const (
	// DeletionRetain keeps the data.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionDelete removes the data.
	DeletionDelete DeletionPolicy = "Delete"
)

// Listener is a port that Kafka clients connect to.
type Listener struct {
	// name names the listener and its service port: lower-case letters, digits and '-', at most 15 characters, but not health or metrics.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[a-z]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self != 'health' && self != 'metrics'",message="a listener cannot be named health or metrics, as the ports 8080 and 8081 are; choose another name"
	Name string `json:"name"`
	// port is the TCP port, from 1024 to 65535, but not 8080 (health) or 8081 (metrics).
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="self != 8080 && self != 8081",message="ports 8080 and 8081 serve health and metrics; choose another port"
	Port int32 `json:"port"`
}

// TopicCreation says whether a client that names an unknown topic creates it.
//
// +kubebuilder:validation:Enum=Enabled;Disabled
type TopicCreation string

const (
	// TopicCreationEnabled creates a topic, and its Topic resource, when a client first names it.
	TopicCreationEnabled TopicCreation = "Enabled"
	// TopicCreationDisabled answers UNKNOWN_TOPIC_OR_PARTITION.
	TopicCreationDisabled TopicCreation = "Disabled"
)

// BrokerConfig is the brokers' configuration.
//
// +kubebuilder:validation:XValidation:rule="duration(has(self.minSessionTimeout) ? self.minSessionTimeout : '6s') <= duration(has(self.maxSessionTimeout) ? self.maxSessionTimeout : '30m')",message="config.minSessionTimeout must not be longer than config.maxSessionTimeout"
// +kubebuilder:validation:XValidation:rule="duration(has(self.consumerHeartbeatInterval) ? self.consumerHeartbeatInterval : '5s') < duration(has(self.consumerSessionTimeout) ? self.consumerSessionTimeout : '45s')",message="config.consumerHeartbeatInterval must be shorter than config.consumerSessionTimeout"
type BrokerConfig struct {
	// autoCreateTopics says whether a client that names an unknown topic creates it: Enabled or Disabled. Default Disabled.
	// +kubebuilder:default=Disabled
	// +optional
	AutoCreateTopics TopicCreation `json:"autoCreateTopics,omitempty"`

	// defaultPartitions is the number of partitions of a topic that a client creates without saying how many. Default 1, from 1 to 10000.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	DefaultPartitions int32 `json:"defaultPartitions,omitempty"`

	// offsetsPartitions is the number of partitions of the topic that holds committed offsets. Default 16, from 1 to 1000. Immutable.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="config.offsetsPartitions cannot be changed once the cluster exists: groups would lose their offsets"
	// +optional
	OffsetsPartitions int32 `json:"offsetsPartitions,omitempty"`

	// maxConnections is how many connections of clients a broker takes at once. Default 10000, from 10 to 1000000. A change restarts the brokers, one after
	// the other; so does one of the fields below.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxConnections int32 `json:"maxConnections,omitempty"`

	// maxConnectionsPerIP is how many of them may come from one address. Default 2000, from 1 to 1000000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxConnectionsPerIP int32 `json:"maxConnectionsPerIP,omitempty"`

	// maxRequestBytes is the largest request that a broker takes, in bytes; a producer sends several batches in one. Default 104857600, as in Kafka; from
	// 1048576 to 1073741824.
	// +kubebuilder:validation:Minimum=1048576
	// +kubebuilder:validation:Maximum=1073741824
	// +optional
	MaxRequestBytes int32 `json:"maxRequestBytes,omitempty"`

	// idleTimeout is how long a connection may be silent before it is closed, as a duration. Default 10m, as in Kafka; from 1s to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="config.idleTimeout must be a duration from 1s to 24h, such as 10m"
	// +optional
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// offsetsRetention is how long committed offsets are kept once their group is empty, or, where nobody in it reads their topic, once they were committed, as a duration; those of a
	// managed group as long as it is one. Default 168h; from 1m to 87600h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="config.offsetsRetention must be a duration from 1m to 87600h, such as 168h"
	// +optional
	OffsetsRetention *metav1.Duration `json:"offsetsRetention,omitempty"`

	// initialRebalanceDelay is how long the first rebalance of an empty group waits for more members, as a duration. Default 0s; from 0s to 10m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s') && duration(self) <= duration('10m')",message="config.initialRebalanceDelay must be a duration from 0s to 10m, such as 0s"
	// +optional
	InitialRebalanceDelay *metav1.Duration `json:"initialRebalanceDelay,omitempty"`

	// minSessionTimeout is the shortest session timeout that a member of a classic group may ask for, as a duration; not longer than maxSessionTimeout. Default 6s; from 100ms to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="config.minSessionTimeout must be a duration from 100ms to 24h, such as 6s"
	// +optional
	MinSessionTimeout *metav1.Duration `json:"minSessionTimeout,omitempty"`

	// maxSessionTimeout is the longest session timeout that a member of a classic group may ask for, as a duration. Default 30m; from 100ms to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="config.maxSessionTimeout must be a duration from 100ms to 24h, such as 30m"
	// +optional
	MaxSessionTimeout *metav1.Duration `json:"maxSessionTimeout,omitempty"`

	// consumerSessionTimeout is after how long without a heartbeat a member of the consumer protocol (KIP-848) is removed, as a duration. Default 45s; from 1s to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="config.consumerSessionTimeout must be a duration from 1s to 24h, such as 45s"
	// +optional
	ConsumerSessionTimeout *metav1.Duration `json:"consumerSessionTimeout,omitempty"`

	// consumerHeartbeatInterval is how often members of the consumer protocol are told to send a heartbeat, as a duration; shorter than
	// consumerSessionTimeout. Default 5s; from 100ms to 1h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="config.consumerHeartbeatInterval must be a duration from 100ms to 1h, such as 5s"
	// +optional
	ConsumerHeartbeatInterval *metav1.Duration `json:"consumerHeartbeatInterval,omitempty"`

	// assignmentInterval is how long a group of the consumer protocol waits for more members to come, or to change what they read, before it assigns anew, as a
	// duration. Default 100ms; from 0s to 10s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s') && duration(self) <= duration('10s')",message="config.assignmentInterval must be a duration from 0s to 10s, such as 100ms"
	// +optional
	AssignmentInterval *metav1.Duration `json:"assignmentInterval,omitempty"`

	// heartbeatHold is how long the heartbeat of a classic member of a managed group may be held at most, as a duration, so that it hears of a change at once;
	// 0s for not at all. Default 2900ms; from 0s to 10s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(\\\\.[0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s') && duration(self) <= duration('10s')",message="config.heartbeatHold must be a duration from 0s to 10s, such as 2900ms"
	// +optional
	HeartbeatHold *metav1.Duration `json:"heartbeatHold,omitempty"`
}

// BrokerPodTemplate overrides parts of the broker pods.
type BrokerPodTemplate struct {
	// labels are added to the pods; the operator's own labels win.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are added to the pods.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// nodeSelector restricts the nodes that the pods run on.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// tolerations of the pods.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// affinity of the pods. Default: prefer a node of its own for each broker.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// topologySpreadConstraints of the pods.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// priorityClassName of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// terminationGracePeriodSeconds of the pods, in seconds. Default 30.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// imagePullSecrets of the pods.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// BrokerClusterStatus is what the operator sees of a BrokerCluster.
type BrokerClusterStatus struct {
	// observedGeneration is the generation of the spec that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is the number of brokers that the operator runs.
	// +optional
	Replicas int32 `json:"replicas"`
	// readyReplicas is the number of brokers that answer.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// selector selects the broker pods, as the scale subresource wants it.
	// +optional
	Selector string `json:"selector,omitempty"`
	// bootstrapServers is what a Kafka client takes as its bootstrap address, HOST:PORT.
	// +optional
	BootstrapServers string `json:"bootstrapServers,omitempty"`
	// brokers are the brokers, by id.
	// +kubebuilder:validation:MaxItems=999
	// +listType=map
	// +listMapKey=id
	// +optional
	Brokers []BrokerStatus `json:"brokers,omitempty"`
	// conditions: Ready.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BrokerPhase says whether a broker answers.
//
// +kubebuilder:validation:Enum=Ready;NotReady
type BrokerPhase string

const (
	// BrokerReady is a broker whose pod is ready.
	BrokerReady BrokerPhase = "Ready"
	// BrokerNotReady is a broker whose pod is missing or not ready.
	BrokerNotReady BrokerPhase = "NotReady"
)

// BrokerStatus is one broker.
type BrokerStatus struct {
	// id is the broker's Kafka node id and its pod's ordinal, from 1.
	ID int32 `json:"id"`
	// podName is the name of the broker's pod.
	PodName string `json:"podName"`
	// host is the DNS name that clients reach the broker by.
	Host string `json:"host"`
	// port is the TCP port that clients reach the broker by.
	Port int32 `json:"port"`
	// phase is Ready or NotReady.
	Phase BrokerPhase `json:"phase"`
}

// BrokerClusterList is a list of BrokerClusters.
//
// +kubebuilder:object:root=true
type BrokerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BrokerCluster `json:"items"`
}
