// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/twmb/franz-go/pkg/kgo"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		Eventually(env.Notes(ctx, w.ns, "group", "OffsetsReset")).Should(ContainElement(HaveSuffix("2 offsets of orders set to 70; but 2 of them to the end of the partition, which is not that long")))
		past := metav1.NewTime(time.Unix(1, 0))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "d", To: v1alpha1.ResetTimestamp, Timestamp: &past})
		w.done(ctx, "group", "d")
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 0, 1: 0}))

		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetLatest})
		Eventually(env.Notes(ctx, w.ns, "group", "OffsetsResetRepeated")).Should(ConsistOf(HavePrefix("Normal: reset a was begun before, and others since; it is not carried out again")))
		Expect(w.manager.Settle()).Error().NotTo(HaveOccurred())
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: 0, 1: 0}), "the id was carried out before")
		group, err := w.read(ctx, "group")()
		Expect(err).NotTo(HaveOccurred())
		Expect(group.Status.EarlierResets).To(Equal([]string{"c", "b", "a"}))
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

	DescribeTable("sets offsets by time, whatever the time is", func(ctx SpecContext, at string, want int64, says string) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 1)
		w.produce(ctx, "orders", 1, 10)
		w.group(ctx, "group", noSelector)
		patch := fmt.Sprintf(`{"spec":{"offsets":{"reset":{"id":"a","to":"Timestamp","timestamp":%q}}}}`, at)
		Expect(env.Client.Patch(ctx, &v1alpha1.ConsumerGroup{ObjectMeta: w.meta("group")}, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		group := w.done(ctx, "group", "a")
		Expect(w.committed(ctx, "group", "orders")).To(Equal(map[int32]int64{0: want}))
		Expect(group.Status.OffsetsReset.Message).To(HaveSuffix(says))
	},
		Entry("a millisecond before 1970", "1969-12-31T23:59:59.999Z", int64(0), "set to the first records at or after 1969-12-31T23:59:59Z"),
		Entry("five milliseconds before 1970", "1969-12-31T23:59:59.995Z", int64(0), "set to the first records at or after 1969-12-31T23:59:59Z"),
		Entry("1900", "1900-01-01T00:00:00Z", int64(0), "set to the first records at or after 1900-01-01T00:00:00Z"),
		Entry("the first that there is", "0001-01-01T00:00:01Z", int64(0), "set to the first records at or after 0001-01-01T00:00:01Z"),
		Entry("the last that there is", "9999-12-31T23:59:59Z", int64(10), "; but 1 of them to the end of the partition, which has no such record"),
	)

	DescribeTable("of a group without a selector is not carried out again by an operator that starts when another one has done it and could not say so", func(ctx SpecContext, isRead bool, want v1alpha1.ResetPhase) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 1)
		w.produce(ctx, "orders", 1, 10)
		w.group(ctx, "group", noSelector)
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetEarliest})
		group := w.done(ctx, "group", "a")
		Expect(w.manager.Stop()).To(Succeed())
		before := group.DeepCopy()
		group.Status.OffsetsReset.Phase = v1alpha1.ResetInProgress
		Expect(env.Client.Status().Patch(ctx, group, client.MergeFrom(before))).To(Succeed())
		committed := map[int32]int64{0: 0}
		if isRead {
			reader := w.consume("group", "reader")
			committed[0] = 10
			Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(committed))
			reader.stop()
		}
		w.startObserved()
		Eventually(w.phaseOf(ctx, "group", "a")).Should(Equal(want))
		Expect(w.committed(ctx, "group", "orders")).To(Equal(committed))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "b", To: v1alpha1.ResetLatest})
		w.done(ctx, "group", "b")
	},
		Entry("and nobody has read since", false, v1alpha1.ResetSucceeded),
		Entry("and clients have read since: then nobody knows", true, v1alpha1.ResetFailed),
	)

	It("says of whom it waits that they let go of their partitions", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.group(ctx, "group")
		w.pod(ctx, "web-0")
		letGo := make(chan struct{})
		release := sync.OnceFunc(func() { close(letGo) })
		w.consume("group", "web-0", kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { <-letGo }))
		DeferCleanup(release)
		w.settled(ctx, "group", "web-0")
		w.produce(ctx, "orders", 2, 10)
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(HaveLen(2))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetEarliest, Force: true})
		Eventually(w.read(ctx, "group")).Should(HaveField("Status.OffsetsReset.Message", Equal("waits, at most for handoffTimeout, for 1 client to let go of partitions: web-0 at 127.0.0.1")))
		release()
		w.done(ctx, "group", "a")
	})

	It("fails where a topic is missing, and another id begins anew", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.group(ctx, "group", noSelector, reads("orders", "payments"))
		w.reset(ctx, "group", v1alpha1.OffsetsReset{ID: "a", To: v1alpha1.ResetLatest})
		Eventually(w.phaseOf(ctx, "group", "a")).Should(Equal(v1alpha1.ResetFailed))
		Eventually(env.Notes(ctx, w.ns, "group", "OffsetsResetFailed")).Should(ConsistOf(ContainSubstring("topic payments")))
		Expect(env.Notes(ctx, w.ns, "group", "OffsetsResetBegun")()).To(BeEmpty(), "nobody was paused for it")
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
