// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e installs Ringmaster on a real cluster, runs real clients against it, and holds what status says against what
// the clients did. "make e2e" runs it.
package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	systemNamespace = "ringmaster-e2e-system"
	namespace       = "ringmaster-e2e"
	bootstrap       = "events-bootstrap:9092"
)

// settings are what "make e2e" says about the cluster.
var settings struct {
	root, helm, image, clientsImage, kcatImage string
	// cluster is hack/cluster's command; empty on a cluster of another kind.
	cluster string
}

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "end to end")
}

var _ = BeforeSuite(func() {
	for name, target := range map[string]*string{
		"E2E_ROOT": &settings.root, "E2E_HELM": &settings.helm, "E2E_IMAGE": &settings.image,
		"E2E_CLIENTS_IMAGE": &settings.clientsImage, "E2E_KCAT_IMAGE": &settings.kcatImage,
	} {
		*target = os.Getenv(name)
		Expect(*target).NotTo(BeEmpty(), "%s is not set: run \"make e2e\"", name)
	}
	settings.cluster = os.Getenv("E2E_CLUSTER_COMMAND")
	others := kubectl("get", "deployments", "-A", "-l", "app.kubernetes.io/name=ringmaster", "--field-selector", "metadata.namespace!="+systemNamespace, "-o", "name")
	Expect(others).To(BeEmpty(), "another operator runs on this cluster, and two of them undo each other's work; remove it (\"make demo-down\") and run again")
})

// clean makes the suite's namespace anew: an earlier run may have been cut off.
func clean() {
	GinkgoHelper()
	kubectl("delete", "namespace", namespace, systemNamespace, "--ignore-not-found", "--timeout=120s")
	kubectl("create", "namespace", namespace)
}

// install installs the chart, with more values for helm's --set.
func install(values ...string) {
	GinkgoHelper()
	repository, tag, _ := strings.Cut(settings.image, ":")
	values = append(values, "image.repository="+repository, "image.tag="+tag)
	out, err := command("", settings.helm, "upgrade", "--install", "ringmaster", settings.root+"/charts/ringmaster",
		"--namespace", systemNamespace, "--create-namespace", "--take-ownership", "--set", strings.Join(values, ","), "--wait", "--timeout", "3m")
	Expect(err).NotTo(HaveOccurred(), out)
}

// uninstall removes the chart, then everything else: nothing may hang because the operator is gone.
func uninstall() {
	GinkgoHelper()
	out, err := command("", settings.helm, "uninstall", "ringmaster", "--namespace", systemNamespace, "--wait", "--timeout", "2m")
	Expect(err).NotTo(HaveOccurred(), out)
	kubectl("delete", "namespace", namespace, "--timeout=120s")
	kubectl("delete", "namespace", systemNamespace, "--timeout=60s")
}

// When a spec fails, what the cluster knows is printed, since the cluster may be gone before anybody can look.
var _ = ReportAfterEach(func(r SpecReport) {
	if !r.Failed() {
		return
	}
	for _, args := range [][]string{
		{"-n", namespace, "get", "pods,brokerclusters,topics,consumergroups", "-o", "wide"},
		{"-n", namespace, "get", "events", "--sort-by=.lastTimestamp"},
		{"-n", namespace, "get", "consumergroups", "-o", "yaml"},
		{"-n", systemNamespace, "logs", "deployment/ringmaster-operator", "--tail=60"},
		{"-n", namespace, "logs", "-l", "app.kubernetes.io/component=broker", "--tail=40", "--prefix"},
		{"-n", namespace, "logs", "-l", "app=billing", "--tail=15", "--prefix"},
	} {
		out, err := tryKubectl(args...)
		fmt.Fprintf(GinkgoWriter, "$ kubectl %v\n%s\n", args, out)
		if err != nil {
			fmt.Fprintln(GinkgoWriter, err)
		}
	}
})
