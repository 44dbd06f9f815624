// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

// openWith opens the log with a config.
func openWith(t *testing.T, e *Engine, c storage.Config) *partitionLog {
	t.Helper()
	l, err := e.Open(context.Background(), orders, 1, c)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*partitionLog)
}

func add(t *testing.T, l storage.Log, batch []byte) int64 {
	t.Helper()
	base, err := l.Append(context.Background(), bytes.Clone(batch), storage.Synced)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// sized is a batch of one record, of about so many bytes, of a time.
func sized(size int, ms int64) []byte {
	return enginetest.Batch{First: ms, Records: []enginetest.Record{{Value: make([]byte, size)}}}.Encode()
}

// storedSize is what the log's batches in Redis have.
func storedSize(t *testing.T, l *partitionLog) int64 {
	t.Helper()
	size := int64(0)
	for next := l.StartOffset(); next < l.EndOffset(); {
		b, err := l.Read(context.Background(), next, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		size += int64(b.Len())
		next = b.Next
	}
	return size
}

func TestEpochsAreKnown(t *testing.T) {
	o := quick(testredis.Start(t).URL())
	e := openEngine(t, o)
	want := []storage.EpochStart{{Epoch: 3, Offset: 0}}
	check := func(l storage.Log) {
		t.Helper()
		if diff := cmp.Diff(want, l.(storage.EpochLog).Epochs()); diff != "" {
			t.Fatalf("epochs (-want +got):\n%s", diff)
		}
	}
	l := openLog(t, e, orders, 3)
	check(l)
	add(t, l, sized(1, 1))
	check(openLog(t, e, orders, 3))
	l = openLog(t, e, orders, 8)
	want = append(want, storage.EpochStart{Epoch: 8, Offset: 1})
	check(l)
	e = openEngine(t, o)
	check(openLog(t, e, orders, 8))
	// Of very many the newest are known.
	for epoch := int32(1000); epoch < 2000; epoch++ {
		l = openLog(t, e, orders, epoch)
	}
	got := l.(storage.EpochLog).Epochs()
	if n := len(got); n < 400 || n > 1000 || got[n-1] != (storage.EpochStart{Epoch: 1999, Offset: 1}) || got[0].Epoch != int32(2000-n) {
		t.Fatal(n, got[0], got[n-1])
	}
}

func TestRetention(t *testing.T) {
	const n, size = 200, 10_000
	start := time.UnixMilli(1_000_000_000)
	cases := map[string]struct {
		config storage.Config
		now    time.Time
		// from and to bound the offset at which the log then starts.
		from, to int64
	}{
		"nothing is asked for":                 {now: start.Add(time.Hour)},
		"all is young":                         {config: storage.Config{RetentionTime: time.Hour}, now: start.Add(time.Minute)},
		"half is old":                          {config: storage.Config{RetentionTime: 100 * time.Second}, now: start.Add(n * time.Second), from: 90, to: 100},
		"all is old":                           {config: storage.Config{RetentionTime: time.Second}, now: start.Add(time.Hour), from: n, to: n},
		"there is more than is asked for":      {config: storage.Config{RetentionBytes: 500_000}, now: start, from: 140, to: 150},
		"as little as can be":                  {config: storage.Config{RetentionBytes: 1}, now: start, from: 190, to: n},
		"there is less than is asked for":      {config: storage.Config{RetentionBytes: 3_000_000}, now: start},
		"time asks for more than bytes do":     {config: storage.Config{RetentionBytes: 1_000_000, RetentionTime: 50 * time.Second}, now: start.Add(n * time.Second), from: 140, to: 150},
		"a record of the future holds up time": {config: storage.Config{RetentionTime: time.Second}, now: start.Add(-time.Hour)},
	}
	e := openEngine(t, quick(testredis.Start(t).URL()))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := e.Delete(context.Background(), orders); err != nil {
				t.Fatal(err)
			}
			l := openWith(t, e, c.config)
			for i := range int64(n) {
				add(t, l, sized(size, start.UnixMilli()+1000*i))
			}
			for range 2 {
				if err := e.EnforceRetention(c.now); err != nil {
					t.Fatal(err)
				}
				if got := l.StartOffset(); got < c.from || got > c.to {
					t.Fatalf("the log starts at %d, want %d to %d", got, c.from, c.to)
				}
			}
			if got, want := l.Size(), storedSize(t, l); got != want {
				t.Fatalf("the log says that it has %d bytes, and has %d", got, want)
			}
			if base := add(t, l, sized(1, 1)); base != n {
				t.Fatal(base)
			}
		})
	}
}

