// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/compaction"
)

const (
	passesMagic = "RMCOMPA1"
	passSize    = 16
)

// encodePasses is the content of the compacted file.
func encodePasses(p *compaction.Passes) []byte {
	b := append(make([]byte, 0, 48+len(p.Done)*passSize), passesMagic...)
	b = appendInt(b, p.Gone)
	b = appendInt(b, p.Left)
	b = appendInt(b, int32(len(p.Done)))
	for _, d := range p.Done {
		b = appendInt(b, d.UpTo)
		b = appendInt(b, d.At)
	}
	return seal(b)
}

func decodePasses(b []byte) (*compaction.Passes, error) {
	d, err := unseal(b, passesMagic)
	if err != nil {
		return nil, err
	}
	p := &compaction.Passes{Gone: d.int64(), Left: d.int64()}
	p.Done = make([]compaction.Pass, d.count(passSize))
	for i := range p.Done {
		p.Done[i] = compaction.Pass{UpTo: d.int64(), At: d.int64()}
		if i > 0 && p.Done[i].UpTo <= p.Done[i-1].UpTo || p.Done[i].UpTo <= 0 {
			d.fail("pass %d does not follow the one before it", i)
		}
	}
	if p.Gone < 0 || p.Gone > p.UpTo() {
		d.fail("tombstones have gone up to %d, of %d", p.Gone, p.UpTo())
	}
	return p, d.end()
}

// readPasses reads what compaction has done. Where that cannot be known it is taken to have done nothing, which loses time alone.
func (l *commitLog) readPasses() (*compaction.Passes, error) {
	name := l.path(passesFile)
	b, err := readFile(l.engine.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return &compaction.Passes{}, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := decodePasses(b)
	if err != nil {
		l.logger.Warn("what compaction has done is not known; it starts anew", "partition", l.String(), "file", name, "error", err)
		return &compaction.Passes{}, nil
	}
	return p, nil
}

// writePasses makes it durable.
func (l *commitLog) writePasses(p *compaction.Passes) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if err := replaceFile(l.engine.fs, l.path(passesFile), encodePasses(p)); err != nil {
		return fullError(fmt.Errorf("write %s: %w", l.path(passesFile), err))
	}
	return l.syncDir()
}

// cutPasses makes what compaction has done fit a log that may have lost its end.
func (r *recovery) cutPasses() error {
	if _, ok := r.files[passesFile]; !ok {
		return nil
	}
	p, err := r.readPasses()
	if err != nil || p.UpTo() <= r.end {
		return err
	}
	p.Cut(r.end)
	if err := replaceFile(r.engine.fs, r.path(passesFile), encodePasses(p)); err != nil {
		return err
	}
	return r.syncDir()
}
