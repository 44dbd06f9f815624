// SPDX-License-Identifier: Apache-2.0

package brokercluster_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

var _ = Describe("the operator's rights", func() {
	It("are enough, and enough to grant the brokers theirs", func(ctx SpecContext) {
		By("a user that has what config/rbac/role.yaml says, and nothing else")
		raw, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
		Expect(err).NotTo(HaveOccurred())
		role := &rbacv1.ClusterRole{}
		Expect(yaml.UnmarshalStrict(raw, role)).To(Succeed())
		name := "operator-" + string(uuid.NewUUID())
		role.Name = name
		Expect(env.Client.Create(ctx, role)).To(Succeed())
		Expect(env.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})).To(Succeed())
		user, err := env.As(name)
		Expect(err).NotTo(HaveOccurred())
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		w := &world{ns: ns}
		w.startAs(user)
		DeferCleanup(func() { Expect(w.manager.Stop()).To(Succeed()) })

		By("a cluster")
		w.cluster(ctx, "web", 1)
		w.settled(ctx, "web")
		Expect(w.children(ctx)).To(HaveLen(9))
		w.pod(ctx, "web", 1, corev1.ConditionTrue)
		Eventually(read[v1alpha1.BrokerCluster](ctx, w, "web")).Should(readyIs(metav1.ConditionTrue, v1alpha1.ReasonBrokersReady))

		By("a topic, and one whose name is taken")
		Expect(env.Client.Create(ctx, &v1alpha1.Topic{ObjectMeta: w.meta("orders")})).To(Succeed())
		Expect(env.Client.Create(ctx, &v1alpha1.Topic{ObjectMeta: w.meta("taken"), Spec: v1alpha1.TopicSpec{TopicName: "orders"}})).To(Succeed())
		Eventually(env.Notes(ctx, w.ns, "taken", v1alpha1.ReasonTopicNameTaken)).ShouldNot(BeEmpty())

		By("a group that scales its workload")
		labels := map[string]string{"app": "billing"}
		one, three := int32(1), int32(3)
		Expect(env.Client.Create(ctx, &appsv1.Deployment{ObjectMeta: w.meta("billing"), Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
			},
		}})).To(Succeed())
		Expect(env.Client.Create(ctx, &v1alpha1.ConsumerGroup{ObjectMeta: w.meta("billing"), Spec: v1alpha1.ConsumerGroupSpec{
			Topics: []string{"orders"}, Selector: &metav1.LabelSelector{MatchLabels: labels},
			TargetRef: &v1alpha1.TargetRef{Kind: "Deployment", Name: "billing"}, Replicas: &three,
		}})).To(Succeed())
		Eventually(read[v1alpha1.ConsumerGroup](ctx, w, "billing")).Should(HaveField("Status.Conditions", Not(BeEmpty())))
		Eventually(read[appsv1.Deployment](ctx, w, "billing")).Should(HaveField("Spec.Replicas", HaveValue(Equal(three))))

		By("a child that is made anew, and one that is changed back")
		Expect(env.Client.Delete(ctx, &rbacv1.Role{ObjectMeta: w.meta("web-broker")})).To(Succeed())
		Eventually(read[rbacv1.Role](ctx, w, "web-broker")).Should(HaveField("Rules", HaveLen(2)))
		Expect(env.Client.Patch(ctx, &v1alpha1.Topic{ObjectMeta: w.meta("web-consumer-offsets")},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cleanupPolicy":"Delete"}}`)))).To(Succeed())
		Eventually(read[v1alpha1.Topic](ctx, w, "web-consumer-offsets")).Should(HaveField("Spec.CleanupPolicy", v1alpha1.CleanupCompact))

		Expect(w.manager.Refused()).To(BeEmpty())
	})
})
