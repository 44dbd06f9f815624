// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// Appends go through a queue. While it holds any, one goroutine takes all that have come, assigns their offsets, and sends them as one transaction, so that many
// small batches cost about as much as a large one; what comes meanwhile is the next one.

const (
	// indexInterval is for about how many bytes an entry of the index stands.
	indexInterval = 64 << 10
	// keptEntries is how many entries of the index a log keeps in memory, of its end.
	keptEntries = 64
)

// pending is an append on its way to Redis.
type pending struct {
	idempotence.Append
	synced bool
	done   func(base int64, err error)
}

// indexEnd is what is known of the log's end for its index.
type indexEnd struct {
	// next and bytes are those of the last entry, or of the log's start.
	next, bytes int64
	// maxTime is the newest timestamp behind that.
	maxTime int64
	// newest is the last entry's score.
	newest float64
}

// AppendThen appends batches and calls done. See storage.Log.
func (l *partitionLog) AppendThen(batches []byte, d storage.Durability, done func(base int64, err error)) {
	l.enqueue(&pending{Append: idempotence.Append{Batches: batches}, synced: d == storage.Synced, done: func(base int64, err error) {
		if err != nil {
			base, err = -1, fmt.Errorf("append to %s: %w", l, err)
		}
		done(base, err)
	}})
}

// Append appends whole batches. See storage.Log. It waits for the answer even where ctx ends, as the batches are in use until then.
func (l *partitionLog) Append(ctx context.Context, batches []byte, d storage.Durability) (base int64, err error) {
	if err := ctx.Err(); err != nil {
		return -1, fmt.Errorf("append to %s: %w", l, err)
	}
	answered := make(chan struct{})
	l.AppendThen(batches, d, func(b int64, e error) {
		base, err = b, e
		close(answered)
	})
	<-answered
	return base, err
}

// enqueue checks the batches, so that this is done by many at a time, and lets them be sent.
func (l *partitionLog) enqueue(p *pending) {
	c := l.topicConfig()
	if p.Headers, p.Err = recordbatch.CheckBatches(p.Batches, &c); p.Err != nil {
		p.done(-1, p.Err)
		return
	}
	l.qmu.Lock()
	defer l.qmu.Unlock()
	l.queue = append(l.queue, p)
	if !l.writing {
		l.writing = true
		go l.writeLoop()
	}
}

// writeLoop sends what is in the queue until it is empty.
func (l *partitionLog) writeLoop() {
	var taken []*pending
	for {
		l.qmu.Lock()
		taken, l.queue = l.queue, taken[:0]
		if len(taken) == 0 {
			l.writing, l.queue = false, nil
			if l.idle != nil {
				l.idle.Broadcast()
			}
			l.qmu.Unlock()
			return
		}
		l.qmu.Unlock()
		for rest := taken; len(rest) > 0; {
			n := l.writeSome(rest)
			for _, p := range rest[:n] {
				p.done(p.Base, p.Err)
			}
			rest = rest[n:]
		}
		clear(taken)
	}
}

// writeSome sends the first appends of a queue, as many as go into one transaction, and returns how many those are. It notes in each what became of it.
func (l *partitionLog) writeSome(queue []*pending) int {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return failAll(queue, err)
	}
	g := idempotence.Group{Now: l.engine.now()}
	l.mu.Lock()
	g.Plan.End, g.Stamped = l.meta.end, l.config.LogAppendTime
	l.mu.Unlock()
	await := false
	for _, p := range queue {
		if !g.Fits(&p.Append, math.MaxInt64) {
			break
		}
		g.Add(l.known, &p.Append)
		await = await || l.awaits(p)
	}
	taken := queue[:g.Taken]
	var replicated, err error
	switch {
	case taken[0].Err != nil && g.Taken == 1:
		return g.Taken
	case g.Bytes > 0:
		replicated, err = l.send(&g, await)
	case await:
		replicated, err = l.touch()
	}
	if err != nil {
		return failAll(taken, err)
	}
	for _, p := range taken {
		if l.awaits(p) {
			p.Err = replicated
		}
	}
	if await && replicated == nil {
		l.replicated = g.Plan.End
	}
	return g.Taken
}

