// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// state is a group's, for Eventually.
func (w *observedWorld) state(ctx context.Context, name string) func() (v1alpha1.GroupState, error) {
	return func() (v1alpha1.GroupState, error) {
		group, err := w.read(ctx, name)()
		return group.Status.State, err
	}
}

// states records the states that a group goes through, each once.
func (w *observedWorld) states(name string) func() []v1alpha1.GroupState {
	GinkgoHelper()
	changes, err := watcher.Watch(context.Background(), &v1alpha1.ConsumerGroupList{}, client.InNamespace(w.ns))
	Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	var seen []v1alpha1.GroupState
	done := make(chan struct{})
	go func() {
		defer close(done)
		for change := range changes.ResultChan() {
			group, ok := change.Object.(*v1alpha1.ConsumerGroup)
			if !ok || change.Type == watch.Deleted || group.Name != name || group.Status.State == "" {
				continue
			}
			mu.Lock()
			if len(seen) == 0 || seen[len(seen)-1] != group.Status.State {
				seen = append(seen, group.Status.State)
			}
			mu.Unlock()
		}
	}()
	DeferCleanup(func() {
		changes.Stop()
		<-done
	})
	return func() []v1alpha1.GroupState {
		mu.Lock()
		defer mu.Unlock()
		return append([]v1alpha1.GroupState(nil), seen...)
	}
}

// phase is a member's, for Eventually.
func (w *observedWorld) phase(ctx context.Context, group, member string) func() (v1alpha1.MemberPhase, error) {
	return func() (v1alpha1.MemberPhase, error) {
		g, err := w.read(ctx, group)()
		for _, m := range g.Status.Members {
			if m.Name == member {
				return m.Phase, err
			}
		}
		return "", err
	}
}

