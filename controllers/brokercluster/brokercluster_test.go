// SPDX-License-Identifier: Apache-2.0

package brokercluster_test

import (
	"context"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// settled waits until the cluster has all its children and its offsets topic is placed.
func (w *world) settled(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(read[v1alpha1.Topic](ctx, w, name+"-consumer-offsets")).Should(HaveField("Status.Partitions", BeNumerically(">", 0)))
	Eventually(read[v1alpha1.BrokerCluster](ctx, w, name)).Should(HaveField("Status.Brokers", Not(BeEmpty())))
}

// quiet asserts that nothing is written while nothing changes. A second is long here: what a change sets off takes milliseconds.
func (w *world) quiet(ctx context.Context) {
	GinkgoHelper()
	writes, err := w.manager.Settle() // what is under way may end first
	Expect(err).NotTo(HaveOccurred())
	versions := w.versions(ctx)
	Consistently(func() int { return len(w.manager.Writes()) }, time.Second).Should(Equal(writes))
	Expect(w.versions(ctx)).To(Equal(versions))
}

var _ = Describe("a BrokerCluster", func() {
	It("gets its children, all of them owned by it, none with a finalizer", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.cluster(ctx, "web", 3)
		w.settled(ctx, "web")

		children := w.children(ctx)
		Expect(children).To(HaveLen(9))
		for _, name := range []string{
			"ConfigMap web-config", "PodDisruptionBudget web-brokers", "Role web-broker", "RoleBinding web-broker", "Service web-bootstrap",
			"Service web-brokers", "ServiceAccount web-broker", "StatefulSet web", "Topic web-consumer-offsets",
		} {
			Expect(children).To(HaveKey(name))
		}
		for name, child := range children {
			// The Topic says on whose volume the offsets are, so it stays where the volumes stay.
			Expect(metav1.IsControlledBy(child, c)).To(Equal(name != "Topic web-consumer-offsets"), name)
			Expect(child.GetFinalizers()).To(BeEmpty(), name)
			Expect(child.GetLabels()).To(HaveKeyWithValue(v1alpha1.LabelCluster, "web"), name)
		}

		set, err := read[appsv1.StatefulSet](ctx, w, "web")()
		Expect(err).NotTo(HaveOccurred())
		Expect(set.Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
		Expect(set.Spec.Ordinals.Start).To(BeEquivalentTo(1))
		Expect(set.Spec.Template.Spec.Containers[0].Image).To(Equal(image))

		offsets, err := read[v1alpha1.Topic](ctx, w, "web-consumer-offsets")()
		Expect(err).NotTo(HaveOccurred())
		Expect(offsets.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInternal, "true"))
		Expect(offsets.Spec.TopicName).To(Equal("__consumer_offsets"))
		Expect(offsets.Status.Partitions).To(BeEquivalentTo(16))

		live, err := read[v1alpha1.BrokerCluster](ctx, w, "web")()
		Expect(err).NotTo(HaveOccurred())
		Expect(live.Finalizers).To(BeEmpty())
		Expect(live.Status.BootstrapServers).To(Equal("web-bootstrap." + w.ns + ".svc:9092"))
		Expect(live.Status.Selector).To(Equal("app.kubernetes.io/component=broker,ringmaster.dev/cluster=web"))
	})

	It("leaves the offsets' Topic with its volumes, and a cluster of the same name finds it where it was", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.cluster(ctx, "web", 2)
		w.settled(ctx, "web")
		before, err := read[v1alpha1.Topic](ctx, w, "web-consumer-offsets")()
		Expect(err).NotTo(HaveOccurred())
		Expect(before.OwnerReferences).To(BeEmpty())
		w.scale(ctx, "web", 3)
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(HaveField("Status.Brokers", HaveLen(3)))

		By("made again with more brokers than when the Topic was placed")
		Expect(env.Client.Delete(ctx, c)).To(Succeed())
		again := w.cluster(ctx, "web", 3)
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(HaveField("Status.Brokers", HaveLen(3)))
		w.quiet(ctx)
		after, err := read[v1alpha1.Topic](ctx, w, "web-consumer-offsets")()
		Expect(err).NotTo(HaveOccurred())
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Status.Leaders).To(Equal(before.Status.Leaders))

		By("goes with the cluster while the volumes do")
		owned := WithTransform(func(t *v1alpha1.Topic) bool { return metav1.IsControlledBy(t, again) }, BeTrue())
		policy := func(p v1alpha1.DeletionPolicy) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storage":{"whenDeleted":"`+string(p)+`"}}}`))
			Expect(env.Client.Patch(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta("web")}, patch)).To(Succeed())
		}
		policy(v1alpha1.DeletionDelete)
		Eventually(read[v1alpha1.Topic](ctx, w, "web-consumer-offsets")).Should(owned)
		policy(v1alpha1.DeletionRetain)
		Eventually(read[v1alpha1.Topic](ctx, w, "web-consumer-offsets")).Should(Not(owned))
	})

	It("reports which brokers answer", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 3)
		w.settled(ctx, "web")
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonBrokersNotReady))

		for id := int32(1); id <= 3; id++ {
			w.pod(ctx, "web", id, corev1.ConditionTrue)
		}
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(And(
			readyIs(metav1.ConditionTrue, v1alpha1.ReasonBrokersReady),
			HaveField("Status.ReadyReplicas", BeEquivalentTo(3)),
			HaveField("Status.Brokers", HaveExactElements(
				broker(w, 1, v1alpha1.BrokerReady), broker(w, 2, v1alpha1.BrokerReady), broker(w, 3, v1alpha1.BrokerReady))),
		))

		w.pod(ctx, "web", 2, corev1.ConditionFalse)
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(And(
			readyIs(metav1.ConditionFalse, v1alpha1.ReasonBrokersNotReady),
			HaveField("Status.Brokers", HaveExactElements(
				broker(w, 1, v1alpha1.BrokerReady), broker(w, 2, v1alpha1.BrokerNotReady), broker(w, 3, v1alpha1.BrokerReady))),
			HaveField("Status.Conditions", ContainElement(HaveField("Message", ContainSubstring("2 of 3 brokers answer; not ready: web-2;")))),
		))

		Expect(env.Client.Delete(ctx, &corev1.Pod{ObjectMeta: w.meta("web-3")}, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(HaveField("Status.ReadyReplicas", BeEquivalentTo(1)))
	})

	It("says what keeps a broker from running, and no more often than that changes", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 2)
		w.settled(ctx, "web")
		says := func(text string) OmegaMatcher {
			return And(readyIs(metav1.ConditionFalse, v1alpha1.ReasonBrokersNotReady),
				HaveField("Status.Conditions", ContainElement(HaveField("Message", ContainSubstring(text)))))
		}
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(says("web-1 does not exist yet; to see why: kubectl --namespace " + w.ns + " describe statefulset web"))

		w.pod(ctx, "web", 1, corev1.ConditionTrue)
		w.pod(ctx, "web", 2, corev1.ConditionFalse)
		wait := func(reason, message string) {
			p := &corev1.Pod{ObjectMeta: w.meta("web-2")}
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "broker", Image: image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
			}}}
			Expect(env.Client.Status().Update(ctx, p)).To(Succeed())
		}
		wait("ErrImagePull", "not found")
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(says(
			"web-2 cannot pull its image " + image + "; to see more: kubectl --namespace " + w.ns + " describe pod web-2"))
		writes := len(w.manager.Writes())
		for _, seconds := range []string{"10", "20", "40"} {
			wait("ImagePullBackOff", "back-off "+seconds+"s")
			wait("ErrImagePull", "not found, tried for "+seconds+" s")
		}
		Consistently(func() int { return len(w.manager.Writes()) }, time.Second).Should(Equal(writes))
	})

	It("writes nothing while nothing changes, nor when the operator is restarted", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 3)
		w.settled(ctx, "web")
		for id := int32(1); id <= 3; id++ {
			w.pod(ctx, "web", id, corev1.ConditionTrue)
		}
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(readyIs(metav1.ConditionTrue, v1alpha1.ReasonBrokersReady))
		w.quiet(ctx)

		By("an event that changes nothing that counts")
		Expect(env.Client.Patch(ctx, &corev1.Pod{ObjectMeta: w.meta("web-1")},
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))).To(Succeed())
		w.quiet(ctx)

		By("another operator")
		versions := w.versions(ctx)
		Expect(w.manager.Stop()).To(Succeed())
		w.start()
		w.quiet(ctx)
		Expect(w.manager.Writes()).To(BeEmpty())
		Expect(w.versions(ctx)).To(Equal(versions))
	})

	It("undoes what somebody changes in its children, and leaves alone what is theirs", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.cluster(ctx, "web", 1)
		w.settled(ctx, "web")
		w.quiet(ctx)
		edit := func(obj client.Object, patch string) {
			GinkgoHelper()
			Expect(env.Client.Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
		}

		edit(&appsv1.StatefulSet{ObjectMeta: w.meta("web")}, `{"spec":{"replicas":5}}`)
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(1))))

		edit(&corev1.Service{ObjectMeta: w.meta("web-bootstrap")}, `{"spec":{"selector":{"ringmaster.dev/cluster":"other"}}}`)
		Eventually(read[corev1.Service](ctx, w, "web-bootstrap")).Should(HaveField("Spec.Selector", HaveKeyWithValue("ringmaster.dev/cluster", "web")))

		edit(&rbacv1.Role{ObjectMeta: w.meta("web-broker")}, `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`)
		Eventually(read[rbacv1.Role](ctx, w, "web-broker")).Should(HaveField("Rules", HaveLen(2)))

		edit(&corev1.ConfigMap{ObjectMeta: w.meta("web-config")}, `{"data":{"bootstrap.servers":null}}`)
		Eventually(read[corev1.ConfigMap](ctx, w, "web-config")).Should(HaveField("Data", HaveKey("bootstrap.servers")))

		edit(&v1alpha1.Topic{ObjectMeta: w.meta("web-consumer-offsets")}, `{"spec":{"cleanupPolicy":"Delete"}}`)
		Eventually(read[v1alpha1.Topic](ctx, w, "web-consumer-offsets")).Should(HaveField("Spec.CleanupPolicy", v1alpha1.CleanupCompact))

		edit(&corev1.ServiceAccount{ObjectMeta: w.meta("web-broker")}, `{"metadata":{"ownerReferences":null}}`)
		Eventually(func() (bool, error) {
			account, err := read[corev1.ServiceAccount](ctx, w, "web-broker")()
			return err == nil && metav1.IsControlledBy(account, c), err
		}).Should(BeTrue())

		By("a deleted child comes back")
		Expect(env.Client.Delete(ctx, &corev1.Service{ObjectMeta: w.meta("web-brokers")})).To(Succeed())
		Eventually(read[corev1.Service](ctx, w, "web-brokers")).Should(HaveField("Spec.ClusterIP", "None"))

		By("an annotation of somebody else stays, and takes no write")
		w.quiet(ctx)
		writes := len(w.manager.Writes())
		edit(&corev1.Service{ObjectMeta: w.meta("web-bootstrap")}, `{"metadata":{"annotations":{"example.com/mine":"yes"}}}`)
		w.quiet(ctx)
		Expect(w.manager.Writes()).To(HaveLen(writes))
		Expect(read[corev1.Service](ctx, w, "web-bootstrap")()).To(HaveField("Annotations", HaveKeyWithValue("example.com/mine", "yes")))
	})

	It("gives up a field that its spec no longer sets", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1, func(s *v1alpha1.BrokerClusterSpec) {
			s.Template = &v1alpha1.BrokerPodTemplate{NodeSelector: map[string]string{"disk": "ssd"}, Labels: map[string]string{"team": "shop"}}
		})
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(And(
			HaveField("Spec.Template.Spec.NodeSelector", HaveKeyWithValue("disk", "ssd")),
			HaveField("Spec.Template.Labels", HaveKeyWithValue("team", "shop"))))
		Expect(env.Client.Patch(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta("web")},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":null}}`)))).To(Succeed())
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(And(
			HaveField("Spec.Template.Spec.NodeSelector", BeEmpty()),
			HaveField("Spec.Template.Labels", Not(HaveKey("team")))))
	})

	It("takes over no object that somebody else made", func(ctx SpecContext) {
		w := newWorld(ctx)
		theirs := &corev1.Service{ObjectMeta: w.meta("web-bootstrap")}
		theirs.Spec.Selector = map[string]string{v1alpha1.LabelCluster: "theirs"}
		theirs.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
		Expect(env.Client.Create(ctx, theirs)).To(Succeed())
		w.cluster(ctx, "web", 1)
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(And(
			readyIs(metav1.ConditionFalse, v1alpha1.ReasonApplyFailed),
			HaveField("Status.Conditions", ContainElement(HaveField("Message", ContainSubstring("Service web-bootstrap")))),
			HaveField("Status.Brokers", HaveLen(1)), // the rest of the status is there all the same
		))
		Eventually(env.Notes(ctx, w.ns, "web", v1alpha1.ReasonApplyFailed)).ShouldNot(BeEmpty())
		Expect(read[corev1.Service](ctx, w, "web-bootstrap")()).To(HaveField("OwnerReferences", BeEmpty()))
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(1))))

		By("and goes on when it is gone")
		Expect(env.Client.Delete(ctx, theirs)).To(Succeed())
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonBrokersNotReady))
	})
})

