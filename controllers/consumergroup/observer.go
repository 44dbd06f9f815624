// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

const (
	// tick is how often the Observer looks for groups that are due, and how often it asks of one with a handoff or a reset under way.
	tick = 250 * time.Millisecond
	// wireInterval is how often it asks of a wire group, or of one whose reset waits for its members: their status is written once a second at most.
	wireInterval = time.Second
	// defaultLagInterval is how often lag is read: often enough to scale by, seldom enough to be no load.
	defaultLagInterval = 10 * time.Second
	// maxWakes is how many groups may wait to be reconciled before the Observer waits, too.
	maxWakes = 1024
)

// Observer asks the brokers what the clients of ConsumerGroups do, as any Kafka admin client does, and keeps what they say in memory. When that changes it wakes the
// Reconciler, which is the only one that writes it into the status. Brokers that do not answer leave what was last seen in place.
//
// Of every group it reads the lag at an interval. Of a managed group it asks more often only while a handoff or a reset of offsets is under way; of a wire group every second.
// It asks of a cluster's groups together, but of those alone that brokers did not tell all of when they were asked last: a broker that never answers delays no other's groups.
type Observer struct {
	// Client reads from the manager's cache, Reader from the API server itself.
	Client client.Client
	Reader client.Reader
	// Recorder records events on ConsumerGroups.
	Recorder events.EventRecorder
	// Clock tells the time; nil is time.Now.
	Clock func() time.Time
	// LagInterval is the time between two readings of lag. Zero: 10 seconds.
	LagInterval time.Duration
	// StallAfter is how long a member's partitions must have had lag, without a commit, until it is stalled. Zero: a minute.
	StallAfter time.Duration

	wakes chan event.GenericEvent

	mu           sync.Mutex
	observations map[types.NamespacedName]*Observation
	// begun are the resets that this operator has begun last, by group.
	begun map[types.NamespacedName]begunReset
	// clusters belongs to the loop of Start.
	clusters map[types.NamespacedName]*clusterWatch
}

// NewObserver returns an Observer that works with a manager's clients.
func NewObserver(mgr ctrl.Manager, recorder events.EventRecorder) *Observer {
	return &Observer{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: recorder,
		wakes:        make(chan event.GenericEvent, maxWakes),
		observations: map[types.NamespacedName]*Observation{},
		begun:        map[types.NamespacedName]begunReset{},
		clusters:     map[types.NamespacedName]*clusterWatch{},
	}
}

// SetupWithManager adds the Observer to a manager.
func (o *Observer) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(o); err != nil {
		return fmt.Errorf("set up the observer of consumer groups: %w", err)
	}
	return nil
}

// NeedLeaderElection says that one operator at a time does it.
func (*Observer) NeedLeaderElection() bool { return true }

// Observation returns what was last seen of a group; nil for nothing. An Observer that is nil has seen nothing.
func (o *Observer) Observation(group types.NamespacedName) *Observation {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.observations[group]
}

// source wakes the reconciler of the groups whose observations change.
func (o *Observer) source() source.Source {
	return source.Channel(o.wakes, &handler.EnqueueRequestForObject{})
}

func (o *Observer) now() time.Time {
	if o.Clock == nil {
		return time.Now()
	}
	return o.Clock()
}

// clusterWatch is what is remembered of a cluster. It belongs to the loop of Start.
type clusterWatch struct {
	// asking is how many questions to the brokers are open; it is guarded by the Observer's mu.
	asking    int
	bootstrap string
	kafka     *kgo.Client
	groups    map[types.NamespacedName]*groupWatch
}

// groupWatch is what is remembered of a group. It belongs to who asks of the group, if somebody does, and else to the loop of Start.
type groupWatch struct {
	uid types.UID
	// busy says that the group is being asked of; it is guarded by the Observer's mu.
	busy bool
	// described is when the group was last asked of, lagRead when its lag was, published when something new of it was last made known.
	described time.Time
	lagRead   time.Time
	published time.Time
	seen      Observation
	trouble   trouble
	ahead     aheadWatch
	begins    beginWatch
	stalls    stallWatch
	wire      wireWatch
	strangers strangerWatch
	reset     resetWatch
}

func (c *clusterWatch) close() {
	if c.kafka != nil {
		c.kafka.Close()
		c.kafka = nil
	}
}

// group returns what is remembered of a group, nothing of one that was deleted and made anew.
func (c *clusterWatch) group(g *v1alpha1.ConsumerGroup) *groupWatch {
	key := client.ObjectKeyFromObject(g)
	w := c.groups[key]
	if w == nil || w.uid != g.UID {
		w = &groupWatch{uid: g.UID, seen: Observation{uid: g.UID}}
		c.groups[key] = w
	}
	return w
}

