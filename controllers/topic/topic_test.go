// SPDX-License-Identifier: Apache-2.0

package topic_test

import (
	"encoding/base64"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// leaders are the leaders by partition.
func leaders(s v1alpha1.TopicStatus) map[int32]int32 {
	all := map[int32]int32{}
	for _, l := range s.Leaders {
		for _, p := range l.Partitions {
			Expect(all).NotTo(HaveKey(p), "partition of two leaders")
			all[p] = l.Broker
		}
	}
	return all
}

var _ = Describe("a Topic's placement", func() {
	It("is even, and whole", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 3)
		t := w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 12})
		s := w.placed(ctx, "orders", 12)
		Expect(leaders(s)).To(HaveLen(12))
		Expect(s.Leaders).To(HaveExactElements(
			And(HaveField("Broker", BeEquivalentTo(1)), HaveField("Partitions", HaveLen(4))),
			And(HaveField("Broker", BeEquivalentTo(2)), HaveField("Partitions", HaveLen(4))),
			And(HaveField("Broker", BeEquivalentTo(3)), HaveField("Partitions", HaveLen(4)))))
		Expect(s.Placement).To(MatchRegexp(`^1\[[0-9,-]+\] 2\[[0-9,-]+\] 3\[[0-9,-]+\]$`))
		Expect(s.ClusterRef).To(Equal("web"))
		Expect(s.TopicName).To(Equal("orders"))
		id, err := base64.RawURLEncoding.DecodeString(s.TopicID)
		Expect(err).NotTo(HaveOccurred())
		Expect(fmt.Sprintf("%x", id)).To(Equal(strings.ReplaceAll(string(t.UID), "-", "")))
		Eventually(env.Notes(ctx, w.ns, "orders", v1alpha1.ReasonPlaced)).Should(ConsistOf("Normal: 12 partitions on 3 brokers"))
		Expect(w.read(ctx, "orders")()).To(HaveField("Finalizers", BeEmpty()))
	})

	It("keeps every leader when partitions and brokers are added", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 2)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 4})
		before := leaders(w.placed(ctx, "orders", 4))

		By("brokers alone change nothing")
		w.scale(ctx, "web", 4)
		w.quiet()
		Expect(leaders(w.placed(ctx, "orders", 4))).To(Equal(before))

		By("new partitions go to the brokers that have fewest")
		w.merge(ctx, &v1alpha1.Topic{ObjectMeta: w.meta("orders")}, `{"spec":{"partitions":8}}`)
		after := leaders(w.placed(ctx, "orders", 8))
		for p, broker := range before {
			Expect(after).To(HaveKeyWithValue(p, broker))
		}
		load := map[int32]int{}
		for _, broker := range after {
			load[broker]++
		}
		Expect(load).To(Equal(map[int32]int{1: 2, 2: 2, 3: 2, 4: 2}))

		By("a broker fewer changes nothing, for its records are nowhere else")
		w.scale(ctx, "web", 3)
		w.quiet()
		Expect(leaders(w.placed(ctx, "orders", 8))).To(Equal(after))
	})

	It("is found again by a Topic that is created anew", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 3)
		t := w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 4})
		first := w.placed(ctx, "orders", 4)
		w.merge(ctx, t, `{"spec":{"partitions":11}}`)
		before := w.placed(ctx, "orders", 11)
		Expect(env.Client.Delete(ctx, t)).To(Succeed())
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 11})
		after := w.placed(ctx, "orders", 11)
		Expect(leaders(after)).To(Equal(leaders(before)))
		Expect(after.TopicID).NotTo(Equal(first.TopicID))
	})

	It("takes the largest topic that there may be", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 7)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 10000})
		Expect(leaders(w.placed(ctx, "orders", 10000))).To(HaveLen(10000))
	})

	It("survives a restart of the operator without a write", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 3)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 12})
		w.topic(ctx, "taken", v1alpha1.TopicSpec{Partitions: 2, TopicName: "orders"})
		before := w.placed(ctx, "orders", 12)
		w.quiet()
		Expect(w.manager.Stop()).To(Succeed())
		w.start()
		w.quiet()
		Expect(w.manager.Writes()).To(BeEmpty())
		Expect(w.placed(ctx, "orders", 12)).To(Equal(before))
	})

	It("writes nothing when brokers come and go", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.cluster(ctx, "web", 2)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 4})
		w.placed(ctx, "orders", 4)
		w.quiet()
		writes := len(w.manager.Writes())
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		before := c.DeepCopy()
		c.Status.Brokers[0].Phase = v1alpha1.BrokerReady
		Expect(env.Client.Status().Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		w.merge(ctx, c, `{"metadata":{"annotations":{"a":"b"}}}`)
		w.quiet()
		Expect(w.manager.Writes()).To(HaveLen(writes))
	})
})

