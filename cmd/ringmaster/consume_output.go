// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"sync"
)

// longestLine is how much of a line is kept in memory until its end has come.
const longestLine = 1 << 20

// sharedOutput is an output of several writers. After an error it takes nothing more.
type sharedOutput struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (o *sharedOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write(p)
}

func (o *sharedOutput) write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}

// failure is the error that ended the output.
func (o *sharedOutput) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// lineOutput passes one writer's output on by whole lines. A line that is longer than longestLine has the shared output for itself until it ends.
type lineOutput struct {
	out  *sharedOutput
	line []byte
	// alone says that the shared output is locked by this one.
	alone bool
}

// Write implements io.Writer.
func (l *lineOutput) Write(p []byte) (int, error) {
	end := bytes.LastIndexByte(p, '\n') + 1
	if end > 0 {
		if err := l.pass(p[:end]); err != nil {
			return 0, err
		}
		l.release()
	}
	rest := p[end:]
	if !l.alone && len(l.line)+len(rest) <= longestLine {
		l.line = append(l.line, rest...)
		return len(p), nil
	}
	if !l.alone {
		l.out.mu.Lock()
		l.alone = true
	}
	if err := l.pass(rest); err != nil {
		return 0, err
	}
	return len(p), nil
}

// pass writes what was kept, and then this.
func (l *lineOutput) pass(p []byte) error {
	write := l.out.Write
	if l.alone {
		write = l.out.write
	}
	if len(l.line) > 0 {
		p = append(l.line, p...)
		l.line = nil
	}
	_, err := write(p)
	return err
}

// release lets others write.
func (l *lineOutput) release() {
	if l.alone {
		l.alone = false
		l.out.mu.Unlock()
	}
}

// end ends a last line that has no newline.
func (l *lineOutput) end() {
	if l.alone || len(l.line) > 0 {
		_ = l.pass([]byte("\n")) // the shared output keeps its error
	}
	l.release()
}
