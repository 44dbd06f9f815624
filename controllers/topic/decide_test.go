// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

func TestHolderOfAName(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	topic := func(name string, created int64, change ...func(*v1alpha1.Topic)) v1alpha1.Topic {
		t := v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(created)}, Spec: v1alpha1.TopicSpec{TopicName: "orders", ClusterRef: "web"}}
		for _, f := range change {
			f(&t)
		}
		return t
	}
	placed := func(t *v1alpha1.Topic) {
		t.Status.Leaders = []v1alpha1.PartitionLeader{{Broker: 1, Partitions: []int32{0}}}
	}
	annotated := func(t *v1alpha1.Topic) { t.Annotations = map[string]string{v1alpha1.AnnotationInternal: "true"} }
	offsets := func(t *v1alpha1.Topic) { t.Spec.TopicName = v1alpha1.TopicConsumerOffsets }
	elsewhere := func(t *v1alpha1.Topic) { t.Spec.ClusterRef = "other" }
	tests := map[string]struct {
		topics []v1alpha1.Topic
		want   string
	}{
		"the older one": {[]v1alpha1.Topic{topic("a", 2), topic("b", 1)}, "b"},
		"of two of one second, the first by name":    {[]v1alpha1.Topic{topic("b", 1), topic("a", 1)}, "a"},
		"of two of one second, the placed one":       {[]v1alpha1.Topic{topic("b", 1, placed), topic("a", 1)}, "b"},
		"an older one, though a younger is placed":   {[]v1alpha1.Topic{topic("b", 1), topic("a", 2, placed)}, "b"},
		"the operator's own, though younger":         {[]v1alpha1.Topic{topic("a", 1, placed, offsets), topic("web-consumer-offsets", 2, annotated, offsets)}, "web-consumer-offsets"},
		"not that of another cluster":                {[]v1alpha1.Topic{topic("a", 1, offsets), topic("other-consumer-offsets", 2, annotated, offsets)}, "a"},
		"not one that says it is the operator's own": {[]v1alpha1.Topic{topic("a", 1), topic("b", 2, annotated)}, "a"},
		"not one of another cluster":                 {[]v1alpha1.Topic{topic("a", 1, elsewhere), topic("b", 2)}, "b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clusters := []v1alpha1.BrokerCluster{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, {ObjectMeta: metav1.ObjectMeta{Name: "other"}}}
			if got := holder("web", facts{clusters: clusters, namesakes: tc.topics}); got == nil || got.Name != tc.want {
				t.Errorf("holder = %v, want %s", got, tc.want)
			}
		})
	}
}

func TestTopicID(t *testing.T) {
	topic := &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{UID: "fbff7a0e-7e5b-4c5e-9a53-3d2f0a1c4b5d"}}
	if got, want := topicID(topic), "-_96Dn5bTF6aUz0vChxLXQ"; got != want {
		t.Errorf("topicID = %q, want %q", got, want)
	}
	for _, uid := range []string{"", "x", "fbff7a0e"} {
		topic.UID = types.UID(uid)
		if got := topicID(topic); got != "" {
			t.Errorf("topicID of uid %q = %q, want none", uid, got)
		}
	}
}
