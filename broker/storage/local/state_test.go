// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

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

func TestATornMarkLeavesTheOtherOne(t *testing.T) {
	m, _ := filled(t, 3, false, memOptions(nil))
	l := reopen(t, m)
	for i := range int64(4) {
		mustAppend(t, l, simple("x"))
		end := 6 + i + 1
		newest := must(readFile(m, l.path(markFile)))
		if len(newest) != 2*markSize {
			t.Fatalf("the mark file has %d bytes", len(newest))
		}
		for at := range newest {
			if i == 0 {
				break // the place of the newest mark is not known after a start: its first write may take that
			}
			c := m.clone()
			c.edit(l.path(markFile), func(b []byte) []byte { b[at] ^= 1; return b })
			if mark, ok, err := readMark(c, l.dir); !ok || err != nil || mark != end && mark != end-1 {
				t.Fatalf("byte %d is bad: %d, %v, %v; want %d or the one before", at, mark, ok, err, end)
			}
		}
	}
}
