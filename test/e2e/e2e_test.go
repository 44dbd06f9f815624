// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

const partitions = 12

// The specs are steps of one story: each starts from what the one before left.
var _ = Describe("Ringmaster on a real cluster", Ordered, func() {
	BeforeAll(clean)

	It("has manifests that the API server takes, whatever is set, and a chart that refuses values that make no sense", func() {
		chart := settings.root + "/charts/ringmaster"
		accepted := func(manifests, what string) {
			GinkgoHelper()
			out, err := command(manifests, "kubectl", "apply", "--dry-run=server", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), what)
			Expect(out).To(ContainSubstring("(server dry run)"), what)
		}
		for _, set := range []string{
			"", "crds.install=false", "crds.keep=false", "watchNamespace=" + namespace, "replicas=2", "metrics.service=false", "aggregateRoles=false",
			"imagePullSecrets[0].name=secret", "serviceAccount.name=mine", "priorityClassName=system-cluster-critical", "nodeSelector.disk=ssd",
			"tolerations[0].operator=Exists", "log.level=debug,log.format=text", `podLabels.team=a,podLabels.app\.kubernetes\.io/name=other`, "podAnnotations.a=b",
		} {
			manifests, err := command("", settings.helm, "template", "ringmaster", chart, "--namespace", namespace, "--set", set)
			Expect(err).NotTo(HaveOccurred(), set)
			accepted(manifests, set)
		}
		for _, set := range []string{
			"image.repositry=x", "image.tag=a b", "image.pullPolicy=Sometimes", "replicas=-1", "replicas=two", "watchNamespace=Bad_Name", "log.level=loud",
			"serviceAccount.name=Bad/Name", "podLabels.a=5", "nodeSelector.a=1", "tolerations[0]=x", "imagePullSecrets[0]=x", "crds.keep=maybe", "nonsense=1",
		} {
			_, err := command("", settings.helm, "template", "ringmaster", chart, "--set", set)
			Expect(err).To(MatchError(ContainSubstring("values don't meet the specifications of the schema")), set)
		}
		manifests := kubectl("kustomize", settings.root+"/config/default")
		accepted(strings.ReplaceAll(manifests, "ringmaster-system", namespace), "config/default")

		By("making the operator leave a node that does not answer, for nobody else notices what fails there")
		rendered, err := command("", settings.helm, "template", "ringmaster", chart)
		Expect(err).NotTo(HaveOccurred())
		for _, operator := range []string{manifests, rendered} {
			Expect(operator).To(MatchRegexp(`key: node.kubernetes.io/unreachable\n\s+operator: Exists\n\s+tolerationSeconds: 10\n`))
		}
	})

	It("installs with Helm", func() {
		install()
	})

	It("refuses a wrong manifest at admission and says what to do", func() {
		_, err := command("apiVersion: ringmaster.dev/v1alpha1\nkind: Topic\nmetadata: {name: wrong}\nspec: {partitions: 0}\n",
			"kubectl", "-n", namespace, "apply", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring("partitions must be from 1 to 10000")))
	})

	It("runs three brokers and places a topic's partitions evenly", func() {
		apply(`
apiVersion: ringmaster.dev/v1alpha1
kind: BrokerCluster
metadata: {name: events}
spec: {replicas: 3, storage: {size: 1Gi, whenDeleted: Delete}}
---
apiVersion: ringmaster.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {partitions: ` + strconv.Itoa(partitions) + `}
`)
		Eventually(readyReason, 3*time.Minute).WithArguments("brokercluster", "events").Should(Equal("True/BrokersReady"))
		Eventually(readyReason).WithArguments("topic", "orders").Should(Equal("True/Placed"))
		var t v1alpha1.Topic
		Expect(get(&t, "topic", "orders")).To(Succeed())
		Expect(t.Status.Leaders).To(HaveLen(3))
		for _, l := range t.Status.Leaders {
			Expect(l.Partitions).To(HaveLen(partitions / 3))
		}
	})

	It("lets every pod read exactly the partitions that status names", func() {
		apply(billing("10s"))
		apply(reader(3))
		settled(3)
		exactReads("first", 600)
	})

	It("moves only the minimum when the consumers are scaled", func() {
		for _, n := range []int{5, 2} {
			before := group("billing")
			inNamespace("scale", "deployment/billing", "--replicas", strconv.Itoa(n))
			settled(n)
			after := group("billing")
			Expect(after.Status.Generation).To(BeNumerically(">", before.Status.Generation))
			Expect(after.Status.LastRebalance.Moved).To(Equal(after.Status.LastRebalance.Minimum))
			exactReads(fmt.Sprintf("scaled-to-%d", n), 300)
		}
		inNamespace("scale", "deployment/billing", "--replicas=3")
		settled(3)
	})

	It("moves nothing when a consumer's process is killed and comes back within the grace period", func() {
		needLocalCluster()
		before := group("billing")
		victim := before.Status.Members[0].Name
		kill(victim, "reader")
		Eventually(restarts).WithArguments(victim).Should(BeNumerically(">", 0))
		Eventually(ready).WithArguments(victim).Should(BeTrue())
		settled(3)
		exactReads("killed-with-grace", 300)
		after := group("billing")
		Expect(after.Status.Generation).To(Equal(before.Status.Generation), "the generation")
		Expect(owners(after, "orders")).To(Equal(owners(before, "orders")))
	})

	It("moves a killed consumer's partitions at once without a grace period", func() {
		needLocalCluster()
		apply(billing("0s"))
		Eventually(func() string { return group("billing").Spec.MemberGracePeriod.Duration.String() }).Should(Equal("0s"))
		settled(3)
		before := group("billing")
		victim := before.Status.Members[0].Name
		kill(victim, "reader")
		Eventually(func() int32 { return group("billing").Status.Generation }).Should(BeNumerically(">", before.Status.Generation))
		Eventually(restarts).WithArguments(victim).Should(BeNumerically(">", 0))
		settled(3)
		exactReads("killed-without-grace", 300)
		apply(billing("10s"))
	})

	It("loses no acknowledged record when a broker's pod is deleted under load", func() {
		apply(writer("load", 50))
		inNamespace("rollout", "status", "deployment/shop", "--timeout=60s")
		Eventually(func() int { return len(acknowledged()) }).Should(BeNumerically(">", 100))
		var before struct {
			Metadata struct{ UID string } `json:"metadata"`
		}
		Expect(get(&before, "pod", "events-2")).To(Succeed())
		inNamespace("delete", "pod", "events-2", "--wait=false")
		Eventually(func() string {
			now := before
			if get(&now, "pod", "events-2") != nil {
				return before.Metadata.UID
			}
			return now.Metadata.UID
		}).ShouldNot(Equal(before.Metadata.UID))
		Eventually(readyReason, 2*time.Minute).WithArguments("brokercluster", "events").Should(Equal("True/BrokersReady"))
		sofar := len(acknowledged())
		Eventually(func() int { return len(acknowledged()) }).Should(BeNumerically(">", sofar+100))
		acks := acknowledged()
		inNamespace("scale", "deployment/shop", "--replicas=0")
		GinkgoWriter.Printf("%d records were acknowledged\n", len(acks))

		stored := map[string]bool{}
		for line := range strings.Lines(runPod("kcat", settings.kcatImage, "-b", bootstrap, "-C", "-t", "orders", "-o", "beginning", "-e", "-q")) {
			stored[strings.TrimSpace(line)] = true
		}
		for _, value := range acks {
			Expect(stored).To(HaveKey(value), "an acknowledged record is gone")
		}
		Eventually(func(g Gomega) {
			seen := map[string]bool{}
			records, err := readBy("load-", pods("app=billing")...)
			g.Expect(err).NotTo(HaveOccurred())
			for _, r := range records {
				seen[r.Value] = true
			}
			for _, value := range acks {
				g.Expect(seen).To(HaveKey(value), "the consumers have not read it yet")
			}
		}, 90*time.Second, time.Second).Should(Succeed())
	})

	It("lets consumers read on while the operator is away", func() {
		before := group("billing")
		operator := "deployment/ringmaster-operator"
		kubectl("-n", systemNamespace, "scale", operator, "--replicas=0")
		kubectl("-n", systemNamespace, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=operator", "--timeout=60s")
		exactReads("operator-away", 300)
		kubectl("-n", systemNamespace, "scale", operator, "--replicas=1")
		kubectl("-n", systemNamespace, "rollout", "status", operator, "--timeout=90s")
		Consistently(func() int32 { return group("billing").Status.Generation }, 5*time.Second).Should(Equal(before.Status.Generation))

		kubectl("-n", systemNamespace, "delete", "pod", "-l", "app.kubernetes.io/component=operator")
		inNamespace("scale", "deployment/billing", "--replicas=4")
		settled(4)
		exactReads("operator-back", 300)
	})

	It("shows who reads what", func() {
		for _, kind := range []string{"brokerclusters", "topics", "consumergroups"} {
			out := inNamespace("get", kind, "-o", "wide")
			GinkgoWriter.Printf("$ kubectl get %s -o wide\n%s\n", kind, out)
			fmt.Printf("$ kubectl get %s -o wide\n%s\n", kind, out)
		}
		for pod := range maps.Keys(byPod(owners(group("billing"), "orders"))) {
			Expect(inNamespace("get", "consumergroups", "-o", "wide")).To(ContainSubstring(pod + ":orders["))
		}
	})

	It("takes every partition from every member while the group is paused, and keeps their seats", func() { pausedSpec(4) })

	It("sets the group's offsets when it is told to, once, and not under readers' feet", func() { resetSpec(4) })

	It("shows what the clients of a group without a selector do", wireSpec)

	It("serves ringmaster's own commands", func() {
		out := runPod("cli", settings.image, "group", "describe", "billing", "--bootstrap", bootstrap)
		Expect(out).To(ContainSubstring("orders"))
	})

	It("makes Topic resources of the topics that a Kafka client creates", func() {
		cli := func(args ...string) {
			runPod("cli", settings.image, append(args, "--bootstrap", bootstrap)...)
		}
		cli("topic", "create", "invoices", "--partitions", "6")
		Expect(readyReason("topic", "invoices")).To(Equal("True/Placed"))
		cli("topic", "add-partitions", "invoices", "--to", "9")
		Eventually(func() string { return inNamespace("get", "topic", "invoices", "-o", "jsonpath={.status.partitions}") }).Should(Equal("9"))
		cli("topic", "delete", "invoices")
		Eventually(func() string {
			_, err := tryKubectl("-n", namespace, "get", "topic", "invoices")
			return fmt.Sprint(err)
		}).Should(ContainSubstring("NotFound"))
	})

	It("leaves nothing hanging when the operator is uninstalled and the namespace deleted", func() {
		uninstall()
	})
})

