// SPDX-License-Identifier: Apache-2.0

package consumergroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/assigner"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
)

const (
	// answerTimeout is how long the brokers may take to answer one question, all attempts and brokers counted; resetTimeout, how long all that a reset takes.
	answerTimeout, resetTimeout = 5 * time.Second, 20 * time.Second
	// retryDelay is the time between two attempts to ask one thing.
	retryDelay = 100 * time.Millisecond
	// maxAsks is how many questions to the brokers of a cluster may be open before groups that are asked of alone have to wait.
	maxAsks = 64
	// minComplaintDelay and maxComplaintDelay bound the time between two log lines that say the same of a group.
	minComplaintDelay, maxComplaintDelay = 10 * time.Second, 10 * time.Minute
)

// question is a group that is due.
type question struct {
	group *v1alpha1.ConsumerGroup
	watch *groupWatch
	// lag says that its lag is due, too.
	lag bool
}

// askDue begins to ask the brokers of a cluster of the groups that are due. Those of which all was told last time are asked of together, the others, and those with a reset that
// is not done, each by itself: what takes long there delays nobody else.
func (o *Observer) askDue(ctx context.Context, asks *sync.WaitGroup, c *clusterWatch, bootstrap string, groups []*v1alpha1.ConsumerGroup) error {
	if err := c.connect(bootstrap); err != nil {
		return err
	}
	for _, questions := range o.claim(c, groups) {
		kafka := c.kafka
		asks.Go(func() {
			defer o.release(c, questions)
			o.ask(ctx, kafka, questions)
		})
	}
	return nil
}

// claim takes the groups that are due, in batches that are to be asked of together, and marks them as busy.
func (o *Observer) claim(c *clusterWatch, groups []*v1alpha1.ConsumerGroup) [][]question {
	now := o.now()
	var together, alone []question
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range groups {
		w := c.group(g)
		if w.busy {
			continue
		}
		q := question{group: g, watch: w, lag: now.Sub(w.lagRead) >= cmp.Or(o.LagInterval, defaultLagInterval)}
		every := interval(g)
		switch {
		case !q.lag && every != tick && (every == 0 || now.Sub(w.described) < every):
		case w.trouble.failures > 0 || resetOpen(g):
			alone = append(alone, q)
		default:
			together = append(together, q)
		}
	}
	slices.SortStableFunc(alone, func(a, b question) int { return a.watch.described.Compare(b.watch.described) })
	var batches [][]question
	for i := range alone[:min(len(alone), max(maxAsks-c.asking, 0))] {
		batches = append(batches, alone[i:i+1])
	}
	if len(together) > 0 {
		batches = append(batches, together)
	}
	for _, questions := range batches {
		c.asking++
		for _, q := range questions {
			q.watch.busy = true
		}
	}
	return batches
}

func (o *Observer) release(c *clusterWatch, questions []question) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.asking--
	for _, q := range questions {
		q.watch.busy = false
	}
}

// connect makes the cluster's client, if there is none for its address yet. Questions that are open at one for another address fail, and are asked again.
func (c *clusterWatch) connect(bootstrap string) error {
	if c.kafka != nil && c.bootstrap == bootstrap {
		return nil
	}
	c.close()
	kafka, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("ringmaster-operator"), kgo.MetadataMinAge(tick),
		kgo.Dialer(new(silences).dial), kgo.RequestTimeoutOverhead(requestTimeout), kgo.RetryBackoffFn(func(int) time.Duration { return retryDelay }))
	if err != nil {
		return fmt.Errorf("make a Kafka client for %s: %w", bootstrap, err)
	}
	c.kafka, c.bootstrap = kafka, bootstrap
	return nil
}

// ask asks the brokers of groups: for descriptions, for the lag of those of which it is due, and to carry out resets of offsets. Each question has its own time, and what is
// told counts, whatever is not.
func (o *Observer) ask(ctx context.Context, kafka *kgo.Client, questions []question) {
	now := o.now()
	groups := make([]*v1alpha1.ConsumerGroup, len(questions))
	for i, q := range questions {
		groups[i] = q.group
	}
	descriptions, errs := describe(ctx, kafka, groups)
	forgetSilent(ctx, kafka, errs)
	for _, q := range questions {
		g, w := q.group, q.watch
		w.described = now
		d := descriptions[g.KafkaID()]
		if d != nil {
			o.describe(now, g, w, d)
		}
		switch {
		case resetDue(g):
			o.carryOut(ctx, kafka, g, w, errs[g.KafkaID()])
		case resetOpen(g) && !resetBegun(g):
			w.prepare(ctx, kafka, g, errs[g.KafkaID()])
		}
		if len(questions) == 1 && q.lag {
			o.publish(ctx, g, w) // its lag may take long
		}
	}
	for id, err := range o.readLag(ctx, kafka, questions, descriptions) {
		errs[id] = errors.Join(errs[id], err)
	}
	for _, q := range questions {
		o.publish(ctx, q.group, q.watch)
		q.watch.trouble.note(ctx, o.now(), q.group, errs[q.group.KafkaID()])
	}
}

