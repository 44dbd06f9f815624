// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

const (
	firstSegment  = workDir + "/orders-0/00000000000000000000.log"
	smallSegments = 1000
)

func memOptions(m FS) Options {
	return Options{FS: m, Logger: quiet(), RetentionCheckInterval: -1, SegmentBytes: smallSegments, IndexIntervalBytes: 150}
}

// filled is a file system with a log of n batches of two records each, after a kill or a clean stop, and the batches by base offset.
func filled(t testing.TB, n int, cleanStop bool, o Options) (*memFS, map[int64][]byte) {
	t.Helper()
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	o.FS = m
	e, err := Open(workDir, o)
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, e, p0)
	batches := map[int64][]byte{}
	for i := range n {
		b := simple(fmt.Sprintf("first record of batch %d", i), "second")
		base := mustAppend(t, l, b)
		batches[base] = b
	}
	if cleanStop {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return m.clone(), batches
}

func reopen(t testing.TB, m FS) *commitLog {
	t.Helper()
	e, err := Open(workDir, memOptions(m))
	if err != nil {
		t.Fatal(err)
	}
	return openLog(t, e, p0)
}

// served checks that all batches but those in damaged are served byte for byte, and these are ErrDamaged.
func served(t testing.TB, l *commitLog, batches map[int64][]byte, damaged map[int64]bool) {
	t.Helper()
	for base, want := range batches {
		for _, offset := range []int64{base, base + 1} {
			got, err := enginetest.Read(context.Background(), l, offset, 1)
			if damaged[base] {
				if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), "log at byte") {
					t.Fatalf("offset %d is damaged; got %d bytes, %v", offset, len(got), err)
				}
				continue
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("offset %d: %d bytes, %v", offset, len(got), err)
			}
		}
	}
}

func TestATailTornAtAnyByteIsCutOff(t *testing.T) {
	m, batches := filled(t, 4, false, Options{Logger: quiet(), RetentionCheckInterval: -1})
	size := len(batches[6])
	whole := 0
	for _, b := range batches {
		whole += len(b)
	}
	tears := map[string]func(b []byte, at int) []byte{
		"the file ends":       func(b []byte, at int) []byte { return b[:at] },
		"zeros to the end":    func(b []byte, at int) []byte { clear(b[at:]); return b },
		"other bytes":         func(b []byte, at int) []byte { clear(b[at:]); b[at] = 0xa5; return b },
		"more after the tear": func(b []byte, at int) []byte { clear(b[at:]); return append(b, make([]byte, 100)...) },
	}
	for name, tear := range tears {
		for at := whole - size; at < whole; at++ {
			c := m.clone()
			before := 0
			c.edit(firstSegment, func(b []byte) []byte {
				before = len(b)
				old := bytes.Clone(b)
				b = tear(b, at)
				if bytes.Equal(b[:min(len(b), whole)], old) {
					b[whole-1] ^= 0xff // the tail was zero anyhow
				}
				return b
			})
			if before != whole {
				t.Fatal(before, whole)
			}
			l := reopen(t, c)
			kept := map[int64][]byte{0: batches[0], 2: batches[2], 4: batches[4]}
			served(t, l, kept, nil)
			if l.EndOffset() != 6 || l.HighWatermark() != 6 || l.Size() != int64(whole-size) {
				t.Fatalf("%s at byte %d: the log ends at %d with %d bytes", name, at, l.EndOffset(), l.Size())
			}
			kept[6] = simple("new", "batch")
			if base := mustAppend(t, l, kept[6]); base != 6 {
				t.Fatal(base)
			}
			served(t, reopen(t, c.killed()), kept, nil)
		}
	}
}

func TestAFlippedBitIsNeverServed(t *testing.T) {
	tests := map[string]struct {
		clean bool
		n     int // batches
	}{
		"in the active segment after a kill":       {n: 5},
		"in the active segment after a clean stop": {n: 5, clean: true},
		"in a sealed segment after a kill":         {n: 15},
		"in a sealed segment after a clean stop":   {n: 15, clean: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, batches := filled(t, tc.n, tc.clean, memOptions(nil))
			at := 0
			for base := int64(0); at < smallSegments && base < int64(2*tc.n); base += 2 {
				size := len(batches[base])
				for i := range size {
					c := m.clone()
					held := true
					c.edit(firstSegment, func(b []byte) []byte {
						if held = at+i < len(b); held {
							b[at+i] ^= 1 << (i % 8)
						}
						return b
					})
					if !held {
						return
					}
					l := reopen(t, c)
					checkFlip(t, l, batches, base, i)
				}
				at += size
			}
		})
	}
}