func TestALargeTrimTakesSteps(t *testing.T) {
	const n, size = 400, 500_000
	e := openEngine(t, quick(testredis.Start(t, "--appendonly", "no").URL()))
	l := openWith(t, e, storage.Config{})
	for range n {
		l.AppendThen(sized(size, 1), storage.Written, func(_ int64, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	add(t, l, sized(1, 1))
	if to, err := l.trimStep(context.Background(), n-1); err != nil || to < trimBytes/size || to > trimBytes/size+5 {
		t.Fatal(to, err)
	}
	for _, to := range []int64{n - 100, n, n + 1} {
		if err := l.Trim(context.Background(), to); err != nil {
			t.Fatal(err)
		}
		if l.StartOffset() != to || l.Size() != storedSize(t, l) {
			t.Fatal(l.StartOffset(), l.Size(), storedSize(t, l))
		}
	}
}

func TestIdleProducersAreForgotten(t *testing.T) {
	s := testredis.Start(t)
	e := openEngine(t, quick(s.URL()))
	l := openLog(t, e, orders, 1)
	for p := range int64(1200) {
		l.AppendThen(enginetest.Batch{Producer: p + 1, Records: enginetest.Values("a")}.Encode(), storage.Written, func(_ int64, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	add(t, l, enginetest.Simple("last"))
	count := func() string {
		out, err := s.CLI("hlen", l.(*partitionLog).keys.producers)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := e.EnforceRetention(time.Now().Add(23 * time.Hour)); err != nil || count() != "1200" {
		t.Fatal(err, count())
	}
	if err := e.EnforceRetention(time.Now().Add(25 * time.Hour)); err != nil || count() != "0" {
		t.Fatal(err, count())
	}
}

// TestReadsAreBounded reads a log of very different batches, and wants that no read takes much more from Redis than it was asked for.
func TestReadsAreBounded(t *testing.T) {
	s := testredis.Start(t)
	e := openEngine(t, quick(s.URL()))
	l := openWith(t, e, storage.Config{})
	for i := range 3000 {
		size := 100
		if i >= 2000 && i < 2100 {
			size = 500_000
		}
		l.AppendThen(sized(size, 1), storage.Written, func(_ int64, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	add(t, l, sized(100, 1))
	sent := func() int64 {
		info, err := s.CLI("info", "stats")
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(info, "total_net_output_bytes:")
		n, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(text, "\n", 2)[0]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, offset := range []int64{0, 1900, 1995, 2050, 2500, 3000} {
		for _, maxBytes := range []int{1, 100_000, 1 << 20} {
			before := sent()
			b, err := l.Read(context.Background(), offset, maxBytes)
			if err != nil || b.Len() == 0 {
				t.Fatal(b.Len(), err)
			}
			if got := sent() - before; got > excess*int64(maxBytes)+2*l.meta.largest+100_000 {
				t.Errorf("a read of %d bytes at %d took %d", maxBytes, offset, got)
			}
		}
	}
}

// TestTimesAreFoundInALongLog holds the index against a scan, after trims and compactions too.
func TestTimesAreFoundInALongLog(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	e := openEngine(t, quick(testredis.Start(t).URL()))
	l := openWith(t, e, storage.Config{Compact: true})
	type stamped struct{ offset, time int64 }
	read := func() (list []stamped) {
		for next := l.StartOffset(); next < l.EndOffset(); {
			b, err := enginetest.Read(context.Background(), l, next, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			records, err := enginetest.Records(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				if r.Offset >= l.StartOffset() {
					list = append(list, stamped{r.Offset, r.Timestamp})
				}
				next = r.Offset + 1
			}
		}
		return list
	}
	for round := range 6 {
		for i := range 150 {
			at := int64(1000*(150*round+i)) + rng.Int64N(20_000)
			if rng.IntN(100) == 0 {
				at += 1_000_000 // its clock is wrong
			}
			key := fmt.Appendf(nil, "k%d", rng.IntN(400))
			add(t, l, enginetest.Batch{First: at, Records: []enginetest.Record{{Key: key, Value: make([]byte, rng.IntN(8000))}, {Key: key, Delta: 5}}}.Encode())
		}
		switch round % 3 {
		case 1:
			if err := e.Compact(time.Now()); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := l.Trim(context.Background(), l.StartOffset()+rng.Int64N(l.EndOffset()-l.StartOffset())/2); err != nil {
				t.Fatal(err)
			}
		}
		all := read()
		for range 100 {
			ts := rng.Int64N(2_000_000)
			i := slices.IndexFunc(all, func(s stamped) bool { return s.time >= ts })
			offset, at, ok, err := l.OffsetForTime(context.Background(), ts)
			if err != nil || ok != (i >= 0) || ok && (stamped{offset, at}) != all[i] {
				t.Fatalf("round %d, time %d: offset %d of time %d, %v, %v; want index %d", round, ts, offset, at, ok, err, i)
			}
		}
	}
}

func TestWhatOthersHaveWritten(t *testing.T) {
	const log, meta, times, producers = "log", "meta", "times", "producers"
	cases := map[string]struct {
		key  string
		args []string
		// open says that it shows when the log is opened, and not when it is read.
		open bool
	}{
		"an entry that is no batch":            {log, []string{"xadd", "KEY", "7-0", "b", "nonsense"}, true},
		"an entry of another field":            {log, []string{"xadd", "KEY", "7-0", "c", "d"}, true},
		"an id that is none of the broker's":   {log, []string{"xadd", "KEY", "7-3", "b", "d"}, true},
		"a batch that is gone":                 {log, []string{"xdel", "KEY", "2-0"}, false},
		"the last batch is gone":               {log, []string{"xdel", "KEY", "3-0"}, true},
		"the log is gone":                      {log, []string{"del", "KEY"}, true},
		"the log is something else":            {log, []string{"set", "KEY", "x"}, true},
		"a field that is no number":            {meta, []string{"hset", "KEY", "end", "many"}, true},
		"a field that is gone":                 {meta, []string{"hdel", "KEY", "total"}, true},
		"a number that is negative":            {meta, []string{"hset", "KEY", "start", "-1"}, true},
		"a start beyond the end":               {meta, []string{"hset", "KEY", "start", "4"}, true},
		"an end beyond the log":                {meta, []string{"hset", "KEY", "end", "4"}, true},
		"epochs that do not ascend":            {meta, []string{"hset", "KEY", "epochs", "3:0 2:0"}, true},
		"passes that are nonsense":             {meta, []string{"hset", "KEY", "compacted", "1 2"}, true},
		"a pass beyond the end":                {meta, []string{"hset", "KEY", "compacted", "0 0 0 9:1"}, true},
		"meta is gone":                         {meta, []string{"del", "KEY"}, true},
		"an entry of the index that is no one": {times, []string{"zadd", "KEY", "3", "x"}, true},
		"an index beyond the end":              {times, []string{"zadd", "KEY", "3", "00000000000000000009 100 3"}, true},
		"a producer that is nonsense":          {producers, []string{"hset", "KEY", "8", "0 0 1:2"}, true},
		"a producer without a number":          {producers, []string{"hset", "KEY", "x", "0 0"}, true},
	}
	s := testredis.Start(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := quick(s.URL())
			e := openEngine(t, o)
			l := openWith(t, e, storage.Config{})
			for i := range int64(3) {
				add(t, l, sized(10, i))
			}
			key := map[string]string{log: l.keys.log, meta: l.keys.meta, times: l.keys.times, producers: l.keys.producers}[c.key]
			args := slices.Clone(c.args)
			args[1] = key
			if out, err := s.CLI(args...); err != nil {
				t.Fatal(out, err)
			}
			if !c.open {
				if _, err := enginetest.Read(context.Background(), l, 1, 1); !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), key) {
					t.Fatal(err)
				}
				return
			}
			_, err := openEngine(t, o).Open(context.Background(), orders, 1, storage.Config{})
			if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), key) {
				t.Fatalf("open: %v", err)
			}
		})
	}
}

func TestFlippedBitsAreNotServed(t *testing.T) {
	ctx := context.Background()
	e := openEngine(t, quick(testredis.Start(t).URL()))
	b := enginetest.Simple("a value that is long enough")
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if err := e.Delete(ctx, orders); err != nil {
			t.Fatal(err)
		}
		l := openWith(t, e, storage.Config{})
		add(t, l, b)
		c := e.client
		c.Do(ctx, c.B().Del().Key(l.keys.log).Build())
		if err := c.Do(ctx, c.B().Xadd().Key(l.keys.log).Id("1-0").FieldValue().FieldValue("b", string(bad)).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		got, err := enginetest.Read(ctx, l, 0, 1)
		epoch := i >= 12 && i < 16 // the leader epoch, as to which the CRC does not reach
		if epoch != (err == nil) || err != nil && !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("byte %d: %d bytes, %v", i, len(got), err)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"a prefix with a brace": {Prefix: "a{b"},
		"a prefix that is long": {Prefix: strings.Repeat("x", maxPrefix+1)},
		"a broker with a space": {Instance: "a b"},
		"nothing that is a URL": {},
		"nobody answers":        {Conn: quick("redis://127.0.0.1:1").Conn},
	} {
		if e, err := Open(context.Background(), o); err == nil {
			t.Errorf("%s: opened", name)
			_ = e.Close()
		}
	}
}

func TestAUserNeedsNoMoreRightsThanAreDocumented(t *testing.T) {
	s := testredis.Start(t)
	rights := []string{"~ringmaster:*", "+@read", "+@write", "+@scripting", "+@transaction", "+@connection", "+wait", "+info"}
	if out, err := s.CLI(append([]string{"acl", "setuser", "ringmaster", "on", ">pw"}, rights...)...); err != nil {
		t.Fatal(out, err)
	}
	o := quick(strings.Replace(s.URL(), "//", "//ringmaster:pw@", 1))
	o.Prefix = ""
	e := openEngine(t, o)
	l := openWith(t, e, storage.Config{Compact: true, RetentionBytes: 1})
	for i := range int64(100) {
		add(t, l, enginetest.Batch{First: i, Producer: 4, Sequence: int32(i), Records: []enginetest.Record{{Key: []byte("k"), Value: make([]byte, 5000)}}}.Encode())
	}
	if err := errors.Join(e.Compact(time.Now()), e.EnforceRetention(time.Now().Add(48*time.Hour)), l.Trim(context.Background(), 99)); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := l.OffsetForTime(context.Background(), 5); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if list, err := e.List(context.Background()); len(list) != 1 || err != nil {
		t.Fatal(list, err)
	}
	if err := e.Delete(context.Background(), orders); err != nil {
		t.Fatal(err)
	}
	if out, err := s.CLI("keys", "*"); out != "" || err != nil {
		t.Fatal(out, err)
	}
}

func TestManyLogsAreAppendedToAtOnce(t *testing.T) {
	const logs, each = 3 * senders, 20
	e := openEngine(t, quick(testredis.Start(t).URL()))
	var all sync.WaitGroup
	for p := range int32(logs) {
		l := openLog(t, e, storage.Partition{Topic: "many", Partition: p}, 1)
		all.Go(func() {
			for i := range int64(each) {
				if base, err := l.Append(context.Background(), sized(100, 1), storage.Synced); err != nil || base != i {
					t.Error(base, err)
				}
			}
		})
	}
	all.Wait()
	if list, err := e.List(context.Background()); len(list) != logs || err != nil {
		t.Fatal(len(list), err)
	}
}

func TestALogThatIsGoneIsNotAppendedTo(t *testing.T) {
	s := testredis.Start(t)
	e := openEngine(t, quick(s.URL()))
	l := openWith(t, e, storage.Config{})
	add(t, l, sized(1, 1))
	if out, err := s.CLI("del", l.keys.log); err != nil {
		t.Fatal(out, err)
	}
	if _, err := l.Append(context.Background(), sized(1, 1), storage.Synced); !errors.Is(err, storage.ErrDamaged) && !errors.Is(err, storage.ErrUnavailable) {
		t.Fatal(err)
	}
	eventually(t, "it is found to be damaged", func() error {
		if _, err := l.Append(context.Background(), sized(1, 1), storage.Synced); !errors.Is(err, storage.ErrDamaged) {
			return fmt.Errorf("append: %w", err)
		}
		return nil
	})
}
