// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/controllers/consumergroup"
)

var _ = Describe("the members of a ConsumerGroup", func() {
	It("are the selector's pods, and scaling 3 to 4 to 3 to 2 moves the minimum every time", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 12)
		w.group(ctx, "web")
		for i := range 3 {
			w.pod(ctx, fmt.Sprint("web-", i))
		}
		before := w.settled(ctx, "web", "web-0", "web-1", "web-2")
		Expect(before).To(readyIs(metav1.ConditionTrue, v1alpha1.ReasonAssigned))
		Expect(before.Status).To(And(
			HaveField("State", v1alpha1.GroupStable), HaveField("Partitions", BeEquivalentTo(12)), HaveField("Selector", "app=web"),
			HaveField("ClusterRef", "demo"), HaveField("GroupID", "web")))

		steps := []struct {
			act     func()
			members []string
			moved   int32
			reason  string
			message string
		}{
			{func() { w.pod(ctx, "web-3") }, []string{"web-0", "web-1", "web-2", "web-3"}, 3, "MemberJoined", "member web-3 joined"},
			{func() { w.remove(ctx, "web-1") }, []string{"web-0", "web-2", "web-3"}, 3, "MemberLeft", "member web-1 left"},
			{func() { w.remove(ctx, "web-3") }, []string{"web-0", "web-2"}, 4, "MemberLeft", "member web-3 left"},
		}
		for _, step := range steps {
			step.act()
			after := w.settled(ctx, "web", step.members...)
			Expect(after.Status.Generation).To(Equal(before.Status.Generation + 1))
			Expect(*after.Status.LastRebalance).To(And(
				HaveField("Moved", step.moved), HaveField("Minimum", step.moved), HaveField("Reason", step.reason), HaveField("Message", step.message)))
			Expect(assigner.Moves(owners(before), owners(after))).To(BeEquivalentTo(step.moved))
			Eventually(env.Notes(ctx, w.ns, "web", "Rebalanced")).Should(ContainElement(fmt.Sprintf(
				"Normal: generation %d: moved %d of 12 partitions (minimum %d): %s", after.Status.Generation, step.moved, step.moved, step.message)))
			before = after
		}
	})

	It("keep their seats for the grace period when they are not ready, and lose them afterwards", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 8)
		w.group(ctx, "web", grace(3*time.Second))
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1")
		before := w.settled(ctx, "web", "web-0", "web-1")

		w.ready(ctx, "web-1", corev1.ConditionFalse)
		Eventually(w.read(ctx, "web")).Should(WithTransform(func(g *v1alpha1.ConsumerGroup) []string {
			return members(g, v1alpha1.MemberGrace)
		}, Equal([]string{"web-1"})))
		w.ready(ctx, "web-1", corev1.ConditionTrue)
		back := w.settled(ctx, "web", "web-0", "web-1")
		Expect(back.Status.Generation).To(Equal(before.Status.Generation))
		Expect(owners(back)).To(Equal(owners(before)))
		Expect(back.Status.Members[1].GraceDeadline).To(BeNil())

		w.ready(ctx, "web-1", corev1.ConditionFalse)
		after := w.settled(ctx, "web", "web-0")
		Expect(after.Status.Generation).To(Equal(before.Status.Generation + 1))
		Expect(after.Status.LastRebalance.Reason).To(Equal("MemberExpired"))
	})

	It("lose their seats at once without a grace period", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 8)
		w.group(ctx, "web", grace(0))
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1")
		w.settled(ctx, "web", "web-0", "web-1")
		w.ready(ctx, "web-1", corev1.ConditionFalse)
		Expect(w.settled(ctx, "web", "web-0").Status.LastRebalance.Reason).To(Equal("MemberLeft"))
		w.ready(ctx, "web-1", corev1.ConditionTrue)
		w.settled(ctx, "web", "web-0", "web-1")
	})

	It("lose their seats at once when they terminate, fail or succeed, whatever the grace period", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 8)
		w.group(ctx, "web", grace(time.Hour))
		for _, name := range []string{"web-a", "web-b", "web-c", "web-d"} {
			w.pod(ctx, name)
		}
		w.settled(ctx, "web", "web-a", "web-b", "web-c", "web-d")
		Expect(env.Client.Delete(ctx, &corev1.Pod{ObjectMeta: w.meta("web-a")})).To(Succeed())
		w.settled(ctx, "web", "web-b", "web-c", "web-d")
		pod := &corev1.Pod{}
		Expect(env.Client.Get(ctx, w.key("web-a"), pod)).To(Succeed(), "the pod must be terminating, not gone")
		w.podStatus(ctx, "web-b", func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
		w.settled(ctx, "web", "web-c", "web-d")
		w.podStatus(ctx, "web-c", func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
		w.settled(ctx, "web", "web-d")
		w.remove(ctx, "web-d")
		group := w.settled(ctx, "web")
		Expect(group).To(readyIs(metav1.ConditionFalse, v1alpha1.ReasonNoMembers))
		Expect(group.Status.State).To(Equal(v1alpha1.GroupEmpty))
	})

	It("of a StatefulSet give their seats to pods of the same name", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 8)
		set := w.statefulSet(ctx, "db", 2)
		w.group(ctx, "web", grace(time.Hour))
		w.pod(ctx, "db-0", ownedBy(set))
		old := w.pod(ctx, "db-1", ownedBy(set))
		before := w.settled(ctx, "web", "db-0", "db-1")

		By("terminating")
		Expect(env.Client.Delete(ctx, &corev1.Pod{ObjectMeta: w.meta("db-1")})).To(Succeed())
		inGrace := WithTransform(func(g *v1alpha1.ConsumerGroup) []string { return members(g, v1alpha1.MemberGrace) }, Equal([]string{"db-1"}))
		Eventually(w.read(ctx, "web")).Should(inGrace)
		By("gone")
		w.remove(ctx, "db-1")
		Consistently(w.read(ctx, "web"), 500*time.Millisecond).Should(inGrace)
		By("back under the same name")
		pod := w.pod(ctx, "db-1", ownedBy(set))
		after := w.settled(ctx, "web", "db-0", "db-1")
		Expect(after.Status.Generation).To(Equal(before.Status.Generation))
		Expect(owners(after)).To(Equal(owners(before)))
		Expect(after.Status.Members[1].UID).To(And(Equal(pod.UID), Not(Equal(old.UID))))
		Expect(after.Status.Members[1].IP).NotTo(Equal(before.Status.Members[1].IP))

		By("gone for good when the StatefulSet is scaled down")
		one := int32(1)
		set.Spec.Replicas = &one
		Expect(env.Client.Update(ctx, set)).To(Succeed())
		w.remove(ctx, "db-1")
		Expect(w.settled(ctx, "web", "db-0").Status.LastRebalance.Reason).To(Equal("MemberLeft"))

		By("gone for good while they wait, when the StatefulSet is deleted")
		w.ready(ctx, "db-0", corev1.ConditionFalse)
		w.remove(ctx, "db-0")
		Eventually(w.read(ctx, "web")).Should(WithTransform(func(g *v1alpha1.ConsumerGroup) []string {
			return members(g, v1alpha1.MemberGrace)
		}, Equal([]string{"db-0"})))
		Expect(env.Client.Delete(ctx, set)).To(Succeed())
		w.settled(ctx, "web")
	})

	It("have no address of their own with the host's network, for the whole node has it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		w.group(ctx, "web")
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
		group := w.settled(ctx, "web", "web-0", "web-1")
		Expect(group.Status.Members[0].IP).NotTo(BeEmpty())
		Expect(group.Status.Members[1].IP).To(BeEmpty())
	})

	It("may be members of two groups", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 6)
		w.topic(ctx, "clicks", 4)
		w.group(ctx, "web")
		w.group(ctx, "audit", reads("clicks", "orders"), func(s *v1alpha1.ConsumerGroupSpec) {
			s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "audited", Operator: metav1.LabelSelectorOpExists},
			}}
		})
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1", func(p *corev1.Pod) { p.Labels["audited"] = "yes" })
		w.pod(ctx, "other", func(p *corev1.Pod) { p.Labels = map[string]string{"audited": "yes"} })
		w.settled(ctx, "web", "web-0", "web-1")
		audit := w.settled(ctx, "audit", "other", "web-1")
		Expect(audit.Status.Partitions).To(BeEquivalentTo(10))

		By("a label that is taken away")
		pod := &corev1.Pod{}
		Expect(env.Client.Get(ctx, w.key("web-1"), pod)).To(Succeed())
		delete(pod.Labels, "audited")
		Expect(env.Client.Update(ctx, pod)).To(Succeed())
		w.settled(ctx, "audit", "other")
		w.settled(ctx, "web", "web-0", "web-1")
	})
})

