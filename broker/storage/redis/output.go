// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const (
	// runBytes and runBatches bound what one call of a script goes over, so that Redis answers others meanwhile.
	runBytes   = 1 << 20
	runBatches = 256
)

// output makes the log that a compacted one becomes. Of what stays as it is Redis is told the ids alone.
type output struct {
	log *partitionLog
	// args are the triples of the next call, and size is how many bytes it goes over.
	args []string
	size int
	// first and last are the ids of a run of batches that stay as they are, and runSize and runCount what it has; first is 0 where there is none.
	first, last       int64
	runSize, runCount int
	// lastID is the last batch that was gone over.
	lastID int64
	// changed says that something is removed, and removed is how many bytes that makes less; below 0 where what is left of batches takes more, compressed anew.
	changed bool
	removed int64
	// times are the entries of the new index; bytes counts what stays, on top of what was gone before. since are the bytes behind the last entry, maxTime is the
	// newest timestamp there, and lastNext the offset after the last batch that stays.
	times                           []timeEntry
	bytes, since, maxTime, lastNext int64
}

// add takes a batch, of which kept stays: all, some or nothing.
func (o *output) add(ctx context.Context, e *entry, h *recordbatch.Header, kept []byte) error {
	o.lastID = e.next
	o.removed += int64(len(e.batch) - len(kept))
	same := len(kept) == len(e.batch) && &kept[0] == &e.batch[0]
	o.changed = o.changed || !same
	if kept == nil {
		o.endRun()
		return nil
	}
	o.note(e.next, kept)
	if same {
		if o.first == 0 {
			o.first = e.next
		}
		o.last = e.next
		o.runSize += h.Size
		o.runCount++
		if o.runCount < runBatches && o.runSize < runBytes {
			return nil
		}
		o.endRun()
	} else {
		o.endRun()
		o.args = append(o.args, "P", strconv.FormatInt(e.next, 10)+"-0", rueidis.BinaryString(kept))
		o.size += len(kept)
	}
	return o.flush(ctx, runBytes)
}

// endRun ends a run of batches that stay.
func (o *output) endRun() {
	if o.first == 0 {
		return
	}
	o.args = append(o.args, "C", strconv.FormatInt(o.first, 10)+"-0", strconv.FormatInt(o.last, 10)+"-0")
	o.size += o.runSize
	o.first, o.runSize, o.runCount = 0, 0, 0
}

// note makes the index.
func (o *output) note(next int64, kept []byte) {
	if o.since == 0 {
		o.maxTime = math.MinInt64
	}
	h, err := recordbatch.ParseHeader(kept)
	if err == nil {
		o.maxTime = max(o.maxTime, h.MaxTimestamp)
	}
	o.lastNext = next
	o.bytes += int64(len(kept))
	if o.since += int64(len(kept)); o.since >= indexInterval {
		o.times = append(o.times, timeEntry{next: next, bytes: o.bytes, maxTime: o.maxTime})
		o.since = 0
	}
}

// flush sends the next calls where they go over at least so many bytes. As long as nothing is removed nothing need be made.
func (o *output) flush(ctx context.Context, least int) error {
	if !o.changed || o.size < least {
		return nil
	}
	for len(o.args) > 0 {
		n, size := 0, 0
		for n < len(o.args) && (n == 0 || size < runBytes && n < 3*runBatches) {
			size += len(o.args[n+2])
			if o.args[n] == "C" {
				size += runBytes
			}
			n += 3
		}
		if err := o.log.changeClean(ctx, o.args[:n]); err != nil {
			return err
		}
		o.args = o.args[n:]
	}
	o.args, o.size = nil, 0
	return nil
}

// cleanKeys are the keys of the scripts of compaction.
func (k *keys) cleanKeys() []string { return []string{k.log, k.meta, k.times, k.clean, k.cleanTimes} }

// changeClean calls the script that makes the new log.
func (l *partitionLog) changeClean(ctx context.Context, triples []string) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	args := append(l.owner(), triples...)
	reply, err := cleanScript.run(asking, l.engine.client, l.keys.cleanKeys(), args).AsStrSlice()
	if err != nil {
		return translate(ctx, err)
	}
	if len(reply) != 1 || reply[0] != replyOK {
		return l.judge(args[1], reply)
	}
	return nil
}

// dropClean removes what a compaction has left that was given up; what cannot be removed goes when the log is opened or compacted next.
func (l *partitionLog) dropClean() error {
	if l.isLost() {
		return nil
	}
	return l.changeClean(context.Background(), []string{"D", "", ""})
}

// finish puts the new log in the place of the old one, and notes what was done.
func (o *output) finish(ctx context.Context, p *compaction.Passes, upTo int64) error {
	l := o.log
	o.endRun()
	if !o.changed {
		return l.notePass(ctx, p, o.bytes)
	}
	if o.since > 0 {
		o.times = append(o.times, timeEntry{next: o.lastNext, bytes: o.bytes, maxTime: o.maxTime})
	}
	newest := math.Inf(-1)
	for i := range o.times {
		t := &o.times[i]
		t.bytes += o.removed
		newest = max(newest, float64(t.maxTime))
		o.args = append(o.args, "T", formatScore(newest), t.member())
	}
	if err := o.flush(ctx, 0); err != nil {
		return err
	}
	l.mu.Lock()
	l.cleaningTo = upTo
	gone := l.meta.gone + o.removed
	l.mu.Unlock()
	cleaned := o.bytes + o.removed
	batches, err := l.swap(ctx, o.lastID, gone, formatPasses(p, cleaned))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meta.gone, l.meta.passes, l.meta.cleaned, l.batches = gone, *p, cleaned, batches
	return nil
}

// swap calls the script that puts the new log in the place of the old one, which first goes over what was appended since.
func (l *partitionLog) swap(ctx context.Context, lastID, gone int64, passes string) (batches int64, err error) {
	id, index := strconv.FormatInt(lastID, 10)+"-0", fmt.Sprintf("%020d", lastID)
	for {
		args := append(l.owner(), id, index, strconv.FormatInt(gone, 10), passes)
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		reply, err := swapScript.run(asking, l.engine.client, l.keys.cleanKeys(), args).ToArray()
		cancel()
		if err != nil {
			if !isRefusal(err) {
				l.suspect(translate(ctx, err)) // it may have been done
			}
			return 0, translate(ctx, err)
		}
		switch word, detail := firstWord(reply); {
		case word == replyOK && len(reply) == 2:
			return reply[1].AsInt64()
		case word != replyMore || detail == "":
			return 0, l.judge(args[1], words(reply))
		default:
			id = detail
		}
	}
}

// notePass notes a pass that has found nothing to remove.
func (l *partitionLog) notePass(ctx context.Context, p *compaction.Passes, cleaned int64) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	args := append(l.owner(), formatPasses(p, cleaned))
	reply, err := passScript.run(asking, l.engine.client, []string{l.keys.log, l.keys.meta}, args).AsStrSlice()
	if err != nil {
		return translate(ctx, err)
	}
	if len(reply) != 1 || reply[0] != replyOK {
		return l.judge(args[1], reply)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meta.passes, l.meta.cleaned = *p, cleaned
	return nil
}
