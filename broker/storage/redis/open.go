// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
)

const (
	// A log that is in doubt is read anew again and again, after waits that grow from firstWait to maxWait, each by chance half as long or half as long again.
	firstWait = 50 * time.Millisecond
	maxWait   = 2 * time.Second
	// scanCount is about how many fields of a hash one step of reading it takes.
	scanCount = 1000
)

func (m *meta) ownerArgs() []string { return []string{strconv.FormatInt(int64(m.epoch), 10), m.owner} }

// create opens a log for the first time in this engine, and makes it where there is none.
func (l *partitionLog) create(ctx context.Context, epoch int32) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.take(ctx, epoch, ""); err != nil {
		return err
	}
	return l.engine.register(ctx, l.partition, l.keys)
}

// setLeader takes the epoch and config of an Open of a log that is open.
func (l *partitionLog) setLeader(ctx context.Context, epoch int32, c storage.Config) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	old := l.epoch()
	if epoch < old {
		return fmt.Errorf("leader epoch %d, where %d has opened the log: %w", epoch, old, storage.ErrFenced)
	}
	if epoch > old {
		if err := l.take(ctx, epoch, ""); err != nil {
			if !errors.Is(err, storage.ErrFenced) && !isRefusal(err) {
				l.suspect(err) // it may have been done
			}
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config = c
	return nil
}

// ownerPrefix begins the names by which this engine owns logs.
func (e *Engine) ownerPrefix() string { return e.opts.Instance + "/" + e.nonce + "/" }

// take makes this engine the log's owner in an epoch, where the name of the owner before begins with from, and reads what the owner has to know. What was
// sent in the name of the owner before is refused from then on, however late it comes. wmu is held.
func (l *partitionLog) take(ctx context.Context, epoch int32, from string) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	e := l.engine
	l.claimed = epoch
	owner := fmt.Sprintf("%s%d", e.ownerPrefix(), e.openings.Add(1))
	k := &l.keys
	all := []string{k.log, k.meta, k.times, k.producers, k.clean, k.cleanTimes}
	reply, err := openScript.run(asking, e.client, all, []string{strconv.FormatInt(int64(epoch), 10), owner, from}).ToArray()
	if err != nil {
		return translate(ctx, err)
	}
	if word, _ := firstWord(reply); word != replyOK || len(reply) != 2 {
		if word == replyFenced && from == "" {
			_, newer := firstWord(reply)
			return fmt.Errorf("leader epoch %d, where %s has opened the log: %w", epoch, newer, storage.ErrFenced)
		}
		return l.judge("", words(reply))
	}
	fields, err := reply[1].AsStrMap()
	if err != nil {
		return damaged(k.meta, "%v", err)
	}
	m, err := parseMeta(k.meta, fields)
	if err != nil {
		return err
	}
	if err = l.load(ctx, asking, m); err != nil {
		return l.blame(ctx, m.epoch, m.owner, "", err)
	}
	return nil
}

