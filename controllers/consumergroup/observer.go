// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

const (
	// tick is how often the Observer looks for groups that are due, and how often it asks of one with a handoff or a reset under way.
	tick = 250 * time.Millisecond
	// wireInterval is how often it asks of a wire group, or of one whose reset waits for its members: their status is written once a second at most.
	wireInterval = time.Second
	// defaultLagInterval is how often lag is read: often enough to scale by, seldom enough to be no load.
	defaultLagInterval = 10 * time.Second
	// roundTimeout is how long one cluster's brokers may take to answer.
	roundTimeout = 5 * time.Second
	// maxWakes is how many groups may wait to be reconciled before the Observer waits, too.
	maxWakes = 1024
)

// Observer asks the brokers what the clients of ConsumerGroups do, as any Kafka admin client does, and keeps what they say in memory. When that changes it wakes the
// Reconciler, which is the only one that writes it into the status. Brokers that do not answer leave what was last seen in place.
//
// Of every group it reads the lag at an interval. Of a managed group it asks more often only while a handoff or a reset of offsets is under way; of a wire group every second.
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
	clusters     map[types.NamespacedName]*clusterWatch
}

// NewObserver returns an Observer that works with a manager's clients.
func NewObserver(mgr ctrl.Manager, recorder events.EventRecorder) *Observer {
	return &Observer{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: recorder,
		wakes:        make(chan event.GenericEvent, maxWakes),
		observations: map[types.NamespacedName]*Observation{},
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

// clusterWatch is what is remembered of a cluster. It belongs to the round that is under way, if there is one.
type clusterWatch struct {
	// busy says that a round is under way; it is guarded by the Observer's mu.
	busy      bool
	bootstrap string
	kafka     *kgo.Client
	// lagRead is when the lag was last read.
	lagRead time.Time
	groups  map[types.NamespacedName]*groupWatch
}

// groupWatch is what is remembered of a group.
type groupWatch struct {
	uid types.UID
	// described is when the group was last asked of, published when something new of it was last made known.
	described time.Time
	published time.Time
	seen      Observation
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
		w = &groupWatch{uid: g.UID}
		c.groups[key] = w
	}
	return w
}

// Start observes until ctx ends.
func (o *Observer) Start(ctx context.Context) error {
	var rounds sync.WaitGroup
	defer func() {
		rounds.Wait()
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
		if err := o.begin(ctx, &rounds); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "observe consumer groups")
		}
	}
}

// begin begins a round for every cluster of which groups are due, unless the one before is still under way.
func (o *Observer) begin(ctx context.Context, rounds *sync.WaitGroup) error {
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
		watch, free := o.claim(key)
		if !free {
			continue
		}
		// The lists are the cache's own, which never changes an object: a newer one takes its place.
		mine, bootstrap := members[key], c.Status.BootstrapServers
		rounds.Go(func() {
			defer o.release(watch)
			o.round(ctx, watch, bootstrap, mine)
		})
	}
	o.closeExcept(used)
	return nil
}

// claim takes a cluster for a round; free is false if one is under way.
func (o *Observer) claim(key types.NamespacedName) (c *clusterWatch, free bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c = o.clusters[key]; c == nil {
		c = &clusterWatch{groups: map[types.NamespacedName]*groupWatch{}}
		o.clusters[key] = c
	}
	if c.busy {
		return nil, false
	}
	c.busy = true
	return c, true
}

func (o *Observer) release(c *clusterWatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.busy = false
}

