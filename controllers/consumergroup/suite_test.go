// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/controllers/consumergroup"
	"github.com/ringmaster-dev/ringmaster/test/testenv"
)

var (
	env     *testenv.Env
	watcher client.WithWatch
)

func TestConsumerGroup(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "ConsumerGroup")
}

var _ = BeforeSuite(func() {
	var err error
	env, err = testenv.Start(GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	watcher, err = client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

// world is a namespace with the controller of ConsumerGroups at work in it. The spec plays everything else: the kubelet, the workloads'
// controllers, and those of Topics and BrokerClusters. Every version of every group is checked as it comes.
type world struct {
	ns      string
	manager *testenv.Manager
	ips     int
	history *history
}

// newWorld makes a namespace with the BrokerCluster demo, and starts the controller.
func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	ns, err := env.Namespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	w := &world{ns: ns, history: newHistory(ns)}
	DeferCleanup(w.history.finish)
	w.cluster(ctx, "demo")
	w.start()
	DeferCleanup(func() { Expect(w.manager.Stop()).To(Succeed()) })
	return w
}

// start starts the controller.
func (w *world) start() {
	GinkgoHelper()
	var err error
	w.manager, err = env.StartManager(w.ns, func(mgr ctrl.Manager) error {
		return (&consumergroup.Reconciler{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(consumergroup.ControllerName), Clock: time.Now,
		}).SetupWithManager(mgr)
	})
	Expect(err).NotTo(HaveOccurred())
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name}
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.ns, Name: name}
}

func (w *world) cluster(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(env.Client.Create(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta(name)})).To(Succeed())
}

// topic makes a Topic, whose partitions the brokers of a cluster have taken up; of the cluster demo if none is given.
func (w *world) topic(ctx context.Context, name string, partitions int32, change ...func(*v1alpha1.Topic)) {
	GinkgoHelper()
	topic := &v1alpha1.Topic{ObjectMeta: w.meta(name), Spec: v1alpha1.TopicSpec{ClusterRef: "demo", Partitions: partitions}}
	for _, f := range change {
		f(topic)
	}
	cluster := topic.Spec.ClusterRef
	Expect(env.Client.Create(ctx, topic)).To(Succeed())
	before := topic.DeepCopy()
	topic.Status.ClusterRef, topic.Status.TopicName, topic.Status.Partitions = cluster, topic.KafkaName(), partitions
	Expect(env.Client.Status().Patch(ctx, topic, client.MergeFrom(before))).To(Succeed())
}

// grow gives a topic more partitions.
func (w *world) grow(ctx context.Context, name string, partitions int32) {
	GinkgoHelper()
	topic := &v1alpha1.Topic{}
	Expect(env.Client.Get(ctx, w.key(name), topic)).To(Succeed())
	before := topic.DeepCopy()
	topic.Spec.Partitions = partitions
	Expect(env.Client.Patch(ctx, topic, client.MergeFrom(before))).To(Succeed())
	before = topic.DeepCopy()
	topic.Status.Partitions = partitions
	Expect(env.Client.Status().Patch(ctx, topic, client.MergeFrom(before))).To(Succeed())
}

// group makes a ConsumerGroup of the topic orders, whose members are the pods with the label app=web.
func (w *world) group(ctx context.Context, name string, change ...func(*v1alpha1.ConsumerGroupSpec)) *v1alpha1.ConsumerGroup {
	GinkgoHelper()
	group := &v1alpha1.ConsumerGroup{ObjectMeta: w.meta(name)}
	group.Spec.Topics = []string{"orders"}
	group.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	group.Spec.MemberGracePeriod = &metav1.Duration{Duration: time.Hour}
	for _, f := range change {
		f(&group.Spec)
	}
	Expect(env.Client.Create(ctx, group)).To(Succeed())
	return group
}

func grace(d time.Duration) func(*v1alpha1.ConsumerGroupSpec) {
	return func(s *v1alpha1.ConsumerGroupSpec) { s.MemberGracePeriod = &metav1.Duration{Duration: d} }
}

func reads(topics ...string) func(*v1alpha1.ConsumerGroupSpec) {
	return func(s *v1alpha1.ConsumerGroupSpec) { s.Topics = topics }
}

