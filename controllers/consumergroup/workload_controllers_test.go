// SPDX-License-Identifier: Apache-2.0

package consumergroup_test

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
)

// startControllers runs Kubernetes' own controllers of Deployments, ReplicaSets and StatefulSets until the specs end. They are skipped where their program is not beside
// the API server's, as in envtest's own downloads.
func startControllers() {
	GinkgoHelper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		Expect(os.Getenv("CI")).NotTo(Equal("true"), "%s is missing: %v", program, err)
		Skip("needs kube-controller-manager beside the API server's program")
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["env"] = &clientcmdapi.Cluster{Server: env.Config.Host, CertificateAuthorityData: env.Config.CAData}
	config.AuthInfos["env"] = &clientcmdapi.AuthInfo{ClientCertificateData: env.Config.CertData, ClientKeyData: env.Config.KeyData, Token: env.Config.BearerToken}
	config.Contexts["env"] = &clientcmdapi.Context{Cluster: "env", AuthInfo: "env"}
	config.CurrentContext = "env"
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, file)).To(Succeed())
	run := exec.Command(program, "--kubeconfig="+file, "--authentication-kubeconfig="+file, "--authorization-kubeconfig="+file, "--leader-elect=false", "--secure-port=0",
		"--controllers=deployment-controller,replicaset-controller,statefulset-controller")
	run.Stdout, run.Stderr = GinkgoWriter, GinkgoWriter
	Expect(run.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(run.Process.Kill()).To(Succeed())
		_ = run.Wait()
	})
}

// startKubelet plays the scheduler and the kubelet until the spec ends: a pod becomes ready, or is gone, after some time of chance.
func (w *world) startKubelet(ctx context.Context, seed uint64) {
	GinkgoHelper()
	GinkgoWriter.Printf("the kubelet's seed is %d\n", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		due := map[types.UID]time.Time{}
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			w.kubelet(ctx, rng, due)
		}
	}()
	DeferCleanup(func() {
		cancel()
		<-done
	})
}

// kubelet looks at every pod once. due is when the next thing happens to one.
func (w *world) kubelet(ctx context.Context, rng *rand.Rand, due map[types.UID]time.Time) {
	pods := &corev1.PodList{}
	if err := env.Client.List(ctx, pods, client.InNamespace(w.ns)); err != nil {
		return // the spec is over, or the next look does it
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		key := pod.UID
		if pod.DeletionTimestamp != nil {
			key += "-ends"
		} else if len(pod.Status.Conditions) > 0 && pod.Status.PodIP != "" {
			continue
		}
		if due[key].IsZero() {
			due[key] = time.Now().Add(time.Duration(50+rng.IntN(400)) * time.Millisecond)
		}
		if time.Now().Before(due[key]) {
			continue
		}
		if pod.DeletionTimestamp != nil {
			_ = env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
			continue
		}
		if pod.Spec.NodeName == "" {
			_ = env.Client.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}})
		}
		before := pod.DeepCopy()
		w.ips++
		pod.Status = running(w.ips)
		_ = env.Client.Status().Patch(ctx, pod, client.MergeFrom(before))
	}
}

// waitFor waits until the group's members are n pods that are active, none stands by, and none of the pods before is among them; it returns the group.
func (w *world) waitFor(ctx context.Context, n int, before ...string) *v1alpha1.ConsumerGroup {
	GinkgoHelper()
	var group *v1alpha1.ConsumerGroup
	Eventually(func(g Gomega) {
		var err error
		group, err = w.read(ctx, "web")()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(group.Status.Members).To(HaveLen(n))
		active := members(group, v1alpha1.MemberActive)
		g.Expect(active).To(HaveLen(n))
		for _, name := range before {
			g.Expect(active).NotTo(ContainElement(name))
		}
	}, time.Minute).Should(Succeed())
	return group
}

// movesSince counts how often each partition got another owner from a version of the group to another one.
func (w *world) movesSince(first, last *v1alpha1.ConsumerGroup) map[assigner.Partition]int {
	GinkgoHelper()
	var versions []*v1alpha1.ConsumerGroup
	Eventually(func() []*v1alpha1.ConsumerGroup {
		versions = w.history.since(first)
		return versions
	}).Should(ContainElement(HaveField("ResourceVersion", last.ResourceVersion)))
	moves, owner := map[assigner.Partition]int{}, map[assigner.Partition]string{}
	for i, version := range versions {
		for name, share := range owners(version) {
			for _, p := range share {
				if i > 0 && owner[p] != name {
					moves[p]++
				}
				owner[p] = name
			}
		}
	}
	return moves
}