// closeExcept closes the clients of the clusters that are not in use.
func (o *Observer) closeExcept(used map[types.NamespacedName]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, c := range o.clusters {
		if !used[key] && !c.busy {
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
	for key := range o.observations {
		if !there[key] {
			delete(o.observations, key)
		}
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

// round asks the brokers of one cluster of the groups that are due.
func (o *Observer) round(ctx context.Context, c *clusterWatch, bootstrap string, groups []*v1alpha1.ConsumerGroup) {
	now := o.now()
	readsLag := now.Sub(c.lagRead) >= cmp.Or(o.LagInterval, defaultLagInterval)
	var due []*v1alpha1.ConsumerGroup
	for _, g := range groups {
		every := interval(g)
		if readsLag || every == tick || every > 0 && now.Sub(c.group(g).described) >= every {
			due = append(due, g)
		}
	}
	if len(due) == 0 {
		return
	}
	if err := o.ask(ctx, c, bootstrap, groups, due, readsLag); err != nil && ctx.Err() == nil {
		ctrl.LoggerFrom(ctx).V(1).Info("the brokers do not tell all", "bootstrap", bootstrap, "error", err.Error())
	}
	for _, g := range due {
		o.publish(ctx, g, c.group(g))
	}
}

// ask asks the brokers: for descriptions of the groups that are due, for the lag of all groups if that is due, and to carry out resets of offsets.
func (o *Observer) ask(ctx context.Context, c *clusterWatch, bootstrap string, groups, due []*v1alpha1.ConsumerGroup, readsLag bool) error {
	if err := c.connect(bootstrap); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	now := o.now()
	descriptions, err := describe(ctx, c.kafka, due)
	for _, g := range due {
		w := c.group(g)
		w.described = now
		if d := descriptions[g.KafkaID()]; d != nil {
			o.describe(now, g, w, d)
			if resetDue(g) {
				o.carryOut(ctx, c.kafka, g, w)
			}
		}
	}
	if readsLag {
		c.lagRead = now
		err = errors.Join(err, o.readLag(ctx, c, groups, descriptions))
	}
	return err
}

// connect makes the cluster's client, if there is none for its address yet.
func (c *clusterWatch) connect(bootstrap string) error {
	if c.kafka != nil && c.bootstrap == bootstrap {
		return nil
	}
	c.close()
	kafka, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("ringmaster-operator"), kgo.MetadataMinAge(tick))
	if err != nil {
		return fmt.Errorf("make a Kafka client for %s: %w", bootstrap, err)
	}
	c.kafka, c.bootstrap = kafka, bootstrap
	return nil
}

// describe takes note of a description of a group.
func (o *Observer) describe(now time.Time, g *v1alpha1.ConsumerGroup, w *groupWatch, d *description) {
	w.seen.group, w.seen.plan, w.seen.resetID = d, g.Status.Generation, ""
	if g.Spec.Offsets.Reset != nil {
		w.seen.resetID = g.Spec.Offsets.Reset.ID
	}
	if r := g.Status.OffsetsReset; r == nil || r.Phase != v1alpha1.ResetInProgress {
		w.reset, w.seen.reset = resetWatch{}, nil // its result is in the status, or it is another one's
	}
	if g.Spec.Selector != nil {
		w.wire, w.seen.rebalance = wireWatch{}, nil
		return
	}
	w.seen.stalls, w.seen.strangers = nil, nil
	if r := w.wire.note(now, d); r != nil {
		w.seen.rebalance = r
	}
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

// announce records an event for a client that belongs to no pod of the group.
func (o *Observer) announce(g *v1alpha1.ConsumerGroup, clients []stranger) {
	for _, s := range clients {
		o.Recorder.Eventf(g, nil, corev1.EventTypeWarning, eventUnknownClient, actionObserve, "%s", apply.Note(fmt.Sprintf(
			"%s belongs to no pod of the group, and is given nothing until its pod matches %s and is ready; see which pod has its address: kubectl get pods --all-namespaces --output wide",
			s, g.Status.Selector)))
	}
}

// readLag reads the lag of the groups, and which of their members read.
func (o *Observer) readLag(ctx context.Context, c *clusterWatch, groups []*v1alpha1.ConsumerGroup, descriptions map[string]*description) error {
	starts, ends, committed, err := readOffsets(ctx, kadm.NewClient(c.kafka), groups)
	if err != nil {
		return err
	}
	now := o.now()
	for _, g := range groups {
		found := committed[g.KafkaID()]
		if found.Err != nil {
			err = fmt.Errorf("fetch the offsets of group %s: %w", g.KafkaID(), found.Err)
			continue
		}
		offsets, ok := groupOffsets(g.Spec.Topics, starts, ends, found.Fetched)
		if !ok {
			continue
		}
		w := c.group(g)
		if lag := lagOf(now, offsets); w.seen.lag == nil || w.seen.lag.Total != lag.Total || w.seen.lag.Max != lag.Max {
			w.seen.lag = lag
		}
		if d := descriptions[g.KafkaID()]; d != nil && g.Spec.Selector != nil {
			clients, unknown := matchClients(g.Status.Members, d.members)
			w.seen.stalls = w.stalls.note(now, cmp.Or(o.StallAfter, defaultStallAfter), g, offsets, clients)
			var fresh []stranger
			w.seen.strangers, fresh = w.strangers.note(unknown, d.members)
			o.announce(g, fresh)
		}
	}
	return err
}
