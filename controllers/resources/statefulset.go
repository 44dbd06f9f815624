// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// brokerUser is the user and group that brokers run as: distroless images call it nonroot.
const brokerUser int64 = 65532

// defaultGracePeriod is how long a broker may take to stop, in seconds.
const defaultGracePeriod int64 = 30

// StatefulSetOptions are what the brokers' StatefulSet depends on beside the BrokerCluster.
type StatefulSetOptions struct {
	// Image is the container image of brokers where the BrokerCluster names none.
	Image string
	// Replicas is the number of brokers to run. It may be more than the BrokerCluster asks for: see controllers/brokercluster.
	Replicas int32
	// Size is the size of the volumes in the claim template, which cannot change once the StatefulSet exists. It may be less
	// than the BrokerCluster asks for: then the claims themselves are grown.
	Size resource.Quantity
}

// StatefulSet runs the brokers, each with a volume of its own. The ordinal of a broker's pod is its Kafka node id.
func StatefulSet(c *v1alpha1.BrokerCluster, o StatefulSetOptions) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: childMeta(c, StatefulSetName(c)),
		Spec: appsv1.StatefulSetSpec{
			ServiceName: BrokersServiceName(c),
			Replicas:    &o.Replicas,
			Ordinals:    &appsv1.StatefulSetOrdinals{Start: FirstBrokerID},
			// Brokers do not wait for each other: those that can serve do.
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Selector:            &metav1.LabelSelector{MatchLabels: SelectorLabels(c)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels(c), Annotations: podAnnotations(c)},
				Spec:       podSpec(c, o.Image),
			},
			VolumeClaimTemplates:                 []corev1.PersistentVolumeClaim{claimTemplate(c, o.Size)},
			PersistentVolumeClaimRetentionPolicy: claimRetention(c),
		},
	}
}

// StorageSize is the size that a BrokerCluster asks for each broker's volume.
func StorageSize(c *v1alpha1.BrokerCluster) resource.Quantity {
	if c.Spec.Storage.Size != nil {
		return *c.Spec.Storage.Size
	}
	return resource.MustParse("10Gi")
}

// ClaimTemplateSize is the size of the volumes in a StatefulSet's claim template; ok is false if it has none.
func ClaimTemplateSize(s *appsv1.StatefulSet) (size resource.Quantity, ok bool) {
	for i := range s.Spec.VolumeClaimTemplates {
		if t := &s.Spec.VolumeClaimTemplates[i]; t.Name == dataVolume {
			size, ok = t.Spec.Resources.Requests[corev1.ResourceStorage]
			return size, ok
		}
	}
	return size, false
}

func claimTemplate(c *v1alpha1.BrokerCluster, size resource.Quantity) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		// The selector's labels alone, for they never change and the template cannot.
		ObjectMeta: metav1.ObjectMeta{Name: dataVolume, Labels: SelectorLabels(c)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: c.Spec.Storage.ClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
}

func claimRetention(c *v1alpha1.BrokerCluster) *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	whenDeleted := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if c.Spec.Storage.WhenDeleted == v1alpha1.DeletionDelete {
		whenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: whenDeleted,
		WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}

func podAnnotations(c *v1alpha1.BrokerCluster) map[string]string {
	if c.Spec.Template == nil {
		return nil
	}
	return maps.Clone(c.Spec.Template.Annotations)
}

func podSpec(c *v1alpha1.BrokerCluster, image string) corev1.PodSpec {
	yes, no, user, grace := true, false, brokerUser, defaultGracePeriod
	onRootMismatch := corev1.FSGroupChangeOnRootMismatch
	spec := corev1.PodSpec{
		ServiceAccountName: ServiceAccountName(c),
		EnableServiceLinks: &no, // the services of the namespace are no broker's environment
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:        &yes,
			RunAsUser:           &user,
			RunAsGroup:          &user,
			FSGroup:             &user,
			FSGroupChangePolicy: &onRootMismatch, // a volume of many segments is not walked at every start
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TerminationGracePeriodSeconds: &grace,
		Affinity:                      spreadOverNodes(c),
		Containers:                    []corev1.Container{container(c, image)},
	}
	if t := c.Spec.Template; t != nil {
		override(&spec, t)
	}
	return spec
}

// override puts what the user asks for in the place of the operator's defaults.
func override(spec *corev1.PodSpec, t *v1alpha1.BrokerPodTemplate) {
	spec.NodeSelector = t.NodeSelector
	spec.Tolerations = t.Tolerations
	spec.TopologySpreadConstraints = t.TopologySpreadConstraints
	spec.PriorityClassName = t.PriorityClassName
	spec.ImagePullSecrets = t.ImagePullSecrets
	if t.Affinity != nil {
		spec.Affinity = t.Affinity
	}
	if t.TerminationGracePeriodSeconds != nil {
		spec.TerminationGracePeriodSeconds = t.TerminationGracePeriodSeconds
	}
}

// spreadOverNodes prefers a node of its own for each broker.
func spreadOverNodes(c *v1alpha1.BrokerCluster) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: SelectorLabels(c)},
				TopologyKey:   corev1.LabelHostname,
			},
		}},
	}}
}

func container(c *v1alpha1.BrokerCluster, image string) corev1.Container {
	yes, no := true, false
	if c.Spec.Image != "" {
		image = c.Spec.Image
	}
	policy := c.Spec.ImagePullPolicy
	if policy == "" {
		policy = corev1.PullIfNotPresent
	}
	l := ClientListener(c)
	return corev1.Container{
		Name:            BrokerContainer,
		Image:           image,
		ImagePullPolicy: policy,
		Args:            brokerArgs(c, l.Port),
		Env: []corev1.EnvVar{{
			Name:      "POD_NAME",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}},
		}},
		Ports: []corev1.ContainerPort{
			{Name: l.Name, ContainerPort: l.Port, Protocol: corev1.ProtocolTCP},
			{Name: healthPortName, ContainerPort: HealthPort, Protocol: corev1.ProtocolTCP},
			{Name: metricsPortName, ContainerPort: MetricsPort, Protocol: corev1.ProtocolTCP},
		},
		Resources:      containerResources(c),
		VolumeMounts:   []corev1.VolumeMount{{Name: dataVolume, MountPath: dataDir}},
		StartupProbe:   probe("/readyz", 1, 600), // a start reads the tails of every segment: up to ten minutes
		ReadinessProbe: probe("/readyz", 2, 1),
		LivenessProbe:  probe("/healthz", 5, 6),
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot:             &yes,
			ReadOnlyRootFilesystem:   &yes,
			AllowPrivilegeEscalation: &no,
			Privileged:               &no,
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

func containerResources(c *v1alpha1.BrokerCluster) corev1.ResourceRequirements {
	if c.Spec.Resources != nil {
		return *c.Spec.Resources
	}
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("128Mi"),
	}}
}

// probe asks the health port for path every period seconds, and gives up after failures refusals in a row.
func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString(healthPortName), Scheme: corev1.URISchemeHTTP,
		}},
		PeriodSeconds:    period,
		TimeoutSeconds:   2,
		SuccessThreshold: 1,
		FailureThreshold: failures,
	}
}
