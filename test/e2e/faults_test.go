// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/test/e2e/judge"
)

// Faults happen to five workloads of consumers at once, each kind once and then until FAULTS (a duration) is over, in an order that FAULTS_SEED decides (printed). Each consumer
// keeps a journal, by the one clock of the machine that all nodes are on. Held against them:
//
//   - Every acknowledged record is read by each group: it fails where a partition has no owner in the end, or an offset is committed of what was not read.
//   - No partition is believed by two. A client believes that a partition is its own from the call of its assigned callback with it to the end of its revoked callback (the
//     beginning of its lost one), or its death. judge.Overlaps says why that can fail, and what is with a pod that is cut off: its belief ends at its fence, which is the
//     earliest moment at which others may be given what it had, handoffTimeout after the status that takes it away (a client that cannot be asked has that long to let go), or when its
//     session can have ended. judge.WrongCommits finds a commit of a fenced client that was accepted, judge.Strays a record that was read outside of any belief.
//   - A pod whose share a fault leaves as it is, and that the fault does not touch, hears nothing of it: none of its callbacks is called, and its longest gap between two records
//     of a partition is twice the longest while nothing happened at most. A sixth workload is none of the faults' business at all. Partitions of a broker that is away are no matter of the group and left out.
//   - Every step moves what status.lastRebalance says, and that is the minimum. A rolling update moves each partition of a Deployment once, and of a StatefulSet none.
var _ = Describe("Faults", Label("faults"), Ordered, func() {
	var r *faultRun
	var length time.Duration

	BeforeAll(func() {
		if settings.cluster == "" {
			Skip("cutting off a node and reading journals needs the cluster of hack/cluster (CLUSTER=local)")
		}
		if s := os.Getenv("FAULTS"); s != "" {
			var err error
			length, err = time.ParseDuration(s)
			Expect(err).NotTo(HaveOccurred(), "FAULTS must be a duration, such as 30m")
		}
		seed := rand.Uint64()
		if s := os.Getenv("FAULTS_SEED"); s != "" {
			var err error
			seed, err = strconv.ParseUint(s, 10, 64)
			Expect(err).NotTo(HaveOccurred(), "FAULTS_SEED must be a number")
		}
		fmt.Printf("the faults' seed is %d; FAULTS_SEED=%[1]d has the same order again\n", seed)
		dir, err := os.MkdirTemp("/var/tmp", "ringmaster-faults-")
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Chmod(dir, 0o777)).To(Succeed())
		r = &faultRun{dir: dir, journals: judge.NewFolder(dir), random: rand.New(rand.NewPCG(seed, 0)), replicas: fewer, normal: map[string]time.Duration{}}
		clean()
		install(`nodeSelector.kubernetes\.io/hostname=` + steadyNode)
		ctx, stop := context.WithCancel(context.Background())
		DeferCleanup(stop)
		r.watch = watchGroups(ctx)
	})

	It("has every group at rest, then nothing happens for a while", func() {
		apply(faultBrokers())
		Eventually(readyReason, 3*time.Minute).WithArguments("brokercluster", "events").Should(Equal("True/BrokersReady"))
		Eventually(readyReason).WithArguments("topic", ledger).Should(Equal("True/Placed"))
		var all strings.Builder
		for _, t := range teams {
			all.WriteString(t.group() + t.workload(r.replicas, r.dir))
		}
		apply(all.String() + strangersAndFeed(r.dir))
		r.settle(3 * time.Minute)
		Eventually(func() string {
			return inNamespace("get", "events", "--field-selector", "reason=UnknownClient,involvedObject.name="+teams[0].name, "-o", "name")
		}).ShouldNot(BeEmpty(), "no event tells of the client of no member")
		r.calm(10 * time.Second)
	})

	It("keeps its promises whatever happens", func() {
		begin := time.Now()
		for round := 0; round == 0 || time.Since(begin) < length; round++ {
			deck := r.deck(length >= longRun)
			r.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			for _, f := range deck {
				if round == 0 || time.Since(begin) < length {
					r.fault(f.name, f.do)
				}
			}
		}
	})

	It("lost no acknowledged record", func() {
		inNamespace("scale", "deployment/feed", "--replicas=0")
		Eventually(func() bool {
			r.refresh()
			return !slices.ContainsFunc(r.feeds(), func(p *judge.Process) bool {
				return !slices.ContainsFunc(p.Events, func(e judge.Event) bool { return e.What == judge.Stop })
			})
		}).Should(BeTrue(), "the feed has not ended")
		for _, t := range teams {
			unread := func() []string {
				r.refresh()
				return judge.Unread(r.feeds(), r.of(t))
			}
			Eventually(unread).Should(BeEmpty(), t.name)
		}
		fmt.Printf("%d records were acknowledged, and each group has read every one\n", judge.Acknowledged(r.feeds()))
	})

	It("takes in many pods that come at once with few rebalances", func() {
		n := 20
		if length >= longRun {
			n = 50
		}
		r.burst(n)
	})

	It("finds nothing", func() {
		r.judgeAll()
		r.report()
		Expect(r.found).To(BeEmpty(), "the journals are in %s", r.dir)
		Expect(os.RemoveAll(r.dir)).To(Succeed())
	})

	AfterAll(uninstallFaults)
})

