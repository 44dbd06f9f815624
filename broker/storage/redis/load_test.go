// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

var orders = storage.Partition{Topic: "orders", Partition: 3}

// patience is how long a test waits for what must happen.
const patience = time.Minute

// quick are options with which a server that does not answer is given up soon.
func quick(url string) Options {
	return Options{Conn: redisconn.Options{URL: url, Timeout: 500 * time.Millisecond}, Prefix: newPrefix(), Logger: slog.New(slog.DiscardHandler)}
}

func openLog(t testing.TB, e *Engine, p storage.Partition, epoch int32) storage.Log {
	t.Helper()
	var l storage.Log
	eventually(t, "the log is opened", func() (err error) {
		l, err = e.Open(context.Background(), p, epoch, storage.Config{})
		if err != nil && !errors.Is(err, storage.ErrUnavailable) {
			t.Fatal(err)
		}
		return err
	})
	return l
}

// eventually tries again and again until fn succeeds.
func eventually(t testing.TB, what string, fn func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s: %v", what, err)
		}
	}
}

// isRetriable says whether a producer sends again what was answered with err.
func isRetriable(err error) bool {
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrNotReplicated) || errors.Is(err, storage.ErrFull)
}

// load is idempotent producers that append one record after the other, each until it is acknowledged, with several in flight.
type load struct {
	t    *testing.T
	l    storage.Log
	stop chan struct{}
	all  sync.WaitGroup

	mu    sync.Mutex
	acked map[string]int64 // offset, by value
	tries int
	errs  map[string]int
	last  error
}

const loadInFlight = 5

func startLoad(t *testing.T, l storage.Log, producers int) *load {
	t.Helper()
	ld := &load{t: t, l: l, stop: make(chan struct{}), acked: map[string]int64{}, errs: map[string]int{}}
	for p := range producers {
		ld.all.Go(func() { ld.produce(int64(p + 1)) })
	}
	return ld
}

func (ld *load) produce(producer int64) {
	type sent struct {
		value string
		batch []byte
		err   chan error
		base  int64
	}
	var window []*sent
	begin := func(s *sent) {
		s.err = make(chan error, 1)
		ld.l.AppendThen(bytes.Clone(s.batch), storage.Synced, func(base int64, err error) {
			s.base = base
			s.err <- err
		})
	}
	for sequence := int32(0); ; {
		stopped := false
		select {
		case <-ld.stop:
			stopped = true
		default:
		}
		for !stopped && len(window) < loadInFlight {
			value := fmt.Sprintf("%d/%d", producer, sequence)
			b := enginetest.Batch{First: 1000, Producer: producer, Sequence: sequence, Records: enginetest.Values(value)}.Encode()
			window = append(window, &sent{value: value, batch: b})
			begin(window[len(window)-1])
			sequence++
		}
		if len(window) == 0 {
			return
		}
		// Where one fails all behind it are sent again, in order, as a client does.
		failed := -1
		for i, s := range window {
			err := <-s.err
			s.err <- err
			if err != nil && failed < 0 {
				failed = i
				if !isRetriable(err) && !errors.Is(err, storage.ErrOutOfOrderSequence) {
					ld.t.Errorf("producer %d: %v", producer, err)
					return
				}
			}
			ld.note(s.value, s.base, err)
		}
		if failed < 0 {
			window = window[:0]
			continue
		}
		window = window[failed:]
		time.Sleep(2 * time.Millisecond) // as a client's backoff
		for _, s := range window {
			begin(s)
		}
	}
}

func (ld *load) note(value string, base int64, err error) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.tries++
	if err != nil {
		ld.last = err
		for _, known := range []error{storage.ErrUnavailable, storage.ErrNotReplicated, storage.ErrFull, storage.ErrOutOfOrderSequence} {
			if errors.Is(err, known) {
				ld.errs[known.Error()]++
			}
		}
		return
	}
	if old, ok := ld.acked[value]; ok && old != base {
		ld.t.Errorf("%s was acknowledged at %d, then at %d", value, old, base)
	}
	ld.acked[value] = base
}

// await waits until so many more records are acknowledged.
func (ld *load) await(more int) {
	ld.t.Helper()
	count := func() int {
		ld.mu.Lock()
		defer ld.mu.Unlock()
		return len(ld.acked)
	}
	want := count() + more
	eventually(ld.t, "records are acknowledged", func() error {
		if n := count(); n < want {
			ld.mu.Lock()
			defer ld.mu.Unlock()
			return fmt.Errorf("%d of %d are; refused: %v, the last time %w", n, want, ld.errs, ld.last)
		}
		return nil
	})
}

// finish stops the producers once all that they have begun is acknowledged, and checks the log: every record is there once, at the offset that was acknowledged, and
// there is nothing else.
func (ld *load) finish() {
	ld.t.Helper()
	close(ld.stop)
	ld.all.Wait()
	ld.t.Logf("%d appends, %d records acknowledged, refused: %v", ld.tries, len(ld.acked), ld.errs)
	checkAcked(ld.t, ld.l, ld.acked, true)
}

// checkAcked reads all of a log and checks that what was acknowledged is there, once, at its offset; and, where only is set, that nothing else is.
func checkAcked(t *testing.T, l storage.Log, acked map[string]int64, only bool) {
	t.Helper()
	seen := map[string]int64{}
	next := l.StartOffset()
	for next < l.HighWatermark() {
		b, err := enginetest.Read(context.Background(), l, next, 1<<20)
		if err != nil || len(b) == 0 {
			t.Fatalf("read offset %d of %d: %d bytes, %v", next, l.HighWatermark(), len(b), err)
		}
		records, err := enginetest.Records(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Offset != next {
				t.Fatalf("offset %d follows %d", r.Offset, next-1)
			}
			next++
			value := string(r.Value)
			if old, twice := seen[value]; twice {
				t.Fatalf("%s is there twice, at %d and %d", value, old, r.Offset)
			}
			seen[value] = r.Offset
			if want, ok := acked[value]; ok && want != r.Offset || !ok && only {
				t.Fatalf("%s is at %d; acknowledged: %v at %d", value, r.Offset, ok, want)
			}
		}
	}
	for value, offset := range acked {
		if _, ok := seen[value]; !ok {
			t.Fatalf("%s was acknowledged at %d, and is not there", value, offset)
		}
	}
}