// read returns the group of a name, for Eventually.
func (w *world) read(ctx context.Context, name string) func() (*v1alpha1.ConsumerGroup, error) {
	return func() (*v1alpha1.ConsumerGroup, error) {
		group := &v1alpha1.ConsumerGroup{}
		err := env.Client.Get(ctx, w.key(name), group)
		return group, err
	}
}

// settled waits until the group's members are the given pods, all of them active, and returns it.
func (w *world) settled(ctx context.Context, name string, pods ...string) *v1alpha1.ConsumerGroup {
	GinkgoHelper()
	var group *v1alpha1.ConsumerGroup
	Eventually(func(g Gomega) {
		var err error
		group, err = w.read(ctx, name)()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(group.Status.ObservedGeneration).To(Equal(group.Generation))
		g.Expect(members(group, v1alpha1.MemberActive)).To(Equal(pods))
		g.Expect(group.Status.Replicas).To(BeEquivalentTo(len(pods)))
	}).Should(Succeed())
	return group
}

// members are the names of the members in a phase.
func members(group *v1alpha1.ConsumerGroup, phase v1alpha1.MemberPhase) []string {
	var names []string
	for _, m := range group.Status.Members {
		if m.Phase == phase {
			names = append(names, m.Name)
		}
	}
	return names
}

// pod starts a pod with the labels app=web: it is running and ready at once.
func (w *world) pod(ctx context.Context, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: w.meta(name)}
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "consumer"}}
	pod.Spec.NodeName = "node-1" // so that a pod that is deleted is terminating first
	for _, f := range change {
		f(pod)
	}
	Expect(env.Client.Create(ctx, pod)).To(Succeed())
	w.ips++
	w.podStatus(ctx, name, func(s *corev1.PodStatus) { *s = running(w.ips) })
	return pod
}

// running is the status of a pod that is running and ready, with the address of a number.
func running(n int) corev1.PodStatus {
	ip := fmt.Sprintf("10.1.%d.%d", n/250, n%250+1)
	return corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
	}
}

func (w *world) podStatus(ctx context.Context, name string, change func(*corev1.PodStatus)) {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Expect(env.Client.Get(ctx, w.key(name), pod)).To(Succeed())
	before := pod.DeepCopy()
	change(&pod.Status)
	Expect(env.Client.Status().Patch(ctx, pod, client.MergeFrom(before))).To(Succeed())
}

// ready sets whether a pod is ready.
func (w *world) ready(ctx context.Context, name string, status corev1.ConditionStatus) {
	GinkgoHelper()
	w.podStatus(ctx, name, func(s *corev1.PodStatus) { s.Conditions[0].Status = status })
}

// remove deletes a pod at once, as when its node has confirmed that it stopped.
func (w *world) remove(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Expect(env.Client.Delete(ctx, &corev1.Pod{ObjectMeta: w.meta(name)}, client.GracePeriodSeconds(0))).To(Succeed())
	}
}

// ownedBy makes a pod one that a StatefulSet made.
func ownedBy(set *appsv1.StatefulSet) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	}
}

// statefulSet makes a StatefulSet, which nobody acts on.
func (w *world) statefulSet(ctx context.Context, name string, replicas int32) *appsv1.StatefulSet {
	GinkgoHelper()
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{ObjectMeta: w.meta(name), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "consumer"}}},
		},
	}}
	Expect(env.Client.Create(ctx, set)).To(Succeed())
	return set
}

// deployment makes a Deployment, which nobody acts on.
func (w *world) deployment(ctx context.Context, name string, replicas int32) *appsv1.Deployment {
	GinkgoHelper()
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{ObjectMeta: w.meta(name), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "consumer"}}},
		},
	}}
	Expect(env.Client.Create(ctx, deployment)).To(Succeed())
	return deployment
}

// readyIs matches a group whose Ready condition, computed from its latest spec, has a status and a reason.
func readyIs(status metav1.ConditionStatus, reason string) OmegaMatcher {
	return WithTransform(func(group *v1alpha1.ConsumerGroup) []string {
		ready := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != group.Generation {
			return nil
		}
		return []string{string(ready.Status), ready.Reason}
	}, Equal([]string{string(status), reason}))
}