func checkFlip(t *testing.T, l *commitLog, batches map[int64][]byte, base int64, i int) {
	t.Helper()
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("byte %d of the batch at %d", i, base)
		}
	}()
	if i >= posLeaderEpoch && i < posMagic {
		return // no checksum covers it, and no reader needs it
	}
	if l.EndOffset() <= base {
		// It was the last batch: a torn tail.
		kept := map[int64][]byte{}
		for b := range batches {
			if b < base {
				kept[b] = batches[b]
			}
		}
		served(t, l, kept, nil)
		if int(base) != 2*len(batches)-2 {
			t.Fatalf("a batch in the middle was cut off")
		}
		return
	}
	served(t, l, batches, map[int64]bool{base: true})
}

func TestSeveralDamagedBatchesLeaveTheOthersReadable(t *testing.T) {
	m, batches := filled(t, 10, false, Options{Logger: quiet(), RetentionCheckInterval: -1, IndexIntervalBytes: 1 << 20})
	size := len(batches[0])
	m.edit(firstSegment, func(b []byte) []byte {
		clear(b[2*size : 4*size])   // two whole batches, headers and all
		b[6*size+posCRC] ^= 1       // one by its checksum
		b[8*size+posLength+3] ^= 64 // one by its length
		return b
	})
	damaged := map[int64]bool{4: true, 6: true, 12: true, 16: true}
	served(t, reopen(t, m), batches, damaged)
	l := reopen(t, m.killed())
	served(t, l, batches, damaged)
	if _, _, _, err := l.OffsetForTime(context.Background(), 1001); err != nil {
		t.Fatalf("the first batch has the answer, and is sound: %v", err)
	}
	base := mustAppend(t, l, simple("after"))
	if base != 20 {
		t.Fatal(base)
	}
}

func TestABatchInsideADamagedBatchIsNotTakenForOne(t *testing.T) {
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	l := reopen(t, m)
	inner := simple("never appended")
	setPlace(inner, 1, 0)
	outer, next := simple("before "+string(inner)+" after", "second"), simple("next")
	mustAppend(t, l, outer)
	mustAppend(t, l, next)
	m.edit(firstSegment, func(b []byte) []byte {
		b[headerSize+8] ^= 1
		return b
	})
	for _, l := range []*commitLog{l, reopen(t, m.killed())} {
		served(t, l, map[int64][]byte{0: outer}, map[int64]bool{0: true})
		if got, err := enginetest.Read(context.Background(), l, 2, 1); err != nil || !bytes.Equal(got, next) {
			t.Fatal(err)
		}
	}
}

func TestALogThatLostAllAboveItsStartGoesOnFromThere(t *testing.T) {
	m, _ := filled(t, 20, false, memOptions(nil))
	l := reopen(t, m)
	if err := l.Trim(context.Background(), 39); err != nil {
		t.Fatal(err)
	}
	c := m.clone()
	c.edit(l.active().file.path, func([]byte) []byte { return nil })
	l = reopen(t, c)
	wantStart(t, l, 39, 39)
	mustAppend(t, l, simple("next"))
	wantStart(t, reopen(t, c.killed()), 39, 40)
}

func TestAMissingOrDamagedIndexIsMadeAnew(t *testing.T) {
	spoil := map[string]func(m *memFS, name string){
		"missing":        func(m *memFS, name string) { _ = m.Remove(name) },
		"empty":          func(m *memFS, name string) { m.edit(name, func([]byte) []byte { return nil }) },
		"a header's bit": func(m *memFS, name string) { m.edit(name, func(b []byte) []byte { b[20] ^= 1; return b }) },
		"an entry's bit": func(m *memFS, name string) { m.edit(name, func(b []byte) []byte { b[60] ^= 1; return b }) },
		"another size":   func(m *memFS, name string) { m.edit(name, func(b []byte) []byte { return append(b, 0) }) },
	}
	for name, fn := range spoil {
		for _, cleanStop := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, clean %v", name, cleanStop), func(t *testing.T) {
				m, batches := filled(t, 20, cleanStop, memOptions(nil))
				fn(m, strings.TrimSuffix(firstSegment, logExt)+indexExt)
				l := reopen(t, m)
				served(t, l, batches, nil)
				if o, ts, ok, err := l.OffsetForTime(context.Background(), 1001); o != 1 || ts != 1001 || !ok || err != nil {
					t.Fatal(o, ts, ok, err)
				}
			})
		}
	}
}

