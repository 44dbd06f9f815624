// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

const (
	// firstRetry is how long a round that failed is waited for at first. The time doubles, up to a sixth of the lease.
	firstRetry = 25 * time.Millisecond
	// minPause is the least time between two rounds, however fast changes come.
	minPause = 5 * time.Millisecond
	// tellEvery is how often the same trouble is told.
	tellEvery = 30 * time.Second
	// slack is added to the time at which a lease is over, so that it is when it is looked at.
	slack = 2 * time.Millisecond
)

// rounds renews the broker's lease and reads what has changed, round after round, and shares partitions out where this broker is the controller. It belongs
// to one goroutine.
type rounds struct {
	m *Metadata
	// steadyFrom is when the broker last was registered anew or could not reach Redis. What has kept it away may have kept others away as well, so for half a
	// lease from then on it takes nobody's partitions away.
	steadyFrom time.Time
	failures   int
	// toldAt is when trouble was last told.
	toldAt time.Time
	// planned is what the last plan was made of.
	planned string
}

// first is the first round. It makes the topic of committed offsets, if there is none.
func (r *rounds) first(ctx context.Context) error {
	if _, err := r.round(ctx); err != nil {
		return fmt.Errorf("read the cluster's metadata: %w", err)
	}
	if r.m.known().topics[v1alpha1.TopicConsumerOffsets] != nil {
		return nil
	}
	err := r.m.create(ctx, v1alpha1.TopicConsumerOffsets, &topic{
		id: metadata.NewTopicID(), partitions: r.m.opts.OffsetsPartitions, config: metadata.OffsetsConfig(), internal: true,
	})
	if err != nil && !errors.Is(err, metadata.ErrTopicExists) {
		return fmt.Errorf("make the topic of committed offsets: %w", err)
	}
	if _, err = r.round(ctx); err != nil {
		return fmt.Errorf("read the cluster's metadata: %w", err)
	}
	return nil
}

// run makes rounds until ctx ends: when they are due, and when something has changed.
func (r *rounds) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait, err := r.round(ctx)
		if err != nil {
			if ctx.Err() == nil {
				_ = sleep(ctx, r.failed(err))
			}
			continue
		}
		r.succeeded()
		timer.Reset(max(wait, minPause))
		if sleep(ctx, minPause) != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.m.dirty:
		}
	}
}

// failed notes that a round failed, and returns how long to wait before the next.
func (r *rounds) failed(err error) time.Duration {
	r.steadyFrom = time.Now()
	if r.failures == 0 || time.Since(r.toldAt) >= tellEvery {
		r.toldAt = time.Now()
		r.m.log.Error("the broker cannot keep up with its cluster in Redis; trying again", "error", err)
	}
	limit := r.m.opts.Lease / 6
	wait := min(firstRetry<<min(r.failures, 10), limit)
	r.failures++
	return wait/2 + rand.N(wait/2+1) //nolint:gosec // spreads load, keeps no secret
}

func (r *rounds) succeeded() {
	if r.failures > 0 {
		r.m.log.Info("the broker keeps up with its cluster in Redis again", "failures", r.failures)
		r.failures = 0
	}
}

// round renews the lease, reads what has changed, and acts on it where this broker is the controller. It returns when the next round is due.
func (r *rounds) round(ctx context.Context) (time.Duration, error) {
	m := r.m
	begun := time.Now()
	s, err := m.renew(ctx)
	if err != nil {
		if errors.Is(err, errDamaged) {
			m.hold(begun.Add(m.opts.Lease))
		}
		return 0, err
	}
	if s.fresh {
		r.steadyFrom = time.Now()
	}
	if l := lostBy(m.known(), s); l.floor > 0 || len(l.led) > 0 {
		m.hold(begun.Add(m.opts.Lease))
		m.touch() // to read what restore makes of it
		return m.opts.Lease / 3, m.restore(ctx, l, s)
	}
	m.take(s, begun.Add(m.opts.Lease))
	interval := m.opts.Lease / 3
	wait := interval - rand.N(interval/10+1) //nolint:gosec // spreads load, keeps no secret
	if s.controller.instance != m.instance {
		return min(wait, s.controller.left+slack), nil
	}
	if err := r.control(ctx, s); err != nil {
		return 0, err
	}
	for _, b := range s.brokers {
		if b.live && b.id != m.id {
			wait = min(wait, b.left+slack)
		}
	}
	if steady := time.Until(r.steadyFrom.Add(m.opts.Lease / 2)); steady > 0 {
		wait = min(wait, steady+slack)
	}
	return wait, nil
}

