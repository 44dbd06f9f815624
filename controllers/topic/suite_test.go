// SPDX-License-Identifier: Apache-2.0

package topic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/topic"
	"github.com/ringmaster-dev/ringmaster/test/testenv"
)

var env *testenv.Env

func TestTopic(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Topic")
}

var _ = BeforeSuite(func() {
	var err error
	env, err = testenv.Start(GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

// world is a namespace with the Topic controller at work in it. The specs play the BrokerCluster controller.
type world struct {
	ns      string
	manager *testenv.Manager
}

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	ns, err := env.Namespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	w := &world{ns: ns}
	w.start()
	DeferCleanup(func() { Expect(w.manager.Stop()).To(Succeed()) })
	return w
}

func (w *world) start() {
	GinkgoHelper()
	var err error
	w.manager, err = env.StartManager(w.ns, func(mgr ctrl.Manager) error {
		return (&topic.Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(topic.ControllerName)}).SetupWithManager(mgr)
	})
	Expect(err).NotTo(HaveOccurred())
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name}
}

// cluster makes a BrokerCluster that reports as many brokers as it asks for.
func (w *world) cluster(ctx context.Context, name string, replicas int32) *v1alpha1.BrokerCluster {
	GinkgoHelper()
	c := &v1alpha1.BrokerCluster{ObjectMeta: w.meta(name)}
	c.Spec.Replicas = &replicas
	Expect(env.Client.Create(ctx, c)).To(Succeed())
	w.report(ctx, name, replicas)
	return c
}

// report makes a BrokerCluster report brokers.
func (w *world) report(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	c := &v1alpha1.BrokerCluster{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, c)).To(Succeed())
	before := c.DeepCopy()
	c.Status.Brokers = nil
	for id := int32(1); id <= replicas; id++ {
		pod := fmt.Sprintf("%s-%d", name, id)
		c.Status.Brokers = append(c.Status.Brokers, v1alpha1.BrokerStatus{ID: id, PodName: pod, Host: pod, Port: 9092, Phase: v1alpha1.BrokerNotReady})
	}
	Expect(env.Client.Status().Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
}

// scale makes a BrokerCluster ask for brokers, and report them.
func (w *world) scale(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	w.merge(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta(name)}, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	w.report(ctx, name, replicas)
}

func (w *world) merge(ctx context.Context, obj client.Object, patch string) {
	GinkgoHelper()
	Expect(env.Client.Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// topic makes a Topic.
func (w *world) topic(ctx context.Context, name string, spec v1alpha1.TopicSpec) *v1alpha1.Topic {
	GinkgoHelper()
	t := &v1alpha1.Topic{ObjectMeta: w.meta(name), Spec: spec}
	Expect(env.Client.Create(ctx, t)).To(Succeed())
	return t
}

// read returns the Topic of the given name, for Eventually.
func (w *world) read(ctx context.Context, name string) func() (*v1alpha1.Topic, error) {
	return func() (*v1alpha1.Topic, error) {
		t := &v1alpha1.Topic{}
		err := env.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, t)
		return t, err
	}
}

// reason matches a Topic whose Ready condition, computed from its latest spec, has the given reason.
func reason(want string) OmegaMatcher {
	return WithTransform(func(t *v1alpha1.Topic) string {
		ready := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != t.Generation || (ready.Status == metav1.ConditionTrue) != (want == v1alpha1.ReasonPlaced) {
			return ""
		}
		return ready.Reason
	}, Equal(want))
}

// message matches a Topic whose Ready condition has the given message.
func message(want string) OmegaMatcher {
	return HaveField("Status.Conditions", ConsistOf(HaveField("Message", want)))
}

// placed waits until the Topic has as many partitions with leaders, and returns its status.
func (w *world) placed(ctx context.Context, name string, partitions int32) v1alpha1.TopicStatus {
	GinkgoHelper()
	Eventually(w.read(ctx, name)).Should(And(reason(v1alpha1.ReasonPlaced), HaveField("Status.Partitions", partitions)))
	t, err := w.read(ctx, name)()
	Expect(err).NotTo(HaveOccurred())
	return t.Status
}

// quiet asserts that nothing is written while nothing changes.
func (w *world) quiet() {
	GinkgoHelper()
	writes, err := w.manager.Settle() // what is under way may end first
	Expect(err).NotTo(HaveOccurred())
	Consistently(func() int { return len(w.manager.Writes()) }, time.Second).Should(Equal(writes))
}
