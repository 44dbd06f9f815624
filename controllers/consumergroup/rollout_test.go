// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// deployment is the Deployment web, whose controller the spec plays.
type deployment struct {
	*world
	object *appsv1.Deployment
	// hash is that of the ReplicaSet whose pods are started now.
	hash string
	made int
}

// newDeployment makes the Deployment web with all of its pods, which are web-a-1, web-a-2 and so on.
func newDeployment(ctx context.Context, w *world, replicas int32) *deployment {
	GinkgoHelper()
	d := &deployment{world: w, object: w.deployment(ctx, "web", replicas), hash: "a"}
	for range replicas {
		d.start(ctx)
	}
	d.status(ctx, "NewReplicaSetAvailable")
	return d
}

// start starts a pod of the newest ReplicaSet, and returns its name.
func (d *deployment) start(ctx context.Context) string {
	GinkgoHelper()
	d.made++
	name := fmt.Sprintf("web-%s-%d", d.hash, d.made)
	d.pod(ctx, name, func(pod *corev1.Pod) {
		pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = d.hash
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-" + d.hash, UID: "a-replica-set"}}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	})
	return name
}

// roll begins a rollout: the template changes, and there is a new ReplicaSet.
func (d *deployment) roll(ctx context.Context, hash string) {
	GinkgoHelper()
	before := d.object.DeepCopy()
	d.object.Spec.Template.Spec.Containers[0].Image = "consumer:" + hash
	Expect(env.Client.Patch(ctx, d.object, client.MergeFrom(before))).To(Succeed())
	d.hash = hash
	d.status(ctx, "ReplicaSetUpdated")
}

// scale changes how many pods there are to be.
func (d *deployment) scale(ctx context.Context, replicas int32) {
	GinkgoHelper()
	before := d.object.DeepCopy()
	d.object.Spec.Replicas = &replicas
	Expect(env.Client.Patch(ctx, d.object, client.MergeFrom(before))).To(Succeed())
}

// status writes what the controller says of the last rollout.
func (d *deployment) status(ctx context.Context, progressing string) {
	GinkgoHelper()
	before := d.object.DeepCopy()
	d.object.Status.ObservedGeneration = d.object.Generation
	d.object.Status.Replicas, d.object.Status.UpdatedReplicas = *d.object.Spec.Replicas, *d.object.Spec.Replicas
	d.object.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: progressing}}
	Expect(env.Client.Status().Patch(ctx, d.object, client.MergeFrom(before))).To(Succeed())
}

// terminate deletes a pod, whose containers take their time.
func (d *deployment) terminate(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(env.Client.Delete(ctx, &corev1.Pod{ObjectMeta: d.meta(name)})).To(Succeed())
}

// in waits until the group has these members in a phase, and returns it.
func (w *world) in(ctx context.Context, group string, phase v1alpha1.MemberPhase, names ...string) *v1alpha1.ConsumerGroup {
	GinkgoHelper()
	var seen *v1alpha1.ConsumerGroup
	Eventually(func(g Gomega) {
		var err error
		seen, err = w.read(ctx, group)()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(members(seen, phase)).To(Equal(names))
	}).Should(Succeed())
	return seen
}

// expectTakeover checks that between two versions one pod took over what another one had, and nothing else happened.
func expectTakeover(before, after *v1alpha1.ConsumerGroup, old, successor string) {
	GinkgoHelper()
	had, has := owners(before), owners(after)
	Expect(has[successor]).To(Equal(had[old]))
	Expect(*after.Status.LastRebalance).To(And(
		HaveField("Reason", "MemberReplaced"), HaveField("Message", fmt.Sprintf("member %s took over from %s", successor, old)),
		HaveField("Moved", BeEquivalentTo(len(had[old]))), HaveField("Minimum", BeEquivalentTo(len(had[old])))))
	Expect(after.Status.Generation).To(Equal(before.Status.Generation + 1))
	delete(had, old)
	delete(has, successor)
	Expect(has).To(Equal(had))
}

