// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/clusterref"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// actionPlace is the action of every event.
const actionPlace = "Place"

// facts are what the operator sees around a Topic.
type facts struct {
	// clusters are the BrokerClusters of the namespace.
	clusters []v1alpha1.BrokerCluster
	// namesakes are the Topics of the namespace with the same Kafka name, this one among them.
	namesakes []v1alpha1.Topic
}

// decision is what becomes of a Topic.
type decision struct {
	// cluster is the name of its BrokerCluster, "" if it never had one.
	cluster string
	// leaders holds the leader of each partition, noLeader where there is none.
	leaders []int32
	// reason and message of the Ready condition.
	reason, message string
}

// refusals are the reasons that stand for something that the user must mend.
var refusals = map[string]bool{
	v1alpha1.ReasonTopicNameTaken:   true,
	v1alpha1.ReasonClusterNotFound:  true,
	v1alpha1.ReasonClusterAmbiguous: true,
}

// decide is a pure function of the facts.
func decide(t *v1alpha1.Topic, f facts) decision {
	d := decision{cluster: t.Status.ClusterRef, leaders: leadersOf(t.Status.Leaders, t.Spec.Partitions)}
	cluster, problem := clusterref.Resolve("Topic", t.Spec.ClusterRef, t.Status.ClusterRef, f.clusters)
	if problem != nil {
		// The leaders stay: the records are where they are, and a BrokerCluster of the same name may come back to them.
		d.reason, d.message = problem.Reason, problem.Message
		return d
	}
	if d.cluster != cluster.Name {
		d.cluster, d.leaders = cluster.Name, leadersOf(nil, t.Spec.Partitions)
	}
	if holder := holder(cluster.Name, f); holder != nil && holder.Name != t.Name {
		d.leaders = nil // two resources must never describe one topic to the brokers
		d.reason = v1alpha1.ReasonTopicNameTaken
		d.message = fmt.Sprintf("topic %s of BrokerCluster %s is already that of the Topic %s; delete one of the two", t.KafkaName(), cluster.Name, holder.Name)
		return d
	}
	d.leaders = place(t.KafkaName(), d.leaders, brokersOf(cluster))
	if slices.Contains(d.leaders, noLeader) {
		d.reason = v1alpha1.ReasonBrokersPending
		d.message = fmt.Sprintf("BrokerCluster %s has no brokers yet; waiting for it: kubectl --namespace %s describe brokercluster %s", cluster.Name, t.Namespace, cluster.Name)
		return d
	}
	d.reason = v1alpha1.ReasonPlaced
	d.message = fmt.Sprintf("%s on %s", count(len(d.leaders), "partition"), count(len(byBroker(d.leaders)), "broker"))
	return d
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// brokersOf lists the brokers that new partitions may be placed on: those that the cluster reports, less those that
// its spec no longer asks for.
func brokersOf(c *v1alpha1.BrokerCluster) []int32 {
	var ids []int32
	for _, b := range c.Status.Brokers {
		if c.Spec.Replicas == nil || b.ID <= *c.Spec.Replicas {
			ids = append(ids, b.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// holder returns the Topic that holds a Kafka name in a cluster, of its namesakes: the operator's own, then the older one, then the one
// whose partitions are placed, then the first by resource name. nil if none of them belongs to the cluster.
func holder(cluster string, f facts) *v1alpha1.Topic {
	var rivals []*v1alpha1.Topic
	for i := range f.namesakes {
		t := &f.namesakes[i]
		if c, problem := clusterref.Resolve("Topic", t.Spec.ClusterRef, t.Status.ClusterRef, f.clusters); problem == nil && c.Name == cluster {
			rivals = append(rivals, t)
		}
	}
	if len(rivals) == 0 {
		return nil
	}
	return slices.MinFunc(rivals, func(a, b *v1alpha1.Topic) int {
		return cmp.Or(
			first(isInternal(a, cluster), isInternal(b, cluster)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			first(len(a.Status.Leaders) > 0, len(b.Status.Leaders) > 0),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// first compares so that true comes before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// isInternal tells whether the operator keeps the Topic for a BrokerCluster. Only one can have its name, and the operator sees to it that this
// one is as it should be.
func isInternal(t *v1alpha1.Topic, cluster string) bool {
	return t.Name == resources.OffsetsTopicName(&v1alpha1.BrokerCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}) &&
		t.KafkaName() == v1alpha1.TopicConsumerOffsets
}

func ready(t *v1alpha1.Topic) *metav1.Condition {
	return meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReady)
}

// status computes the status from the decision.
func status(t *v1alpha1.Topic, d decision) v1alpha1.TopicStatus {
	s := v1alpha1.TopicStatus{
		ObservedGeneration: t.Generation,
		ClusterRef:         d.cluster,
		TopicName:          t.KafkaName(),
		TopicID:            topicID(t),
		Leaders:            byBroker(d.leaders),
		Conditions:         slices.Clone(t.Status.Conditions),
	}
	for _, l := range s.Leaders {
		s.Partitions += int32(len(l.Partitions))
	}
	s.Placement = compact(s.Leaders)
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: t.Generation,
		Reason:             d.reason,
		Message:            d.message,
	}
	if d.reason == v1alpha1.ReasonPlaced {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, condition)
	return s
}