var _ = Describe("a BrokerCluster's number of brokers", func() {
	It("grows at once", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1)
		w.settled(ctx, "web")
		w.scale(ctx, "web", 3)
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(3))))
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(And(
			HaveField("Status.Replicas", BeEquivalentTo(3)), HaveField("Status.Brokers", HaveLen(3))))

		By("a broker that leads nothing may go again")
		w.scale(ctx, "web", 2)
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(2))))
	})

	It("shrinks no further than to the last broker that leads a partition", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1)
		w.settled(ctx, "web") // the offsets are all on broker 1
		w.scale(ctx, "web", 4)
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(HaveField("Status.Brokers", HaveLen(4)))
		orders := &v1alpha1.Topic{ObjectMeta: w.meta("orders"), Spec: v1alpha1.TopicSpec{Partitions: 4}}
		Expect(env.Client.Create(ctx, orders)).To(Succeed())
		Eventually(read[v1alpha1.Topic](ctx, w, "orders")).Should(HaveField("Status.Leaders", HaveLen(4)))

		w.scale(ctx, "web", 2)
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(And(
			readyIs(metav1.ConditionFalse, v1alpha1.ReasonScaleDownRefused),
			HaveField("Status.Replicas", BeEquivalentTo(4)),
			HaveField("Status.Conditions", ContainElement(HaveField("Message",
				"spec.replicas is 2, but partitions of orders have their records on broker 3, 4 alone; 4 brokers go on running; set spec.replicas to 4, or delete those topics first"))),
		))
		Eventually(env.Notes(ctx, w.ns, "web", v1alpha1.ReasonScaleDownRefused)).Should(ConsistOf(HavePrefix("Warning: spec.replicas is 2")))
		Expect(read[appsv1.StatefulSet](ctx, w, "web")()).To(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(4))))
		w.quiet(ctx)

		By("new topics keep clear of the brokers that are to go")
		Expect(env.Client.Create(ctx, &v1alpha1.Topic{ObjectMeta: w.meta("late"), Spec: v1alpha1.TopicSpec{Partitions: 8}})).To(Succeed())
		Eventually(read[v1alpha1.Topic](ctx, w, "late")).Should(HaveField("Status.Leaders", HaveExactElements(
			HaveField("Broker", BeEquivalentTo(1)), HaveField("Broker", BeEquivalentTo(2)))))

		By("the brokers go when the topic is gone")
		Expect(env.Client.Delete(ctx, orders)).To(Succeed())
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(2))))
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(HaveField("Status.Brokers", HaveLen(2)))
	})

	It("can be set through the scale subresource", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.cluster(ctx, "web", 1)
		w.settled(ctx, "web")
		Expect(env.Client.SubResource("scale").Patch(ctx, c, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`)))).To(Succeed())
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(2))))
	})
})

var _ = Describe("a BrokerCluster's volumes", func() {
	grow := func(ctx context.Context, w *world, size string) {
		GinkgoHelper()
		Expect(env.Client.Patch(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta("web")},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storage":{"size":"`+size+`"}}}`)))).To(Succeed())
	}

	It("stay as they are, with a refusal, where the API server does not let them grow", func(ctx SpecContext) {
		w := newWorld(ctx)
		size := resource.MustParse("1Gi")
		w.cluster(ctx, "web", 1, func(s *v1alpha1.BrokerClusterSpec) { s.Storage.Size = &size })
		w.settled(ctx, "web")
		claim := w.claim(ctx, "web", 1)
		w.quiet(ctx)
		generation := func() int64 {
			set, err := read[appsv1.StatefulSet](ctx, w, "web")()
			Expect(err).NotTo(HaveOccurred())
			return set.Generation
		}
		before := generation()

		// No class, not bound: the API server refuses to grow it.
		grow(ctx, w, "2Gi")
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(And(
			readyIs(metav1.ConditionFalse, v1alpha1.ReasonVolumeGrowthRefused),
			HaveField("Status.Conditions", ContainElement(HaveField("Message", ContainSubstring("StorageClass must allow expansion: grow volume "+claim))))))
		Eventually(env.Notes(ctx, w.ns, "web", v1alpha1.ReasonVolumeGrowthRefused)).ShouldNot(BeEmpty())
		Expect(generation()).To(Equal(before), "the StatefulSet's claim template cannot change")
	})

	It("grow in a class that allows it", func(ctx SpecContext) {
		w := newWorld(ctx)
		size, class := resource.MustParse("1Gi"), w.ns
		Expect(env.Client.Create(ctx, storageClass(class))).To(Succeed())
		w.cluster(ctx, "web", 1, func(s *v1alpha1.BrokerClusterSpec) {
			s.Storage.Size, s.Storage.ClassName = &size, &class
		})
		w.settled(ctx, "web")
		name := w.claim(ctx, "web", 1)
		claim, err := read[corev1.PersistentVolumeClaim](ctx, w, name)()
		Expect(err).NotTo(HaveOccurred())
		before := claim.DeepCopy()
		claim.Status.Phase = corev1.ClaimBound
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
		Expect(env.Client.Status().Patch(ctx, claim, client.MergeFrom(before))).To(Succeed())
		w.quiet(ctx)

		grow(ctx, w, "2Gi")
		Eventually(read[corev1.PersistentVolumeClaim](ctx, w, name)).Should(HaveField("Spec.Resources.Requests",
			HaveKeyWithValue(corev1.ResourceStorage, WithTransform(func(q resource.Quantity) string { return q.String() }, Equal("2Gi")))))
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonBrokersNotReady))
		w.quiet(ctx)

		By("the claim template stays as it is")
		Expect(read[appsv1.StatefulSet](ctx, w, "web")()).To(HaveField("Spec.VolumeClaimTemplates", ConsistOf(
			HaveField("Spec.Resources.Requests", HaveKeyWithValue(corev1.ResourceStorage, WithTransform(func(q resource.Quantity) string { return q.String() }, Equal("1Gi")))))))
	})
})