var _ = Describe("the operator", func() {
	It("finds after a restart what it decided before, and writes nothing", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 12)
		w.group(ctx, "web")
		for i := range 3 {
			w.pod(ctx, fmt.Sprint("web-", i))
		}
		w.settled(ctx, "web", "web-0", "web-1", "web-2")
		w.ready(ctx, "web-2", corev1.ConditionFalse) // a deadline must survive, too
		Eventually(w.read(ctx, "web")).Should(HaveField("Status.Members", ContainElement(HaveField("Phase", v1alpha1.MemberGrace))))
		before, err := w.read(ctx, "web")()
		Expect(err).NotTo(HaveOccurred())
		Expect(w.manager.Stop()).To(Succeed())

		w.start()
		Consistently(w.read(ctx, "web"), time.Second).Should(HaveField("ResourceVersion", before.ResourceVersion))
		Expect(w.manager.Writes()).To(BeEmpty())

		By("seeing what happened meanwhile")
		Expect(w.manager.Stop()).To(Succeed())
		w.remove(ctx, "web-0")
		w.pod(ctx, "web-4")
		w.ready(ctx, "web-2", corev1.ConditionTrue)
		w.start()
		after := w.settled(ctx, "web", "web-1", "web-2", "web-4")
		Expect(after.Status.Generation).To(Equal(before.Status.Generation + 1))
		Expect(after.Status.LastRebalance.Reason).To(Equal("MemberJoined,MemberLeft"))
	})

	It("writes nothing while nothing changes, however often it looks", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 12)
		w.deployment(ctx, "web", 3)
		three := int32(3)
		w.group(ctx, "web", func(s *v1alpha1.ConsumerGroupSpec) {
			s.TargetRef, s.Replicas = &v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}, &three
		})
		w.group(ctx, "waiting", reads("nothing"))
		w.group(ctx, "wire", func(s *v1alpha1.ConsumerGroupSpec) { s.Selector = nil })
		for i := range 3 {
			w.pod(ctx, fmt.Sprint("web-", i))
		}
		w.settled(ctx, "web", "web-0", "web-1", "web-2")
		w.settled(ctx, "waiting", "web-0", "web-1", "web-2")
		Eventually(w.read(ctx, "wire")).Should(readyIs(metav1.ConditionTrue, v1alpha1.ReasonWireGroup))

		groups := func() map[string]string {
			list := &v1alpha1.ConsumerGroupList{}
			Expect(env.Client.List(ctx, list, client.InNamespace(w.ns))).To(Succeed())
			versions := make(map[string]string)
			for _, g := range list.Items {
				versions[g.Name] = g.ResourceVersion
			}
			return versions
		}
		writes := len(w.manager.Writes())
		for round := range 10 {
			for i := range 3 { // a label of a pod wakes the groups that select it
				patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, round))
				Expect(env.Client.Patch(ctx, &corev1.Pod{ObjectMeta: w.meta(fmt.Sprint("web-", i))}, patch)).To(Succeed())
			}
			for name := range groups() {
				patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"round":"%d"}}}`, round))
				Expect(env.Client.Patch(ctx, &v1alpha1.ConsumerGroup{ObjectMeta: w.meta(name)}, patch)).To(Succeed())
			}
		}
		versions := groups()
		Consistently(groups, 2*time.Second).Should(Equal(versions))
		Expect(w.manager.Writes()[writes:]).To(BeEmpty())
	})

	It("never writes what it computed from an older status", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		w.group(ctx, "web")
		w.pod(ctx, "web-0")
		stale := w.settled(ctx, "web", "web-0")
		w.pod(ctx, "web-1")
		w.settled(ctx, "web", "web-0", "web-1")
		w.pod(ctx, "web-2")
		current := w.settled(ctx, "web", "web-0", "web-1", "web-2")

		behind := interceptor.NewClient(watcher, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if group, ok := obj.(*v1alpha1.ConsumerGroup); ok {
					stale.DeepCopyInto(group)
					return nil
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		recorder := events.NewFakeRecorder(10)
		r := &consumergroup.Reconciler{Client: behind, Recorder: recorder}
		_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: w.key("web")})
		Expect(err).NotTo(HaveOccurred())
		Expect(recorder.Events).To(BeEmpty())
		after, err := w.read(ctx, "web")()
		Expect(err).NotTo(HaveOccurred())
		Expect(after.ResourceVersion).To(Equal(current.ResourceVersion))
	})

	It("leaves the lag alone, which others write", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		w.group(ctx, "web")
		w.pod(ctx, "web-0")
		group := w.settled(ctx, "web", "web-0")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"lag":{"total":42,"max":40,"time":"2026-01-02T03:04:05Z"}}}`))
		Expect(env.Client.Status().Patch(ctx, group, patch)).To(Succeed())
		w.pod(ctx, "web-1")
		Expect(w.settled(ctx, "web", "web-0", "web-1").Status.Lag).To(HaveField("Total", BeEquivalentTo(42)))
	})
})

