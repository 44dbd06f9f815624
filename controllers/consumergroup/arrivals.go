// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
)

// arrivals remembers when live pods without a seat were first seen, by group and uid. A pod's own conditions tell whole seconds, which is too coarse for the delay
// that pods wait for each other. It is in memory alone: after a restart of the operator the delay begins anew.
type arrivals struct {
	mu    sync.Mutex
	times map[types.NamespacedName]map[string]time.Time
}

// note sets Since of the pods of a group, and forgets those that have a seat by now, or are gone.
func (a *arrivals) note(now time.Time, group *v1alpha1.ConsumerGroup, pods []coordinator.Pod) {
	seated := make(map[string]bool, len(group.Status.Members))
	for i := range group.Status.Members {
		seated[group.Status.Members[i].Name] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}
	before, after := a.times[key], map[string]time.Time{}
	for i := range pods {
		pod := &pods[i]
		if !pod.Alive || seated[pod.Name] {
			continue
		}
		since, known := before[pod.UID]
		if !known {
			since = now
		}
		pod.Since, after[pod.UID] = since, since
	}
	if len(after) == 0 {
		delete(a.times, key)
		return
	}
	if a.times == nil {
		a.times = map[types.NamespacedName]map[string]time.Time{}
	}
	a.times[key] = after
}

// forget forgets a group.
func (a *arrivals) forget(group types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.times, group)
}