func TestADamagedStateFile(t *testing.T) {
	dir := workDir + "/orders-0/"
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for _, name := range []string{cleanFile, producersFile, markFile} {
		t.Run(name+" only makes the log be read again", func(t *testing.T) {
			m, batches := filled(t, 20, true, memOptions(nil))
			m.edit(dir+name, flip)
			served(t, reopen(t, m), batches, nil)
		})
	}
	t.Run("meta is named in the error", func(t *testing.T) {
		m, batches := filled(t, 20, true, memOptions(nil))
		m.edit(dir+metaFile, flip)
		e, err := Open(workDir, memOptions(m))
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Open(context.Background(), p0, 0, storage.Config{})
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), "orders-0/meta: damaged log: its CRC-32C does not match: remove this file") {
			t.Fatal(err)
		}
		if err := m.Remove(dir + metaFile); err != nil {
			t.Fatal(err)
		}
		served(t, openLog(t, e, p0), batches, nil)
	})
}

func TestALogThatLostItsEndForgetsWhatItsProducersSentThere(t *testing.T) {
	m := newMemFS(rand.New(rand.NewPCG(1, 1)))
	l := reopen(t, m)
	for i := range int32(20) {
		mustAppend(t, l, testBatch{Producer: 5, Sequence: i, Records: values(strings.Repeat("x", 80))}.Encode())
	}
	last := l.active()
	if last.base == 0 {
		t.Fatal("no second segment")
	}
	c := m.clone()
	_ = c.Remove(last.file.path)
	c.edit(l.segments[len(l.segments)-2].file.path, func(b []byte) []byte { return b[:len(b)-1] })
	l = reopen(t, c)
	end := l.EndOffset()
	if end >= last.base {
		t.Fatal(end)
	}
	b := testBatch{Producer: 5, Sequence: int32(end), Records: values("again")}.Encode()
	if base := mustAppend(t, l, b); base != end {
		t.Fatalf("the producer's next batch gets %d, not %d", base, end)
	}
	if mark, ok, err := readMark(c, l.dir); mark != end+1 || !ok || err != nil {
		t.Fatal(mark, ok, err)
	}
}

func TestTheMarkerIsGoneBeforeASegmentIsWritten(t *testing.T) {
	m, _ := filled(t, 3, true, memOptions(nil))
	dir := workDir + "/orders-0"
	checked := 0
	h := hookFS{FS: m, beforeWrite: func(name string) error {
		if strings.HasSuffix(name, logExt) {
			checked++
			if _, _, n, err := m.find(dir + "/" + cleanFile); n != nil || err != nil {
				t.Errorf("the marker is there while %s is written", name)
			}
			_, _, n, _ := m.find(dir)
			if n.disk[cleanFile] != nil {
				t.Errorf("the marker is on disk while %s is written", name)
			}
		}
		return nil
	}}
	mustAppend(t, reopen(t, h), simple("x"))
	if checked != 1 {
		t.Fatal(checked)
	}
}

func TestAProcessThatIsKilledLosesNothingItAcknowledged(t *testing.T) {
	if dir := os.Getenv("RINGMASTER_TEST_APPEND"); dir != "" {
		appendForEver(t, dir)
		return
	}
	dir := t.TempDir()
	acked := map[int64]string{}
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "RINGMASTER_TEST_APPEND="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			offset, value, ok := strings.Cut(lines.Text(), " ")
			o, err := strconv.ParseInt(offset, 10, 64)
			if !ok || err != nil {
				t.Fatalf("child: %s", lines.Text())
			}
			acked[o] = value
			if n == 60+round*25 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
	}
	e := openEngine(t, dir, Options{SegmentBytes: 20_000})
	l := openLog(t, e, p0)
	if len(acked) < 240 {
		t.Fatalf("only %d records acknowledged", len(acked))
	}
	for o, value := range acked {
		b, err := enginetest.Read(context.Background(), l, o, 1)
		if err != nil || !bytes.Contains(b, []byte(value)) {
			t.Fatalf("offset %d: %v", o, err)
		}
	}
	for o := int64(0); o < l.HighWatermark(); {
		b, err := enginetest.Read(context.Background(), l, o, 1)
		if err != nil {
			t.Fatal(err)
		}
		h, _ := parseHeader(b)
		if h.base != o {
			t.Fatalf("offset %d where %d was to follow", h.base, o)
		}
		o = h.next()
	}
}

