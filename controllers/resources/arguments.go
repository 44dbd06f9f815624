// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// brokerArgs are the arguments of a broker's container: what it needs at its start. A limit that the spec does not give is left to the broker, so that a
// release may change its default without an argument that pins it.
func brokerArgs(c *v1alpha1.BrokerCluster, port int32) []string {
	args := []string{
		"broker",
		"--data-dir=" + dataDir,
		fmt.Sprintf("--listen=0.0.0.0:%d", port),
		"--metadata=kubernetes",
		"--cluster=" + c.Name,
		"--namespace=" + c.Namespace,
		"--pod-name=$(POD_NAME)",
		fmt.Sprintf("--health-listen=:%d", HealthPort),
		fmt.Sprintf("--metrics-listen=:%d", MetricsPort),
	}
	for _, limit := range []struct {
		flag  string
		value int32
	}{
		{"max-connections", c.Spec.Config.MaxConnections},
		{"max-connections-per-ip", c.Spec.Config.MaxConnectionsPerIP},
		{"max-request-bytes", c.Spec.Config.MaxRequestBytes},
	} {
		if limit.value > 0 {
			args = append(args, fmt.Sprintf("--%s=%d", limit.flag, limit.value))
		}
	}
	for _, time := range []struct {
		flag  string
		value *metav1.Duration
	}{
		{"idle-timeout", c.Spec.Config.IdleTimeout},
		{"offsets-retention", c.Spec.Config.OffsetsRetention},
		{"initial-rebalance-delay", c.Spec.Config.InitialRebalanceDelay},
		{"min-session-timeout", c.Spec.Config.MinSessionTimeout},
		{"max-session-timeout", c.Spec.Config.MaxSessionTimeout},
		{"consumer-session-timeout", c.Spec.Config.ConsumerSessionTimeout},
		{"consumer-heartbeat-interval", c.Spec.Config.ConsumerHeartbeatInterval},
		{"assignment-interval", c.Spec.Config.AssignmentInterval},
		{"heartbeat-hold", c.Spec.Config.HeartbeatHold},
	} {
		if time.value != nil {
			args = append(args, "--"+time.flag+"="+time.value.Duration.String())
		}
	}
	return args
}