var _ = Describe("The Observer", func() {
	protocols := []TableEntry{
		Entry("of the classic protocol", kgo.Balancers(kgo.CooperativeStickyBalancer())),
		Entry("of KIP-848's protocol", kgo.ServerSideBalancer()),
	}

	DescribeTable("says that a group is stable when its clients hold what is theirs", func(ctx SpecContext, protocol kgo.Opt) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 6)
		w.group(ctx, "group")
		states := w.states("group")
		w.pod(ctx, "web-0")
		w.settled(ctx, "group", "web-0")
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable), "nobody holds anything yet")

		revoking, letGo := make(chan struct{}), make(chan struct{})
		once := sync.OnceFunc(func() { close(revoking) })
		release := sync.OnceFunc(func() { close(letGo) })
		w.consume("group", "web-0", protocol, kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			if len(lost) > 0 {
				once()
				<-letGo
			}
		}))
		DeferCleanup(release) // before the client is closed, which waits for that
		w.produce(ctx, "orders", 6, 10)
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(HaveLen(6))
		w.consume("group", "web-1", protocol)
		w.pod(ctx, "web-1")
		w.settled(ctx, "group", "web-0", "web-1")
		Eventually(revoking).Should(BeClosed())
		Expect(w.state(ctx, "group")()).To(Equal(v1alpha1.GroupPreparingRebalance))
		release()
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable))
		Expect(states()).To(ContainElement(v1alpha1.GroupPreparingRebalance))
		Eventually(func(g Gomega) {
			group, err := w.read(ctx, "group")()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(group.Status.Lag).NotTo(BeNil())
			g.Expect(group.Status.Lag.Total).To(BeZero())
		}).Should(Succeed())
		Expect(w.manager.Settle()).Error().NotTo(HaveOccurred(), "an unchanged world means no writes")
	}, protocols)

	It("shows a member that does not read as stalled, until it does", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.group(ctx, "group")
		w.pod(ctx, "web-0")
		w.pod(ctx, "web-1")
		w.consume("group", "web-0")
		w.settled(ctx, "group", "web-0", "web-1")
		w.produce(ctx, "orders", 2, 10)
		Eventually(w.phase(ctx, "group", "web-1")).Should(Equal(v1alpha1.MemberStalled))
		Expect(w.phase(ctx, "group", "web-0")()).To(Equal(v1alpha1.MemberActive))
		Eventually(env.Notes(ctx, w.ns, "group", "Stalled")).Should(ConsistOf(And(
			HavePrefix("Warning: member web-1 has no client in the group"), HaveSuffix("kubectl --namespace "+w.ns+" logs web-1"))))

		w.consume("group", "web-1")
		Eventually(w.phase(ctx, "group", "web-1")).Should(Equal(v1alpha1.MemberActive))
		Eventually(env.Notes(ctx, w.ns, "group", "ReadsAgain")).Should(ConsistOf("Normal: member web-1 is no longer stalled"))
	})

	It("tells of a client that belongs to no pod, once", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.group(ctx, "group")
		w.pod(ctx, "web-0")
		w.settled(ctx, "group", "web-0")
		stranger := w.consume("group", "debug")
		message := func() (string, error) {
			group, err := w.read(ctx, "group")()
			return meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady).Message, err
		}
		Eventually(message).Should(HaveSuffix("1 client of no pod of the group: debug at 127.0.0.1"))
		Eventually(env.Notes(ctx, w.ns, "group", "UnknownClient")).Should(ConsistOf(HavePrefix("Warning: debug at 127.0.0.1 belongs to no pod of the group")))
		stranger.stop()
		Eventually(message).ShouldNot(ContainSubstring("debug"))
		Expect(env.Notes(ctx, w.ns, "group", "UnknownClient")()).To(HaveLen(1))
	})

	DescribeTable("mirrors a group without a selector", func(ctx SpecContext, protocol kgo.Opt) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 4)
		w.group(ctx, "group", func(s *v1alpha1.ConsumerGroupSpec) { s.Selector = nil })
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupEmpty))
		first := w.consume("group", "reader", protocol)
		mirrored := func(g Gomega, clients int) *v1alpha1.ConsumerGroup {
			group, err := w.read(ctx, "group")()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(group.Status.State).To(Equal(v1alpha1.GroupStable))
			g.Expect(group.Status.Replicas).To(BeEquivalentTo(clients))
			read := 0
			for _, m := range group.Status.Members {
				g.Expect(m.Name).To(HavePrefix("reader-"))
				g.Expect(m.IP).To(Equal("127.0.0.1"))
				g.Expect(m.Phase).To(Equal(v1alpha1.MemberActive))
				for _, a := range m.Assignments {
					read += len(a.Partitions)
				}
			}
			g.Expect(read).To(Equal(4))
			return group
		}
		Eventually(func(g Gomega) { mirrored(g, 1) }).Should(Succeed())
		alone, err := w.read(ctx, "group")()
		Expect(err).NotTo(HaveOccurred())

		w.consume("group", "reader", protocol)
		Eventually(func(g Gomega) {
			group := mirrored(g, 2)
			g.Expect(group.Status.Generation).To(BeNumerically(">", alone.Status.Generation))
			g.Expect(group.Status.LastRebalance).NotTo(BeNil())
			g.Expect(group.Status.LastRebalance.Reason).To(Equal("ClientsJoined"))
			g.Expect(group.Status.LastRebalance.Moved).To(BeEquivalentTo(2))
			g.Expect(group.Status.LastRebalance.Minimum).To(BeEquivalentTo(2))
		}).Should(Succeed())
		first.stop()
		Eventually(func(g Gomega) {
			g.Expect(mirrored(g, 1).Status.LastRebalance.Reason).To(Equal("ClientsLeft"))
		}).Should(Succeed())
		Expect(w.manager.Settle()).Error().NotTo(HaveOccurred(), "an unchanged world means no writes")
	}, protocols)

	It("mirrors clients whatever they are called", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 4)
		w.group(ctx, "group", func(s *v1alpha1.ConsumerGroupSpec) { s.Selector = nil })
		// Members of KIP-848's protocol choose their member ids.
		join := func(member string, instance *string) {
			req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			req.Group, req.MemberID, req.InstanceID, req.RebalanceTimeoutMillis = "group", member, instance, 30_000
			req.SubscribedTopicNames, req.Topics = []string{"orders"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			cl := w.kafka(kgo.ClientID(""))
			Eventually(func() (int16, error) {
				resp, err := req.RequestWith(ctx, cl)
				if err != nil {
					return -1, err
				}
				return resp.ErrorCode, nil
			}).Should(BeZero())
		}
		instance := "zzzzzzzzzzzz"
		join("other", &instance)
		join("zzzzzzzzzzzz", nil)
		join("zzzzzzzzyyyy", nil)
		Eventually(func() ([]string, error) {
			group, err := w.read(ctx, "group")()
			return members(group, v1alpha1.MemberActive), err
		}).Should(Equal([]string{"zzzzzzzzyyyy", "zzzzzzzzzzzz", "zzzzzzzzzzzz#2"}))
	})

	It("leaves what was last seen in place while the brokers do not answer, and goes on when they do", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.group(ctx, "group")
		w.produce(ctx, "orders", 2, 5)
		lag := func() (int64, error) {
			group, err := w.read(ctx, "group")()
			if group.Status.Lag == nil {
				return -1, err
			}
			return group.Status.Lag.Total, err
		}
		Eventually(lag).Should(BeEquivalentTo(10))
		cluster := &v1alpha1.BrokerCluster{}
		Expect(env.Client.Get(ctx, w.key("demo"), cluster)).To(Succeed())
		setReady := func(n int32) {
			before := cluster.DeepCopy()
			cluster.Status.ReadyReplicas = n
			Expect(env.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		}
		setReady(0)
		w.pod(ctx, "web-0")
		w.settled(ctx, "group", "web-0")
		Expect(lag()).To(BeEquivalentTo(10))
		Expect(w.state(ctx, "group")()).To(BeElementOf(v1alpha1.GroupPreparingRebalance, v1alpha1.GroupStable))
		setReady(1)
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable))
	})

	It("raises the generation of a group above what the brokers have", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 4)
		w.group(ctx, "group", grace(0))
		readers := map[string]*consumer{}
		for _, name := range []string{"web-0", "web-1"} {
			w.pod(ctx, name)
			readers[name] = w.consume("group", name)
		}
		w.settled(ctx, "group", "web-0", "web-1")
		for _, paused := range []bool{true, false, true, false} {
			w.change(ctx, "group", func(s *v1alpha1.ConsumerGroupSpec) { s.Paused = paused })
			Eventually(w.read(ctx, "group")).Should(HaveField("Status.Paused", paused))
		}
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable))
		group, err := w.read(ctx, "group")()
		Expect(err).NotTo(HaveOccurred())
		told := group.Status.Generation
		Expect(w.manager.Stop()).To(Succeed())
		Expect(env.Client.Status().Patch(ctx, &v1alpha1.ConsumerGroup{ObjectMeta: w.meta("group")},
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"generation":0}}`)))).To(Succeed())
		readers["web-1"].stop()
		w.remove(ctx, "web-1")
		w.startObserved()
		w.produce(ctx, "orders", 4, 10)
		Eventually(func() map[int32]int64 { return w.committed(ctx, "group", "orders") }).Should(Equal(map[int32]int64{0: 10, 1: 10, 2: 10, 3: 10}), "web-0 reads all")
		Eventually(w.state(ctx, "group")).Should(Equal(v1alpha1.GroupStable))
		Eventually(env.Notes(ctx, w.ns, "group", "GenerationRaised")).Should(ConsistOf(ContainSubstring("but the brokers have a plan of generation %d", told)))
		Expect(w.manager.Settle()).Error().NotTo(HaveOccurred())
		Expect(w.read(ctx, "group")()).To(HaveField("Status.Generation", told+1))
	})

	It("ends with the manager, and leaves nothing behind", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.placed(ctx, "orders", 2)
		w.group(ctx, "group")
		w.produce(ctx, "orders", 2, 5)
		Eventually(w.read(ctx, "group")).Should(HaveField("Status.Lag", Not(BeNil())))
		Expect(w.manager.Stop()).To(Succeed())
		Eventually(func() []gleak.Goroutine {
			var ours []gleak.Goroutine
			for _, g := range gleak.Goroutines() {
				if strings.Contains(g.Backtrace, "consumergroup.(*Observer)") {
					ours = append(ours, g)
				}
			}
			return ours
		}).Should(BeEmpty())
	})
})
