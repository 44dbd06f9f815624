// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/idempotence"
)

// partitionLog is the log of one partition, as its owner knows it.
//
// Who changes the log's end or owner in Redis holds wmu for the whole of it; who takes records away (trim, retention, compaction) holds cleaning. mu is held only to
// look at or change the fields below it, never while Redis is asked. They are taken in the order cleaning, wmu, mu.
type partitionLog struct {
	engine    *Engine
	partition storage.Partition
	keys      keys

	cleaning sync.Mutex

	// qmu guards the appends that wait, and whether a goroutine is there that sends them. It is held alone.
	qmu     sync.Mutex
	queue   []*pending
	writing bool
	// idle is signalled, with qmu, when writing becomes false.
	idle *sync.Cond

	wmu   sync.Mutex
	known idempotence.Producers
	index indexEnd
	// claimed is the leader epoch in which this engine last tried to own the log.
	claimed int32
	// replicated is the offset below which as many replicas have everything as are asked for, as far as this owner knows.
	replicated int64

	mu     sync.Mutex
	config storage.Config
	// meta is as it is in Redis, as far as that is known.
	meta meta
	// batches is about how many the log has.
	batches int64
	// recent are the last entries of the index, the oldest first.
	recent []timeEntry
	// cleaningTo is up to where a compaction is about to have gone.
	cleaningTo int64
	// lost says why the log is not this engine's any more: storage.ErrFenced, ErrDamaged or ErrClosed.
	lost error
	// doubt says why it is not known what Redis has; nothing is appended until the log is read anew, which is being done. nil: it is known.
	doubt    error
	closed   bool
	watchers map[int]chan<- struct{}
	watched  int
}

var (
	_ storage.Log      = (*partitionLog)(nil)
	_ storage.EpochLog = (*partitionLog)(nil)
)

func (l *partitionLog) String() string {
	return fmt.Sprintf("%s-%d", l.partition.Topic, l.partition.Partition)
}

// StartOffset is the offset of the oldest record, or EndOffset where there is none.
func (l *partitionLog) StartOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta.start
}

// HighWatermark is EndOffset: what Redis has answered for is stored.
func (l *partitionLog) HighWatermark() int64 { return l.EndOffset() }

// EndOffset is the offset that the next record gets.
func (l *partitionLog) EndOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta.end
}

// Size is the number of bytes of the log's batches.
func (l *partitionLog) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta.size()
}

func (m *meta) size() int64 { return m.total - m.gone }

// Epochs are the leader epochs in which the log was opened. See storage.EpochLog.
func (l *partitionLog) Epochs() []storage.EpochStart {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta.epochs
}

// Subscribe makes the log send on c, without blocking, whenever its high watermark grows or it is closed.
func (l *partitionLog) Subscribe(c chan<- struct{}) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		notify(c)
		return func() {}
	}
	id := l.watched
	l.watched++
	if l.watchers == nil {
		l.watchers = make(map[int]chan<- struct{})
	}
	l.watchers[id] = c
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, id)
	}
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// notifyAll tells the subscribers; mu is held. The order cannot be seen, as nothing blocks.
func (l *partitionLog) notifyAll() {
	for _, c := range l.watchers {
		notify(c)
	}
}

// usable says why nothing can be changed now.
func (l *partitionLog) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return storage.ErrClosed
	case l.lost != nil:
		return l.lost
	}
	return l.doubt
}

// isLost says whether the log must be opened anew.
func (l *partitionLog) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost != nil || l.closed
}

// lose notes that the log is not this engine's any more.
func (l *partitionLog) lose(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.lost != nil {
		return
	}
	l.lost, l.doubt = err, nil
	l.notifyAll()
	level := slog.LevelWarn // another broker leads now, or the topic is gone
	if errors.Is(err, storage.ErrDamaged) {
		level = slog.LevelError
	}
	l.engine.logger.Log(l.engine.ending, level, "the log takes no records until it is opened again", "partition", l.String(), "error", err)
}

// owner is what the scripts are told of who calls them, besides which they do nothing.
func (l *partitionLog) owner() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta.ownerArgs()
}

// topicConfig is what the topic asks for now.
func (l *partitionLog) topicConfig() storage.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config
}

// judge says what the answer of a script means, whose first word is not OK, and notes it. owner is in whose name the script was called, where that may have changed meanwhile.
func (l *partitionLog) judge(owner string, reply []string) error {
	err := fmt.Errorf("what Redis answers, %q, is not understood", reply)
	if len(reply) == 0 {
		return err
	}
	detail := ""
	if len(reply) > 1 {
		detail = reply[1]
	}
	switch reply[0] {
	case replyGone:
		err = fmt.Errorf("%s: its log was removed: %w", l.keys.meta, storage.ErrClosed)
	case replyFenced:
		l.mu.Lock()
		stale := owner != "" && (l.doubt != nil || l.meta.owner != owner)
		l.mu.Unlock()
		if stale {
			return fmt.Errorf("the log was opened anew meanwhile: %w", storage.ErrUnavailable)
		}
		err = fmt.Errorf("leader epoch %d, where another broker has opened the log in %s: %w", l.epoch(), detail, storage.ErrFenced)
	case replyDamaged:
		err = damaged(l.keys.meta, "it is missing, and %s is there: delete that, or restore both from a backup", l.keys.log)
	case replyEnd:
		err = fmt.Errorf("the log ends at %s, and not at %d: %w", detail, l.EndOffset(), storage.ErrUnavailable)
		l.suspect(err)
		return err
	default:
		return err
	}
	l.lose(err)
	return err
}

func (l *partitionLog) epoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta.epoch
}

// close closes the log once what is being appended is answered.
func (l *partitionLog) close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.notifyAll()
	l.watchers = nil
	l.mu.Unlock()
	l.cleaning.Lock() // a compaction that goes on sees that the log is closed
	defer l.cleaning.Unlock()
	l.qmu.Lock()
	defer l.qmu.Unlock()
	for l.writing {
		if l.idle == nil {
			l.idle = sync.NewCond(&l.qmu)
		}
		l.idle.Wait()
	}
}

// stopped says whether a background task is to be given up.
func (l *partitionLog) stopped(ctx context.Context) bool { return ctx.Err() != nil || l.isLost() }
