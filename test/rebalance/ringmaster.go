// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// operatorNamespace is where the chart is installed.
const operatorNamespace = "ringmaster-system"

// startRingmaster installs the chart, and makes a broker and a topic.
func startRingmaster(ctx context.Context, o *options) (*system, error) {
	repository, tag, _ := strings.Cut(o.ringmasterImage, ":")
	if _, err := command(ctx, "", o.helm, "upgrade", "--install", "ringmaster", filepath.Join(o.source, "..", "..", "charts", "ringmaster"), "--namespace", operatorNamespace, "--create-namespace",
		"--take-ownership", "--set", "image.repository="+repository+",image.tag="+tag, "--wait", "--timeout", "3m"); err != nil {
		return nil, fmt.Errorf("install the chart: %w", err)
	}
	if err := apply(ctx, fmt.Sprintf(`
apiVersion: ringmaster.dev/v1alpha1
kind: BrokerCluster
metadata: {name: events}
spec: {replicas: 1, storage: {size: 4Gi, whenDeleted: Delete}}
---
apiVersion: ringmaster.dev/v1alpha1
kind: Topic
metadata: {name: %s}
spec: {partitions: %d}
`, topicName, o.partitions)); err != nil {
		return nil, fmt.Errorf("make the brokers and the topic: %w", err)
	}
	for _, what := range []string{"brokercluster/events", "topic/" + topicName} {
		if _, err := kubectl(ctx, "wait", what, "--for=condition=Ready", "--timeout=3m"); err != nil {
			return nil, err
		}
	}
	return &system{name: "ringmaster", title: "Ringmaster", bootstrap: "events-bootstrap." + namespace + ".svc.cluster.local:9092", managed: true, stop: func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
		_, err := kubectl(ctx, "delete", "consumergroups,topics,brokerclusters", "--all", "--timeout=60s")
		if err == nil {
			_, err = command(ctx, "", o.helm, "uninstall", "ringmaster", "--namespace", operatorNamespace, "--wait")
		}
		if err != nil {
			fmt.Println("rebalance: remove Ringmaster:", err)
		}
	}}, nil
}