// Start observes until ctx ends.
func (o *Observer) Start(ctx context.Context) error {
	var asks sync.WaitGroup
	defer func() {
		asks.Wait()
		for _, c := range o.clusters {
			c.close()
		}
		clear(o.clusters)
	}()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := o.begin(ctx, &asks); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "observe consumer groups")
		}
	}
}

// begin asks of the groups that are due, but for those that are being asked of.
func (o *Observer) begin(ctx context.Context, asks *sync.WaitGroup) error {
	clusters := &v1alpha1.BrokerClusterList{}
	if err := o.Client.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list BrokerClusters: %w", err)
	}
	groups := &v1alpha1.ConsumerGroupList{}
	if err := o.Client.List(ctx, groups, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list ConsumerGroups: %w", err)
	}
	members := map[types.NamespacedName][]*v1alpha1.ConsumerGroup{}
	for i := range groups.Items {
		if g := &groups.Items[i]; measurable(g) {
			cluster := types.NamespacedName{Namespace: g.Namespace, Name: g.Status.ClusterRef}
			members[cluster] = append(members[cluster], g)
		}
	}
	o.forget(groups.Items)
	used := map[types.NamespacedName]bool{}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		key := client.ObjectKeyFromObject(c)
		if len(members[key]) == 0 || c.Status.ReadyReplicas == 0 || c.Status.BootstrapServers == "" {
			continue
		}
		used[key] = true
		watch := o.clusters[key]
		if watch == nil {
			watch = &clusterWatch{groups: map[types.NamespacedName]*groupWatch{}}
			o.clusters[key] = watch
		}
		// The lists are the cache's own, which never changes an object: a newer one takes its place.
		if err := o.askDue(ctx, asks, watch, c.Status.BootstrapServers, members[key]); err != nil {
			return err
		}
	}
	o.closeExcept(used)
	return nil
}

// closeExcept closes the clients of the clusters that are not in use.
func (o *Observer) closeExcept(used map[types.NamespacedName]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, c := range o.clusters {
		if !used[key] && c.asking == 0 {
			c.close()
			delete(o.clusters, key)
		}
	}
}

// forget forgets what was seen of groups that are gone.
func (o *Observer) forget(groups []v1alpha1.ConsumerGroup) {
	there := make(map[types.NamespacedName]bool, len(groups))
	for i := range groups {
		there[client.ObjectKeyFromObject(&groups[i])] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	gone := func(key types.NamespacedName) bool { return !there[key] }
	maps.DeleteFunc(o.begun, func(key types.NamespacedName, _ begunReset) bool { return gone(key) })
	maps.DeleteFunc(o.observations, func(key types.NamespacedName, _ *Observation) bool { return gone(key) })
	for _, c := range o.clusters {
		maps.DeleteFunc(c.groups, func(key types.NamespacedName, w *groupWatch) bool { return gone(key) && !w.busy })
	}
}

// measurable says whether a group's figures are its own: a group whose id another one holds has none.
func measurable(g *v1alpha1.ConsumerGroup) bool {
	c := ready(g)
	return g.DeletionTimestamp == nil && c != nil && c.Reason != v1alpha1.ReasonGroupIDTaken
}

// interval is how often a group is to be described, zero for only when its lag is read.
func interval(g *v1alpha1.ConsumerGroup) time.Duration {
	open := g.Status.State == v1alpha1.GroupPreparingRebalance || g.Status.State == v1alpha1.GroupCompletingRebalance
	switch {
	case resetOpen(g) && !resetWaits(g), open && g.Spec.Selector != nil:
		return tick
	case g.Spec.Selector == nil, resetWaits(g):
		return wireInterval
	}
	return 0
}

// publish makes what was seen of a group known, and wakes the reconciler if that has changed.
func (o *Observer) publish(ctx context.Context, g *v1alpha1.ConsumerGroup, w *groupWatch) {
	key := client.ObjectKeyFromObject(g)
	next := w.seen
	o.mu.Lock()
	same := o.observations[key] != nil && reflect.DeepEqual(*o.observations[key], next)
	// A wire group's status is written once a second at most; what is kept back is published when the group is described next.
	early := g.Spec.Selector == nil && !resetOpen(g) && w.described.Sub(w.published) < wireInterval
	if same || early {
		o.mu.Unlock()
		return
	}
	o.observations[key], w.published = &next, w.described
	o.mu.Unlock()
	select {
	case o.wakes <- event.GenericEvent{Object: g}:
	case <-ctx.Done():
	}
}
