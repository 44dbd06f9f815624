// SPDX-License-Identifier: Apache-2.0

package brokercluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

func cluster(replicas int32) *v1alpha1.BrokerCluster {
	size := resource.MustParse("2Gi")
	return &v1alpha1.BrokerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec:       v1alpha1.BrokerClusterSpec{Replicas: &replicas, Storage: v1alpha1.StorageSpec{Size: &size}},
	}
}

func ledBy(name string, brokers ...int32) v1alpha1.Topic {
	t := v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i, b := range brokers {
		t.Status.Leaders = append(t.Status.Leaders, v1alpha1.PartitionLeader{Broker: b, Partitions: []int32{int32(i)}})
	}
	return t
}

func TestDecideReplicas(t *testing.T) {
	none := v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Status: v1alpha1.TopicStatus{Leaders: []v1alpha1.PartitionLeader{{Broker: 9}}}}
	tests := map[string]struct {
		asked    int32
		topics   []v1alpha1.Topic
		want     int32
		wantKept map[int32][]string
	}{
		"what is asked, without topics":            {2, nil, 2, map[int32][]string{}},
		"what is asked, with topics below it":      {2, []v1alpha1.Topic{ledBy("a", 1, 2)}, 2, map[int32][]string{}},
		"a broker that leads stays":                {1, []v1alpha1.Topic{ledBy("b", 1, 3), ledBy("a", 3)}, 3, map[int32][]string{3: {"a", "b"}}},
		"a broker that leads no partitions goes":   {1, []v1alpha1.Topic{none}, 1, map[int32][]string{}},
		"a broker that cannot be counts for none":  {1, []v1alpha1.Topic{ledBy("a", 1000, 1<<30)}, 1, map[int32][]string{}},
		"the last broker that there may be counts": {1, []v1alpha1.Topic{ledBy("a", 999)}, 999, map[int32][]string{999: {"a"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide(cluster(tc.asked), facts{topics: tc.topics})
			if p.replicas != tc.want || p.asked != tc.asked {
				t.Errorf("replicas %d of %d, want %d", p.replicas, p.asked, tc.want)
			}
			if diff := cmp.Diff(tc.wantKept, p.kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideVolumes(t *testing.T) {
	c := cluster(3)
	claim := func(id int32, size string) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: resources.ClaimName(c, id)},
			Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			}},
		}
	}
	set := resources.StatefulSet(c, resources.StatefulSetOptions{Replicas: 3, Size: resource.MustParse("1Gi")})
	p := decide(c, facts{statefulSet: set, claims: map[int32]corev1.PersistentVolumeClaim{
		4: claim(4, "1Gi"), 1: claim(1, "2Gi"), 2: claim(2, "1Gi"), 3: claim(3, "3Gi"),
	}})
	var names []string
	for _, g := range p.grow {
		names = append(names, g.Name)
	}
	if diff := cmp.Diff([]string{"data-web-2", "data-web-4"}, names); diff != "" {
		t.Errorf("claims to grow (-want +got):\n%s", diff)
	}
	if p.templateSize.String() != "1Gi" {
		t.Errorf("template size %s, want that of the StatefulSet that is there", p.templateSize.String())
	}
	for name, set := range map[string]*appsv1.StatefulSet{"none": nil, "one without volumes": {}} {
		if p := decide(c, facts{statefulSet: set}); p.templateSize.String() != "2Gi" {
			t.Errorf("template size %s with a StatefulSet that is %s, want what is asked for", p.templateSize.String(), name)
		}
	}
}

func TestScaleDownRefusedNamesAFew(t *testing.T) {
	p := decide(cluster(1), facts{topics: []v1alpha1.Topic{
		ledBy("a", 2), ledBy("b", 3), ledBy("c", 4), ledBy("d", 5), ledBy("e", 6),
	}})
	got := scaleDownRefused(p)
	for _, want := range []string{"spec.replicas is 1", "of a, b, c and 2 more", "on broker 2, 3, 4 and 2 more alone", "set spec.replicas to 6"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func TestAScaleDownThatIsRefusedSaysWhatWouldBeLost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kept []string
		want string
	}{
		"records": {
			kept: []string{"orders"},
			want: "spec.replicas is 1, but partitions of orders have their records on broker 2 alone; 2 brokers go on running; set spec.replicas to 2, or delete those topics first",
		},
		"committed offsets": {
			kept: []string{"__consumer_offsets", "orders"},
			want: "spec.replicas is 1, but partitions of __consumer_offsets, orders have their records on broker 2 alone; 2 brokers go on running; set spec.replicas to 2, or delete those topics first" +
				"; __consumer_offsets holds the committed offsets of all consumer groups, which go with it",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := scaleDownRefused(plan{asked: 1, replicas: 2, kept: map[int32][]string{2: test.kept}}); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
