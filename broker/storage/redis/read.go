// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

const (
	// maxReadBytes bounds one read, whatever is asked for; a larger single batch is still read whole.
	maxReadBytes = 64 << 20
	// maxReadCount bounds the batches of one read.
	maxReadCount = 4096
	// excess is by how many times what is read from Redis may be more than what was asked for.
	excess = 4
	// tailCount is how many batches are read at once of the end of the log that the index does not cover yet.
	tailCount = 256
)

// entry is a batch of the stream, and the offset after it, which its id names.
type entry struct {
	next  int64
	batch []byte
}

// Read returns whole batches from the one that holds the offset on. See storage.Log.
func (l *partitionLog) Read(ctx context.Context, offset int64, maxBytes int) (storage.Batches, error) {
	b, err := l.read(ctx, offset, min(max(maxBytes, 1), maxReadBytes))
	if err != nil {
		return storage.Batches{}, fmt.Errorf("read %s from offset %d: %w", l, offset, err)
	}
	return b, nil
}

// view is what a reader has to know of a log.
type view struct {
	start, end int64
	// mean and largest are the sizes of batches in bytes, and left is how many bytes there are at most from the offset on.
	mean, largest, left int64
	// compacted is the offset below which offsets may be missing.
	compacted int64
}

// viewAt is what a reader of the offset has to know; ok is false where there is nothing yet.
func (l *partitionLog) viewAt(ctx context.Context, offset int64) (v view, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return v, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.meta
	switch {
	case l.closed:
		return v, false, storage.ErrClosed
	case offset < m.start || offset > m.end:
		return v, false, fmt.Errorf("the log has %d to %d: %w", m.start, m.end, storage.ErrOffsetOutOfRange)
	case offset == m.end:
		return v, false, nil
	}
	v = view{start: m.start, end: m.end, largest: m.largest, compacted: max(m.passes.UpTo(), l.cleaningTo), left: m.size()}
	v.mean = max(m.size()/max(l.batches, 1), 1)
	for _, e := range l.recent {
		if e.next <= offset {
			v.left = m.total - e.bytes
		}
	}
	return v, true, nil
}