var _ = Describe("the topics of a ConsumerGroup", func() {
	It("that do not exist yet are named, and read once they do", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		w.group(ctx, "web", reads("orders", "clicks"))
		w.pod(ctx, "web-0")
		w.settled(ctx, "web", "web-0")
		pending := readyIs(metav1.ConditionFalse, v1alpha1.ReasonTopicsPending)
		Eventually(w.read(ctx, "web")).Should(And(pending,
			HaveField("Status.Partitions", BeEquivalentTo(4)), HaveField("Status.Assignments", "web-0:orders[0-3]"),
			HaveField("Status.Conditions", ContainElement(HaveField("Message", ContainSubstring("waiting for clicks of BrokerCluster demo"))))))

		By("a topic of that name in another cluster, which does not count")
		w.cluster(ctx, "other")
		w.topic(ctx, "others-clicks", 6, func(t *v1alpha1.Topic) { t.Spec.TopicName, t.Spec.ClusterRef = "clicks", "other" })
		Consistently(w.read(ctx, "web"), 500*time.Millisecond).Should(And(pending, HaveField("Status.Partitions", BeEquivalentTo(4))))

		By("the topic itself")
		w.topic(ctx, "our-clicks", 2, func(t *v1alpha1.Topic) { t.Spec.TopicName = "clicks" })
		Eventually(w.read(ctx, "web")).Should(And(
			readyIs(metav1.ConditionTrue, v1alpha1.ReasonAssigned),
			HaveField("Status.Assignments", "web-0:clicks[0-1],orders[0-3]"), HaveField("Status.LastRebalance.Reason", "TopicAdded")))

		By("a topic that is deleted")
		Expect(env.Client.Delete(ctx, &v1alpha1.Topic{ObjectMeta: w.meta("orders")})).To(Succeed())
		Eventually(w.read(ctx, "web")).Should(And(pending,
			HaveField("Status.Assignments", "web-0:clicks[0-1]"), HaveField("Status.LastRebalance.Reason", "TopicRemoved")))
	})

	It("may grow: only the new partitions are given out", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		w.group(ctx, "web")
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1")
		before := w.settled(ctx, "web", "web-0", "web-1")
		w.grow(ctx, "orders", 10)
		Eventually(w.read(ctx, "web")).Should(HaveField("Status.Partitions", BeEquivalentTo(10)))
		after := w.settled(ctx, "web", "web-0", "web-1")
		Expect(*after.Status.LastRebalance).To(And(HaveField("Moved", BeEquivalentTo(6)), HaveField("Reason", "PartitionsAdded"),
			HaveField("Message", "topic orders grew from 4 to 10 partitions")))
		Expect(assigner.Moves(owners(before), owners(after))).To(Equal(6))
	})

	It("are read in the zone of their leaders, where balance and moves allow it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		zone := func(name string) func(*corev1.Pod) {
			return func(pod *corev1.Pod) { pod.Labels[corev1.LabelTopologyZone] = name }
		}
		broker := func(pod *corev1.Pod) { pod.Labels["app"] = "broker" }
		w.pod(ctx, "demo-1", broker, zone("north"))
		w.pod(ctx, "demo-2", broker, zone("south"))
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"status":{"leaders":[{"broker":1,"partitions":[1,3]},{"broker":2,"partitions":[0,2]}]}}`))
		Expect(env.Client.Status().Patch(ctx, &v1alpha1.Topic{ObjectMeta: w.meta("orders")}, patch)).To(Succeed())
		w.pod(ctx, "web-0", zone("north"))
		w.pod(ctx, "web-1", zone("south"))
		w.group(ctx, "web")
		group := w.settled(ctx, "web", "web-0", "web-1")
		Expect(group.Status.Assignments).To(Equal("web-0:orders[1,3] web-1:orders[0,2]"))
		Expect(group.Status.Members).To(HaveEach(HaveField("Zone", Not(BeEmpty()))))
	})

	It("may be assigned by another assigner, from one generation to the next", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.history.finish() // Range moves more than the minimum
		w.topic(ctx, "orders", 4)
		w.group(ctx, "web")
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1")
		w.settled(ctx, "web", "web-0", "web-1")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"assigner":"Range"}}`))
		Expect(env.Client.Patch(ctx, &v1alpha1.ConsumerGroup{ObjectMeta: w.meta("web")}, patch)).To(Succeed())
		Eventually(w.read(ctx, "web")).Should(HaveField("Status.Assignments", "web-0:orders[0-1] web-1:orders[2-3]"))
	})
})