// forgetSilent makes the client look anew for the coordinators that did not answer.
func forgetSilent(ctx context.Context, kafka *kgo.Client, errs map[string]error) {
	forgotten := map[int32]bool{unknownBroker: true}
	for _, err := range errs {
		var s silence
		if errors.As(err, &s) && !forgotten[s.broker] {
			forgotten[s.broker] = true
			forget(ctx, kafka, s.broker)
		}
	}
}

// readLag reads the lag of the groups of which it is due, and which of their members read. It returns what went wrong, by group id.
func (o *Observer) readLag(ctx context.Context, kafka *kgo.Client, questions []question, descriptions map[string]*description) map[string]error {
	questions = slices.DeleteFunc(slices.Clone(questions), func(q question) bool { return !q.lag })
	if len(questions) == 0 {
		return nil
	}
	now := o.now()
	errs := map[string]error{}
	starts, ends, committed, err := readOffsets(ctx, kafka, questions)
	for _, q := range questions {
		g, w := q.group, q.watch
		id := g.KafkaID()
		w.lagRead = now
		found := committed[id]
		if err := cmp.Or(err, found.Err); err != nil {
			errs[id] = fmt.Errorf("fetch the offsets of group %s: %w", id, unanswered(unknownBroker, err))
			continue
		}
		offsets, err := groupOffsets(g.Spec.Topics, starts, ends, found.Fetched)
		if err != nil {
			if !errors.Is(err, kerr.UnknownTopicOrPartition) { // of a topic that there is not yet the Ready condition tells
				errs[id] = err
			}
			continue
		}
		o.noteLag(now, g, w, offsets, descriptions[id])
	}
	return errs
}

// noteLag takes note of a group's offsets.
func (o *Observer) noteLag(now time.Time, g *v1alpha1.ConsumerGroup, w *groupWatch, offsets map[assigner.Partition]partitionOffsets, d *description) {
	if lag := lagOf(now, w.begins.note(g, offsets)); w.seen.lag == nil || w.seen.lag.Total != lag.Total || w.seen.lag.Max != lag.Max {
		w.seen.lag = lag
	}
	if d == nil || g.Spec.Selector == nil {
		return
	}
	clients, unknown := matchClients(g.Status.Members, d.members)
	w.seen.stalls = w.stalls.note(now, cmp.Or(o.StallAfter, defaultStallAfter), g, offsets, clients)
	var fresh []stranger
	w.seen.strangers, fresh = w.strangers.note(unknown, d.members)
	o.announce(g, fresh)
}

// announce records an event for a client that belongs to no pod of the group.
func (o *Observer) announce(g *v1alpha1.ConsumerGroup, clients []stranger) {
	for _, s := range clients {
		o.Recorder.Eventf(g, nil, corev1.EventTypeWarning, eventUnknownClient, actionObserve, "%s", apply.Note(fmt.Sprintf(
			"%s belongs to no pod of the group, and is given nothing until its pod matches %s and is ready; see which pod has its address: kubectl get pods --all-namespaces --output wide",
			s, g.Status.Selector)))
	}
}

// trouble counts how often in a row the brokers did not tell all of a group.
type trouble struct {
	failures int
	// delay is the time between the last two log lines about it, next when one is due again.
	delay time.Duration
	next  time.Time
}

// note takes note of what went wrong, nil for nothing. What goes wrong once, as while a broker starts, is not worth a line in the log.
func (t *trouble) note(ctx context.Context, now time.Time, g *v1alpha1.ConsumerGroup, err error) {
	if ctx.Err() != nil {
		return
	}
	log := ctrl.LoggerFrom(ctx).WithValues("namespace", g.Namespace, "name", g.Name)
	if err == nil {
		if t.delay > 0 {
			log.Info("the brokers tell all of the consumer group again")
		}
		*t = trouble{}
		return
	}
	t.failures++
	if t.failures < 2 || now.Before(t.next) {
		return
	}
	t.delay = min(max(minComplaintDelay, 2*t.delay), maxComplaintDelay)
	t.next = now.Add(t.delay)
	log.Error(err, "the brokers do not tell all of the consumer group: its status keeps what was seen last")
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
		w.seen.ahead = w.ahead.note(g.Status.Generation, d)
		return
	}
	w.seen.stalls, w.seen.strangers, w.seen.ahead = nil, nil, 0
	if r := w.wire.note(now, d); r != nil {
		w.seen.rebalance = r
	}
}