func storageClass(name string) *storagev1.StorageClass {
	yes := true
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/none", AllowVolumeExpansion: &yes}
}

func broker(w *world, id int32, phase v1alpha1.BrokerPhase) v1alpha1.BrokerStatus {
	return v1alpha1.BrokerStatus{
		ID: id, PodName: "web-" + itoa(id), Host: "web-" + itoa(id) + ".web-brokers." + w.ns + ".svc", Port: 9092, Phase: phase,
	}
}

var _ = Describe("a change of a BrokerCluster's spec", func() {
	It("reaches the pods", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1)
		w.settled(ctx, "web")
		Expect(env.Client.Patch(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta("web")}, client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"image":"ringmaster:next","listeners":[{"name":"other","port":19092}],"resources":{"limits":{"memory":"1Gi"}}}}`)))).To(Succeed())
		Eventually(read[appsv1.StatefulSet](ctx, w, "web")).Should(HaveField("Spec.Template.Spec.Containers", ConsistOf(And(
			HaveField("Image", "ringmaster:next"),
			HaveField("Args", ContainElement("--listen=0.0.0.0:19092")),
			HaveField("Ports", ContainElement(HaveField("ContainerPort", BeEquivalentTo(19092)))),
			HaveField("Ports", Not(ContainElement(HaveField("ContainerPort", BeEquivalentTo(9092))))),
			HaveField("Resources.Requests", Not(HaveKey(corev1.ResourceCPU))),
		))))
		Eventually(read[corev1.Service](ctx, w, "web-bootstrap")).Should(HaveField("Spec.Ports", ConsistOf(HaveField("Port", BeEquivalentTo(19092)))))
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(And(
			HaveField("Status.BootstrapServers", HaveSuffix(":19092")),
			HaveField("Status.Brokers", ConsistOf(HaveField("Port", BeEquivalentTo(19092)))),
		))
		w.quiet(ctx)
	})

	It("leaves the conditions in order: one, with the generation it was computed from", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.cluster(ctx, "web", 1)
		for replicas := int32(2); replicas <= 4; replicas++ {
			w.settled(ctx, "web")
			w.scale(ctx, "web", replicas)
			Eventually(func() (bool, error) {
				c, err := read[v1alpha1.BrokerCluster](ctx, w, "web")()
				if err != nil {
					return false, err
				}
				ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
				return len(c.Status.Conditions) == 1 && ready.ObservedGeneration == c.Generation && c.Status.ObservedGeneration == c.Generation, nil
			}).Should(BeTrue())
		}
	})
})

var _ = Describe("the end of a BrokerCluster", func() {
	It("waits for nothing, and a new one of its name takes over what is left", func(ctx SpecContext) {
		w := newWorld(ctx)
		old := w.cluster(ctx, "web", 1)
		w.settled(ctx, "web")
		w.quiet(ctx)
		Expect(env.Client.Delete(ctx, old)).To(Succeed())
		_, err := read[v1alpha1.BrokerCluster](ctx, w, "web")()
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "nothing holds it")

		By("what it had is not made again") // Kubernetes' garbage collector removes the rest; there is none here
		Expect(env.Client.Delete(ctx, &appsv1.StatefulSet{ObjectMeta: w.meta("web")})).To(Succeed())
		w.quiet(ctx)
		Expect(w.children(ctx)).NotTo(HaveKey("StatefulSet web"))

		next := w.cluster(ctx, "web", 2)
		Eventually(func() bool {
			children := w.children(ctx)
			delete(children, "Topic web-consumer-offsets") // which nobody owns
			for _, child := range children {
				if !metav1.IsControlledBy(child, next) || len(child.GetOwnerReferences()) != 1 {
					return false
				}
			}
			return len(children) == 8
		}).Should(BeTrue())
		w.quiet(ctx)
	})
})
