// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/twmb/franz-go/pkg/kgo"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// change changes a group's spec.
func (w *observedWorld) change(ctx context.Context, name string, change func(*v1alpha1.ConsumerGroupSpec)) {
	GinkgoHelper()
	group, err := w.read(ctx, name)()
	Expect(err).NotTo(HaveOccurred())
	before := group.DeepCopy()
	change(&group.Spec)
	Expect(env.Client.Patch(ctx, group, client.MergeFrom(before))).To(Succeed())
}

// reset asks for a reset of offsets.
func (w *observedWorld) reset(ctx context.Context, name string, reset v1alpha1.OffsetsReset) {
	GinkgoHelper()
	w.change(ctx, name, func(s *v1alpha1.ConsumerGroupSpec) { s.Offsets.Reset = &reset })
}

// phaseOf is the phase of a reset, for Eventually.
func (w *observedWorld) phaseOf(ctx context.Context, name, id string) func() (v1alpha1.ResetPhase, error) {
	return func() (v1alpha1.ResetPhase, error) {
		group, err := w.read(ctx, name)()
		if r := group.Status.OffsetsReset; r != nil && r.ID == id {
			return r.Phase, err
		}
		return "", err
	}
}

// done waits until a reset has succeeded, and returns its group.
func (w *observedWorld) done(ctx context.Context, name, id string) *v1alpha1.ConsumerGroup {
	GinkgoHelper()
	Eventually(w.phaseOf(ctx, name, id)).Should(Equal(v1alpha1.ResetSucceeded))
	group, err := w.read(ctx, name)()
	Expect(err).NotTo(HaveOccurred())
	Expect(meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionOffsetsReset)).To(BeTrue())
	return group
}

