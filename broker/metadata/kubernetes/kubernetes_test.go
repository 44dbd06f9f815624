// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
	"github.com/ringmaster-dev/ringmaster/broker/metadata/kubernetes"
	"github.com/ringmaster-dev/ringmaster/test/testenv"
)

var env *testenv.Env

func TestKubernetes(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "metadata from Kubernetes")
}

var _ = BeforeSuite(func() {
	var err error
	env, err = testenv.Start(GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() { Expect(env.Stop()).To(Succeed()) })

// world is a namespace with a BrokerCluster. The spec plays the operator, which is the one that writes status.
type world struct {
	ns    string
	cache string
}

func newWorld(ctx SpecContext) *world {
	GinkgoHelper()
	ns, err := env.Namespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	w := &world{ns: ns, cache: filepath.Join(GinkgoT().TempDir(), "kubernetes.json")}
	c := &v1alpha1.BrokerCluster{ObjectMeta: metav1.ObjectMeta{Name: "events", Namespace: ns}}
	c.Spec.Config.DefaultPartitions = 4
	Expect(env.Client.Create(ctx, c)).To(Succeed())
	c.Status.Brokers = []v1alpha1.BrokerStatus{{ID: 1, PodName: "events-1", Host: "events-1.events-brokers", Port: 9092, Phase: v1alpha1.BrokerReady}}
	Expect(env.Client.Status().Update(ctx, c)).To(Succeed())
	return w
}

// open opens the metadata as a broker that starts does; stop is its end.
func (w *world) open(config *rest.Config) (m *kubernetes.Metadata, stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	m, err := kubernetes.Open(ctx, kubernetes.Options{Config: config, Namespace: w.ns, Cluster: "events", CacheFile: w.cache})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cancel)
	return m, cancel
}

// started opens the metadata and waits until they name the broker.
func (w *world) started(config *rest.Config) (m *kubernetes.Metadata, stop func()) {
	GinkgoHelper()
	m, stop = w.open(config)
	Eventually(func() int { return len(m.Snapshot().Brokers) }).Should(Equal(1))
	return m, stop
}

// topic makes a Topic that is placed.
func (w *world) topic(ctx context.Context, name string, policy v1alpha1.DeletionPolicy) *v1alpha1.Topic {
	GinkgoHelper()
	t := &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns}, Spec: v1alpha1.TopicSpec{Partitions: 2, DeletionPolicy: policy}}
	Expect(env.Client.Create(ctx, t)).To(Succeed())
	w.place(ctx, name)
	return t
}

// place gives a Topic's partitions to broker 1, as the operator would.
func (w *world) place(ctx context.Context, name string) {
	GinkgoHelper()
	t := w.get(ctx, name)
	leader := v1alpha1.PartitionLeader{Broker: 1}
	for p := range t.Spec.Partitions {
		leader.Partitions = append(leader.Partitions, p)
	}
	t.Status.ClusterRef, t.Status.TopicName, t.Status.Partitions = "events", t.KafkaName(), t.Spec.Partitions
	t.Status.Leaders = []v1alpha1.PartitionLeader{leader}
	Expect(env.Client.Status().Update(ctx, t)).To(Succeed())
}

func (w *world) get(ctx context.Context, name string) *v1alpha1.Topic {
	GinkgoHelper()
	t := &v1alpha1.Topic{}
	Expect(env.Client.Get(ctx, types.NamespacedName{Namespace: w.ns, Name: name}, t)).To(Succeed())
	return t
}

func names(m *kubernetes.Metadata) func() []string {
	return func() []string {
		out := []string{}
		for name := range m.Snapshot().Topics {
			out = append(out, name)
		}
		return out
	}
}

func purged(m *kubernetes.Metadata) func() []string {
	return func() []string {
		out := []string{}
		for _, i := range m.Snapshot().Purge {
			out = append(out, i.Topic)
		}
		return out
	}
}

