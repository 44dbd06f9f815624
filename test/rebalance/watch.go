// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// podSeen is a pod as a watch told of it.
type podSeen struct {
	at    time.Time
	name  string
	alive bool
	// restarts is how often its container was started again.
	restarts int
}

// groupSeen is a ConsumerGroup as a watch told of it.
type groupSeen struct {
	at         time.Time
	name       string
	generation int
}

// watch writes down when the API server tells of pods and ConsumerGroups.
type watch struct {
	mu     sync.Mutex
	pods   []podSeen
	groups []groupSeen
	err    error
}

// object is what is read of a pod or a ConsumerGroup.
type object struct {
	Metadata struct {
		Name              string  `json:"name"`
		DeletionTimestamp *string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		ContainerStatuses []struct {
			RestartCount int `json:"restartCount"`
		} `json:"containerStatuses"`
		Generation int `json:"generation"`
	} `json:"status"`
}

// startWatch watches pods, and the ConsumerGroups where there are such, until ctx ends.
func startWatch(ctx context.Context, groups bool) (*watch, error) {
	w := &watch{}
	if err := w.follow(ctx, "pods", w.pod); err != nil {
		return nil, err
	}
	if groups {
		if err := w.follow(ctx, "consumergroups", w.group); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *watch) follow(ctx context.Context, what string, seen func(time.Time, string, *object)) error {
	c := exec.CommandContext(ctx, "kubectl", "--namespace", namespace, "get", what, "--watch", "--output-watch-events", "--output", "json")
	c.SysProcAttr = dies()
	out, err := c.StdoutPipe()
	if err != nil {
		return fmt.Errorf("watch %s: %w", what, err)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("watch %s: %w", what, err)
	}
	go func() {
		d := json.NewDecoder(out)
		for {
			var event struct {
				Type   string `json:"type"`
				Object object `json:"object"`
			}
			err := d.Decode(&event)
			now := time.Now()
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, io.EOF) {
					w.mu.Lock()
					w.err = fmt.Errorf("watch %s: %w", what, err)
					w.mu.Unlock()
				}
				break
			}
			w.mu.Lock()
			seen(now, event.Type, &event.Object)
			w.mu.Unlock()
		}
		_ = c.Wait() // it was killed
	}()
	return nil
}

func (w *watch) pod(at time.Time, event string, o *object) {
	p := podSeen{at: at, name: o.Metadata.Name}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			p.alive = c.Status == "True" && event != "DELETED" && o.Metadata.DeletionTimestamp == nil
		}
	}
	for _, c := range o.Status.ContainerStatuses {
		p.restarts += c.RestartCount
	}
	w.pods = append(w.pods, p)
}

func (w *watch) group(at time.Time, _ string, o *object) {
	w.groups = append(w.groups, groupSeen{at: at, name: o.Metadata.Name, generation: o.Status.Generation})
}

// podDown is when the watch first told after a time that a pod is not alive, or was started again.
func (w *watch) podDown(name string, after time.Time) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	restarts := 0
	for _, p := range w.pods {
		if p.name != name {
			continue
		}
		if p.at.After(after) && (!p.alive || p.restarts > restarts) {
			return p.at, true
		}
		restarts = p.restarts
	}
	return time.Time{}, false
}

// planned is when the watch first told after a time of a newer generation of a group than before it; zero where it did not.
func (w *watch) planned(name string, after time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := 0
	for _, g := range w.groups {
		if g.name != name {
			continue
		}
		if !g.at.After(after) {
			before = g.generation
		} else if g.generation > before {
			return g.at
		}
	}
	return time.Time{}
}
