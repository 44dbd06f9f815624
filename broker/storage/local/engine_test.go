// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

func TestDirectoryNames(t *testing.T) {
	long := strings.Repeat("x", 249)
	legal := map[string]storage.Partition{
		"orders-0":          {Topic: "orders", Partition: 0},
		"a-b-12":            {Topic: "a-b", Partition: 12},
		"a--3":              {Topic: "a-", Partition: 3},
		"--4":               {Topic: "-", Partition: 4},
		"a-1-2":             {Topic: "a-1", Partition: 2},
		".x._-5":            {Topic: ".x._", Partition: 5},
		"T-2147483647":      {Topic: "T", Partition: 2147483647},
		long + "-99999":     {Topic: long, Partition: 99999},
		"__consumer_off-49": {Topic: "__consumer_off", Partition: 49},
	}
	for name, p := range legal {
		got, err := dirName(p)
		if got != name || err != nil {
			t.Errorf("%v: %q, %v; want %q", p, got, err, name)
		}
		if back, ok := parseDirName(name); back != p || !ok {
			t.Errorf("%q: %v, %v; want %v", name, back, ok, p)
		}
	}
	for _, name := range []string{
		"", "-", "-0", "a", "a-", "a-01", "a-+1", "a--1x", "a-2147483648", "a b-0", "é-0", "a/b-0", ".-0", "..-0", "a-0x1", "a-1_0",
		"deleted~0", "lost+found", "LOCK", long + "x-0", "a-٣",
	} {
		if p, ok := parseDirName(name); ok {
			t.Errorf("%q is taken for %v", name, p)
		}
	}
	for _, p := range []storage.Partition{
		{Topic: "", Partition: 0}, {Topic: "a", Partition: -1}, {Topic: "a/b", Partition: 0}, {Topic: "..", Partition: 0},
		{Topic: long + "x", Partition: 0}, {Topic: long, Partition: 100000},
	} {
		if name, err := dirName(p); err == nil {
			t.Errorf("%v gets the name %q", p, name)
		}
	}
}

func TestADirectoryThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openEngine(t, filepath.Join(dir, "used"), Options{})
	tests := map[string]struct {
		dir  string
		fs   FS
		says string
	}{
		"another engine has it": {filepath.Join(dir, "used"), nil, "is used by another broker: stop it, or choose another directory"},
		"it is a file":          {file, nil, "cannot be made: give the broker's user write access"},
		"it is not writable":    {dir, readOnly{}, "cannot be written: give the broker's user write access, or choose another directory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tc.dir, Options{FS: tc.fs, Logger: quiet()})
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
		})
	}
	for _, o := range []Options{{SegmentBytes: -1}, {SegmentBytes: 2 << 30}, {IndexIntervalBytes: -1}} {
		if _, err := Open(dir, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

type readOnly struct{ OSFS }

func (readOnly) Open(name string, _ int) (File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

func (r readOnly) Lock(name string) (c io.Closer, err error) {
	_, err = r.Open(name, 0)
	return nil, err
}

func TestEngineListsDeletesAndFences(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	e := openEngine(t, dir, Options{})
	for _, name := range []string{"lost+found", "x-01"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ps := []storage.Partition{{Topic: "b", Partition: 0}, {Topic: "a", Partition: 10}, {Topic: "a", Partition: 9}, {Topic: "a-b", Partition: 1}}
	logs := map[storage.Partition]*commitLog{}
	for _, p := range ps {
		logs[p] = openLog(t, e, p)
		mustAppend(t, logs[p], simple(p.Topic))
	}
	list := func() []storage.Partition {
		l, err := e.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if diff := cmp.Diff([]storage.Partition{ps[2], ps[1], ps[3], ps[0]}, list()); diff != "" {
		t.Fatal(diff)
	}
	woken := make(chan struct{}, 1)
	logs[ps[1]].Subscribe(woken)
	for range 2 { // the second time there is nothing
		if err := e.Delete(ctx, ps[1]); err != nil {
			t.Fatal(err)
		}
	}
	<-woken
	if diff := cmp.Diff([]storage.Partition{ps[2], ps[3], ps[0]}, list()); diff != "" {
		t.Fatal(diff)
	}
	if _, err := enginetest.Read(ctx, logs[ps[1]], 0, 1); !errors.Is(err, storage.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := logs[ps[1]].Append(ctx, simple("x"), storage.Written); !errors.Is(err, storage.ErrClosed) {
		t.Fatal(err)
	}
	if l := openLog(t, e, ps[1]); l.EndOffset() != 0 {
		t.Fatal("a deleted log came back")
	}
	checkFencing(t, dir, e, ps[0])
	if _, err := e.Open(ctx, ps[0], 9, storage.Config{}); !errors.Is(err, storage.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := e.List(ctx); !errors.Is(err, storage.ErrClosed) {
		t.Fatal(err)
	}
}

// checkFencing ends with the engine closed.
func checkFencing(t *testing.T, dir string, e *Engine, p storage.Partition) {
	ctx := context.Background()
	old := openLog(t, e, p)
	l, err := e.Open(ctx, p, 5, storage.Config{MaxBatchBytes: 100})
	if l != storage.Log(old) || err != nil {
		t.Fatal("not the same log", err)
	}
	if _, err := e.Open(ctx, p, 4, storage.Config{}); !errors.Is(err, storage.ErrFenced) {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, simple(strings.Repeat("x", 100)), storage.Synced); !errors.Is(err, storage.ErrBatchTooLarge) {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	again := openEngine(t, dir, Options{})
	if _, err := again.Open(ctx, p, 4, storage.Config{}); !errors.Is(err, storage.ErrFenced) {
		t.Fatal(err)
	}
	if _, err := again.Open(ctx, p, 5, storage.Config{}); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsLeftOfADeletedLogGoesAtTheNextStart(t *testing.T) {
	dir := t.TempDir()
	tomb := filepath.Join(dir, "deleted~3")
	if err := os.Mkdir(tomb, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tomb, "x.log"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	openEngine(t, dir, Options{})
	if _, err := os.Stat(tomb); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestAFileInUseStaysOpen(t *testing.T) {
	dir := t.TempDir()
	c := newFileCache(OSFS{}, 1)
	var files []*cachedFile
	for i := range 3 {
		cf := &cachedFile{path: filepath.Join(dir, fmt.Sprint(i))}
		if err := os.WriteFile(cf.path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, cf)
		if _, err := c.acquire(cf); err != nil {
			t.Fatal(err)
		}
	}
	for _, cf := range files {
		if _, err := cf.f.ReadAt(make([]byte, 1), 0); err != nil {
			t.Fatal(err)
		}
	}
	c.remove(files[0])
	if _, err := files[0].f.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal("a removed file was closed before its last user released it", err)
	}
	for _, cf := range files {
		c.release(cf)
	}
	if c.open() != 1 || files[0].f != nil {
		t.Fatal(c.open())
	}
	if _, err := c.acquire(files[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("a removed file was opened", err)
	}
}

func TestAFileThatIsRemovedWhileItIsOpenedIsNotServed(t *testing.T) {
	m := newMemFS(nil)
	cf := &cachedFile{path: "/x"}
	if err := writeFile(m, cf.path, []byte("of another log")); err != nil {
		t.Fatal(err)
	}
	var c *fileCache
	c = newFileCache(openHook{m, func() { c.remove(cf) }}, 1)
	if f, err := c.acquire(cf); f != nil || !errors.Is(err, fs.ErrNotExist) || c.open() != 0 {
		t.Fatal(f, err)
	}
}

type openHook struct {
	FS
	hook func()
}

func (o openHook) Open(name string, flag int) (File, error) {
	o.hook()
	return o.FS.Open(name, flag)
}

func TestFewFilesAreOpenWhateverTheNumberOfLogs(t *testing.T) {
	e := openEngine(t, t.TempDir(), Options{MaxOpenFiles: 5, SegmentBytes: 300})
	var logs []*commitLog
	for i := range 40 {
		l := openLog(t, e, storage.Partition{Topic: "t", Partition: int32(i)})
		logs = append(logs, l)
		for range 3 {
			mustAppend(t, l, simple(fmt.Sprint(i), strings.Repeat("x", 150)))
		}
	}
	for range 2 {
		for i, l := range logs {
			for o := int64(0); o < 6; o += 2 {
				b, err := enginetest.Read(context.Background(), l, o, 1<<20)
				if err != nil || !strings.Contains(string(b), fmt.Sprint(i)) {
					t.Fatal(err)
				}
			}
		}
	}
	if n := e.files.open(); n > 5 {
		t.Fatal("open files: ", n)
	}
}
