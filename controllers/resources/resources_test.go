// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// plain is a BrokerCluster as the API server stores one whose spec is empty.
func plain() *v1alpha1.BrokerCluster {
	replicas, size := int32(3), resource.MustParse("10Gi")
	return &v1alpha1.BrokerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: types.UID("0b6f7a0e-7e5b-4c5e-9a53-3d2f0a1c4b5d")},
		Spec: v1alpha1.BrokerClusterSpec{
			Replicas:        &replicas,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Storage:         v1alpha1.StorageSpec{Type: v1alpha1.StorageLocal, Size: &size, WhenDeleted: v1alpha1.DeletionRetain},
			Listeners:       []v1alpha1.Listener{{Name: "plain", Port: 9092}},
			Config:          v1alpha1.BrokerConfig{AutoCreateTopics: v1alpha1.TopicCreationDisabled, DefaultPartitions: 1, OffsetsPartitions: 16},
		},
	}
}

// full is a BrokerCluster that sets everything.
func full() *v1alpha1.BrokerCluster {
	c := plain()
	class, grace := "fast", int64(90)
	c.Spec.Image = "registry.example/ringmaster:1"
	c.Spec.ImagePullPolicy = corev1.PullAlways
	c.Spec.Storage.ClassName = &class
	c.Spec.Storage.WhenDeleted = v1alpha1.DeletionDelete
	c.Spec.Listeners = []v1alpha1.Listener{{Name: "internal", Port: 19092}}
	c.Spec.Config = v1alpha1.BrokerConfig{
		OffsetsPartitions: 4, MaxConnections: 500, MaxConnectionsPerIP: 50, MaxRequestBytes: 2 << 20, IdleTimeout: &metav1.Duration{Duration: 90 * time.Second},
		OffsetsRetention: &metav1.Duration{Duration: 24 * time.Hour}, InitialRebalanceDelay: &metav1.Duration{Duration: 3 * time.Second},
		MinSessionTimeout: &metav1.Duration{Duration: time.Second}, MaxSessionTimeout: &metav1.Duration{Duration: time.Hour},
		ConsumerSessionTimeout: &metav1.Duration{Duration: 30 * time.Second}, ConsumerHeartbeatInterval: &metav1.Duration{Duration: 3 * time.Second},
		AssignmentInterval: &metav1.Duration{Duration: 200 * time.Millisecond},
		HeartbeatHold:      &metav1.Duration{Duration: time.Second},
	}
	c.Spec.Resources = &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
	}
	c.Spec.Template = &v1alpha1.BrokerPodTemplate{
		Labels:       map[string]string{"team": "shop", v1alpha1.LabelCluster: "not-this-one"},
		Annotations:  map[string]string{"example.com/scrape": "true"},
		NodeSelector: map[string]string{"disk": "ssd"},
		Tolerations:  []corev1.Toleration{{Key: "brokers", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		Affinity:     &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: SelectorLabels(c)},
		}},
		PriorityClassName:             "high",
		TerminationGracePeriodSeconds: &grace,
		ImagePullSecrets:              []corev1.LocalObjectReference{{Name: "registry"}},
	}
	return c
}

func TestObjectsAreTheGoldenOnes(t *testing.T) {
	options := func(c *v1alpha1.BrokerCluster) StatefulSetOptions {
		return StatefulSetOptions{Image: "ringmaster:dev", Replicas: *c.Spec.Replicas, Size: StorageSize(c)}
	}
	tests := map[string]struct {
		golden string
		object any
	}{
		"the StatefulSet of an empty spec":       {"statefulset.yaml", StatefulSet(plain(), options(plain()))},
		"the StatefulSet of a spec with it all":  {"statefulset-full.yaml", StatefulSet(full(), options(full()))},
		"the headless Service":                   {"service-brokers.yaml", BrokersService(plain())},
		"the bootstrap Service":                  {"service-bootstrap.yaml", BootstrapService(plain())},
		"the bootstrap Service of another port":  {"service-bootstrap-full.yaml", BootstrapService(full())},
		"the ConfigMap":                          {"configmap.yaml", ConfigMap(plain())},
		"the PodDisruptionBudget":                {"poddisruptionbudget.yaml", DisruptionBudget(plain())},
		"the ServiceAccount":                     {"serviceaccount.yaml", ServiceAccount(plain())},
		"the Role":                               {"role.yaml", Role(plain())},
		"the RoleBinding":                        {"rolebinding.yaml", RoleBinding(plain())},
		"the Topic of committed offsets":         {"topic-offsets.yaml", OffsetsTopic(plain())},
		"the Topic of offsets in few partitions": {"topic-offsets-full.yaml", OffsetsTopic(full())},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := manifest(t, tc.object)
			path := filepath.Join("testdata", tc.golden)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; run go test ./controllers/resources -update", err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("differs from %s (run go test ./controllers/resources -update if that is meant):\n%s", path, cmp.Diff(string(want), string(got)))
			}
		})
	}
}

// manifest is the object as YAML, without the status that only the API server fills in.
func manifest(t *testing.T, object any) []byte {
	t.Helper()
	raw, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "status")
	out, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBuildersDoNotChangeTheCluster(t *testing.T) {
	got, want := full(), full()
	StatefulSet(got, StatefulSetOptions{Image: "ringmaster:dev", Replicas: 3, Size: StorageSize(got)}).Spec.Template.Annotations["x"] = "y"
	BrokersService(got)
	BootstrapService(got)
	ConfigMap(got)
	DisruptionBudget(got)
	ServiceAccount(got)
	Role(got)
	RoleBinding(got)
	OffsetsTopic(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the BrokerCluster changed (-want +got):\n%s", diff)
	}
}

func TestBrokerOfClaim(t *testing.T) {
	tests := map[string]struct {
		claim  string
		wantID int32
		wantOK bool
	}{
		"a broker's claim":                        {"data-web-12", 12, true},
		"an ordinal below the first broker's":     {"data-web-0", 0, false},
		"the claim of a cluster of a longer name": {"data-web-eu-1", 0, false},
		"another volume's claim":                  {"logs-web-1", 0, false},
		"no ordinal":                              {"data-web-", 0, false},
		"an ordinal that is no int32":             {"data-web-99999999999", 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			id, ok := BrokerOfClaim(plain(), tc.claim)
			if id != tc.wantID || ok != tc.wantOK {
				t.Errorf("BrokerOfClaim(%q) = %d, %v; want %d, %v", tc.claim, id, ok, tc.wantID, tc.wantOK)
			}
		})
	}
}

func TestClaimNameAndBrokerOfClaimAgree(t *testing.T) {
	for id := int32(1); id <= 999; id++ {
		if got, ok := BrokerOfClaim(plain(), ClaimName(plain(), id)); !ok || got != id {
			t.Fatalf("BrokerOfClaim(ClaimName(%d)) = %d, %v", id, got, ok)
		}
	}
}

func TestAddressesOfClients(t *testing.T) {
	if got, want := BootstrapServers(plain()), "web-bootstrap.shop.svc:9092"; got != want {
		t.Errorf("BootstrapServers = %q, want %q", got, want)
	}
	if got, want := BrokerHost(plain(), 2), "web-2.web-brokers.shop.svc"; got != want {
		t.Errorf("BrokerHost = %q, want %q", got, want)
	}
	if got, want := BootstrapServers(full()), "web-bootstrap.shop.svc:19092"; got != want {
		t.Errorf("BootstrapServers = %q, want %q", got, want)
	}
}
