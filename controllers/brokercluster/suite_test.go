// SPDX-License-Identifier: Apache-2.0

package brokercluster_test

import (
	"context"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/brokercluster"
	"github.com/ringmaster-dev/ringmaster/controllers/consumergroup"
	"github.com/ringmaster-dev/ringmaster/controllers/topic"
	"github.com/ringmaster-dev/ringmaster/test/testenv"
)

const image = "ringmaster:test"

var env *testenv.Env

func TestBrokerCluster(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "BrokerCluster")
}

var _ = BeforeSuite(func() {
	var err error
	env, err = testenv.Start(GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

// world is a namespace with the operator's controllers at work in it.
type world struct {
	ns      string
	manager *testenv.Manager
}

// newWorld makes a namespace and starts the controllers of BrokerClusters and Topics.
func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	ns, err := env.Namespace(ctx)
	Expect(err).NotTo(HaveOccurred())
	w := &world{ns: ns}
	w.start()
	DeferCleanup(func() { Expect(w.manager.Stop()).To(Succeed()) })
	return w
}

// start starts the controllers as the operator does, with its restricted caches.
func (w *world) start() {
	GinkgoHelper()
	w.startAs(env)
}

// startAs starts them with somebody's rights.
func (w *world) startAs(user *testenv.Env) {
	GinkgoHelper()
	var err error
	w.manager, err = user.StartManager(w.ns, func(mgr ctrl.Manager) error {
		if err := (&topic.Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(topic.ControllerName)}).SetupWithManager(mgr); err != nil {
			return err
		}
		if err := (&consumergroup.Reconciler{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("consumergroup")}).SetupWithManager(mgr); err != nil {
			return err
		}
		return (&brokercluster.Reconciler{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(brokercluster.ControllerName), BrokerImage: image,
		}).SetupWithManager(mgr)
	}, func(o *ctrl.Options) {
		var err error
		o.Cache.ByObject, err = brokercluster.CacheByObject()
		Expect(err).NotTo(HaveOccurred())
	})
	Expect(err).NotTo(HaveOccurred())
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name}
}

// cluster makes a BrokerCluster.
func (w *world) cluster(ctx context.Context, name string, replicas int32, change ...func(*v1alpha1.BrokerClusterSpec)) *v1alpha1.BrokerCluster {
	GinkgoHelper()
	c := &v1alpha1.BrokerCluster{ObjectMeta: w.meta(name)}
	c.Spec.Replicas = &replicas
	for _, f := range change {
		f(&c.Spec)
	}
	Expect(env.Client.Create(ctx, c)).To(Succeed())
	return c
}

// scale sets spec.replicas.
func (w *world) scale(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":`+itoa(replicas)+`}}`))
	Expect(env.Client.Patch(ctx, &v1alpha1.BrokerCluster{ObjectMeta: w.meta(name)}, patch)).To(Succeed())
}

// read returns the object of the given name, for Eventually.
func read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, w *world, name string) func() (P, error) {
	return func() (P, error) {
		obj := P(new(T))
		err := env.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, obj)
		return obj, err
	}
}

// readyIs matches an object whose Ready condition, computed from its latest spec, has the given status and reason.
func readyIs(status metav1.ConditionStatus, reason string) OmegaMatcher {
	return WithTransform(func(c *v1alpha1.BrokerCluster) []string {
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != c.Generation {
			return nil
		}
		return []string{string(ready.Status), ready.Reason}
	}, Equal([]string{string(status), reason}))
}

// children lists the objects of the namespace that belong to a cluster, by kind and name.
func (w *world) children(ctx context.Context) map[string]client.Object {
	GinkgoHelper()
	all := map[string]client.Object{}
	for kind, list := range map[string]client.ObjectList{
		"StatefulSet": &appsv1.StatefulSetList{}, "Service": &corev1.ServiceList{}, "ConfigMap": &corev1.ConfigMapList{},
		"ServiceAccount": &corev1.ServiceAccountList{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudgetList{},
		"Role": &rbacv1.RoleList{}, "RoleBinding": &rbacv1.RoleBindingList{}, "Topic": &v1alpha1.TopicList{},
	} {
		Expect(env.Client.List(ctx, list, client.InNamespace(w.ns), client.HasLabels{v1alpha1.LabelCluster})).To(Succeed())
		items, err := meta.ExtractList(list)
		Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			obj, ok := item.(client.Object)
			Expect(ok).To(BeTrue())
			all[kind+" "+obj.GetName()] = obj
		}
	}
	return all
}

// versions are the resource versions of everything that the operator could have written.
func (w *world) versions(ctx context.Context) map[string]string {
	GinkgoHelper()
	versions := map[string]string{}
	for name, obj := range w.children(ctx) {
		versions[name] = obj.GetResourceVersion()
	}
	clusters := &v1alpha1.BrokerClusterList{}
	Expect(env.Client.List(ctx, clusters, client.InNamespace(w.ns))).To(Succeed())
	for _, c := range clusters.Items {
		versions["BrokerCluster "+c.Name] = c.ResourceVersion
	}
	return versions
}

// pod plays the StatefulSet's controller and the kubelet: it makes the pod of a broker, and sets whether it is ready.
func (w *world) pod(ctx context.Context, cluster string, id int32, isReady corev1.ConditionStatus) {
	GinkgoHelper()
	set, err := read[appsv1.StatefulSet](ctx, w, cluster)()
	Expect(err).NotTo(HaveOccurred())
	p := &corev1.Pod{ObjectMeta: w.meta(cluster + "-" + itoa(id))}
	p.Labels = maps.Clone(set.Spec.Template.Labels)
	p.Spec.Containers = []corev1.Container{{Name: "broker", Image: image}}
	Expect(client.IgnoreAlreadyExists(env.Client.Create(ctx, p))).To(Succeed())
	before := p.DeepCopy()
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: isReady}}
	Expect(env.Client.Status().Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
}

// claim plays the StatefulSet's controller: it makes the claim of a broker as the template says.
func (w *world) claim(ctx context.Context, cluster string, id int32) string {
	GinkgoHelper()
	set, err := read[appsv1.StatefulSet](ctx, w, cluster)()
	Expect(err).NotTo(HaveOccurred())
	template := set.Spec.VolumeClaimTemplates[0]
	c := &corev1.PersistentVolumeClaim{ObjectMeta: w.meta(template.Name + "-" + cluster + "-" + itoa(id)), Spec: template.Spec}
	c.Labels = template.Labels
	Expect(env.Client.Create(ctx, c)).To(Succeed())
	return c.Name
}