var _ = Describe("a Topic's name", func() {
	It("belongs to the Topic that had it first, and then to the next one", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 2)
		holder := w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 4})
		before := leaders(w.placed(ctx, "orders", 4))
		w.topic(ctx, "also-orders", v1alpha1.TopicSpec{Partitions: 4, TopicName: "orders"})
		Eventually(w.read(ctx, "also-orders")).Should(And(
			reason(v1alpha1.ReasonTopicNameTaken),
			message("topic orders of BrokerCluster web is already that of the Topic orders; delete one of the two"),
			HaveField("Status.Leaders", BeEmpty())))
		Eventually(env.Notes(ctx, w.ns, "also-orders", v1alpha1.ReasonTopicNameTaken)).Should(ConsistOf(HavePrefix("Warning: topic orders")))
		Expect(w.read(ctx, "orders")()).To(reason(v1alpha1.ReasonPlaced))
		w.quiet()

		Expect(env.Client.Delete(ctx, holder)).To(Succeed())
		Expect(leaders(w.placed(ctx, "also-orders", 4))).To(Equal(before), "the records are where they were")
	})

	It("may be used once in every cluster", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1)
		w.cluster(ctx, "other", 1)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 1, ClusterRef: "web"})
		w.topic(ctx, "orders-too", v1alpha1.TopicSpec{Partitions: 1, ClusterRef: "other", TopicName: "orders"})
		w.placed(ctx, "orders", 1)
		w.placed(ctx, "orders-too", 1)
	})
})

var _ = Describe("a Topic's cluster", func() {
	It("may come after it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 2})
		w.topic(ctx, "named", v1alpha1.TopicSpec{Partitions: 2, ClusterRef: "web"})
		Eventually(w.read(ctx, "orders")).Should(And(reason(v1alpha1.ReasonClusterNotFound),
			message("there is no BrokerCluster in this namespace; create one")))
		Eventually(w.read(ctx, "named")).Should(And(reason(v1alpha1.ReasonClusterNotFound),
			message("there is no BrokerCluster web in this namespace; create it, or create this Topic anew with another clusterRef")))
		Eventually(env.Notes(ctx, w.ns, "orders", v1alpha1.ReasonClusterNotFound)).Should(ConsistOf(HavePrefix("Warning: ")))

		c := &v1alpha1.BrokerCluster{ObjectMeta: w.meta("web")}
		Expect(env.Client.Create(ctx, c)).To(Succeed())
		Eventually(w.read(ctx, "orders")).Should(And(reason(v1alpha1.ReasonBrokersPending),
			message("BrokerCluster web has no brokers yet; waiting for it: kubectl --namespace "+w.ns+" describe brokercluster web")))

		w.report(ctx, "web", 2)
		w.placed(ctx, "orders", 2)
		w.placed(ctx, "named", 2)
	})

	It("must be named where there are several, except for a Topic that has one already", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1)
		w.topic(ctx, "before", v1alpha1.TopicSpec{Partitions: 1})
		before := w.placed(ctx, "before", 1)
		w.cluster(ctx, "other", 1)
		w.topic(ctx, "after", v1alpha1.TopicSpec{Partitions: 1})
		Eventually(w.read(ctx, "after")).Should(And(reason(v1alpha1.ReasonClusterAmbiguous),
			message("there are several BrokerClusters in this namespace (other, web); create this Topic anew with clusterRef set to one of them")))
		w.quiet()
		Expect(w.placed(ctx, "before", 1)).To(Equal(before))
	})

	It("keeps the Topic's place for its return", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.cluster(ctx, "web", 2)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 4})
		before := leaders(w.placed(ctx, "orders", 4))
		Expect(env.Client.Delete(ctx, c)).To(Succeed())
		Eventually(w.read(ctx, "orders")).Should(reason(v1alpha1.ReasonClusterNotFound))
		w.cluster(ctx, "web", 3)
		Expect(leaders(w.placed(ctx, "orders", 4))).To(Equal(before))
	})

	It("being another one, the Topic is placed afresh", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.cluster(ctx, "web", 3)
		w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 6})
		w.placed(ctx, "orders", 6)
		Expect(env.Client.Delete(ctx, c)).To(Succeed())
		Eventually(w.read(ctx, "orders")).Should(reason(v1alpha1.ReasonClusterNotFound))
		w.cluster(ctx, "other", 1)
		s := w.placed(ctx, "orders", 6)
		Expect(s.ClusterRef).To(Equal("other"))
		Expect(s.Placement).To(Equal("1[0-5]"))
	})
})

var _ = Describe("the end of a Topic", func() {
	It("waits for nothing", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1)
		t := w.topic(ctx, "orders", v1alpha1.TopicSpec{Partitions: 1, DeletionPolicy: v1alpha1.DeletionDelete})
		w.placed(ctx, "orders", 1)
		Expect(w.manager.Stop()).To(Succeed()) // even without an operator
		Expect(env.Client.Delete(ctx, t)).To(Succeed())
		_, err := w.read(ctx, "orders")()
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})
})
