// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"time"
)

const (
	// ledger is the topic of the faults; with ledgerPartitions over 3 or 4 pods, every change of scale has pods whose share stays as it is.
	ledger           = "ledger"
	ledgerPartitions = 8
	// feedEvery is the time between two records of a partition: long beside what a busy machine delays a process, which was up to a second.
	feedEvery = time.Second
	// fewer and more are the numbers of pods that a change of scale goes between.
	fewer, more = 3, 4
	// handoffTimeout is the groups': longer than a broker's restart, after which the clients can say that they have let go.
	handoffTimeout = 15 * time.Second
	// sessionTimeout is the clients', and earlyBeat how long before a cut the last heartbeat of one can have been.
	sessionTimeout, earlyBeat = 45 * time.Second, 6 * time.Second
	// steadyNode has the operator, the brokers and the feed; shakyNode is the one that is cut off.
	steadyNode, shakyNode = "node1", "node2"
)

// team is a workload of witnesses and the ConsumerGroup of the same name, whose members they are.
type team struct {
	name, kind, protocol string
	// strategy is a Deployment's.
	strategy string
	// grace is the group's memberGracePeriod.
	grace time.Duration
	// host gives the pods the host's network, so that their clients are known by client id.
	host bool
	// clients is the number of clients in each pod.
	clients int
	// bystander is a team that no fault is meant for: two pods on the steady node.
	bystander bool
}

// surge starts a new pod before it ends an old one; replace ends an old one first, so that its seat waits for the new one within the grace period.
const (
	surge   = "{rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"
	replace = "{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"
)

// teams are all that the faults happen to, at once. A grace period is longer than a pod needs to be replaced where twenty are at one time on two cores, and than
// the node is cut off.
var teams = []team{
	{name: "coop", kind: "Deployment", strategy: surge, protocol: "cooperative", clients: 1},
	{name: "eager", kind: "Deployment", strategy: replace, protocol: "eager", clients: 1, grace: time.Minute},
	{name: "next", kind: "Deployment", strategy: surge, protocol: "consumer", clients: 1},
	{name: "host", kind: "Deployment", strategy: surge, protocol: "cooperative", clients: 2, host: true},
	{name: "db", kind: "StatefulSet", protocol: "cooperative", clients: 1, grace: time.Minute},
	{name: "still", kind: "Deployment", strategy: surge, protocol: "eager", clients: 1, bystander: true},
}

// size is how many pods the team has while the others have n.
func (t team) size(n int) int {
	if t.bystander {
		return 2
	}
	return n
}

// targets are the teams' workloads that faults are meant for, as kubectl names them.
func targets() []string {
	var out []string
	for _, t := range teams {
		if !t.bystander {
			out = append(out, strings.ToLower(t.kind)+"/"+t.name)
		}
	}
	return out
}

// teamOf is the team of a pod, by its name.
func teamOf(pod string) string { name, _, _ := strings.Cut(pod, "-"); return name }

// group is the team's ConsumerGroup.
func (t team) group() string {
	return fmt.Sprintf(`
---
apiVersion: ringmaster.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: %[1]s}
spec:
  topics: [%[2]s]
  selector: {matchLabels: {app: %[1]s}}
  memberGracePeriod: %[3]s
  handoffTimeout: %[4]s
`, t.name, ledger, t.grace, handoffTimeout)
}

// workload is the team's Deployment or StatefulSet.
func (t team) workload(replicas int, folder string) string {
	extra := "\n  strategy: " + t.strategy
	if t.kind == "StatefulSet" {
		extra = "\n  serviceName: " + t.name + "\n  podManagementPolicy: Parallel"
	}
	env := fmt.Sprintf("\n            - {name: CLIENTS, value: %q}", fmt.Sprint(t.clients))
	network := ""
	if t.bystander {
		network = "\n      nodeSelector: {kubernetes.io/hostname: " + steadyNode + "}"
	}
	if t.host {
		env += "\n            - {name: CLIENT_ID, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"
		network = "\n      hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet"
	}
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: %[1]s
metadata: {name: %[2]s}
spec:
  replicas: %[3]d%[4]s
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s, faults: witness}}
    spec:%[5]s%[6]s
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: %[2]s}}}
%[7]s`, t.kind, t.name, t.size(replicas), extra, podSecurity, network, witnessContainer(folder, env, "witness", bootstrap, t.name, ledger, t.protocol, "/journals"))
}

// witnessContainer is the container and volume of a program that keeps a journal.
func witnessContainer(folder, env string, args ...string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	return fmt.Sprintf(`      containers:
        - name: witness
          image: %s
          imagePullPolicy: IfNotPresent
          args: [%s]
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}%s
          volumeMounts: [{name: journals, mountPath: /journals}]
      volumes: [{name: journals, hostPath: {path: %q, type: Directory}}]
`, settings.clientsImage, strings.Join(quoted, ", "), env, folder)
}

// strangersAndFeed is a pod that no selector selects, whose client joins a group all the same, and the feed.
func strangersAndFeed(folder string) string {
	pod := `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%s
      nodeSelector: {kubernetes.io/hostname: %s}
%s`
	return fmt.Sprintf(pod, "stranger", podSecurity, steadyNode, witnessContainer(folder, "", "witness", bootstrap, teams[0].name, ledger, "cooperative", "/journals")) +
		fmt.Sprintf(pod, "feed", podSecurity, steadyNode, witnessContainer(folder, "", "feed", bootstrap, ledger, fmt.Sprint(ledgerPartitions), feedEvery.String(), "/journals"))
}

// faultBrokers are three brokers on the steady node, and the topic.
func faultBrokers() string {
	return fmt.Sprintf(`
apiVersion: ringmaster.dev/v1alpha1
kind: BrokerCluster
metadata: {name: events}
spec: {replicas: 3, storage: {size: 1Gi, whenDeleted: Delete}, template: {nodeSelector: {kubernetes.io/hostname: %s}}}
---
apiVersion: ringmaster.dev/v1alpha1
kind: Topic
metadata: {name: %s}
spec: {partitions: %d}
`, steadyNode, ledger, ledgerPartitions)
}