// renew renews the lease and reads what has changed.
func (m *Metadata) renew(ctx context.Context) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.Lease/3)
	defer cancel()
	prev := m.known()
	version := "" // none
	if prev != nil {
		version = strconv.FormatInt(prev.version, 10)
	}
	lease := strconv.FormatInt(m.opts.Lease.Milliseconds(), 10)
	a, err := m.store.call(ctx, renew, strconv.Itoa(int(m.id)), m.registration, lease, m.instance, version, strconv.Itoa(maxState))
	switch {
	case err != nil:
		if errors.Is(err, errOtherCluster) {
			m.withdraw()
		}
		return nil, err
	case a.status == statusTaken && len(a.values) == 3:
		m.withdraw()
		other, _ := m.other(a)
		return nil, fmt.Errorf("node id %d was taken by the broker at %s while this one could not renew its lease; stop one of the two, and give it another --node-id", m.id, other)
	case a.status == statusSize && len(a.values) == 2:
		key, _ := a.values[0].ToString()
		return nil, fmt.Errorf("%w: there are more than %d bytes up to key %s", errDamaged, maxState, key)
	}
	return readState(&m.store.keys, a, prev)
}

// control shares partitions out, if something has changed since it was last done.
func (r *rounds) control(ctx context.Context, s *state) error {
	m := r.m
	steady := time.Since(r.steadyFrom) >= m.opts.Lease/2
	var missed []int32
	for _, b := range s.brokers {
		if !b.live {
			missed = append(missed, b.id)
		}
	}
	if !steady && len(missed) > 0 {
		return nil
	}
	key := fmt.Sprint(s.version, s.members, missed)
	if key == r.planned {
		return nil
	}
	p := planFor(s, m.instance)
	if p.empty() {
		r.planned = key
		return nil
	}
	args, err := p.args(s)
	if err != nil {
		return fmt.Errorf("share the partitions out: %w", err)
	}
	fence := []string{m.instance, strconv.FormatInt(s.controller.epoch, 10), strconv.FormatInt(s.members, 10)}
	a, err := m.store.call(ctx, assign, append(fence, args...)...)
	if err != nil {
		return fmt.Errorf("share the partitions out: %w", err)
	}
	if a.status == statusOK {
		m.log.Info("shared partitions out", "moved", p.moved, "topics", len(p.led), "brokersNew", p.ids(), "brokersGone", p.gone, "controllerEpoch", s.controller.epoch)
	}
	m.touch() // to read it; where others were faster, to do it again
	return nil
}

// listen hears of changes until ctx ends. Whenever it has begun to, all is read again: what was published before was missed.
func (m *Metadata) listen(ctx context.Context) {
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { m.touch() })
	for ctx.Err() == nil {
		err := m.store.client.Receive(hooked, m.store.client.B().Subscribe().Channel(m.store.keys.changed).Build(), func(rueidis.PubSubMessage) { m.touch() })
		if ctx.Err() != nil {
			return
		}
		m.log.Warn("the broker does not hear of changes and reads them with its lease, until it does again", "error", err)
		if sleep(ctx, m.opts.Lease/6+rand.N(m.opts.Lease/6)) != nil { //nolint:gosec // spreads load, keeps no secret
			return
		}
	}
}

// touch makes run read what has changed, soon.
func (m *Metadata) touch() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}
