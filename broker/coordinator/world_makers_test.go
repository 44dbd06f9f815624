// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maker is what makes pods: a Deployment, a StatefulSet, or, without a name, somebody who does it by hand.
type maker struct {
	workload           string
	replicas, revision int
	// surge is how many pods a rolling update may add, and unavailable how many may be missing.
	surge, unavailable int
}

func (w *world) newMakers() {
	w.makers = []*maker{
		{workload: "Deployment/web", replicas: 1 + w.rng.IntN(4), surge: 1 + w.rng.IntN(2), unavailable: w.rng.IntN(2)},
		{workload: "StatefulSet/db", replicas: w.rng.IntN(3)},
		{replicas: w.rng.IntN(2)},
	}
	if w.rng.IntN(4) == 0 {
		w.makers[0].surge, w.makers[0].unavailable = 0, 1
	}
	w.workloads.add(nil)
	w.publishWorkloads()
}

// publishWorkloads lets the API server have the workloads.
func (w *world) publishWorkloads() {
	now := map[string]Workload{}
	for _, m := range w.makers {
		if m.workload != "" {
			_, old := m.pods(w)
			now[m.workload] = Workload{Replicas: m.replicas, Rolling: len(old) > 0}
		}
	}
	if !maps.Equal(now, w.workloads.last()) {
		w.workloads.add(now)
	}
}

// change scales a workload, or begins a rolling update.
func (m *maker) change(w *world) {
	switch w.rng.IntN(3) {
	case 0:
		m.revision++
	case 1:
		m.replicas = w.rng.IntN(5)
	default:
		m.replicas += w.rng.IntN(2)
	}
	m.replicas = min(m.replicas, 5)
	w.publishWorkloads()
}

// pods are those of the workload that are to stay: of its revision, and older ones.
func (m *maker) pods(w *world) (current, old []*worldPod) {
	for _, name := range w.podNames() {
		switch p := w.running[name]; {
		case p.workload != m.workload || p.terminating || p.failed:
		case p.revision == m.revision:
			current = append(current, p)
		default:
			old = append(old, p)
		}
	}
	return current, old
}

// act lets a controller take a step, or miss it.
func (m *maker) act(w *world) {
	if w.rng.IntN(4) > 0 {
		m.reconcile(w)
	}
}

func (m *maker) reconcile(w *world) {
	switch m.workload {
	case "Deployment/web":
		m.deploy(w)
	case "StatefulSet/db":
		m.keep(w)
	default:
		if current, old := m.pods(w); len(current)+len(old) < m.replicas {
			w.made++
			w.makePod(fmt.Sprintf("bare-%d", w.made), "", m.revision)
		}
	}
	w.publishWorkloads()
}

// available says whether the control plane takes a pod for one that works.
func (w *world) available(p *worldPod) bool { return w.pods.last()[p.name].ready && !p.terminating }

// deploy is what the Deployment's controller does.
func (m *maker) deploy(w *world) {
	current, old := m.pods(w)
	if len(current) < m.replicas && len(current)+len(old) < m.replicas+m.surge {
		w.made++
		w.makePod(fmt.Sprintf("web-%d", w.made), m.workload, m.revision)
		return
	}
	all := slices.Concat(current, old)
	works := 0
	for _, p := range all {
		if w.available(p) {
			works++
		}
	}
	if len(all) <= m.replicas && len(old) == 0 {
		return
	}
	extra := old
	if len(current) > m.replicas {
		extra = current
	}
	for _, p := range extra {
		if !w.available(p) || works > m.replicas-m.unavailable {
			w.deletePod(p)
			return
		}
	}
}

// keep is what the StatefulSet's controller does: one thing at a time, and a pod of the same name only when the one before is gone.
func (m *maker) keep(w *world) {
	for i := range m.replicas {
		name := fmt.Sprintf("db-%d", i)
		p := w.running[name]
		switch {
		case p == nil:
			w.makePod(name, m.workload, m.revision)
			return
		case p.terminating || !w.available(p):
			if p.failed {
				w.deletePod(p)
			}
			return
		}
	}
	for _, name := range slices.Backward(w.podNames()) {
		p := w.running[name]
		var number int
		if _, err := fmt.Sscan(strings.TrimPrefix(name, "db-"), &number); err != nil || p.workload != m.workload {
			continue
		}
		if number >= m.replicas || p.revision != m.revision {
			w.deletePod(p)
			return
		}
	}
}
