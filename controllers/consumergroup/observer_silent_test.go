// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"net"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// silentBroker adds a broker 2 to the cluster, which takes connections and answers nothing, as one does whose machine has lost its network.
func (w *observedWorld) silentBroker(ctx context.Context) {
	GinkgoHelper()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	DeferCleanup(func() {
		Expect(listener.Close()).To(Succeed())
		<-done
	})
	address, ok := listener.Addr().(*net.TCPAddr)
	Expect(ok).To(BeTrue())
	cluster := &v1alpha1.BrokerCluster{}
	Expect(env.Client.Get(ctx, w.key("demo"), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Status.Brokers = append(cluster.Status.Brokers, v1alpha1.BrokerStatus{ID: 2, PodName: "demo-2", Host: "127.0.0.1", Port: int32(address.Port), Phase: v1alpha1.BrokerReady})
	Expect(env.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// led says which broker leads which partitions of a topic.
func (w *observedWorld) led(ctx context.Context, name string, leaders ...v1alpha1.PartitionLeader) {
	GinkgoHelper()
	topic := &v1alpha1.Topic{}
	Expect(env.Client.Get(ctx, w.key(name), topic)).To(Succeed())
	before := topic.DeepCopy()
	topic.Status.Leaders = leaders
	Expect(env.Client.Status().Patch(ctx, topic, client.MergeFrom(before))).To(Succeed())
}

// lag is a group's, -1 for none, for Eventually.
func (w *observedWorld) lag(ctx context.Context, name string) func() (int64, error) {
	return func() (int64, error) {
		group, err := w.read(ctx, name)()
		if group.Status.Lag == nil {
			return -1, err
		}
		return group.Status.Lag.Total, err
	}
}

var _ = Describe("A broker that does not answer", func() {
	noSelector := func(s *v1alpha1.ConsumerGroupSpec) { s.Selector = nil }

	// The group b is coordinated by broker 1 and a by broker 2, for the offsets topic has a partition of each: 98 is even, and 97 is odd.
	newSilentWorld := func(ctx context.Context) *observedWorld {
		GinkgoHelper()
		w := newObservedWorldWith(ctx, 2)
		w.silentBroker(ctx)
		w.led(ctx, "consumer-offsets", v1alpha1.PartitionLeader{Broker: 1, Partitions: []int32{0}}, v1alpha1.PartitionLeader{Broker: 2, Partitions: []int32{1}})
		w.placed(ctx, "orders", 2)
		w.produce(ctx, "orders", 2, 10)
		return w
	}

	It("stops nothing of the groups that another one coordinates", func(ctx SpecContext) {
		w := newSilentWorld(ctx)
		w.group(ctx, "a", noSelector)
		w.group(ctx, "b", noSelector)
		Eventually(w.lag(ctx, "b")).Should(BeEquivalentTo(20))
		w.reset(ctx, "a", v1alpha1.OffsetsReset{ID: "one", To: v1alpha1.ResetLatest, Force: true})
		Eventually(w.read(ctx, "a")).Should(HaveField("Status.OffsetsReset.Message", Equal("waits, and nobody is paused: describe group a: broker 2 does not answer")))

		for _, id := range []string{"one", "two", "three"} { // each of them within the suite's patience, while a is asked of over and over
			w.reset(ctx, "b", v1alpha1.OffsetsReset{ID: id, To: v1alpha1.ResetLatest})
			w.done(ctx, "b", id)
			w.produce(ctx, "orders", 2, 5)
			Eventually(w.lag(ctx, "b")).Should(BeEquivalentTo(10))
		}
		reader := w.consume("b", "reader")
		Eventually(w.read(ctx, "b")).Should(HaveField("Status.Replicas", BeEquivalentTo(1)))
		reader.stop()
		Expect(w.read(ctx, "a")()).To(HaveField("Status.OffsetsReset.Phase", v1alpha1.ResetWaiting))

		w.led(ctx, "consumer-offsets", v1alpha1.PartitionLeader{Broker: 1, Partitions: []int32{0, 1}})
		Eventually(func() (int32, error) {
			found := kadm.NewClient(w.kafka()).FindGroupCoordinators(ctx, "a")
			return found["a"].NodeID, found["a"].Err
		}).Should(BeEquivalentTo(1))
		w.done(ctx, "a", "one")
	})

	It("leaves no group of another one paused by a reset", func(ctx SpecContext) {
		w := newObservedWorldWith(ctx, 2)
		w.placed(ctx, "orders", 2)
		w.produce(ctx, "orders", 2, 10)
		w.group(ctx, "b")
		w.pod(ctx, "web-0")
		w.consume("b", "web-0", kgo.Balancers(kgo.CooperativeStickyBalancer()))
		Eventually(w.lag(ctx, "b")).Should(BeZero())
		w.group(ctx, "a", noSelector)
		w.silentBroker(ctx)
		w.led(ctx, "consumer-offsets", v1alpha1.PartitionLeader{Broker: 1, Partitions: []int32{0}}, v1alpha1.PartitionLeader{Broker: 2, Partitions: []int32{1}})
		w.reset(ctx, "b", v1alpha1.OffsetsReset{ID: "one", To: v1alpha1.ResetEarliest, Force: true})
		w.done(ctx, "b", "one")
		Eventually(w.read(ctx, "b")).Should(HaveField("Status.Paused", false))
		Eventually(w.state(ctx, "b")).Should(Equal(v1alpha1.GroupStable))
	})

	It("stops the lag of no group that does not read from it", func(ctx SpecContext) {
		w := newObservedWorld(ctx)
		w.silentBroker(ctx)
		w.placed(ctx, "orders", 2)
		w.placed(ctx, "other", 2)
		w.produce(ctx, "orders", 2, 10)
		w.produce(ctx, "other", 2, 10)
		w.group(ctx, "reads-orders", noSelector)
		w.group(ctx, "reads-both", noSelector, reads("orders", "other"))
		Eventually(w.lag(ctx, "reads-both")).Should(BeEquivalentTo(40))
		w.led(ctx, "other", v1alpha1.PartitionLeader{Broker: 1, Partitions: []int32{0}}, v1alpha1.PartitionLeader{Broker: 2, Partitions: []int32{1}})
		for want := int64(40); want <= 100; want += 20 {
			w.produce(ctx, "orders", 2, 10)
			Eventually(w.lag(ctx, "reads-orders")).Should(BeEquivalentTo(want))
		}
		Expect(w.lag(ctx, "reads-both")()).To(BeEquivalentTo(40), "what was last seen stays, for half of it is no figure")
		w.reset(ctx, "reads-both", v1alpha1.OffsetsReset{ID: "one", To: v1alpha1.ResetLatest})
		Eventually(w.read(ctx, "reads-both")).Should(HaveField("Status.OffsetsReset.Message", "waits, and nobody is paused: list the offsets of topic other: broker 2 does not answer"))
		w.reset(ctx, "reads-both", v1alpha1.OffsetsReset{ID: "two", To: v1alpha1.ResetLatest, Topics: []string{"orders"}})
		w.done(ctx, "reads-both", "two")

		w.led(ctx, "other", v1alpha1.PartitionLeader{Broker: 1, Partitions: []int32{0, 1}})
		Eventually(w.lag(ctx, "reads-both")).Should(BeEquivalentTo(20))
	})
})
