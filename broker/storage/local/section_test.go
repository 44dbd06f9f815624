// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

// manyBatches appends batches of random sizes and returns all that the log has, and where each batch begins.
func manyBatches(t *testing.T, l storage.Log, seed uint64, total int) (all []byte, starts []int) {
	t.Helper()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for len(all) < total {
		value := bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(9000))
		b := enginetest.Simple(string(value))
		base, err := l.Append(context.Background(), b, storage.Written)
		if err != nil || base != int64(len(starts)) {
			t.Fatalf("append: offset %d, %v", base, err)
		}
		starts = append(starts, len(all))
		all = append(all, b...)
	}
	last := enginetest.Simple("the last one")
	if _, err := l.Append(context.Background(), last, storage.Synced); err != nil {
		t.Fatal(err)
	}
	return append(all, last...), append(starts, len(all))
}

func openForSections(t *testing.T, dir string) (*Engine, storage.Log) {
	t.Helper()
	e, err := Open(dir, Options{SegmentBytes: 300 << 10, IndexIntervalBytes: 10 << 10, RetentionCheckInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := e.Open(context.Background(), storage.Partition{Topic: "orders"}, 0, storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return e, l
}

func TestLargeReadsStayInTheirFile(t *testing.T) {
	dir := t.TempDir()
	e, l := openForSections(t, dir)
	all, starts := manyBatches(t, l, 1, 1<<20)
	check := func(l storage.Log) {
		t.Helper()
		sections := 0
		for first := range starts {
			got, err := l.Read(context.Background(), int64(first), 100<<10)
			if err != nil {
				t.Fatal(err)
			}
			b, err := got.Bytes()
			if err != nil || !bytes.HasPrefix(all[starts[first]:], b) || len(b) == 0 || len(b) > 100<<10 {
				t.Fatalf("from offset %d: %d bytes, %v", first, len(b), err)
			}
			if end := starts[first] + len(b); got.Next < int64(len(starts)) && starts[got.Next] != end || got.Next == int64(len(starts)) && end != len(all) {
				t.Fatalf("from offset %d: %d bytes, but to be read on from %d", first, len(b), got.Next)
			}
			if !got.InMemory() {
				sections++
			}
			got.Close()
		}
		if sections < len(starts)/2 {
			t.Errorf("%d of %d reads are sections", sections, len(starts))
		}
	}
	check(l)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	_, l = openForSections(t, dir)
	check(l)
}

func TestASectionOutlivesItsFile(t *testing.T) {
	_, l := openForSections(t, t.TempDir())
	all, starts := manyBatches(t, l, 2, 1<<20)
	got, err := l.Read(context.Background(), 0, 100<<10)
	if err != nil || got.InMemory() {
		t.Fatalf("read: in memory %t, %v", got.InMemory(), err)
	}
	defer got.Close()
	if err := l.Trim(context.Background(), int64(len(starts))-1); err != nil {
		t.Fatal(err)
	}
	if b, err := got.Bytes(); err != nil || !bytes.HasPrefix(all, b) {
		t.Errorf("after the file is removed: %d bytes, %v", len(b), err)
	}
}

func TestALargeBatchStaysInItsFileWhateverIsAskedFor(t *testing.T) {
	_, l := openForSections(t, t.TempDir())
	for _, size := range []int{10, 100_000, 10, sectionMin, 40_000} {
		if _, err := l.Append(context.Background(), enginetest.Simple(string(make([]byte, size))), storage.Synced); err != nil {
			t.Fatal(err)
		}
	}
	for offset, inFile := range []bool{false, true, false, true, true} {
		for _, known := range []bool{false, true} {
			got, err := l.Read(context.Background(), int64(offset), 1)
			if err != nil || got.InMemory() == inFile || got.Next != int64(offset)+1 {
				t.Errorf("batch %d, read after the one before it %t: in memory %t, next %d, %v", offset, known, got.InMemory(), got.Next, err)
			}
			got.Close()
		}
	}
}

func TestReadsAreCopiedWhereReadersKeepTooManyFilesOpen(t *testing.T) {
	e, l := openForSections(t, t.TempDir())
	_, starts := manyBatches(t, l, 5, 1<<20)
	e.files.limit = 2
	inFiles := 0
	for offset := range starts {
		got, err := l.Read(context.Background(), int64(offset), 100<<10)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close() //nolint:gocritic // all stay open until the end
		if !got.InMemory() {
			inFiles++
		}
	}
	if open := e.files.open(); open > 4 || inFiles == 0 {
		t.Errorf("%d files are open, and %d reads are sections", open, inFiles)
	}
}

func TestASectionGoesToASocket(t *testing.T) {
	_, l := openForSections(t, t.TempDir())
	all, _ := manyBatches(t, l, 3, 250<<10)
	got, err := l.Read(context.Background(), 0, 10<<20)
	if err != nil || got.InMemory() {
		t.Fatalf("read: in memory %t, %v", got.InMemory(), err)
	}
	defer got.Close()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	sent := make(chan error, 1)
	go func() {
		out, err := listener.Accept()
		if err == nil {
			_, err = got.WriteTo(out)
			err = errors.Join(err, out.Close())
		}
		sent <- err
	}()
	in, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	b, err := io.ReadAll(in)
	if err = errors.Join(err, <-sent); err != nil || !bytes.Equal(b, all[:got.Len()]) {
		t.Errorf("%d bytes of %d arrived, %v", len(b), got.Len(), err)
	}
}

func TestDamageIsNotPartOfASection(t *testing.T) {
	dir := t.TempDir()
	e, l := openForSections(t, dir)
	all, starts := manyBatches(t, l, 4, 280<<10)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	bad := len(starts) / 2
	name := filepath.Join(dir, "orders-0", "00000000000000000000.log")
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{^all[starts[bad]+recordbatch.HeaderSize]}, int64(starts[bad]+recordbatch.HeaderSize))
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	e, l = openForSections(t, dir)
	for _, again := range []bool{false, true} {
		read := 0
		for offset := int64(0); offset < int64(len(starts)); {
			got, err := l.Read(context.Background(), offset, 64<<10)
			switch {
			case offset == int64(bad):
				want := fmt.Sprintf("%s at byte %d: records %d to %d cannot be read", name, starts[bad], bad, bad)
				if !errors.Is(err, storage.ErrDamaged) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
					t.Fatalf("the damaged batch: %v, want %q", err, want)
				}
				offset++
			case err != nil:
				t.Fatalf("offset %d: %v", offset, err)
			default:
				b, err := got.Bytes()
				if err != nil || !bytes.HasPrefix(all[starts[offset]:], b) {
					t.Fatalf("offset %d: %d bytes, %v", offset, len(b), err)
				}
				read += len(b)
				offset = got.Next
				got.Close()
			}
		}
		if want := len(all) - (starts[bad+1] - starts[bad]); read != want {
			t.Errorf("read %d bytes, want %d; again %t", read, want, again)
		}
		e.now = func() time.Time { return time.Now().Add(2 * recheckAfter) }
	}
}
