// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// patchGroup changes a ConsumerGroup's spec.
func patchGroup(name, spec string) {
	GinkgoHelper()
	inNamespace("patch", "consumergroup", name, "--type=merge", "--patch", `{"spec":`+spec+`}`)
}

// seats are the names of a group's members.
func seats(g v1alpha1.ConsumerGroup) []string {
	names := make([]string, 0, len(g.Status.Members))
	for _, m := range g.Status.Members {
		names = append(names, m.Name)
	}
	return names
}

// timesRead counts how often each record whose value starts with prefix was read by the pods that there are.
func timesRead(prefix string) map[string]int {
	counts := map[string]int{}
	records, err := readBy(prefix, pods("app=billing")...)
	if err != nil {
		return counts // a pod that has just ended; who asks, asks again
	}
	for _, r := range records {
		counts[r.Value]++
	}
	return counts
}

// pausedSpec: a paused group reads nothing, and goes on as before. It starts and ends with n consumers at rest.
func pausedSpec(n int) {
	before := group("billing")
	patchGroup("billing", `{"paused":true}`)
	Eventually(func(g Gomega) {
		now := group("billing")
		g.Expect(now.Status.Paused).To(BeTrue())
		g.Expect(owners(now, "orders")).To(BeEmpty())
		g.Expect(seats(now)).To(ConsistOf(seats(before)))
		g.Expect(now.Status.State).To(Equal(v1alpha1.GroupStable), "the clients have not all let go")
	}).Should(Succeed())
	produce(lines("paused", 120), "-t", "orders", "-K:", "-X", "acks=all")
	Consistently(timesRead, 3*time.Second, time.Second).WithArguments("paused-").Should(BeEmpty())
	patchGroup("billing", `{"paused":false}`)
	settled(n)
	Eventually(timesRead).WithArguments("paused-").Should(HaveLen(120))
	Expect(seats(group("billing"))).To(ConsistOf(seats(before)))
}

// resetSpec: a reset is refused while members read, and forced is carried out once.
func resetSpec(n int) {
	exactReads("replayed", 120)
	patchGroup("billing", `{"offsets":{"reset":{"id":"gentle","to":"Earliest"}}}`)
	phase := func() string {
		s := group("billing").Status
		if s.OffsetsReset == nil {
			return ""
		}
		status := "absent"
		if c := apimeta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOffsetsReset); c != nil {
			status = string(c.Status)
		}
		return fmt.Sprintf("%s %s, condition %s", s.OffsetsReset.ID, s.OffsetsReset.Phase, status)
	}
	Eventually(phase).Should(Equal("gentle Refused, condition False"))
	Consistently(func() (most int) {
		for _, times := range timesRead("replayed-") {
			most = max(most, times)
		}
		return most
	}, 2*time.Second, time.Second).Should(Equal(1))

	patchGroup("billing", `{"offsets":{"reset":{"id":"forced","to":"Earliest","force":true}}}`)
	Eventually(phase).Should(Equal("forced Succeeded, condition True"))
	Expect(group("billing").Status.OffsetsReset.Partitions).To(BeEquivalentTo(partitions))
	settled(n)
	Eventually(func(g Gomega) {
		counts := timesRead("replayed-")
		g.Expect(counts).To(HaveLen(120))
		for value, times := range counts {
			g.Expect(times).To(Equal(2), value)
		}
	}).Should(Succeed())
	exactReads("after-reset", 300)
	for value, times := range timesRead("replayed-") {
		Expect(times).To(Equal(2), "%s: the reset was carried out again", value)
	}
}

// wireSpec: a group without a selector shows what its clients do, and is written only when that changes.
func wireSpec() {
	apply("apiVersion: ringmaster.dev/v1alpha1\nkind: ConsumerGroup\nmetadata: {name: audit}\nspec: {topics: [orders]}\n" +
		"---" + strings.NewReplacer("billing", "audit").Replace(reader(2)))
	mirrored := func(n int) v1alpha1.ConsumerGroup {
		GinkgoHelper()
		var g v1alpha1.ConsumerGroup
		Eventually(func(gm Gomega) {
			g = group("audit")
			gm.Expect(g.Status.Members).To(HaveLen(n))
			gm.Expect(g.Status.Replicas).To(BeEquivalentTo(n))
			gm.Expect(g.Status.State).To(Equal(v1alpha1.GroupStable))
			gm.Expect(owners(g, "orders")).To(HaveLen(partitions))
		}).Should(Succeed())
		return g
	}
	two := mirrored(2)
	Eventually(func() int64 {
		if lag := group("audit").Status.Lag; lag != nil {
			return lag.Total
		}
		return -1
	}).Should(BeZero())
	settledVersion := group("audit").ResourceVersion
	Consistently(func() string { return group("audit").ResourceVersion }, 12*time.Second, time.Second).Should(Equal(settledVersion), "nothing changed, and yet it was written")
	inNamespace("scale", "deployment/audit", "--replicas=1")
	one := mirrored(1)
	Expect(one.Status.Generation).To(BeNumerically(">", two.Status.Generation))
	inNamespace("delete", "deployment/audit")
	Eventually(func(g Gomega) {
		now := group("audit")
		g.Expect(now.Status.State).To(Equal(v1alpha1.GroupEmpty))
		g.Expect(now.Status.Members).To(BeEmpty())
	}).Should(Succeed())
	inNamespace("delete", "consumergroup", "audit")
}
