// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// podSecurity is what every pod of the suite runs with.
const podSecurity = `
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 10
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}`

// reader is a Deployment of ordinary consumers.
func reader(replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: billing}
spec:
  replicas: %d
  selector: {matchLabels: {app: billing}}
  template:
    metadata: {labels: {app: billing}}
    spec:%s
      containers:
        - name: reader
          image: %s
          imagePullPolicy: IfNotPresent
          args: [read, %q, billing, orders]
`, replicas, podSecurity, settings.clientsImage, bootstrap)
}

// writer is a Deployment that writes numbered records.
func writer(prefix string, rate int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:%s
      containers:
        - name: writer
          image: %s
          imagePullPolicy: IfNotPresent
          args: [write, %q, orders, %s, "%d"]
`, podSecurity, settings.clientsImage, bootstrap, prefix, rate)
}

func billing(grace string) string {
	return fmt.Sprintf(`
apiVersion: ringmaster.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: billing}
spec:
  topics: [orders]
  selector: {matchLabels: {app: billing}}
  memberGracePeriod: %s
`, grace)
}

// produce runs kcat in a pod of its own with stdin.
func produce(stdin string, args ...string) {
	GinkgoHelper()
	all := append([]string{"-n", namespace, "run", "kcat", "--rm", "-i", "--quiet", "--restart=Never", "--image=" + settings.kcatImage,
		"--image-pull-policy=IfNotPresent", "--pod-running-timeout=1m", "--", "-b", bootstrap, "-P"}, args...)
	_, err := command(stdin, "kubectl", all...)
	Expect(err).NotTo(HaveOccurred())
}

// runPod runs a program in a pod of its own to its end, and returns what it printed. That is read from the pod's log: who attaches to a pod misses what it
// printed before.
func runPod(name, image string, args ...string) string {
	GinkgoHelper()
	inNamespace(append([]string{"run", name, "--restart=Never", "--image=" + image, "--image-pull-policy=IfNotPresent", "--"}, args...)...)
	phase := func() string { return inNamespace("get", "pod", name, "-o", "jsonpath={.status.phase}") }
	Eventually(phase).Should(Or(Equal("Succeeded"), Equal("Failed")))
	out := inNamespace("logs", name, "--tail=-1")
	Expect(phase()).To(Equal("Succeeded"), out)
	inNamespace("delete", "pod", name)
	return out
}

// record is a record that a pod read.
type record struct {
	Pod       string `json:"-"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

// readBy returns the records that the pods of the reader say they read whose value starts with prefix.
func readBy(prefix string, names ...string) ([]record, error) {
	var all []record
	for _, pod := range names {
		out, err := tryKubectl("-n", namespace, "logs", pod, "--tail=-1")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			r := record{Pod: pod}
			if json.Unmarshal([]byte(line), &r) == nil && strings.HasPrefix(r.Value, prefix) {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// owners maps each partition of a topic to the pod that status says reads it. It fails where one has two.
func owners(g v1alpha1.ConsumerGroup, topic string) map[int32]string {
	out := map[int32]string{}
	for _, m := range g.Status.Members {
		for _, a := range m.Assignments {
			if a.Topic != topic {
				continue
			}
			for _, p := range a.Partitions {
				ExpectWithOffset(1, out).NotTo(HaveKey(p), "partition %d has two owners", p)
				out[p] = m.Name
			}
		}
	}
	return out
}

// loads are the numbers of partitions of the members, smallest first and largest last.
func loads(g v1alpha1.ConsumerGroup) (smallest, largest int) {
	smallest = int(g.Status.Partitions)
	for _, m := range g.Status.Members {
		n := 0
		for _, a := range m.Assignments {
			n += len(a.Partitions)
		}
		smallest, largest = min(smallest, n), max(largest, n)
	}
	return smallest, largest
}

// lines makes n lines KEY:PREFIX-I.
func lines(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key-%d:%s-%d\n", i, prefix, i)
	}
	return b.String()
}