// appendForEver is the child: it appends from several goroutines and prints what was acknowledged.
func appendForEver(t *testing.T, dir string) {
	e := openEngine(t, dir, Options{SegmentBytes: 20_000})
	l := openLog(t, e, p0)
	for range 4 {
		go func() {
			for {
				value := fmt.Sprintf("value-%d-%s", rand.Uint64(), strings.Repeat("x", rand.IntN(800)))
				base, err := l.Append(context.Background(), simple(value), storage.Synced)
				if err != nil {
					panic(err)
				}
				fmt.Printf("%d %s\n", base, value)
			}
		}()
	}
	select {}
}

func TestRealDirectoryLayout(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir, Options{SegmentBytes: 300})
	l := openLog(t, e, p0)
	for range 4 {
		mustAppend(t, l, simple(strings.Repeat("x", 100)))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "orders-0"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{
		"00000000000000000000.index", "00000000000000000000.log", "00000000000000000001.index", "00000000000000000001.log",
		"00000000000000000002.index", "00000000000000000002.log", "00000000000000000003.log", "clean", "meta", "producers", "synced",
	}
	if len(simple(strings.Repeat("x", 100)))*2 < 300 {
		want = append([]string{"00000000000000000000.index", "00000000000000000000.log", "00000000000000000002.log"}, want[7:]...)
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatal(diff)
	}
	b, err := os.ReadFile(filepath.Join(dir, "orders-0", metaFile))
	if err != nil || len(b) != 24 || string(b[:8]) != metaMagic || binary.BigEndian.Uint64(b[12:]) != 0 {
		t.Fatal(b, err)
	}
}

func FuzzRecovery(f *testing.F) {
	_, batches := filled(f, 3, false, memOptions(nil))
	var all []byte
	for o := int64(0); o < 6; o += 2 {
		b := bytes.Clone(batches[o])
		setPlace(b, o, 0)
		all = append(all, b...)
	}
	f.Add(all, int64(0))
	f.Add(all[:len(all)-3], int64(4))
	f.Add(append(bytes.Clone(all[:70]), all...), int64(6))
	f.Add([]byte{}, int64(-1))
	f.Fuzz(func(t *testing.T, segment []byte, mark int64) {
		m := newMemFS(rand.New(rand.NewPCG(1, 1)))
		_ = m.MkdirAll(workDir + "/orders-0")
		for name, b := range map[string][]byte{firstSegment: segment, workDir + "/orders-0/" + markFile: encodeMark(mark)} {
			if err := writeFile(m, name, b); err != nil && len(b) > 0 {
				t.Fatal(err)
			}
		}
		l := reopen(t, m)
		start, hw := l.StartOffset(), l.HighWatermark()
		if start != 0 || hw != l.EndOffset() || hw < 0 || l.Size() > int64(len(segment)) {
			t.Fatal(start, hw, l.EndOffset(), l.Size())
		}
		// Everything up to the high watermark is served whole or reported as damaged.
		for o, n := int64(0), 0; o < hw && n < 100; n++ {
			b, err := enginetest.Read(context.Background(), l, o, 1)
			var d *damage
			if errors.As(err, &d) {
				if d.to <= o {
					t.Fatalf("damage up to %d at offset %d", d.to, o)
				}
				o = d.to
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			h, err := parseHeader(b)
			if err != nil || h.base > o || h.next() <= o || !crcMatches(b, &h) {
				t.Fatal(h, err)
			}
			o = h.next()
		}
		end := l.EndOffset()
		base, err := l.Append(context.Background(), simple("after"), storage.Synced)
		if err != nil || base != end {
			t.Fatal(base, err)
		}
		if b, err := enginetest.Read(context.Background(), l, base, 1); err != nil || len(b) == 0 {
			t.Fatal(err)
		}
	})
}