// awaits says whether an append is to wait for replicas: one that was sent again too, where it is not known that they have it. wmu is held.
func (l *partitionLog) awaits(p *pending) bool {
	return l.engine.opts.MinReplicas > 0 && p.synced && p.Err == nil && p.Next > l.replicated
}

// failAll notes why appends were not written, in those of which it was not known, and returns how many there are.
func failAll(queue []*pending, err error) int {
	for _, p := range queue {
		if p.Err == nil {
			p.Err = err
		}
	}
	return len(queue)
}

// send appends a group, and where that is asked for waits for the replicas: replicated says why they do not have it. wmu is held.
func (l *partitionLog) send(g *idempotence.Group, await bool) (replicated, err error) {
	l.mu.Lock()
	after := l.meta
	l.mu.Unlock()
	g.Place(after.epoch)
	args, end, entries := l.appendArgs(g, &after)
	reply, replicated, err := l.transact(g, args, await)
	if err != nil {
		if !isRefusal(err) {
			l.suspect(err)
		}
		return nil, err
	}
	if len(reply) != 1 || reply[0] != replyOK {
		return nil, l.judge(after.owner, reply)
	}
	l.known.Commit(&g.Plan)
	l.index = end
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meta.end, l.meta.total, l.meta.largest = after.end, after.total, after.largest
	l.batches += int64(len(g.Headers))
	if l.recent = append(l.recent, entries...); len(l.recent) > keptEntries {
		l.recent = slices.Clone(l.recent[len(l.recent)-keptEntries:])
	}
	l.notifyAll()
	return replicated, nil
}

// transact makes an append, on a connection of its own, which then may wait for the replicas without holding up anybody else. reply is the script's.
//
// There is no time limit but the connection's: the batches are the caller's again when this returns, and what was given up could still be sent.
func (l *partitionLog) transact(g *idempotence.Group, args []string, await bool) (reply []string, replicated, err error) {
	l.engine.senders <- struct{}{}
	defer func() { <-l.engine.senders }()
	ctx := context.Background()
	c, release := l.engine.client.Dedicate()
	defer release()
	for _, whole := range []bool{false, true} {
		results := c.DoMulti(ctx, l.transaction(c, g, args, whole)...)
		reply, err = l.outcome(results, len(g.Parts))
		if !isUnknownScript(err) {
			break
		}
	}
	if err = translateUnlessDamaged(ctx, err); err != nil || !await {
		return reply, nil, err
	}
	return reply, l.awaitReplicas(ctx, c), nil
}

// transaction is the commands of an append.
func (l *partitionLog) transaction(c rueidis.CoreClient, g *idempotence.Group, args []string, whole bool) rueidis.Commands {
	k := &l.keys
	list := make(rueidis.Commands, 0, len(g.Parts)+4)
	list = append(list, c.B().Multi().Build(), appendScript.command(c, whole, []string{k.log, k.meta, k.times, k.producers, k.open}, args))
	for i, part := range g.Parts {
		id := strconv.FormatInt(g.Headers[i].Next(), 10) + "-0"
		list = append(list, c.B().Xadd().Key(k.open).Nomkstream().Id(id).FieldValue().FieldValue("b", rueidis.BinaryString(part)).Build())
	}
	return append(list, c.B().Rename().Key(k.open).Newkey(k.log).Build(), c.B().Exec().Build())
}