// settled waits until the group has n members, all of them running, and every partition has one owner with a spread of one at most.
func settled(n int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		names := pods("app=billing")
		g.Expect(names).To(HaveLen(n))
		status := group("billing")
		members := []string{}
		for _, m := range status.Status.Members {
			g.Expect(m.Phase).To(Equal(v1alpha1.MemberActive))
			members = append(members, m.Name)
		}
		g.Expect(members).To(ConsistOf(names))
		g.Expect(status.Status.State).To(Equal(v1alpha1.GroupStable))
		g.Expect(owners(status, "orders")).To(HaveLen(partitions))
		smallest, largest := loads(status)
		g.Expect(largest - smallest).To(BeNumerically("<=", 1))
	}, 2*time.Minute).Should(Succeed())
}

// exactReads writes n records with kcat and checks that each is read exactly once in all, by the pod that status names as its
// partition's owner. The clients may still be taking over partitions of an earlier change: records are written when they have.
func exactReads(prefix string, n int) {
	GinkgoHelper()
	g := group("billing")
	wake(prefix, g)
	produce(lines(prefix, n), "-t", "orders", "-K:", "-X", "acks=all")
	owner := owners(g, "orders")
	var records []record
	Eventually(func(gm Gomega) {
		var err error
		records, err = readBy(prefix+"-", pods("app=billing")...)
		gm.Expect(err).NotTo(HaveOccurred())
		gm.Expect(len(records)).To(BeNumerically(">=", n))
	}, 90*time.Second).Should(Succeed())
	values := map[string]string{}
	for _, r := range records {
		Expect(values).NotTo(HaveKey(r.Value), "read twice: by %s and by %s", values[r.Value], r.Pod)
		values[r.Value] = r.Pod
		Expect(r.Pod).To(Equal(owner[r.Partition]), "partition %d, offset %d", r.Partition, r.Offset)
	}
	Expect(group("billing").Status.Generation).To(Equal(g.Status.Generation), "the group changed while records were read")
	Expect(values).To(HaveLen(n))
	perPod := map[string]int{}
	for _, r := range records {
		perPod[r.Pod]++
	}
	fmt.Printf("%s: %d records of %d partitions, each read once and by the pod that status names: %v\n", prefix, n, partitions, perPod)
}

