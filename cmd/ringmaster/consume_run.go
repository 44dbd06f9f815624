// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumer is what "consume" runs: one goroutine that polls, and handlers that take what it has read.
type consumer struct {
	cmd      *cobra.Command
	flags    *consumeFlags
	backlog  *backlog
	out, err *sharedOutput
	// exec handles records; nil where they are printed.
	exec *executor
	// ended says that nothing is left to be committed.
	ended atomic.Bool
}

func newConsumer(cmd *cobra.Command, f *consumeFlags) *consumer {
	left := int64(math.MaxInt64)
	if f.limit > 0 {
		left = f.limit
	}
	k := &consumer{
		cmd: cmd, flags: f,
		backlog: newBacklog(f.group == "", f.messages, max(readAhead, 2*f.messages*f.concurrency), readAheadBytes, left),
		out:     &sharedOutput{w: cmd.OutOrStdout()}, err: &sharedOutput{w: cmd.ErrOrStderr()},
	}
	cmd.SetErr(k.err) // warnings come from several goroutines
	if f.command != "" {
		k.exec = newExecutor(f.command, f.onError.value, k.out, k.err, k.warn)
	}
	return k
}

func (k *consumer) warn(msg string) { warning(k.cmd, msg) }

// watchSignals looks out for the second signal, where there are commands to be killed.
func (k *consumer) watchSignals() (stop func()) {
	if k.exec == nil {
		return func() {}
	}
	return k.exec.watchSignals()
}

// run handles records until one of the ends that the flags name, an error, or the context's end. What has begun then is waited for, for as long as
// --shutdown-timeout says.
func (k *consumer) run(c *client) error {
	b := k.backlog
	if k.flags.group != "" {
		b.mark = func(r *kgo.Record) { c.MarkCommitRecords(r) }
	}
	defer context.AfterFunc(k.cmd.Context(), b.stop)()
	polled := make(chan struct{})
	go func() { defer close(polled); k.fetch(c) }()
	if k.flags.idle > 0 {
		go b.stopWhenQuiet(k.flags.idle)
	}
	handled := k.handle()
	<-b.stopping
	select {
	case <-handled:
	case <-time.After(k.flags.shutdown):
		k.giveUp(handled)
	}
	<-polled
	return b.err()
}

// commit commits what was handled, at the end. The client commits nothing while it waits for the other members to join; where one of them makes it wait, the
// commit is sent all the same: the group takes it from a member that has not got its new share.
func (k *consumer) commit(c *client) error {
	// It must not end with the context that a signal has ended.
	ctx, cancel := c.limit(context.WithoutCancel(k.cmd.Context()))
	defer cancel()
	k.ended.Store(true)
	half, stop := context.WithTimeout(ctx, c.timeout/2)
	defer stop()
	err := c.CommitMarkedOffsets(half)
	if errors.Is(err, context.DeadlineExceeded) {
		return k.commitDirectly(ctx, c)
	}
	return err
}