// uninstallFaults joins a node that is still cut off, and removes everything.
func uninstallFaults() {
	if settings.cluster == "" {
		return
	}
	_, err := command("", settings.cluster, "node-join", strings.TrimPrefix(shakyNode, "node"))
	Expect(err).NotTo(HaveOccurred())
	uninstall()
}

// namedFault is a fault and what the report calls it.
type namedFault struct {
	name string
	do   func() effect
}

// longRun is a run that has the time for what takes minutes.
const longRun = 10 * time.Minute

// deck is one of each fault, with those that take more than a minute if there is the time.
func (r *faultRun) deck(long bool) []namedFault {
	deck := []namedFault{
		{"scale", r.scale},
		{"rolling update", r.roll},
		{"kill -9", r.kill},
		{"operator deleted", r.deleteOperator},
		{"broker deleted", r.deleteBroker},
		{"node cut off and back", r.cutNode},
	}
	if long {
		deck = append(deck, namedFault{"kill -STOP", r.stop})
	}
	return deck
}

// scale goes from fewer pods to more, or back.
func (r *faultRun) scale() effect {
	r.replicas = fewer + more - r.replicas
	inNamespace(append([]string{"scale", "--replicas", strconv.Itoa(r.replicas)}, targets()...)...)
	return effect{}
}

// roll makes every workload replace all of its pods.
func (r *faultRun) roll() effect {
	before, err := faultPods()
	Expect(err).NotTo(HaveOccurred())
	inNamespace(append([]string{"rollout", "restart"}, targets()...)...)
	for _, target := range targets() {
		inNamespace("rollout", "status", target, "--timeout=120s")
	}
	var victims []string
	for _, t := range teams {
		for _, p := range before[t.name] {
			if !t.bystander {
				victims = append(victims, p.Name)
			}
		}
	}
	return effect{victims: victims, check: checkRolled}
}

// checkRolled: each partition of a Deployment has moved exactly once, and none of a StatefulSet.
func checkRolled(t team, versions []version) []string {
	want := 1
	if t.bystander || t.kind == "StatefulSet" {
		want = 0
	}
	counts := map[int32]int{}
	var steps []string
	for i := 1; i < len(versions); i++ {
		moved(versions[i-1], versions[i], counts)
		if s := versions[i].group.Status; s.Generation != versions[i-1].group.Status.Generation {
			steps = append(steps, fmt.Sprintf("%d (%s: %s) %s", s.Generation, s.LastRebalance.Reason, s.LastRebalance.Message, s.Assignments))
		}
	}
	for p := range int32(ledgerPartitions) {
		if counts[p] != want {
			return []string{fmt.Sprintf("partition %d moved %d times, not %d; all moved %v: %s", p, counts[p], want, counts, strings.Join(steps, "; "))}
		}
	}
	return nil
}

