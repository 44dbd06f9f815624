// SPDX-License-Identifier: Apache-2.0

package brokercluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// cannotPull are the reasons for which a container waits for its image. They alternate while the kubelet tries again, so they count as one.
var cannotPull = map[string]bool{
	"ErrImagePull":      true,
	"ImagePullBackOff":  true,
	"InvalidImageName":  true,
	"ErrImageNeverPull": true,
}

// cannotStart are the reasons for which a container that has its image waits, beside having to wait after a crash.
var cannotStart = map[string]bool{
	"CreateContainerConfigError": true,
	"CreateContainerError":       true,
	"RunContainerError":          true,
}

// trouble says why a broker's pod that is not ready does not run, from what the scheduler and the kubelet report about it; empty if they
// report no trouble. It leaves out what changes while the trouble stays the same, such as how often something was tried, or the status would be
// written every time.
func trouble(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "" // it is replaced
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			// What follows the first sentence is about preemption.
			why, _, _ := strings.Cut(c.Message, ". ")
			return "cannot be scheduled: " + why
		}
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if s.Name != resources.BrokerContainer || s.Ready {
			continue
		}
		switch waiting, last := s.State.Waiting, lastEnd(s); {
		case waiting != nil && cannotPull[waiting.Reason]:
			return "cannot pull its image " + s.Image
		case waiting != nil && cannotStart[waiting.Reason]:
			return "cannot start its container: " + waiting.Message
		case last != nil:
			return fmt.Sprintf("restarts; its container ended with exit code %d (%s)", last.ExitCode, last.Reason)
		}
	}
	return ""
}

// lastEnd is how a container ended last, nil if it never did.
func lastEnd(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}