var _ = Describe("with Kubernetes' own controllers", Ordered, func() {
	BeforeAll(startControllers)
	percent, none := intstr.FromString("25%"), intstr.FromInt32(0)
	DescribeTable("a rolling update of a Deployment moves each partition once", func(ctx SpecContext, strategy appsv1.DeploymentStrategy) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 20)
		w.startKubelet(ctx, uint64(GinkgoRandomSeed()))
		d := w.deployment(ctx, "web", 6)
		before := d.DeepCopy()
		d.Spec.Strategy = strategy
		Expect(env.Client.Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
		w.group(ctx, "web", grace(time.Minute))
		first := w.waitFor(ctx, 6)
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, w.key("web"), d)).To(Succeed())
			g.Expect(d.Status.Conditions).To(ContainElement(HaveField("Reason", "NewReplicaSetAvailable")))
		}).Should(Succeed())

		before = d.DeepCopy()
		d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
		Expect(env.Client.Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
		last := w.waitFor(ctx, 6, members(first, v1alpha1.MemberActive)...)
		moves := w.movesSince(first, last)
		Expect(moves).To(HaveLen(20))
		Expect(moves).To(HaveEach(1))
	},
		Entry("by surge and maxUnavailable, as is the default", appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &percent, MaxUnavailable: &percent},
		}),
		Entry("by surge", appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &percent, MaxUnavailable: &none},
		}),
		Entry("by maxUnavailable", appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &none, MaxUnavailable: &percent},
		}),
		Entry("that ends all pods first", appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}),
	)

	It("a rolling update of a StatefulSet moves none, and scaling moves the minimum", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 20)
		w.startKubelet(ctx, uint64(GinkgoRandomSeed()))
		set := w.statefulSet(ctx, "db", 3)
		w.group(ctx, "web", grace(time.Minute))
		first := w.waitFor(ctx, 3)
		uids := func(group *v1alpha1.ConsumerGroup) (uids []types.UID) {
			for _, m := range group.Status.Members {
				uids = append(uids, m.UID)
			}
			return uids
		}
		Expect(env.Client.Get(ctx, w.key("db"), set)).To(Succeed())
		before := set.DeepCopy()
		set.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
		Expect(env.Client.Patch(ctx, set, client.MergeFrom(before))).To(Succeed())
		var last *v1alpha1.ConsumerGroup
		Eventually(func(g Gomega) {
			last = w.waitFor(ctx, 3)
			for _, uid := range uids(first) {
				g.Expect(uids(last)).NotTo(ContainElement(uid))
			}
		}, time.Minute).Should(Succeed())
		Expect(w.movesSince(first, last)).To(BeEmpty())
		Expect(last.Status.Generation).To(Equal(first.Status.Generation))

		five, two := int32(5), int32(2)
		before = set.DeepCopy()
		set.Spec.Replicas = &five
		Expect(env.Client.Patch(ctx, set, client.MergeFrom(before))).To(Succeed())
		w.waitFor(ctx, 5)
		before = set.DeepCopy()
		set.Spec.Replicas = &two
		Expect(env.Client.Patch(ctx, set, client.MergeFrom(before))).To(Succeed())
		w.waitFor(ctx, 2)
	})

	It("a Deployment's pod that is deleted loses its seat at once, and scaling moves the minimum", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.topic(ctx, "orders", 20)
		w.startKubelet(ctx, uint64(GinkgoRandomSeed()))
		d := w.deployment(ctx, "web", 4)
		w.group(ctx, "web", grace(time.Minute))
		first := w.waitFor(ctx, 4)
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, w.key("web"), d)).To(Succeed())
			g.Expect(d.Status.Conditions).To(ContainElement(HaveField("Reason", "NewReplicaSetAvailable")))
		}).Should(Succeed())
		gone := first.Status.Members[0].Name
		Expect(env.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: gone}})).To(Succeed())
		last := w.waitFor(ctx, 4, gone)
		var reasons []string
		for _, version := range w.history.since(first) {
			reasons = append(reasons, version.Status.LastRebalance.Reason)
		}
		Expect(reasons).To(ContainElement("MemberLeft"))
		Expect(last.Status.LastRebalance.Reason).To(Equal("MemberJoined"))
		for _, replicas := range []int32{9, 3} {
			before := d.DeepCopy()
			d.Spec.Replicas = &replicas
			Expect(env.Client.Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
			w.waitFor(ctx, int(replicas))
		}
	})
})
