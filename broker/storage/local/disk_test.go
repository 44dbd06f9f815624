// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

func TestAReadErrorOfTheDiskIsAnErrorAndLosesNothing(t *testing.T) {
	m := newMem()
	var bad atomic.Bool
	h := hookFS{FS: m, beforeRead: func(name string) error {
		if bad.Load() && strings.HasSuffix(name, logExt) {
			return fmt.Errorf("%s: %w", name, syscall.EIO)
		}
		return nil
	}}
	l := compactedLog(t, memOptions(h))
	var want []string
	for i := range 30 {
		value := strings.Repeat("x", 60)
		mustAppend(t, l, pairs(fmt.Sprintf("k%d=%s", i, value)).Encode())
		want = append(want, fmt.Sprintf("%d:k%d=%s", i, i, value))
	}
	ioError := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, syscall.EIO) || errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), logExt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	bad.Store(true)
	for o := range int64(30) {
		for _, size := range []int{1, 100_000} {
			b, err := enginetest.Read(context.Background(), l, o, size)
			ioError(fmt.Sprintf("read of offset %d, %d bytes", o, len(b)), err)
		}
	}
	_, _, _, err := l.OffsetForTime(context.Background(), 0)
	ioError("offset for time", err)
	ioError("compaction", l.engine.Compact(time.Now()))
	mustAppend(t, l, pairs("last=1").Encode())
	want = append(want, "30:last=1")
	e, err := Open(workDir, memOptions(hookFS{FS: m.killed(), beforeRead: h.beforeRead}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Open(context.Background(), p0, 0, storage.Config{})
	ioError("recovery", err)
	bad.Store(false)
	wantStored(t, l, want...)
	wantStored(t, openLog(t, e, p0), want...)
	mustCompact(t, l.engine, time.Now())
	wantStored(t, l, want...)
}

func TestAnIdleLogTakesLittleMemory(t *testing.T) {
	const logs = 500
	dir := t.TempDir()
	cleanLogs(t, dir, logs)
	before := heap()
	e := openEngine(t, dir, Options{})
	for i := range int32(logs) {
		openLog(t, e, storage.Partition{Topic: "orders", Partition: i})
	}
	if n := (heap() - before) / logs; n > 2500 {
		t.Errorf("%d bytes for each log", n)
	}
	if n := e.files.open(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}
