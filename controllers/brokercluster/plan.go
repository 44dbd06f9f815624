// SPDX-License-Identifier: Apache-2.0

package brokercluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// Bounds of a BrokerCluster's replicas.
const (
	defaultReplicas int32 = 3
	maxReplicas     int32 = 999
)

// plan is what the operator is to do about a BrokerCluster.
type plan struct {
	// asked is the number of brokers that the spec asks for.
	asked int32
	// replicas is the number of brokers to run: asked, or more where a broker cannot go. Never less than asked.
	replicas int32
	// kept holds, by broker, the names of the topics that keep a broker above asked, sorted. Empty unless replicas > asked.
	kept map[int32][]string
	// templateSize is the volume size in the StatefulSet's claim template: what it is already, for it cannot change.
	templateSize resource.Quantity
	// grow are the claims whose volume is smaller than the spec asks for, by broker id.
	grow []corev1.PersistentVolumeClaim
}

// decide is a pure function of the facts.
func decide(c *v1alpha1.BrokerCluster, f facts) plan {
	p := plan{asked: defaultReplicas, kept: map[int32][]string{}, templateSize: resources.StorageSize(c)}
	if c.Spec.Replicas != nil {
		p.asked = *c.Spec.Replicas
	}
	p.replicas = p.asked
	for i := range f.topics {
		p.keepLeaders(&f.topics[i])
	}
	for _, topics := range p.kept {
		slices.Sort(topics)
	}
	if f.statefulSet != nil {
		if size, ok := resources.ClaimTemplateSize(f.statefulSet); ok {
			p.templateSize = size
		}
	}
	want := resources.StorageSize(c)
	for _, id := range slices.Sorted(maps.Keys(f.claims)) {
		claim := f.claims[id]
		if has, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]; ok && has.Cmp(want) < 0 {
			p.grow = append(p.grow, claim)
		}
	}
	return p
}

// keepLeaders keeps the brokers that lead partitions of the topic: the partitions' records are on their volumes and nowhere else.
func (p *plan) keepLeaders(t *v1alpha1.Topic) {
	for _, leader := range t.Status.Leaders {
		if leader.Broker > p.asked && leader.Broker <= maxReplicas && len(leader.Partitions) > 0 {
			p.kept[leader.Broker] = append(p.kept[leader.Broker], t.KafkaName())
			p.replicas = max(p.replicas, leader.Broker)
		}
	}
}