var _ = Describe("a ConsumerGroup", func() {
	It("has its id for itself: the older one holds it, and the other takes over when it goes", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		id := func(s *v1alpha1.ConsumerGroupSpec) { s.GroupID = "billing" }
		w.pod(ctx, "web-0")
		first := w.group(ctx, "a", id)
		w.settled(ctx, "a", "web-0")
		w.group(ctx, "b", id)
		Eventually(w.read(ctx, "b")).Should(And(readyIs(metav1.ConditionFalse, v1alpha1.ReasonGroupIDTaken), HaveField("Status.Members", BeEmpty())))
		Eventually(env.Notes(ctx, w.ns, "b", v1alpha1.ReasonGroupIDTaken)).Should(HaveExactElements(HavePrefix(
			"Warning: group id billing of BrokerCluster demo is already that of the ConsumerGroup a")))
		Expect(w.settled(ctx, "a", "web-0")).To(readyIs(metav1.ConditionTrue, v1alpha1.ReasonAssigned))
		Expect(env.Client.Delete(ctx, first)).To(Succeed())
		Expect(w.settled(ctx, "b", "web-0")).To(readyIs(metav1.ConditionTrue, v1alpha1.ReasonAssigned))
	})

	It("waits for its BrokerCluster, and keeps to it when a second one comes", func(ctx SpecContext) {
		w := newWorld(ctx)
		Expect(env.Client.Delete(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta("demo")})).To(Succeed())
		w.topic(ctx, "orders", 4)
		w.pod(ctx, "web-0")
		w.group(ctx, "web")
		Eventually(w.read(ctx, "web")).Should(And(readyIs(metav1.ConditionFalse, v1alpha1.ReasonClusterNotFound), HaveField("Status.State", v1alpha1.GroupEmpty)))
		Eventually(env.Notes(ctx, w.ns, "web", v1alpha1.ReasonClusterNotFound)).Should(HaveLen(1))
		w.cluster(ctx, "demo")
		before := w.settled(ctx, "web", "web-0")
		w.cluster(ctx, "second")
		Consistently(w.read(ctx, "web"), 500*time.Millisecond).Should(HaveField("ResourceVersion", before.ResourceVersion))

		w.group(ctx, "late")
		Eventually(w.read(ctx, "late")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonClusterAmbiguous))
		w.group(ctx, "named", func(s *v1alpha1.ConsumerGroupSpec) { s.ClusterRef = "demo" })
		w.settled(ctx, "named", "web-0")
	})

	It("without a selector says where its members are to be seen", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		w.pod(ctx, "web-0")
		w.group(ctx, "wire", func(s *v1alpha1.ConsumerGroupSpec) { s.Selector = nil })
		Eventually(w.read(ctx, "wire")).Should(And(
			readyIs(metav1.ConditionTrue, v1alpha1.ReasonWireGroup), HaveField("Status.State", v1alpha1.GroupEmpty),
			HaveField("Status.Partitions", BeEquivalentTo(4)), HaveField("Status.Members", BeEmpty()),
			HaveField("Status.Conditions", ContainElement(HaveField("Message", ContainSubstring("ringmaster group describe wire"))))))
	})

	It("scales the workload that it targets, through the scale subresource of both", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		group := w.group(ctx, "web", func(s *v1alpha1.ConsumerGroupSpec) {
			s.TargetRef = &v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}
		})
		Eventually(w.read(ctx, "web")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonTargetNotFound))
		Eventually(env.Notes(ctx, w.ns, "web", v1alpha1.ReasonTargetNotFound)).Should(HaveLen(1))
		w.deployment(ctx, "web", 2)
		Eventually(w.read(ctx, "web")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonNoMembers))

		By("kubectl scale consumergroup web --replicas 5")
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
		Expect(env.Client.SubResource("scale").Update(ctx, group, client.WithSubResourceBody(scale))).To(Succeed())
		replicas := func() (int32, error) {
			d := &appsv1.Deployment{}
			err := env.Client.Get(ctx, w.key("web"), d)
			return *d.Spec.Replicas, err
		}
		Eventually(replicas).Should(BeEquivalentTo(5))
		Eventually(env.Notes(ctx, w.ns, "web", "Scaled")).Should(HaveExactElements("Normal: scaled Deployment web from 2 to 5"))

		By("undoing what others change")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":1}}`))
		Expect(env.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: w.meta("web")}, patch)).To(Succeed())
		Eventually(replicas).Should(BeEquivalentTo(5))

		By("leaving the workload of an older group alone")
		one := int32(1)
		second := w.group(ctx, "x-second", func(s *v1alpha1.ConsumerGroupSpec) {
			s.TargetRef, s.Replicas = &v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}, &one
		})
		Eventually(w.read(ctx, "x-second")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonTargetTaken))
		Consistently(replicas, 300*time.Millisecond).Should(BeEquivalentTo(5))

		w.pod(ctx, "web-0")
		w.settled(ctx, "web", "web-0")
		Expect(env.Client.SubResource("scale").Get(ctx, group, scale)).To(Succeed())
		Expect(scale.Status).To(And(HaveField("Replicas", BeEquivalentTo(1)), HaveField("Selector", "app=web")))

		By("taking it over when the older group lets go")
		patch = client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":null}}`))
		Expect(env.Client.Patch(ctx, &v1alpha1.ConsumerGroup{ObjectMeta: w.meta("web")}, patch)).To(Succeed())
		Eventually(replicas).Should(BeEquivalentTo(1))
		Eventually(w.read(ctx, second.Name)).Should(readyIs(metav1.ConditionTrue, v1alpha1.ReasonAssigned))
	})
})
