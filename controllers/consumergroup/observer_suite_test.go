// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/consumergroup"
	"github.com/ringmaster-dev/ringmaster/test/testbroker"
)

// observedWorld is a world with a broker, which takes its metadata from the API server, and a controller that asks it. Clients are matched to pods by their client ids, for they
// all come from the address of the machine.
type observedWorld struct {
	*world
	broker   string
	observer *consumergroup.Observer
}

// newObservedWorld makes one. Every interval of the Observer's is as short as it can be.
func newObservedWorld(ctx context.Context) *observedWorld {
	GinkgoHelper()
	return newObservedWorldWith(ctx, 1)
}

// newObservedWorldWith makes one whose committed offsets are in some partitions.
func newObservedWorldWith(ctx context.Context, offsetsPartitions int32) *observedWorld {
	GinkgoHelper()
	ns, err := env.Namespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	w := &observedWorld{world: &world{ns: ns}}
	w.cluster(ctx, "demo")
	w.startBroker(ctx)
	w.startObserved()
	DeferCleanup(func() { Expect(w.manager.Stop()).To(Succeed()) })
	w.placed(ctx, "consumer-offsets", offsetsPartitions, func(t *v1alpha1.Topic) {
		t.Spec.TopicName, t.Spec.CleanupPolicy = v1alpha1.TopicConsumerOffsets, v1alpha1.CleanupCompact
		t.Annotations = map[string]string{v1alpha1.AnnotationInternal: "true"}
	})
	return w
}

// startObserved starts the controller, and an Observer.
func (w *observedWorld) startObserved() {
	GinkgoHelper()
	var err error
	w.manager, err = env.StartManager(w.ns, func(mgr ctrl.Manager) error {
		recorder := mgr.GetEventRecorder(consumergroup.ControllerName)
		w.observer = consumergroup.NewObserver(mgr, recorder)
		w.observer.LagInterval, w.observer.StallAfter = 100*time.Millisecond, 200*time.Millisecond
		if err := w.observer.SetupWithManager(mgr); err != nil {
			return err
		}
		return (&consumergroup.Reconciler{Client: mgr.GetClient(), Recorder: recorder, Observer: w.observer}).SetupWithManager(mgr)
	})
	Expect(err).NotTo(HaveOccurred())
}

// startBroker starts the broker, and tells the BrokerCluster's status of it.
func (w *observedWorld) startBroker(ctx context.Context) {
	GinkgoHelper()
	broker, err := testbroker.Start(env.Config, w.ns, "demo", GinkgoT().TempDir(), GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(broker.Stop()).To(Succeed()) })
	w.broker = broker.Address.String()
	cluster := &v1alpha1.BrokerCluster{}
	Expect(env.Client.Get(ctx, w.key("demo"), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Status.Brokers = []v1alpha1.BrokerStatus{{ID: 1, PodName: "demo-1", Host: "127.0.0.1", Port: int32(broker.Address.Port), Phase: v1alpha1.BrokerReady}}
	cluster.Status.ReadyReplicas, cluster.Status.BootstrapServers = 1, w.broker
	Expect(env.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// placed makes a Topic whose partitions the broker leads.
func (w *observedWorld) placed(ctx context.Context, name string, partitions int32, change ...func(*v1alpha1.Topic)) {
	GinkgoHelper()
	w.topic(ctx, name, partitions, change...)
	topic := &v1alpha1.Topic{}
	Expect(env.Client.Get(ctx, w.key(name), topic)).To(Succeed())
	before := topic.DeepCopy()
	leader := v1alpha1.PartitionLeader{Broker: 1}
	for p := range partitions {
		leader.Partitions = append(leader.Partitions, p)
	}
	topic.Status.Leaders = []v1alpha1.PartitionLeader{leader}
	Expect(env.Client.Status().Patch(ctx, topic, client.MergeFrom(before))).To(Succeed())
}

// kafka makes a Kafka client, closed at the spec's end.
func (w *observedWorld) kafka(opts ...kgo.Opt) *kgo.Client {
	GinkgoHelper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.broker), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.UnknownTopicRetries(-1),
	}, opts...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cl.Close)
	return cl
}

// produce writes n records to each of some partitions of a topic.
func (w *observedWorld) produce(ctx context.Context, topic string, partitions int32, n int) {
	GinkgoHelper()
	cl := w.kafka(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for i := range n {
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Append(nil, i)})
		}
	}
	Expect(cl.ProduceSync(ctx, records...).FirstErr()).NotTo(HaveOccurred())
}

// committed are the offsets that a group has committed for a topic.
func (w *observedWorld) committed(ctx context.Context, group, topic string) map[int32]int64 {
	GinkgoHelper()
	fetched, err := kadm.NewClient(w.kafka()).FetchOffsets(ctx, group)
	Expect(err).NotTo(HaveOccurred())
	out := map[int32]int64{}
	for p, o := range fetched[topic] {
		out[p] = o.At
	}
	return out
}

// consumer is a client that reads a topic, and commits what it has read.
type consumer struct {
	*kgo.Client
	stop func()
}

// consume starts a client of a group. Its end is that of the spec, or stop.
func (w *observedWorld) consume(group, id string, opts ...kgo.Opt) *consumer {
	GinkgoHelper()
	cl := w.kafka(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"), kgo.ClientID(id), kgo.HeartbeatInterval(50 * time.Millisecond),
		kgo.AutoCommitInterval(100 * time.Millisecond), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
	}, opts...)...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx)
		}
	}()
	c := &consumer{Client: cl, stop: sync.OnceFunc(func() {
		cancel()
		<-done
		cl.Close()
	})}
	DeferCleanup(c.stop)
	return c
}