var _ = Describe("metadata from Kubernetes", func() {
	It("follows the resources, and says when they change", func(ctx SpecContext) {
		w := newWorld(ctx)
		m, _ := w.started(env.Config)
		Expect(m.Snapshot().DefaultPartitions).To(Equal(int32(4)))
		changed := m.Changed()
		w.topic(ctx, "orders", v1alpha1.DeletionRetain)
		Eventually(names(m)).Should(ConsistOf("orders"))
		Eventually(changed).Should(BeClosed())
		Expect(m.Snapshot().Topics["orders"].Leaders).To(Equal([]int32{1, 1}))

		g := &v1alpha1.ConsumerGroup{
			ObjectMeta: metav1.ObjectMeta{Name: "billing", Namespace: w.ns},
			Spec: v1alpha1.ConsumerGroupSpec{
				Topics: []string{"orders"}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "billing"}},
			},
		}
		Expect(env.Client.Create(ctx, g)).To(Succeed())
		g.Status.ClusterRef, g.Status.Selector, g.Status.Generation = "events", "app=billing", 3
		g.Status.Members = []v1alpha1.GroupMember{{
			Name: "billing-0", UID: "u", IP: "10.0.0.1", Phase: v1alpha1.MemberStalled, Restarts: 2,
			Assignments: []v1alpha1.TopicAssignment{{Topic: "orders", Partitions: []int32{0, 1}}},
		}, {Name: "billing-1", UID: "v", IP: "10.0.0.2", Phase: v1alpha1.MemberStandby}, {Name: "billing-2", UID: "w", Phase: v1alpha1.MemberGrace}}
		Expect(env.Client.Status().Update(ctx, g)).To(Succeed())
		Eventually(func() *metadata.Group { return m.Snapshot().Groups["billing"] }).Should(Equal(&metadata.Group{
			ID: "billing", UID: string(g.UID), Generation: 3, Assigner: "ConsistentHash", Topics: []string{"orders"}, HandoffTimeout: 30 * time.Second,
			Members: []metadata.GroupMember{
				{Pod: "billing-0", UID: "u", IP: "10.0.0.1", Alive: true, Restarts: 2, Partitions: map[string][]int32{"orders": {0, 1}}},
				{Pod: "billing-1", UID: "v", IP: "10.0.0.2", Alive: true, Partitions: map[string][]int32{}},
				{Pod: "billing-2", UID: "w", Partitions: map[string][]int32{}},
			},
		}))
		Expect(env.Client.Delete(ctx, g)).To(Succeed())
		Eventually(func() int { return len(m.Snapshot().Groups) }).Should(BeZero())
	})

	It("makes, grows and deletes Topic resources", func(ctx SpecContext) {
		w := newWorld(ctx)
		m, _ := w.started(env.Config)
		config := metadata.TopicConfig{
			RetentionTime: 90 * time.Minute, RetentionBytes: 1 << 21, CleanupPolicy: "compact", MaxMessageBytes: 4096, FlushOS: true,
			SegmentBytes: 200, SegmentTime: 100 * time.Millisecond, LogAppendTime: true,
		}
		Expect(m.CreateTopic(ctx, metadata.NewTopic{Name: "My_Topic", Partitions: -1, Config: config})).To(Succeed())
		resource := kubernetes.ResourceName("My_Topic")
		t := w.get(ctx, resource)
		Expect(t.OwnerReferences).To(BeEmpty())
		Expect(t.Spec).To(Equal(v1alpha1.TopicSpec{
			ClusterRef: "events", TopicName: "My_Topic", Partitions: 4, Partitioner: v1alpha1.PartitionerKeyHash,
			Retention: v1alpha1.RetentionSpec{Time: "90m", Bytes: 1 << 21, Tombstones: "0h"}, Flush: v1alpha1.FlushOS, CleanupPolicy: v1alpha1.CleanupCompact,
			MaxMessageBytes: 4096, DeletionPolicy: v1alpha1.DeletionRetain,
			Segment: v1alpha1.SegmentSpec{Bytes: 200, Time: "100ms"}, Timestamps: v1alpha1.TimestampLogAppend,
		}))
		w.place(ctx, resource)
		Eventually(names(m)).Should(ConsistOf("My_Topic"))
		Expect(m.Snapshot().Topics["My_Topic"].Config).To(Equal(config))
		Expect(m.CreateTopic(ctx, metadata.NewTopic{Name: "My_Topic", Partitions: 1, Config: config})).To(MatchError(metadata.ErrTopicExists))

		Expect(m.CreatePartitions(ctx, "My_Topic", 4)).To(MatchError(metadata.ErrInvalidPartitions))
		Expect(m.CreatePartitions(ctx, "My_Topic", 6)).To(Succeed())
		Expect(w.get(ctx, resource).Spec.Partitions).To(Equal(int32(6)))
		Expect(m.CreatePartitions(ctx, "none", 6)).To(MatchError(metadata.ErrUnknownTopic))

		Expect(m.DeleteTopic(ctx, "My_Topic")).To(Succeed())
		Eventually(names(m)).Should(BeEmpty())
		Expect(m.DeleteTopic(ctx, "My_Topic")).To(MatchError(metadata.ErrUnknownTopic))
	})

	It("changes the configuration of a Topic resource, and nothing else of it", func(ctx SpecContext) {
		w := newWorld(ctx)
		m, _ := w.started(env.Config)
		t := w.topic(ctx, "orders", v1alpha1.DeletionRetain)
		Eventually(names(m)).Should(ConsistOf("orders"))
		want := w.get(ctx, "orders").Spec
		Expect(m.AlterTopicConfig(ctx, "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
			Expect(c).To(Equal(metadata.DefaultTopicConfig))
			c.RetentionTime, c.FlushOS, c.SegmentBytes, c.LogAppendTime = time.Hour, true, 4096, true
			return c, nil
		})).To(Succeed())
		want.Retention.Time, want.Flush, want.Segment.Bytes, want.Timestamps = "1h", v1alpha1.FlushOS, 4096, v1alpha1.TimestampLogAppend
		Expect(w.get(ctx, "orders").Spec).To(Equal(want))
		Eventually(func() bool { return m.Snapshot().Topics["orders"].Config.FlushOS }).Should(BeTrue())

		By("writing nothing where nothing changes")
		before := w.get(ctx, "orders").ResourceVersion
		Expect(m.AlterTopicConfig(ctx, "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) { return c, nil })).To(Succeed())
		Expect(w.get(ctx, "orders").ResourceVersion).To(Equal(before))

		By("beginning anew where somebody else changes the resource in between")
		calls := 0
		Expect(m.AlterTopicConfig(ctx, "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
			if calls++; calls == 1 {
				Expect(env.Client.Get(ctx, types.NamespacedName{Namespace: w.ns, Name: "orders"}, t)).To(Succeed())
				t.Spec.MaxMessageBytes = 5000
				Expect(env.Client.Update(ctx, t)).To(Succeed())
			}
			c.MaxMessageBytes++
			return c, nil
		})).To(Succeed())
		Expect(calls).To(Equal(2))
		Expect(w.get(ctx, "orders").Spec.MaxMessageBytes).To(Equal(int32(5001)))

		By("asking to try again where that goes on and on")
		err := m.AlterTopicConfig(ctx, "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
			Expect(env.Client.Get(ctx, types.NamespacedName{Namespace: w.ns, Name: "orders"}, t)).To(Succeed())
			t.Spec.Partitions++
			Expect(env.Client.Update(ctx, t)).To(Succeed())
			c.MaxMessageBytes++
			return c, nil
		})
		Expect(err).To(MatchError(metadata.ErrUnavailable))

		By("refusing what cannot be")
		alter := func(topic string, f func(*metadata.TopicConfig)) error {
			return m.AlterTopicConfig(ctx, topic, func(c metadata.TopicConfig) (metadata.TopicConfig, error) { f(&c); return c, nil })
		}
		err = alter("orders", func(c *metadata.TopicConfig) { c.RetentionTime = time.Millisecond })
		Expect(err).To(MatchError(metadata.ErrDenied))
		Expect(err).To(MatchError(ContainSubstring("retention.time must be a duration of at least 1s")))
		Expect(alter("none", func(*metadata.TopicConfig) {})).To(MatchError(metadata.ErrUnknownTopic))
		Expect(m.AlterTopicConfig(ctx, "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
			return c, metadata.ErrInvalidConfig
		})).To(BeIdenticalTo(metadata.ErrInvalidConfig))
	})

	It("does not change what the operator keeps in step", func(ctx SpecContext) {
		w := newWorld(ctx)
		m, _ := w.started(env.Config)
		t := &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{
			Name: "events-consumer-offsets", Namespace: w.ns, Annotations: map[string]string{v1alpha1.AnnotationInternal: "true"},
		}, Spec: v1alpha1.TopicSpec{TopicName: v1alpha1.TopicConsumerOffsets, Partitions: 1}}
		Expect(env.Client.Create(ctx, t)).To(Succeed())
		w.place(ctx, t.Name)
		Eventually(names(m)).Should(ConsistOf(v1alpha1.TopicConsumerOffsets))
		Expect(m.AlterTopicConfig(ctx, v1alpha1.TopicConsumerOffsets, func(c metadata.TopicConfig) (metadata.TopicConfig, error) {
			return c, nil
		})).To(MatchError(metadata.ErrDenied))
	})

	It("keeps the API server's reason when that refuses", func(ctx SpecContext) {
		w := newWorld(ctx)
		m, _ := w.started(env.Config)
		err := m.CreateTopic(ctx, metadata.NewTopic{Name: "orders", Partitions: 1, Config: metadata.TopicConfig{MaxMessageBytes: 1, RetentionBytes: -1}})
		Expect(err).To(MatchError(metadata.ErrDenied))
		Expect(err).To(MatchError(ContainSubstring("maxMessageBytes")))
		for name, change := range map[string]func(*metadata.TopicConfig){
			"no bytes": func(c *metadata.TopicConfig) { c.RetentionBytes = 0 }, "no time": func(c *metadata.TopicConfig) { c.RetentionTime = 0 },
		} {
			config := metadata.DefaultTopicConfig
			change(&config)
			Expect(m.CreateTopic(ctx, metadata.NewTopic{Name: "orders", Partitions: 1, Config: config})).
				To(MatchError(ContainSubstring("retention.")), "a topic that keeps records for %s", name)
		}
		Expect(m.CreateTopic(ctx, metadata.NewTopic{Name: "orders", Partitions: 10001})).To(MatchError(metadata.ErrInvalidPartitions))
	})

	It("lists a deleted topic's records as to be removed until they are, also if the broker was away", func(ctx SpecContext) {
		w := newWorld(ctx)
		m, stop := w.started(env.Config)
		kept := w.topic(ctx, "kept", v1alpha1.DeletionRetain)
		w.topic(ctx, "asked", v1alpha1.DeletionRetain)
		away := w.topic(ctx, "away", v1alpha1.DeletionDelete)
		Eventually(names(m)).Should(ConsistOf("kept", "asked", "away"))

		Expect(m.DeleteTopic(ctx, "asked")).To(Succeed())
		Eventually(purged(m)).Should(ConsistOf("asked"))
		stop()
		Expect(env.Client.Delete(ctx, away)).To(Succeed())
		Expect(env.Client.Delete(ctx, kept)).To(Succeed())
		again := w.topic(ctx, "away", v1alpha1.DeletionDelete)

		m, stop = w.open(env.Config)
		Expect(purged(m)()).To(ConsistOf("asked"))
		Eventually(purged(m)).Should(ConsistOf("asked", "away"))
		Eventually(names(m)).Should(ConsistOf("away"))
		Expect(m.Purged(ctx, m.Snapshot().Purge)).To(Succeed())
		Expect(purged(m)()).To(BeEmpty())
		stop()

		m, _ = w.open(env.Config)
		Expect(env.Client.Delete(ctx, again)).To(Succeed())
		Eventually(purged(m)).Should(ConsistOf("away"))
	})

	It("serves what it knew while the API server is away", func(ctx SpecContext) {
		w := newWorld(ctx)
		m, stop := w.started(env.Config)
		w.topic(ctx, "orders", v1alpha1.DeletionRetain)
		Eventually(names(m)).Should(ConsistOf("orders"))
		want := m.Snapshot()
		stop()

		m, _ = w.open(&rest.Config{Host: "https://127.0.0.1:1"})
		Expect(m.Snapshot()).To(Equal(want))
		Expect(m.DeleteTopic(ctx, "orders")).To(MatchError(metadata.ErrUnavailable))
		Expect(m.AlterTopicConfig(ctx, "orders", func(c metadata.TopicConfig) (metadata.TopicConfig, error) { return c, nil })).
			To(MatchError(metadata.ErrUnavailable))
		Expect(m.CreateTopic(ctx, metadata.NewTopic{Name: "new", Partitions: 1, Config: metadata.DefaultTopicConfig})).
			To(MatchError(metadata.ErrUnavailable))
	})
})
