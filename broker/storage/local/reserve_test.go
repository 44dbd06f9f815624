// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

// fullFS is a disk that is full to the last byte until the reserve is removed.
type fullFS struct {
	hookFS
	full *atomic.Bool
}

func newFullFS() fullFS {
	full := new(atomic.Bool)
	return fullFS{hookFS{FS: newMem(), beforeWrite: func(string) error {
		if full.Load() {
			return syscall.ENOSPC
		}
		return nil
	}}, full}
}

func (f fullFS) Remove(name string) error {
	err := f.hookFS.Remove(name)
	if err == nil && filepath.Base(name) == reserveFile {
		f.full.Store(false)
	}
	return err
}

// What makes room must not need any: where the disk is full to its last byte, trimming, retention and compaction are what gives some back.
func TestRoomIsMadeWhereTheDiskIsFull(t *testing.T) {
	cases := map[string]struct {
		config storage.Config
		free   func(l *commitLog) error
	}{
		"a trim removes segments":                {storage.Config{}, func(l *commitLog) error { return l.Trim(context.Background(), 20) }},
		"a trim removes everything":              {storage.Config{}, func(l *commitLog) error { return l.Trim(context.Background(), 30) }},
		"retention by bytes removes its surplus": {storage.Config{RetentionBytes: 600}, func(l *commitLog) error { return l.engine.EnforceRetention(time.Now()) }},
		"compaction removes what is superseded":  {storage.Config{Compact: true}, func(l *commitLog) error { return l.engine.Compact(time.Now()) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			disk := newFullFS()
			o := memOptions(disk)
			o.SegmentBytes, o.ReserveBytes = 300, 1000
			e, err := Open(workDir, o)
			if err != nil {
				t.Fatal(err)
			}
			opened, err := e.Open(context.Background(), p0, 0, c.config)
			if err != nil {
				t.Fatal(err)
			}
			l, ok := opened.(*commitLog)
			if !ok {
				t.Fatalf("the log is a %T", opened)
			}
			for range 30 {
				mustAppend(t, l, pairs("key=some value").Encode())
			}
			before := l.Size()
			disk.full.Store(true)
			if _, err := l.Append(context.Background(), pairs("key=more").Encode(), storage.Synced); !errors.Is(err, storage.ErrFull) {
				t.Errorf("an append to a full disk: %v", err)
			}
			if err := c.free(l); err != nil {
				t.Errorf("on a full disk: %v", err)
			}
			if after := l.Size(); after >= before {
				t.Errorf("the log has %d bytes, as before", after)
			}
			mustAppend(t, l, pairs("key=more").Encode())
			if f, err := disk.FS.Open(filepath.Join(workDir, reserveFile), 0); err != nil {
				t.Errorf("the reserve is not kept anew: %v", err)
			} else if size, err := f.Size(); err != nil || size != 1000 {
				t.Errorf("the reserve has %d bytes, %v", size, err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestALogIsClosedOnAFullDisk(t *testing.T) {
	disk := newFullFS()
	e, err := Open(workDir, memOptions(disk))
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.Open(context.Background(), p0, 0, storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, pairs("key=value").Encode())
	disk.full.Store(true)
	if err := e.Close(); err != nil {
		t.Errorf("everything is on disk, but: %v", err)
	}
	disk.full.Store(false)
	if again := reopen(t, disk); again.EndOffset() != 1 {
		t.Errorf("the log ends at %d", again.EndOffset())
	}
}