// wake writes records to every partition until all that are read are read by the owner that status names: from then on the clients
// hold what status says.
func wake(prefix string, g v1alpha1.ConsumerGroup) {
	GinkgoHelper()
	owner := owners(g, "orders")
	round := 0
	Eventually(func(gm Gomega) {
		round++
		mark := fmt.Sprintf("wake.%s.%d", prefix, round)
		produce(lines(mark, 40*partitions), "-t", "orders", "-K:", "-X", "acks=all")
		gm.Eventually(func(gm Gomega) {
			records, err := readBy(mark+"-", pods("app=billing")...)
			gm.Expect(err).NotTo(HaveOccurred())
			reader := map[int32]string{}
			for _, r := range records {
				reader[r.Partition] = r.Pod
			}
			gm.Expect(reader).To(Equal(owner))
		}, 5*time.Second).Should(Succeed())
	}, 2*time.Minute, time.Second).Should(Succeed())
}

// acknowledged are the values that the writer says were acknowledged.
func acknowledged() []string {
	var all []string
	for _, pod := range pods("app=shop") {
		out, err := tryKubectl("-n", namespace, "logs", pod, "--tail=-1")
		if err != nil {
			continue
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "load-") {
				all = append(all, strings.TrimSpace(line))
			}
		}
	}
	return all
}

func byPod(owner map[int32]string) map[string][]int32 {
	out := map[string][]int32{}
	for p, pod := range owner {
		out[pod] = append(out[pod], p)
	}
	return out
}

func needLocalCluster() {
	GinkgoHelper()
	if settings.cluster == "" {
		Skip("killing a container's process from outside needs the cluster of hack/cluster (CLUSTER=local)")
	}
}

// kill ends a container's process with signal 9, as the kernel does when memory runs out.
func kill(pod, container string) {
	GinkgoHelper()
	pid, err := command("", settings.cluster, "pid", namespace, pod, container)
	Expect(err).NotTo(HaveOccurred())
	_, err = command("", "kill", "-9", strings.TrimSpace(pid))
	Expect(err).NotTo(HaveOccurred())
}

func restarts(pod string) int {
	n, err := strconv.Atoi(inNamespace("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"))
	if err != nil {
		return 0
	}
	return n
}

func ready(pod string) bool {
	return inNamespace("get", "pod", pod, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`) == "True"
}