// victims chooses a pod of each team, and returns their processes too.
func (r *faultRun) victims() (pods []string, pids []int) {
	GinkgoHelper()
	for _, t := range teams {
		if t.bystander {
			continue
		}
		members := r.watch.now(t.name).group.Status.Members
		pod := members[r.random.IntN(len(members))].Name
		out, err := command("", settings.cluster, "pid", namespace, pod, "witness")
		Expect(err).NotTo(HaveOccurred())
		pid, err := strconv.Atoi(strings.TrimSpace(out))
		Expect(err).NotTo(HaveOccurred())
		pods, pids = append(pods, pod), append(pids, pid)
	}
	return pods, pids
}

// stop makes the process of one pod of each team stand still until it is shown as stalled. It keeps its partitions: the pod is alive.
func (r *faultRun) stop() effect {
	GinkgoHelper()
	victims, pids := r.victims()
	for _, pid := range pids {
		Expect(syscall.Kill(pid, syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
	}
	Eventually(func(g Gomega) {
		for _, pod := range victims {
			for _, m := range r.watch.now(teamOf(pod)).group.Status.Members {
				if m.Name == pod {
					g.Expect(m.Phase).To(Equal(v1alpha1.MemberStalled), pod)
				}
			}
		}
	}, 3*time.Minute).Should(Succeed())
	for _, pid := range pids {
		Expect(syscall.Kill(pid, syscall.SIGCONT)).To(Succeed())
	}
	return effect{victims: victims, check: func(_ team, versions []version) []string {
		if n := len(versions); n > 1 && versions[0].group.Status.Generation != versions[n-1].group.Status.Generation {
			return []string{"partitions of a pod that is alive moved: " + versions[n-1].group.Status.LastRebalance.Message}
		}
		return nil
	}}
}

// kill ends the process of one pod of each team with signal 9. Nothing moves where there is a grace period.
func (r *faultRun) kill() effect {
	GinkgoHelper()
	victims, pids := r.victims()
	r.refresh()
	for i, pid := range pids {
		process := r.journals.Newest(victims[i])
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		for !gone(pid) {
			time.Sleep(time.Millisecond)
		}
		process.Died = time.Now().UnixNano()
	}
	for _, pod := range victims {
		Eventually(restarts).WithArguments(pod).Should(BeNumerically(">", 0))
	}
	return effect{victims: victims, check: checkGrace}
}

// checkGrace: nothing moves where the pods are back within the grace period.
func checkGrace(t team, versions []version) []string {
	if n := len(versions); t.grace > 0 && n > 1 && versions[0].group.Status.Generation != versions[n-1].group.Status.Generation {
		return []string{"partitions moved although the pods were back within the grace period: " + versions[n-1].group.Status.LastRebalance.Message}
	}
	return nil
}

// gone says whether a process has ended, as its parent may not have looked yet.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

// deleteOperator deletes the operator's pod while the teams are scaled.
func (r *faultRun) deleteOperator() effect {
	kubectl("-n", systemNamespace, "delete", "pod", "-l", "app.kubernetes.io/component=operator", "--wait=false")
	return r.scale()
}

// deleteBroker deletes a broker's pod while the teams are scaled.
func (r *faultRun) deleteBroker() effect {
	GinkgoHelper()
	broker := 1 + r.random.IntN(3)
	var t v1alpha1.Topic
	Expect(get(&t, "topic", ledger)).To(Succeed())
	var away []int32
	for _, l := range t.Status.Leaders {
		if int(l.Broker) == broker {
			away = l.Partitions
		}
	}
	pod := fmt.Sprintf("events-%d", broker)
	uid := podUID(pod)
	done := r.scale()
	inNamespace("delete", "pod", pod, "--wait=false")
	Eventually(podUID, 2*time.Minute).WithArguments(pod).ShouldNot(Or(Equal(uid), BeEmpty()))
	Eventually(readyReason, 2*time.Minute).WithArguments("brokercluster", "events").Should(Equal("True/BrokersReady"))
	done.away = away
	return done
}

// podUID is a pod's uid, or nothing where there is none of that name.
func podUID(name string) string {
	out, err := tryKubectl("-n", namespace, "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		return ""
	}
	return out
}

// cutNode cuts a node off until the others have taken over what its pods had, then joins it again. Where there is a grace period the pods are back within it.
func (r *faultRun) cutNode() effect {
	GinkgoHelper()
	number := strings.TrimPrefix(shakyNode, "node")
	pods, err := faultPods()
	Expect(err).NotTo(HaveOccurred())
	var victims []string
	for _, list := range pods {
		for _, p := range list {
			if p.Spec.NodeName == shakyNode {
				victims = append(victims, p.Name)
			}
		}
	}
	cut := time.Now()
	_, err = command("", settings.cluster, "node-cut", number)
	Expect(err).NotTo(HaveOccurred())
	survives := func(pod string) bool { return !slices.Contains(victims, pod) }
	took := map[string]time.Duration{}
	Eventually(func(g Gomega) {
		r.refresh()
		for _, t := range teams {
			if took[t.name] != 0 || t.grace > 0 || t.bystander || !slices.ContainsFunc(r.of(t), func(p *judge.Process) bool { return survives(p.Pod) && p.Holds() }) {
				continue
			}
			v := r.watch.now(t.name)
			for name, share := range v.shares() {
				g.Expect(survives(name) || len(share) == 0).To(BeTrue(), "%s is on the node that is cut off, and has %v", name, share)
			}
			g.Expect(r.unheld(t, v, survives)).To(BeEmpty(), t.name)
			took[t.name] = time.Since(cut).Round(100 * time.Millisecond)
		}
	}, 2*time.Minute).Should(Succeed())
	fmt.Printf("node cut off: the others had taken over after %v\n", took)
	_, err = command("", settings.cluster, "node-join", number)
	Expect(err).NotTo(HaveOccurred())
	r.fence(victims, cut, time.Now())
	return effect{victims: victims, check: checkGrace}
}

// fence notes from when on the belief of the victims of a cut does not count.
func (r *faultRun) fence(victims []string, cut, joined time.Time) {
	for _, pod := range victims {
		at := cut.Add(sessionTimeout - earlyBeat)
		for _, v := range r.watch.between(teamOf(pod), cut.UnixNano(), joined.UnixNano())[1:] {
			if len(v.shares()[pod]) == 0 {
				if by := v.group.Status.LastRebalance.Time.Add(handoffTimeout); by.Before(at) {
					at = by
				}
				break
			}
		}
		r.fences = append(r.fences, judge.Fence{Pod: pod, At: at.UnixNano(), Until: joined.UnixNano()})
	}
}

// burst: many pods that become ready at one time cost few rebalances.
func (r *faultRun) burst(n int) {
	GinkgoHelper()
	const topic, name = "burst", "burst"
	for _, t := range targets() {
		inNamespace("delete", t, "--wait=false")
	}
	file := "burst-may-begin"
	env := "\n            - {name: READY_FILE, value: /journals/" + file + "}"
	probe := "          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}\n"
	apply(fmt.Sprintf(`
apiVersion: ringmaster.dev/v1alpha1
kind: Topic
metadata: {name: %[1]s}
spec: {partitions: 100}
---
apiVersion: ringmaster.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: %[2]s}
spec:
  topics: [%[1]s]
  selector: {matchLabels: {app: %[2]s}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[2]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:%[4]s
%[5]s`, topic, name, n, podSecurity, strings.Replace(witnessContainer(r.dir, env, "witness", bootstrap, name, topic, "cooperative", "/journals"),
		"          volumeMounts", probe+"          volumeMounts", 1)))
	Eventually(func() int {
		return len(strings.Fields(inNamespace("get", "pods", "-l", "app="+name, "--field-selector", "status.phase=Running", "-o", "name")))
	}, 3*time.Minute, time.Second).Should(Equal(n))
	before := group(name)
	Expect(before.Status.Members).To(BeEmpty())
	Expect(os.WriteFile(filepath.Join(r.dir, file), nil, 0o644)).To(Succeed())
	var after v1alpha1.ConsumerGroup
	Eventually(func(g Gomega) {
		after = group(name)
		g.Expect(after.Status.Members).To(HaveLen(n))
		g.Expect(after.Status.State).To(Equal(v1alpha1.GroupStable))
	}).Should(Succeed())
	generations := after.Status.Generation - before.Status.Generation
	fmt.Printf("burst: %d pods that became ready at one time made %d generations\n", n, generations)
	Expect(generations).To(BeNumerically("<=", 3))
}
