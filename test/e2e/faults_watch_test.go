// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// version is a ConsumerGroup as it was from a moment on.
type version struct {
	seen  int64
	group v1alpha1.ConsumerGroup
}

// shares are the partitions of the ledger that each member has, those of a Standby being none.
func (v version) shares() map[string][]int32 {
	out := map[string][]int32{}
	for _, m := range v.group.Status.Members {
		out[m.Name] = nil
		for _, a := range m.Assignments {
			if a.Topic == ledger {
				out[m.Name] = a.Partitions
			}
		}
	}
	return out
}

// owners maps each partition to its member.
func (v version) owners() map[int32]string {
	out := map[int32]string{}
	for name, partitions := range v.shares() {
		for _, p := range partitions {
			out[p] = name
		}
	}
	return out
}

// watcher keeps every version of the namespace's ConsumerGroups.
type watcher struct {
	mu       sync.Mutex
	versions map[string][]version
}

// watchGroups watches until ctx ends. The API server ends a watch now and then; the next one begins with what there is.
func watchGroups(ctx context.Context) *watcher {
	w := &watcher{versions: map[string][]version{}}
	go func() {
		defer GinkgoRecover()
		for ctx.Err() == nil {
			c := exec.CommandContext(ctx, "kubectl", "-n", namespace, "get", "consumergroups", "-o", "json", "--watch", "--output-watch-events")
			out, err := c.StdoutPipe()
			if err != nil || c.Start() != nil {
				continue
			}
			lines := json.NewDecoder(out)
			for {
				var e struct {
					Object v1alpha1.ConsumerGroup `json:"object"`
				}
				if lines.Decode(&e) != nil {
					break
				}
				w.add(version{time.Now().UnixNano(), e.Object})
			}
			_ = c.Wait() // it was told to end, or the watch ended: there is another
		}
	}()
	return w
}

func (w *watcher) add(v version) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := v.group.Name
	if all := w.versions[name]; len(all) > 0 && all[len(all)-1].group.ResourceVersion == v.group.ResourceVersion {
		return
	}
	w.versions[name] = append(w.versions[name], v)
}

// now is the newest version of a group.
func (w *watcher) now(name string) version {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.versions[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return version{}
}

// between returns the version that was there at from, and those that came until to.
func (w *watcher) between(name string, from, to int64) []version {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.versions[name]
	first := 0
	for i, v := range all {
		if v.seen <= from {
			first = i
		}
	}
	last := first
	for last < len(all) && all[last].seen <= to {
		last++
	}
	return slices.Clone(all[first:max(last, first)])
}

// moved counts the partitions that have another owner in b than in a, those that had none included, and adds each to counts.
func moved(a, b version, counts map[int32]int) int {
	n, before := 0, a.owners()
	for p, owner := range b.owners() {
		if before[p] != owner {
			n++
			counts[p]++
		}
	}
	return n
}

// unchanged are the members whose share was the same, and not empty, in all of the versions.
func unchanged(all []version) map[string][]int32 {
	if len(all) == 0 {
		return nil
	}
	out := all[0].shares()
	maps.DeleteFunc(out, func(_ string, share []int32) bool { return len(share) == 0 })
	for _, v := range all[1:] {
		shares := v.shares()
		maps.DeleteFunc(out, func(name string, share []int32) bool { return !slices.Equal(share, shares[name]) })
	}
	return out
}