// outcome is what an append's script has answered. An error that is the server's says that nothing was done.
func (l *partitionLog) outcome(results []rueidis.RedisResult, batches int) (reply []string, err error) {
	if err := results[0].Error(); err != nil {
		return nil, fmt.Errorf("MULTI: %v", err) //nolint:errorlint // as no server's refusal: what follows is then no transaction, and may have been done
	}
	for i := range results {
		if err := results[i].Error(); err != nil {
			return nil, err // EXEC only says that there was one
		}
	}
	list, err := results[len(results)-1].ToArray()
	if err != nil {
		return nil, err
	}
	if len(list) != batches+2 {
		return nil, damaged(l.keys.log, "a transaction of %d commands has %d answers", batches+2, len(list))
	}
	reply, err = list[0].AsStrSlice()
	if err != nil && strings.Contains(err.Error(), "no such key") {
		return nil, damaged(l.keys.log, "it is missing, and %s is there", l.keys.meta)
	}
	if err != nil || len(reply) != 1 || reply[0] != replyOK {
		return reply, err
	}
	for i := range list[1:] {
		if _, err := list[1+i].ToString(); err != nil {
			return nil, damaged(l.keys.log, "a batch was refused: %v", err)
		}
	}
	return reply, nil
}

// touch waits until replicas have what was appended before: replicated says why they do not have it. wmu is held.
func (l *partitionLog) touch() (replicated, err error) {
	l.engine.senders <- struct{}{}
	defer func() { <-l.engine.senders }()
	ctx := context.Background()
	c, release := l.engine.client.Dedicate()
	defer release()
	args := append(l.owner(), strconv.FormatInt(l.EndOffset(), 10))
	reply, err := touchScript.run(ctx, c, []string{l.keys.log, l.keys.meta}, args).AsStrSlice()
	if err != nil {
		return nil, translate(ctx, err)
	}
	if len(reply) != 1 || reply[0] != replyOK {
		return nil, l.judge(args[1], reply)
	}
	return l.awaitReplicas(ctx, c), nil
}

// awaitReplicas waits until enough replicas have what the connection has written, and says why they do not.
func (l *partitionLog) awaitReplicas(ctx context.Context, c rueidis.CoreClient) error {
	o := &l.engine.opts
	ctx, cancel := context.WithTimeout(ctx, o.ReplicaTimeout+askTimeout) // the client sets no limit of its own where a command may block
	defer cancel()
	n, err := c.Do(ctx, c.B().Wait().Numreplicas(int64(o.MinReplicas)).Timeout(max(o.ReplicaTimeout.Milliseconds(), 1)).Build()).AsInt64()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", storage.ErrNotReplicated, err)
	case n < int64(o.MinReplicas):
		return fmt.Errorf("%w: %d of %d within %v", storage.ErrNotReplicated, n, o.MinReplicas, o.ReplicaTimeout)
	}
	return nil
}

// appendArgs are the arguments of the append script. after becomes the meta as it then is, and end and entries what the index gets.
func (l *partitionLog) appendArgs(g *idempotence.Group, after *meta) (args []string, end indexEnd, entries []timeEntry) {
	args = append(make([]string, 0, 16), after.ownerArgs()...)
	args = append(args, strconv.FormatInt(after.end, 10))
	args = args[:8]
	end = l.index
	for i, part := range g.Parts {
		h := g.Headers[i]
		after.end = h.Next()
		after.total += int64(len(part))
		after.largest = max(after.largest, int64(len(part)))
		end.maxTime = max(end.maxTime, h.MaxTimestamp)
		if after.total-end.bytes >= indexInterval {
			entry := timeEntry{next: after.end, bytes: after.total, maxTime: end.maxTime}
			entries = append(entries, entry)
			end = indexEnd{next: entry.next, bytes: entry.bytes, maxTime: math.MinInt64, newest: max(end.newest, float64(entry.maxTime))}
			args = append(args, formatScore(end.newest), entry.member())
		}
	}
	n := len(args)
	for id, p := range g.Plan.Changed() {
		args = append(args, strconv.FormatInt(id, 10), formatProducer(p))
	}
	for i, v := range []int64{after.end, after.total, after.largest, int64(len(entries)), int64(len(args)-n) / 2} {
		args[3+i] = strconv.FormatInt(v, 10)
	}
	return args, end, entries
}

// formatScore encodes the score of an entry of the index. Redis keeps a float64: of the times beyond 2^53 the order stays.
func formatScore(score float64) string { return strconv.FormatFloat(score, 'g', -1, 64) }