// blame returns why what was read is not as it must be: err, where the log is still this owner's, and else that another has changed it meanwhile. asked is as judge's owner.
func (l *partitionLog) blame(ctx context.Context, epoch int32, owner, asked string, err error) error {
	if !errors.Is(err, storage.ErrDamaged) && !errors.Is(err, errMissing) {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	b := l.engine.client.B()
	now, askErr := l.engine.client.Do(asking, b.Hmget().Key(l.keys.meta).Field("epoch", "owner").Build()).ToArray()
	if askErr != nil {
		return translate(ctx, askErr)
	}
	switch list := words(now); {
	case len(list) == 0:
		return l.judge(asked, []string{replyGone})
	case len(list) == 2 && list[0] == strconv.FormatInt(int64(epoch), 10) && list[1] == owner:
		return err
	default:
		return l.judge(asked, []string{replyFenced, list[0]})
	}
}

// words are the strings of an answer.
func words(reply []rueidis.RedisMessage) []string {
	list := make([]string, 0, len(reply))
	for i := range reply {
		if s, err := reply[i].ToString(); err == nil {
			list = append(list, s)
		}
	}
	return list
}

// firstWord is the first string of an answer, and the second.
func firstWord(reply []rueidis.RedisMessage) (word, detail string) {
	list := append(words(reply), "", "")
	return list[0], list[1]
}

// load reads what is beside the meta, and makes it all what is known. wmu is held; nobody else changes the log since this engine owns it.
func (l *partitionLog) load(ctx, asking context.Context, m *meta) error {
	b := l.engine.client.B
	known, err := l.loadProducers(asking)
	if err != nil {
		return translateUnlessDamaged(ctx, err)
	}
	replies := l.engine.client.DoMulti(asking,
		b().Zrange().Key(l.keys.times).Min(strconv.Itoa(-keptEntries)).Max("-1").Withscores().Build(),
		b().Xlen().Key(l.keys.log).Build())
	scored, err := replies[0].AsZScores()
	if err != nil {
		return fmt.Errorf("%s: %w", l.keys.times, translate(ctx, err))
	}
	batches, err := replies[1].AsInt64()
	if err != nil {
		return fmt.Errorf("%s: %w", l.keys.log, translate(ctx, err))
	}
	members := make([]string, len(scored))
	end := indexEnd{bytes: m.gone, next: m.start, maxTime: math.MinInt64}
	for i := range scored {
		members[i] = scored[i].Member
		end.newest = scored[i].Score
	}
	recent, err := parseTimeEntries(l.keys.times, members)
	if err != nil {
		return err
	}
	if n := len(recent); n > 0 {
		if recent[n-1].next > m.end {
			return damaged(l.keys.times, "it goes to offset %d, and %s ends at %d", recent[n-1].next, l.keys.meta, m.end)
		}
		end.next, end.bytes = recent[n-1].next, recent[n-1].bytes
	} else {
		end.newest = math.Inf(-1)
	}
	if err := l.loadTail(asking, m, &end); err != nil {
		return translateUnlessDamaged(ctx, err)
	}
	l.known, l.index, l.replicated = known, end, 0
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta.end > m.end {
		l.engine.logger.Error("Redis has lost records that it had acknowledged", "partition", l.String(), "from", m.end, "to", l.meta.end)
	}
	l.meta, l.batches, l.recent, l.doubt = *m, batches, recent, nil
	l.notifyAll()
	return nil
}

// translateUnlessDamaged is translate, but for errors that say already what they are.
func translateUnlessDamaged(ctx context.Context, err error) error {
	if errors.Is(err, storage.ErrDamaged) {
		return err
	}
	return translate(ctx, err)
}

// loadProducers reads the idempotent producers.
func (l *partitionLog) loadProducers(ctx context.Context) (idempotence.Producers, error) {
	known := make(idempotence.Producers)
	for cursor := uint64(0); ; {
		b := l.engine.client.B()
		entry, err := l.engine.client.Do(ctx, b.Hscan().Key(l.keys.producers).Cursor(cursor).Count(scanCount).Build()).AsScanEntry()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(entry.Elements); i += 2 {
			id, err := strconv.ParseInt(entry.Elements[i], 10, 64)
			if err != nil || id < 0 {
				return nil, damaged(l.keys.producers, "its field %.40q is no producer's id", entry.Elements[i])
			}
			p, err := parseProducer(entry.Elements[i+1])
			if err != nil {
				return nil, damaged(l.keys.producers, "its field %d: %v", id, err)
			}
			known[id] = p
		}
		if cursor = entry.Cursor; cursor == 0 {
			return known, nil
		}
	}
}

// loadTail reads the batches behind the last entry of the index, and checks that the log ends where its meta says.
func (l *partitionLog) loadTail(ctx context.Context, m *meta, end *indexEnd) error {
	last := end.next
	for last < m.end {
		entries, err := l.entries(l.engine.client.Do(ctx, l.rangeCommand(last, tailCount)))
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			break
		}
		for i := range entries {
			h, err := l.check(&entries[i], last, m.passes.UpTo())
			if err != nil {
				return err
			}
			last = entries[i].next
			end.maxTime = max(end.maxTime, h.MaxTimestamp)
		}
	}
	if last != m.end {
		return damaged(l.keys.log, "it ends before offset %d, and %s says %d", last, l.keys.meta, m.end)
	}
	return nil
}

// suspect notes that it is not known what Redis has of the log, and has it read anew.
func (l *partitionLog) suspect(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.lost != nil || l.doubt != nil {
		return
	}
	if !errors.Is(why, storage.ErrUnavailable) {
		why = fmt.Errorf("%w: %w", storage.ErrUnavailable, why)
	}
	l.doubt = why
	l.engine.tellDoubt(l, why)
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	if !l.engine.closed {
		l.engine.tasks.Go(l.heal)
	}
}

// tellEvery is how often it is told that logs are in doubt; where Redis is away all of them are.
const tellEvery = 10 * time.Second

// tellDoubt tells the operator that a log is in doubt, once in a while.
func (e *Engine) tellDoubt(l *partitionLog, why error) {
	now := e.now().UnixNano()
	if old := e.told.Load(); now-old >= int64(tellEvery) && e.told.CompareAndSwap(old, now) {
		e.logger.Warn("it is not known what Redis has of a log, and maybe of others; nothing is appended until it is read anew", "partition", l.String(), "error", why)
	}
}

// heal reads the log anew until that succeeds, or shows that the log is not this engine's any more.
func (l *partitionLog) heal() {
	ctx := l.engine.ending
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		err := l.retake(ctx)
		switch {
		case err == nil || l.stopped(ctx):
			return
		case errors.Is(err, storage.ErrDamaged):
			l.lose(err)
			return
		}
		timer := time.NewTimer(wait/2 + rand.N(wait)) //nolint:gosec // it need not be secret
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// retake makes this engine the owner again of a log that it owns, and reads it anew.
func (l *partitionLog) retake(ctx context.Context) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	doubt := l.doubt
	l.mu.Unlock()
	if doubt == nil {
		return nil
	}
	return l.take(ctx, l.claimed, l.engine.ownerPrefix())
}
