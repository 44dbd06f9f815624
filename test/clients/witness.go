// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// How a witness speaks to its group.
var protocols = map[string][]kgo.GroupOpt{
	"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"consumer":    {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
}

// commitTimeout is how long a commit may take; the next one has newer offsets.
const commitTimeout = 5 * time.Second

// witness is a consumer that writes down what it is given, reads, commits and lets go of.
type witness struct {
	journal *journal
	number  int
	topic   string
	client  *kgo.Client

	mu sync.Mutex
	// read are the offsets after the last records that were read, of the partitions that it has.
	read map[int32]int64
	// dirty has an element while read has offsets that are not committed.
	dirty chan struct{}
	// committing is held during a commit, so that one is answered before the next is sent.
	committing sync.Mutex
	committed  map[int32]int64
}

// witnesses runs CLIENTS (1) consumers with the client id CLIENT_ID, if it is set, until ctx ends. With READY_FILE the pod is ready once there is that file.
func witnesses(ctx context.Context, bootstrap, group, topic, protocol, folder string) error {
	opts, ok := protocols[protocol]
	if !ok {
		return fmt.Errorf("the protocol must be one of %v, not %q", slices.Sorted(maps.Keys(protocols)), protocol)
	}
	n := 1
	if s := os.Getenv("CLIENTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 {
			return fmt.Errorf("CLIENTS must be a whole number from 1, not %q", s)
		}
	}
	if file := os.Getenv("READY_FILE"); file != "" {
		serveReadiness(file)
	}
	j, err := openJournal(folder)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		w := &witness{journal: j, number: i, topic: topic, read: map[int32]int64{}, committed: map[int32]int64{}, dirty: make(chan struct{}, 1)}
		all.Go(func() { errs[i] = w.run(ctx, bootstrap, group, opts) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (w *witness) run(ctx context.Context, bootstrap, group string, protocol []kgo.GroupOpt) error {
	opts := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(w.topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
		kgo.OnPartitionsAssigned(w.given), kgo.OnPartitionsRevoked(w.letGo), kgo.OnPartitionsLost(w.lost),
	}
	if id := os.Getenv("CLIENT_ID"); id != "" {
		opts = append(opts, kgo.ClientID(id))
	}
	for _, o := range protocol {
		opts = append(opts, o)
	}
	var err error
	if w.client, err = kgo.NewClient(opts...); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	w.journal.write(Event{What: eventStart, Client: w.number})
	stopped, stop := context.WithCancel(context.Background())
	var commits sync.WaitGroup
	commits.Go(func() { w.commitAll(stopped) })
	for ctx.Err() == nil {
		w.poll(ctx)
	}
	stop()
	commits.Wait()
	w.client.CloseAllowingRebalance() // which lets go of everything, then leaves
	w.journal.write(Event{What: eventStop, Client: w.number})
	return nil
}

// poll reads what there is. No callback runs between the poll and AllowRebalance, so whatever is read here is read while the partition is ours.
func (w *witness) poll(ctx context.Context) {
	fetches := w.client.PollFetches(ctx)
	defer w.client.AllowRebalance()
	fetches.EachError(func(_ string, p int32, err error) {
		if ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "clients: fetch of partition %d: %v\n", p, err)
		}
	})
	var events []Event
	w.mu.Lock()
	defer w.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) {
		events = append(events, Event{What: eventRead, Client: w.number, Partition: r.Partition, Offset: r.Offset, Value: string(r.Value)})
		w.read[r.Partition] = r.Offset + 1
	})
	if len(events) == 0 {
		return
	}
	w.journal.write(events...)
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// commitAll commits in the background, so that a coordinator that is away keeps nobody from reading.
func (w *witness) commitAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.dirty:
			w.commit(nil)
		}
	}
}

// commit commits what was read of some partitions, or of all.
func (w *witness) commit(of []int32) {
	w.committing.Lock()
	defer w.committing.Unlock()
	offsets := map[int32]kgo.EpochOffset{}
	w.mu.Lock()
	for p, at := range w.read {
		if (of == nil || slices.Contains(of, p)) && w.committed[p] != at {
			offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: at}
		}
	}
	w.mu.Unlock()
	if len(offsets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	began := time.Now().UnixNano()
	w.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{w.topic: offsets}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		w.answered(began, offsets, resp, err)
	})
}

// answered writes down what became of a commit.
func (w *witness) answered(began int64, offsets map[int32]kgo.EpochOffset, resp *kmsg.OffsetCommitResponse, err error) {
	failures := map[int32]string{}
	for p := range offsets {
		failures[p] = "no answer"
		if err != nil {
			failures[p] = err.Error()
		}
	}
	if err == nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				failures[p.Partition] = ""
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					failures[p.Partition] = err.Error()
				}
			}
		}
	}
	var events []Event
	for _, p := range slices.Sorted(maps.Keys(offsets)) {
		events = append(events, Event{What: eventCommit, Client: w.number, Partition: p, Offset: offsets[p].Offset, Began: began, Error: failures[p]})
		if failures[p] == "" {
			w.committed[p] = offsets[p].Offset
		}
	}
	w.journal.write(events...)
}

func (w *witness) given(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	w.journal.write(Event{What: eventGiven, Client: w.number, Partitions: slices.Sorted(slices.Values(topics[w.topic]))})
}

// letGo commits what was read, forgets it, and writes down that it is let go: the group hears of it after that.
func (w *witness) letGo(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	partitions := slices.Sorted(slices.Values(topics[w.topic]))
	if len(partitions) > 0 {
		w.commit(partitions)
	}
	w.forget(eventLetGo, partitions)
}

func (w *witness) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	w.forget(eventLost, slices.Sorted(slices.Values(topics[w.topic])))
}

func (w *witness) forget(what string, partitions []int32) {
	w.committing.Lock()
	defer w.committing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range partitions {
		delete(w.read, p)
		delete(w.committed, p)
	}
	w.journal.write(Event{What: what, Client: w.number, Partitions: partitions})
}
