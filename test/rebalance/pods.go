// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// readyPort is where a member listens once its consumer is made, which is when its pod is ready, as with applications that start for some time.
const readyPort = 8080

// namespace is where everything runs but the operator.
const namespace = "rebalance"

// command runs a program; the error has what it printed.
func command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func kubectl(ctx context.Context, args ...string) (string, error) {
	return command(ctx, "", "kubectl", append([]string{"--namespace", namespace}, args...)...)
}

func apply(ctx context.Context, manifests string) error {
	_, err := command(ctx, manifests, "kubectl", "--namespace", namespace, "apply", "-f", "-")
	return err
}

// deployment is the consumers of one kind.
func (c *cell) deployment(replicas int) string {
	var mounts, volumes strings.Builder
	for i, dir := range c.o.mounts {
		fmt.Fprintf(&mounts, "            - {name: host-%d, mountPath: %q, readOnly: true}\n", i, dir)
		fmt.Fprintf(&volumes, "        - {name: host-%d, hostPath: {path: %q}}\n", i, dir)
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  strategy: {rollingUpdate: {maxSurge: 25%%, maxUnavailable: 0}}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 10
      securityContext: {runAsUser: 0}
      containers:
        - name: member
          image: %[3]s
          imagePullPolicy: IfNotPresent
          command: %[4]s
          args: [%[5]s, %[6]q, %[1]s, %[7]s]
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: JOURNAL, value: %[8]q}
            - {name: SESSION_MS, value: "%[9]d"}
          readinessProbe: {tcpSocket: {port: %[12]d}, periodSeconds: 1}
          volumeMounts:
            - {name: journal, mountPath: %[8]q}
%[10]s      volumes:
        - {name: journal, hostPath: {path: %[8]q}}
%[11]s`, c.name, replicas, c.o.image, c.k.command(c.o), c.k.name, c.s.bootstrap, topicName, c.dir, c.session.Milliseconds(), mounts.String(), volumes.String(), readyPort)
}

// managed is the ConsumerGroup of the consumers.
func (c *cell) managed() string {
	return fmt.Sprintf(`
apiVersion: ringmaster.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: %[1]s}
spec:
  topics: [%[2]s]
  selector: {matchLabels: {app: %[1]s}}
  memberGracePeriod: 0s
`, c.name, topicName)
}

// processOf finds the process of a pod's container on this machine.
func processOf(pod string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list the processes: %w", err)
	}
	want := []byte("POD_NAME=" + pod)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil {
			continue // it has ended
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(v, want) {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("no process of pod %s runs on this machine: the cluster must be that of hack/cluster", pod)
}

// killHard ends a pod's process as kill -9 does.
func killHard(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