func (k *consumer) commitDirectly(ctx context.Context, c *client) error {
	marked := c.MarkedOffsets()
	topics, err := c.adm.ListTopics(ctx, slices.Sorted(maps.Keys(marked))...)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = k.flags.group
	req.MemberID, req.Generation = c.GroupMetadata()
	if k.flags.instanceID != "" {
		req.InstanceID = &k.flags.instanceID
	}
	for name, partitions := range marked {
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = name, topics[name].ID
		for number, offset := range partitions {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch = number, offset.Offset, offset.Epoch
			topic.Partitions = append(topic.Partitions, p)
		}
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// close leaves the group. The client does so once it has joined; where another member makes it wait, it is told to the group all the same.
func (k *consumer) close(c *client) {
	ctx, cancel := c.limit(context.WithoutCancel(k.cmd.Context()))
	defer cancel()
	half, stop := context.WithTimeout(ctx, c.timeout/2)
	defer stop()
	if err := c.LeaveGroupContext(half); !errors.Is(err, context.DeadlineExceeded) {
		c.Close()
		return
	}
	// Close would wait for the client.
	if k.flags.instanceID != "" {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = k.flags.group
	req.MemberID, _ = c.GroupMetadata()
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = req.MemberID
	req.Members = append(req.Members, member)
	resp, err := req.RequestWith(ctx, c.Client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		k.warn(oneLine(c.explain("cannot leave the group "+k.flags.group+", which finds out after --session-timeout", err, "")))
	}
}

// giveUp kills the commands that run. Where even then they do not end, because nobody reads our output, they are not waited for.
func (k *consumer) giveUp(handled <-chan struct{}) {
	k.fail(fmt.Errorf("what had begun did not end within %s (--shutdown-timeout)", k.flags.shutdown))
	if k.exec != nil {
		k.exec.killAll()
		select {
		case <-handled:
		case <-time.After(outputGrace + time.Second):
		}
	}
	k.backlog.abandon()
}

// fetch reads records into the backlog.
func (k *consumer) fetch(c *client) {
	for {
		p := k.backlog.beginPoll()
		if p == nil {
			return
		}
		if len(p.pause) > 0 {
			c.PauseFetchPartitions(p.pause)
		}
		if len(p.resume) > 0 {
			c.ResumeFetchPartitions(p.resume)
		}
		fetches := c.PollRecords(p.ctx, p.records)
		k.backlog.endPoll(fetches)
		if err := fetchErrors(k.cmd, c, fetches); err != nil {
			k.fail(err)
			return
		}
	}
}

// handle starts the handlers. The channel is closed when all have ended.
func (k *consumer) handle() <-chan struct{} {
	handle, most := k.print(), k.flags.messages
	if k.exec != nil {
		handle, most = k.exec.handle, 1
	}
	var handlers sync.WaitGroup
	for range k.flags.concurrency {
		handlers.Go(func() {
			for w := k.backlog.take(most); w != nil; w = k.backlog.take(most) {
				handled, err := handle(w)
				if err != nil {
					k.fail(err)
				}
				k.backlog.finish(w, handled)
			}
		})
	}
	done := make(chan struct{})
	go func() { handlers.Wait(); close(done) }()
	return done
}

// fail ends the command with an error; one that is not the first is printed.
func (k *consumer) fail(err error) {
	if !k.backlog.fail(err) && !errors.Is(err, syscall.EPIPE) {
		k.warn(oneLine(err))
	}
}

// print handles records by printing them.
func (k *consumer) print() func(*work) (int, error) {
	var mu sync.Mutex
	p := newPrinter(bufio.NewWriterSize(k.out, 64<<10), k.flags.format.value)
	return func(w *work) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, r := range w.records {
			if n > 0 && w.over() {
				break
			}
			if err := p.print(r); err != nil {
				return 0, err
			}
			n++
		}
		if err := p.flush(); err != nil {
			return 0, err
		}
		return n, nil
	}
}

// assigned is called when the group gives partitions to this member.
func (k *consumer) assigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	k.backlog.assigned(partitions)
}

// revoked is called when the group takes partitions away. The group gives them to others when it returns; heartbeats go on until then. A quarter of the
// time that the group waits remains for the rest of the rebalance.
func (k *consumer) revoked(ctx context.Context, cl *kgo.Client, partitions map[string][]int32) {
	wait := k.flags.rebalance / 4 * 3
	k.backlog.revoked(partitions, wait)
	ctx, cancel := context.WithTimeout(ctx, k.flags.rebalance-wait)
	defer cancel()
	if err := cl.CommitMarkedOffsets(ctx); err != nil && !k.ended.Load() {
		k.warn("cannot commit the offsets of partitions that move to other members, which will handle records again: " + oneLine(err))
	}
}

// lost is called when the group has put this member out.
func (k *consumer) lost(context.Context, *kgo.Client, map[string][]int32) { k.backlog.lost() }