var _ = Describe("a Deployment's rolling update", func() {
	It("by surge hands every share over whole, to a pod that stood by", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 10)
		d := newDeployment(ctx, w, 3)
		w.group(ctx, "web")
		first := w.settled(ctx, "web", "web-a-1", "web-a-2", "web-a-3")
		Expect(first.Status.Members).To(HaveEach(HaveField("Workload", "Deployment/web")))

		d.roll(ctx, "b")
		last := first
		for _, old := range []string{"web-a-2", "web-a-1", "web-a-3"} {
			successor := d.start(ctx)
			before := w.in(ctx, "web", v1alpha1.MemberStandby, successor)
			Expect(before.Status).To(And(HaveField("Generation", last.Status.Generation), HaveField("Replicas", BeEquivalentTo(3)),
				HaveField("Assignments", HaveSuffix(successor+":-"))))
			d.terminate(ctx, old)
			after := w.in(ctx, "web", v1alpha1.MemberStandby)
			expectTakeover(before, after, old, successor)
			w.remove(ctx, old)
			last = after
		}
		d.status(ctx, "NewReplicaSetAvailable")
		last = w.settled(ctx, "web", "web-b-4", "web-b-5", "web-b-6")
		Expect(assigner.Moves(owners(first), owners(last))).To(Equal(10), "each partition has moved, and in the three rebalances each moved once")
		Expect(last.Status.Generation).To(Equal(first.Status.Generation + 3))
		Eventually(env.Notes(ctx, w.ns, "web", "Rebalanced")).Should(ContainElement(ContainSubstring("member web-b-4 took over from web-a-2")))
	})

	It("by maxUnavailable keeps the seats of old pods for their successors", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 10)
		d := newDeployment(ctx, w, 3)
		w.group(ctx, "web")
		before := w.settled(ctx, "web", "web-a-1", "web-a-2", "web-a-3")
		d.roll(ctx, "b")
		d.terminate(ctx, "web-a-2")
		waiting := w.in(ctx, "web", v1alpha1.MemberGrace, "web-a-2")
		Expect(waiting.Status.Generation).To(Equal(before.Status.Generation))
		w.remove(ctx, "web-a-2")
		Consistently(w.read(ctx, "web"), 500*time.Millisecond).Should(HaveField("ResourceVersion", waiting.ResourceVersion))
		d.start(ctx)
		after := w.settled(ctx, "web", "web-a-1", "web-a-3", "web-b-4")
		expectTakeover(before, after, "web-a-2", "web-b-4")

		By("losing a seat whose rollout ends without a successor")
		d.terminate(ctx, "web-a-1")
		w.in(ctx, "web", v1alpha1.MemberGrace, "web-a-1")
		d.status(ctx, "NewReplicaSetAvailable")
		Expect(w.settled(ctx, "web", "web-a-3", "web-b-4").Status.LastRebalance.Reason).To(Equal("MemberLeft"))
	})

	It("is not what happens when somebody deletes a pod: its seat is lost at once", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 10)
		d := newDeployment(ctx, w, 3)
		w.group(ctx, "web")
		w.settled(ctx, "web", "web-a-1", "web-a-2", "web-a-3")
		d.terminate(ctx, "web-a-3")
		Expect(w.settled(ctx, "web", "web-a-1", "web-a-2").Status.LastRebalance.Reason).To(Equal("MemberLeft"))
		d.start(ctx)
		Expect(w.settled(ctx, "web", "web-a-1", "web-a-2", "web-a-4").Status.LastRebalance.Reason).To(Equal("MemberJoined"))
	})

	It("has standbys that become members when it is scaled up, survive the operator, and cost no writes", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 10)
		d := newDeployment(ctx, w, 2)
		w.group(ctx, "web")
		w.settled(ctx, "web", "web-a-1", "web-a-2")
		d.roll(ctx, "b")
		d.start(ctx)
		standing := w.in(ctx, "web", v1alpha1.MemberStandby, "web-b-3")
		Expect(w.manager.Stop()).To(Succeed())
		w.start()
		for round := range 5 {
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, round))
			Expect(env.Client.Patch(ctx, &corev1.Pod{ObjectMeta: w.meta("web-b-3")}, patch)).To(Succeed())
		}
		d.status(ctx, "FoundNewReplicaSet")
		d.status(ctx, "NewReplicaSetAvailable")
		Consistently(w.read(ctx, "web"), time.Second).Should(HaveField("ResourceVersion", standing.ResourceVersion))
		Expect(w.manager.Writes()).To(BeEmpty())
		d.scale(ctx, 3)
		grown := w.settled(ctx, "web", "web-a-1", "web-a-2", "web-b-3")
		Expect(grown.Status.LastRebalance.Reason).To(Equal("MemberJoined"))
		By("and no member stands by when it is scaled down")
		d.scale(ctx, 1)
		Consistently(w.read(ctx, "web"), 500*time.Millisecond).Should(HaveField("ResourceVersion", grown.ResourceVersion))
	})
})