// owners is a group's assignment, to those that are no standbys.
func owners(group *v1alpha1.ConsumerGroup) assigner.Assignment {
	out := make(assigner.Assignment)
	for _, m := range group.Status.Members {
		if m.Phase == v1alpha1.MemberStandby {
			continue
		}
		out[m.Name] = nil
		for _, a := range m.Assignments {
			for _, p := range a.Partitions {
				out[m.Name] = append(out[m.Name], assigner.Partition{Topic: a.Topic, Partition: p})
			}
		}
	}
	return out
}

// history watches a namespace's groups and checks each version against the one before.
type history struct {
	watch    watch.Interface
	done     chan struct{}
	mu       sync.Mutex
	problems []string
	versions []*v1alpha1.ConsumerGroup
}

func newHistory(ns string) *history {
	GinkgoHelper()
	w, err := watcher.Watch(context.Background(), &v1alpha1.ConsumerGroupList{}, client.InNamespace(ns))
	Expect(err).NotTo(HaveOccurred())
	h := &history{watch: w, done: make(chan struct{})}
	go h.run()
	return h
}

func (h *history) run() {
	defer close(h.done)
	last := make(map[string]*v1alpha1.ConsumerGroup)
	for event := range h.watch.ResultChan() {
		group, ok := event.Object.(*v1alpha1.ConsumerGroup)
		if !ok {
			continue
		}
		h.mu.Lock()
		h.versions = append(h.versions, group)
		h.mu.Unlock()
		if before := last[group.Name]; before != nil {
			if problem := compareVersions(before, group); problem != "" {
				h.mu.Lock()
				h.problems = append(h.problems, group.Name+": "+problem)
				h.mu.Unlock()
			}
		}
		last[group.Name] = group
	}
}

// since returns the versions of a group from one on, which must have come.
func (h *history) since(first *v1alpha1.ConsumerGroup) []*v1alpha1.ConsumerGroup {
	h.mu.Lock()
	defer h.mu.Unlock()
	var versions []*v1alpha1.ConsumerGroup
	for _, version := range h.versions {
		if version.UID == first.UID && (len(versions) > 0 || version.ResourceVersion == first.ResourceVersion) {
			versions = append(versions, version)
		}
	}
	return versions
}

// finish fails the spec if a version broke a rule.
func (h *history) finish() {
	GinkgoHelper()
	h.watch.Stop()
	<-h.done
	Expect(h.problems).To(BeEmpty())
}

// compareVersions returns the rule that a group's version breaks, empty for none.
func compareVersions(was, is *v1alpha1.ConsumerGroup) string {
	a, b := owners(was), owners(is)
	moved := assigner.Moves(a, b)
	grown := is.Status.Generation - was.Status.Generation
	seen := make(map[assigner.Partition]bool)
	var loads []int
	for _, share := range b {
		loads = append(loads, len(share))
		for _, p := range share {
			seen[p] = true
		}
	}
	switch {
	case grown < 0 || grown > 1:
		return fmt.Sprintf("the generation went from %d to %d", was.Status.Generation, is.Status.Generation)
	case grown == 0 && moved > 0:
		return fmt.Sprintf("%d partitions moved within generation %d", moved, is.Status.Generation)
	case grown == 1 && (int(is.Status.LastRebalance.Moved) != moved || int(is.Status.LastRebalance.Minimum) != moved):
		return fmt.Sprintf("%d partitions moved, status says %+v", moved, is.Status.LastRebalance)
	case is.Status.Paused && len(seen) > 0:
		return fmt.Sprintf("%d partitions are read although the group is paused", len(seen))
	case len(loads) > 0 && len(seen) != int(is.Status.Partitions) && !is.Status.Paused:
		return fmt.Sprintf("%d of %d partitions have an owner", len(seen), is.Status.Partitions)
	case len(loads) > 0 && slices.Max(loads)-slices.Min(loads) > 1:
		return fmt.Sprintf("the loads are %v", loads)
	case len(is.Status.Members) > 0 && !strings.HasPrefix(is.Status.Assignments, is.Status.Members[0].Name+":"):
		return "the compact form is " + is.Status.Assignments
	}
	return ""
}
