// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// command runs a program and returns what it printed; the error holds what it printed to standard error.
func command(stdin, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	c := exec.Command(name, args...)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func tryKubectl(args ...string) (string, error) { return command("", "kubectl", args...) }

func kubectl(args ...string) string {
	out, err := tryKubectl(args...)
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return out
}

// inNamespace runs kubectl in the suite's namespace.
func inNamespace(args ...string) string {
	return kubectl(append([]string{"-n", namespace}, args...)...)
}

// apply applies manifests to the suite's namespace.
func apply(manifests string) {
	_, err := command(manifests, "kubectl", "-n", namespace, "apply", "-f", "-")
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
}

// get reads an object of the suite's namespace into v.
func get(v any, args ...string) error {
	out, err := tryKubectl(append([]string{"-n", namespace, "get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

func group(name string) v1alpha1.ConsumerGroup {
	var g v1alpha1.ConsumerGroup
	ExpectWithOffset(1, get(&g, "consumergroup", name)).To(Succeed())
	return g
}

// pods returns the names of the pods that are not terminating.
func pods(selector string) []string {
	var list corev1.PodList
	ExpectWithOffset(1, get(&list, "pods", "-l", selector)).To(Succeed())
	names := []string{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	return names
}

// readyReason is the reason of an object's Ready condition, with its status: True/Placed.
func readyReason(args ...string) string {
	out, err := tryKubectl(append([]string{"-n", namespace, "get", "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status}/{.status.conditions[?(@.type=="Ready")].reason}`}, args...)...)
	if err != nil {
		return err.Error()
	}
	return out
}