var _ = Describe("the members of a ConsumerGroup", func() {
	It("that come at the same time cost few rebalances", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 100)
		w.group(ctx, "web", func(s *v1alpha1.ConsumerGroupSpec) { s.RebalanceDelay = &metav1.Duration{Duration: 2 * time.Second} })
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("web-%02d", i))
			w.pod(ctx, names[i])
		}
		Expect(w.settled(ctx, "web", names...).Status.Generation).To(BeNumerically("<=", 3))
	})

	It("show how often their containers were started again, which is no rebalance", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 4)
		w.group(ctx, "web")
		w.pod(ctx, "web-0")
		before := w.settled(ctx, "web", "web-0")
		w.podStatus(ctx, "web-0", func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "consumer", RestartCount: 2}}
		})
		Eventually(w.read(ctx, "web")).Should(HaveField("Status.Members", HaveExactElements(HaveField("Restarts", BeEquivalentTo(2)))))
		Expect(w.settled(ctx, "web", "web-0").Status.Generation).To(Equal(before.Status.Generation))
	})

	It("read nothing while the group is paused, and keep their seats", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 10)
		group := w.group(ctx, "web")
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1")
		before := w.settled(ctx, "web", "web-0", "web-1")
		w.pause(ctx, group, true)
		Eventually(w.read(ctx, "web")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonPaused))
		paused := w.settled(ctx, "web", "web-0", "web-1")
		Expect(paused.Status).To(And(HaveField("Generation", before.Status.Generation+1), HaveField("Assignments", "web-0:- web-1:-"),
			HaveField("LastRebalance.Reason", "Paused"), HaveField("LastRebalance.Moved", BeZero())))
		Consistently(w.read(ctx, "web"), 500*time.Millisecond).Should(HaveField("ResourceVersion", paused.ResourceVersion))

		By("members that come and go meanwhile")
		w.pod(ctx, "web-2")
		w.settled(ctx, "web", "web-0", "web-1", "web-2")
		w.remove(ctx, "web-1")
		Expect(w.settled(ctx, "web", "web-0", "web-2").Status.Generation).To(Equal(paused.Status.Generation))

		w.pause(ctx, group, false)
		Eventually(w.read(ctx, "web")).Should(readyIs(metav1.ConditionTrue, v1alpha1.ReasonAssigned))
		resumed := w.settled(ctx, "web", "web-0", "web-2")
		Expect(resumed.Status).To(And(HaveField("Generation", paused.Status.Generation+1), HaveField("LastRebalance.Reason", "Resumed")))

		By("a reset of offsets that is under way")
		patch := func(phase v1alpha1.ResetPhase) {
			GinkgoHelper()
			body := fmt.Appendf(nil, `{"status":{"offsetsReset":{"id":"r","phase":%q,"time":"2026-01-02T03:04:05Z"}}}`, phase)
			Expect(env.Client.Status().Patch(ctx, group, client.RawPatch("application/merge-patch+json", body))).To(Succeed())
		}
		patch(v1alpha1.ResetInProgress)
		Eventually(w.read(ctx, "web")).Should(And(readyIs(metav1.ConditionFalse, v1alpha1.ReasonPaused), HaveField("Status.Paused", true)))
		patch(v1alpha1.ResetSucceeded)
		Eventually(w.read(ctx, "web")).Should(And(readyIs(metav1.ConditionTrue, v1alpha1.ReasonAssigned), HaveField("Status.Paused", false)))
	})
})

// pause sets spec.paused.
func (w *world) pause(ctx context.Context, group *v1alpha1.ConsumerGroup, paused bool) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused))
	Expect(env.Client.Patch(ctx, &v1alpha1.ConsumerGroup{ObjectMeta: w.meta(group.Name)}, patch)).To(Succeed())
}