func (l *partitionLog) read(ctx context.Context, offset int64, maxBytes int) (storage.Batches, error) {
	v, ok, err := l.viewAt(ctx, offset)
	if !ok || err != nil {
		return storage.Batches{}, err
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	entries, err := l.entries(l.ask(asking, &v, offset, maxBytes))
	if err != nil {
		return storage.Batches{}, translateUnlessDamaged(ctx, err)
	}
	b, err := l.assemble(entries, &v, offset, maxBytes)
	if err != nil {
		return storage.Batches{}, l.explain(ctx, offset, err)
	}
	return b, nil
}

// ask asks for about as many bytes as are wanted. Where batches differ so much in size that it may be far more, a script counts them in Redis.
func (l *partitionLog) ask(ctx context.Context, v *view, offset int64, maxBytes int) rueidis.RedisResult {
	wanted := int64(maxBytes)
	count := min(wanted/v.mean+2, maxReadCount)
	if min(v.left, count*v.largest) <= excess*wanted+v.largest {
		return l.engine.client.Do(ctx, l.rangeCommand(offset, count))
	}
	args := []string{strconv.FormatInt(offset+1, 10), strconv.FormatInt(wanted, 10), strconv.FormatInt(maxReadCount, 10)}
	return boundedScript.run(ctx, l.engine.client, []string{l.keys.log}, args)
}

// rangeCommand asks for batches from the one that holds the offset on.
func (l *partitionLog) rangeCommand(offset, count int64) rueidis.Completed {
	return l.engine.client.B().Xrange().Key(l.keys.log).Start(strconv.FormatInt(offset+1, 10)).End("+").Count(count).Build()
}

// entries decodes an answer of XRANGE.
func (l *partitionLog) entries(r rueidis.RedisResult) ([]entry, error) {
	list, err := r.ToArray()
	if err != nil {
		return nil, err
	}
	entries := make([]entry, len(list))
	for i := range list {
		if entries[i], err = parseEntry(&list[i]); err != nil {
			return nil, damaged(l.keys.log, "%v", err)
		}
	}
	return entries, nil
}

var errEntry = errors.New("an entry is not as the broker writes them: an id NEXT-0, and the field b")

// parseEntry decodes an entry of the stream.
func parseEntry(m *rueidis.RedisMessage) (entry, error) {
	pair, err := m.ToArray()
	if err != nil || len(pair) != 2 {
		return entry{}, errEntry
	}
	id, err := pair[0].ToString()
	fields, err2 := pair[1].ToArray()
	if err != nil || err2 != nil || len(fields) != 2 {
		return entry{}, errEntry
	}
	name, err := fields[0].ToString()
	batch, err2 := fields[1].AsBytes()
	number, zero := strings.CutSuffix(id, "-0")
	next, err3 := strconv.ParseInt(number, 10, 64)
	if err != nil || err2 != nil || err3 != nil || !zero || next < 1 || name != "b" {
		return entry{}, errEntry
	}
	return entry{next: next, batch: batch}, nil
}

// check says whether an entry may come where the one before it ends at an offset: below compacted there may be gaps.
func (l *partitionLog) check(e *entry, offset, compacted int64) (recordbatch.Header, error) {
	h, err := recordbatch.ParseHeader(e.batch)
	switch {
	case err != nil:
		return h, damaged(l.keys.log, "entry %d-0: %v", e.next, err)
	case h.Size != len(e.batch):
		return h, damaged(l.keys.log, "entry %d-0 has %d bytes, and says %d", e.next, len(e.batch), h.Size)
	case h.Next() != e.next || h.Base < 0 || h.Base > offset && offset >= compacted:
		return h, damaged(l.keys.log, "entry %d-0 has offsets %d to %d, and is to have %d", e.next, h.Base, h.Next()-1, offset)
	case !recordbatch.CRCMatches(e.batch, &h):
		return h, damaged(l.keys.log, "entry %d-0: its CRC-32C does not match", e.next)
	}
	return h, nil
}

var errMissing = errors.New("it is not in Redis")

// assemble makes one piece of the batches that a reader gets.
func (l *partitionLog) assemble(entries []entry, v *view, offset int64, maxBytes int) (storage.Batches, error) {
	next, size, n := offset, 0, 0
	for i := range entries {
		e := &entries[i]
		if n > 0 && (size+len(e.batch) > maxBytes || e.next > v.end) {
			break
		}
		h, err := l.check(e, next, v.compacted)
		if err == nil && n > 0 && h.Base < next {
			err = damaged(l.keys.log, "entry %d-0 begins at %d, below the end of the one before it, %d", e.next, h.Base, next)
		}
		if err != nil {
			if n > 0 {
				break // for the next read to say
			}
			return storage.Batches{}, err
		}
		next, size, n = e.next, size+len(e.batch), n+1
	}
	if n == 0 {
		return storage.Batches{}, errMissing
	}
	if n == 1 {
		return storage.InMemory(entries[0].batch, next), nil
	}
	parts := make([][]byte, n)
	for i := range parts {
		parts[i] = entries[i].batch
	}
	return storage.InMemory(bytes.Join(parts, nil), next), nil
}

// explain finds out why a read met something else than was expected: the log may have been trimmed meanwhile, or opened again, or be another's, or
// Redis has lost its end.
func (l *partitionLog) explain(ctx context.Context, offset int64, err error) error {
	if _, ok, err := l.viewAt(ctx, offset); err != nil || !ok {
		return err
	}
	l.mu.Lock()
	lost, epoch, owner := l.lost, l.meta.epoch, l.meta.owner
	l.mu.Unlock()
	if lost != nil {
		return lost
	}
	if err = l.blame(ctx, epoch, owner, owner, err); errors.Is(err, errMissing) {
		err = fmt.Errorf("%w: %w; the log is being read anew", storage.ErrUnavailable, err)
		l.suspect(err)
	}
	return err
}
