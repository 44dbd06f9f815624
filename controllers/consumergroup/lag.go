// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

const (
	// defaultLagInterval is how often lag is read: often enough to scale by, seldom enough to be no load.
	defaultLagInterval = 10 * time.Second
	// lagTimeout is how long one cluster's brokers may take to answer.
	lagTimeout = 5 * time.Second
)

// LagPoller keeps status.lag of the ConsumerGroups. It asks the brokers as any Kafka admin client does, at an interval, and writes only when a
// figure has changed. Brokers that do not answer leave the last figures in place, whose time says how old they are.
type LagPoller struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Interval is the time between two rounds. Zero: 10 seconds.
	Interval time.Duration

	clients map[string]*kgo.Client
}

// SetupWithManager adds the poller to a manager.
func (p *LagPoller) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("set up the lag poller: %w", err)
	}
	return nil
}

// NeedLeaderElection says that one operator at a time does it.
func (*LagPoller) NeedLeaderElection() bool { return true }

// Start polls until ctx ends.
func (p *LagPoller) Start(ctx context.Context) error {
	interval := p.Interval
	if interval <= 0 {
		interval = defaultLagInterval
	}
	p.clients = map[string]*kgo.Client{}
	defer p.closeExcept(nil)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := p.round(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "read the lag of consumer groups")
		}
	}
}

// round reads and writes the lag of every group once.
func (p *LagPoller) round(ctx context.Context) error {
	clusters := &v1alpha1.BrokerClusterList{}
	if err := p.Client.List(ctx, clusters); err != nil {
		return fmt.Errorf("list BrokerClusters: %w", err)
	}
	groups := &v1alpha1.ConsumerGroupList{}
	if err := p.Client.List(ctx, groups); err != nil {
		return fmt.Errorf("list ConsumerGroups: %w", err)
	}
	used := map[string]bool{}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		var mine []*v1alpha1.ConsumerGroup
		for j := range groups.Items {
			if g := &groups.Items[j]; g.Namespace == c.Namespace && g.Status.ClusterRef == c.Name && measurable(g) {
				mine = append(mine, g)
			}
		}
		if len(mine) == 0 || c.Status.ReadyReplicas == 0 || c.Status.BootstrapServers == "" {
			continue
		}
		used[c.Status.BootstrapServers] = true
		if err := p.cluster(ctx, c.Status.BootstrapServers, mine); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("cannot read lag", "cluster", c.Name, "namespace", c.Namespace, "error", err.Error())
		}
	}
	p.closeExcept(used)
	return nil
}

// measurable says whether a group's figures are its own: a group whose id another one holds has none.
func measurable(g *v1alpha1.ConsumerGroup) bool {
	c := ready(g)
	return g.DeletionTimestamp == nil && c != nil && c.Reason != v1alpha1.ReasonGroupIDTaken
}

// cluster reads and writes the lag of the groups of one cluster.
func (p *LagPoller) cluster(ctx context.Context, bootstrap string, groups []*v1alpha1.ConsumerGroup) error {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	adm, err := p.admin(bootstrap)
	if err != nil {
		return err
	}
	var topics []string
	ids := make([]string, 0, len(groups))
	for _, g := range groups {
		topics = append(topics, g.Spec.Topics...)
		ids = append(ids, g.KafkaID())
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	committed := adm.FetchManyOffsets(ctx, ids...)
	for _, g := range groups {
		c := committed[g.KafkaID()]
		if c.Err != nil {
			return fmt.Errorf("fetch the offsets of group %s: %w", g.KafkaID(), c.Err)
		}
		if total, largest, ok := lag(g.Spec.Topics, starts, ends, c.Fetched); ok {
			if err := p.write(ctx, g, total, largest); err != nil {
				return err
			}
		}
	}
	return nil
}

// lag is the number of records between what a group has committed, or the start of the log where that is later or nothing is committed, and the end
// of the log: in all, and of the partition that is most behind. ok is false if a partition's offsets are not known.
func lag(topics []string, starts, ends kadm.ListedOffsets, committed kadm.OffsetResponses) (total, largest int64, ok bool) {
	for _, topic := range topics {
		for partition, end := range ends[topic] {
			start, known := starts.Lookup(topic, partition)
			if end.Err != nil || !known || start.Err != nil {
				return 0, 0, false
			}
			from := start.Offset
			if c, found := committed.Lookup(topic, partition); found && c.Err == nil {
				from = max(from, c.At)
			}
			behind := max(end.Offset-from, 0)
			total += behind
			largest = max(largest, behind)
		}
	}
	return total, largest, true
}

// write puts the figures into the status, if they are not there.
func (p *LagPoller) write(ctx context.Context, g *v1alpha1.ConsumerGroup, total, largest int64) error {
	if old := g.Status.Lag; old != nil && old.Total == total && old.Max == largest {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"lag": v1alpha1.LagSummary{Total: total, Max: largest, Time: metav1.Now()},
	}})
	if err != nil {
		return err
	}
	target := &v1alpha1.ConsumerGroup{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}
	if err := p.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the lag of ConsumerGroup %s/%s: %w", g.Namespace, g.Name, err))
	}
	return nil
}

func (p *LagPoller) admin(bootstrap string) (*kadm.Client, error) {
	c := p.clients[bootstrap]
	if c == nil {
		var err error
		if c, err = kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("ringmaster-operator")); err != nil {
			return nil, fmt.Errorf("make a Kafka client for %s: %w", bootstrap, err)
		}
		p.clients[bootstrap] = c
	}
	return kadm.NewClient(c), nil
}

// closeExcept closes the clients of the clusters that are not in use.
func (p *LagPoller) closeExcept(used map[string]bool) {
	for bootstrap, c := range p.clients {
		if !used[bootstrap] {
			c.Close()
			delete(p.clients, bootstrap)
		}
	}
}
