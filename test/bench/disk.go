// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// diskPeer is the disk without any broker: a file for each partition, to which one goroutine appends the batches that the producers together
// could have in flight for it, with one write, and then syncs them, if sync says so.
type diskPeer struct {
	title string
	dir   string
	sync  bool
}

func (p *diskPeer) name() string                                { return p.title }
func (p *diskPeer) server() *server                             { return nil }
func (p *diskPeer) create(context.Context, string, *work) error { return os.MkdirAll(p.dir, 0o750) }
func (p *diskPeer) path(topic string, partition int) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s-%d", topic, partition))
}
func (p *diskPeer) remove(_ context.Context, topic string) error {
	paths, err := filepath.Glob(filepath.Join(p.dir, topic+"-*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func (p *diskPeer) produce(ctx context.Context, topic string, w *work, m *meter, limit int64) error {
	budget := newBudget(limit)
	// As many batches as all requests in flight carry, spread over the partitions.
	batches := w.Producers * w.InFlight * newSpread(w).perRequest
	each := max(1, batches/w.Partitions)
	g, ctx := errgroup.WithContext(ctx)
	for i := range w.Partitions {
		lane := m.lane()
		g.Go(func() error { return p.append(ctx, p.path(topic, i), w, uint64(i+1), each, lane, budget) })
	}
	return g.Wait()
}

// append appends to one file.
func (p *diskPeer) append(ctx context.Context, path string, w *work, seed uint64, batches int, l *lane, bytes *budget) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	v := newValues(seed, w.RecordBytes)
	var chunk []byte
	var records int64
	for range batches {
		b, n := recordBatch(v, w.BatchBytes, time.Now().UnixMilli())
		chunk = append(chunk, b...)
		records += int64(n)
	}
	size := records * int64(w.RecordBytes)
	for ctx.Err() == nil {
		if !bytes.take(size) {
			return nil
		}
		begin := time.Now()
		if _, err := f.Write(chunk); err != nil {
			return err
		}
		if p.sync {
			if err := syscall.Fdatasync(int(f.Fd())); err != nil {
				return fmt.Errorf("sync %s: %w", path, err)
			}
		}
		l.add(records, size, time.Since(begin))
	}
	return nil
}

func (p *diskPeer) consume(ctx context.Context, topic string, w *work, how reading, m *meter) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range min(w.Consumers, w.Partitions) {
		lane := m.lane()
		g.Go(func() error {
			buf := make([]byte, fetchPartitionBytes)
			for again := true; again && ctx.Err() == nil; again = how.again {
				for partition := i; partition < w.Partitions; partition += min(w.Consumers, w.Partitions) {
					if err := p.read(ctx, p.path(topic, partition), w, buf, lane); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// read reads one file. A batch that a read cuts in two is counted by the share that was read.
func (p *diskPeer) read(ctx context.Context, path string, w *work, buf []byte, l *lane) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	batch, count := recordBatch(newValues(1, w.RecordBytes), w.BatchBytes, 0)
	perRecord := float64(len(batch)) / float64(count)
	for ctx.Err() == nil {
		begin := time.Now()
		n, err := f.Read(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		records := int64(float64(n) / perRecord)
		l.add(records, records*int64(w.RecordBytes), time.Since(begin))
	}
	return nil
}