var _ = Describe("A reset of offsets", func() {
	noSelector := func(s *v1alpha1.ConsumerGroupSpec) { s.Selector = nil }

	It("sets the offsets of a group without clients, once for each id", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.produce(ctx, "orders", 2, 10)
		w.group(ctx, "group", noSelector)
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetLatest})
		group := w.done(ctx, "group", "a")
		Expect(group.Status.OffsetsReset.Partitions).To(BeEquivalentTo(2))
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 10, 1: 10}))
		Eventually(env.Notes(ctx, w.ns, "group", "OffsetsReset")).Should(ConsistOf("Normal: reset a: 2 offsets of orders set to the ends"))

		offset := int64(7)
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "b", To: v1alpha1.ResetOffset, Offset: &offset})
		w.done(ctx, "group", "b")
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 7, 1: 7}))
		offset = 70
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "c", To: v1alpha1.ResetOffset, Offset: &offset})
		w.done(ctx, "group", "c")
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 10, 1: 10}), "bounded by the end")
		past := metav1.NewTime(time.Unix(1, 0))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "d", To: v1alpha1.ResetTimestamp, Timestamp: &past})
		w.done(ctx, "group", "d")
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 0, 1: 0}))

		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "d", To: v1alpha1.ResetLatest})
		Eventually(w.read(ctx, "group")).Should(HaveField("Status.ObservedGeneration", BeEquivalentTo(6)))
		Expect(w.manager.Settle()).Error().NotTo(HaveOccurred())
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 0, 1: 0}), "the id was carried out before")
	})

	It("is refused while clients are in a group without a selector, and done when they have left", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.produce(ctx, "orders", 2, 10)
		w.group(ctx, "group", noSelector)
		reader := w.consume("group", "reader")
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(map[int32]int64{0: 10, 1: 10}))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetEarliest})
		Eventually(w.phaseOf(ctx, "group", "a")).Should(Equal(v1alpha1.ResetRefused))
		group, err := w.read(ctx, "group")()
		Expect(err).NotTo(HaveOccurred())
		condition := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionOffsetsReset)
		Expect([]string{string(condition.Status), condition.Reason}).To(Equal([]string{"False", "MembersActive"}))
		Expect(condition.Message).To(ContainSubstring("stop them, or set spec.offsets.reset.force"))
		reader.stop()
		w.done(ctx, "group", "a")
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 0, 1: 0}))
	})

	DescribeTable("removes the clients of a group without a selector if it is forced", func(ctx SpecContext, protocol kgo.Opt) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.produce(ctx, "orders", 2, 10)
		w.group(ctx, "group", noSelector)
		w.consume("group", "reader", protocol)
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(map[int32]int64{0: 10, 1: 10}))
		seen := w.states("group")
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetEarliest, Force: true})
		w.done(ctx, "group", "a")
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable), "the client joins again: %v", seen())
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(map[int32]int64{0: 10, 1: 10}), "and reads again")
	},
		Entry("of the classic protocol", kgo.Balancers(kgo.CooperativeStickyBalancer())),
		Entry("of KIP-848's protocol", kgo.ServerSideBalancer()))

	DescribeTable("pauses a managed group", func(ctx SpecContext, force bool, protocol kgo.Opt) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 4)
		w.produce(ctx, "orders", 4, 10)
		w.group(ctx, "group")
		for _, name := range []string{"web-0", "web-1"} {
			w.pod(ctx, name)
			w.consume("group", name, protocol)
		}
		w.settled(ctx, "group", "web-0", "web-1")
		all := map[int32]int64{0: 10, 1: 10, 2: 10, 3: 10}
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(all))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetEarliest, Force: force})
		if !force {
			Eventually(w.phaseOf(ctx, "group", "a")).Should(Equal(v1alpha1.ResetRefused))
			Eventually(env.Notes(ctx, w.ns, "group", "OffsetsResetRefused")).Should(HaveLen(1))
			w.change(ctx, "group", func(s *v1alpha1.ConsumerGroupSpec) { s.Paused = true })
			w.done(ctx, "group", "a")
			Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}))
			w.change(ctx, "group", func(s *v1alpha1.ConsumerGroupSpec) { s.Paused = false })
		}
		w.done(ctx, "group", "a")
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(all), "the members read again")
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable))
		w.settled(ctx, "group", "web-0", "web-1")
		Expect(w.manager.Settle()).Error().NotTo(HaveOccurred(), "an unchanged world means no writes")
	},
		Entry("by itself if it is forced", true, kgo.Balancers(kgo.RangeBalancer())),
		Entry("by itself if it is forced, with KIP-848's protocol", true, kgo.ServerSideBalancer()),
		Entry("and waits for its user to do so if not", false, kgo.Balancers(kgo.CooperativeStickyBalancer())))

	It("fails where a topic is missing, and another id begins anew", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.group(ctx, "group", noSelector, reads("orders", "payments"))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetLatest})
		Eventually(w.phaseOf(ctx, "group", "a")).Should(Equal(v1alpha1.ResetFailed))
		Eventually(env.Notes(ctx, w.ns, "group", "OffsetsResetFailed")).Should(ConsistOf(ContainSubstring("topic payments")))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "b", To: v1alpha1.ResetLatest, Topics: []string{"orders"}})
		w.done(ctx, "group", "b")
	})

	It("is carried out by an operator that starts when another one has begun it", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.produce(ctx, "orders", 2, 10)
		w.group(ctx, "group")
		w.pod(ctx, "web-0")
		w.consume("group", "web-0")
		w.settled(ctx, "group", "web-0")
		all := map[int32]int64{0: 10, 1: 10}
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(all))
		Expect(w.manager.Stop()).To(Succeed())
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetEarliest})
		group, err := w.read(ctx, "group")()
		Expect(err).NotTo(HaveOccurred())
		before := group.DeepCopy()
		group.Status.OffsetsReset = &v1alpha1.OffsetsResetStatus{ID: "a", Phase: v1alpha1.ResetInProgress, Time: metav1.Now()}
		Expect(env.Client.Status().Patch(ctx, group, client.MergeFrom(before))).To(Succeed())
		w.startObserved()
		w.done(ctx, "group", "a")
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(all), "the member reads again")
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable))
	})

	It("is not carried out by a group that does not hold its id", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.produce(ctx, "orders", 2, 10)
		id := func(s *v1alpha1.ConsumerGroupSpec) { s.GroupID = "shared" }
		w.group(ctx, "a-holder", noSelector, id)
		w.group(ctx, "b-rival", noSelector, id, func(s *v1alpha1.ConsumerGroupSpec) {
			s.Offsets.Reset = &v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetLatest}
		})
		Eventually(w.read(ctx, "b-rival")).Should(readyIs(metav1.ConditionFalse, v1alpha1.ReasonGroupIDTaken))
		Eventually(w.read(ctx, "a-holder")).Should(HaveField("Status.Lag", Not(BeNil())))
		Expect(w.manager.Settle()).Error().NotTo(HaveOccurred())
		Expect(w.phaseOf(ctx, "b-rival", "a")()).To(BeEmpty())
		Expect(w.committed(ctx, "shared", "orders")).To(BeEmpty())
	})
})
