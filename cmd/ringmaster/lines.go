// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kgoShortest is the shortest timeout that the client library takes for records.
const kgoShortest = time.Second

// line is a line of the input, without its newline, or the error that ended the input.
type line struct {
	text   []byte
	number int
	err    error
}

// readLines reads lines of at most maxBytes. The channel is closed after the last one, after an error, and when ctx ends, but for a
// read that is still waiting for its input.
func readLines(ctx context.Context, in io.Reader, maxBytes int) <-chan line {
	lines := make(chan line, 256)
	go func() {
		defer close(lines)
		r := bufio.NewReaderSize(in, 64<<10)
		for number := 1; ; number++ {
			text, err := readLine(r, maxBytes)
			l := line{text: text, number: number}
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errLineTooLong):
				l.err = fmt.Errorf("line %d is longer than the %d bytes that the topic takes", number, maxBytes)
			case err != nil:
				l.err = fmt.Errorf("read standard input: %w", err)
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
			if l.err != nil {
				return
			}
		}
	}()
	return lines
}

var errLineTooLong = errors.New("line too long")

// readLine reads a line of at most maxBytes. It is never nil with a nil error. The error is io.EOF after the last line, which may lack
// its newline.
func readLine(r *bufio.Reader, maxBytes int) ([]byte, error) {
	text := []byte{}
	for {
		part, err := r.ReadSlice('\n')
		ended := err == nil
		part = bytes.TrimSuffix(part, []byte("\n"))
		if len(text)+len(part) > maxBytes {
			return nil, errLineTooLong
		}
		text = append(text, part...)
		switch {
		case ended:
			return text, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(text) > 0:
			return text, nil
		default:
			return nil, err
		}
	}
}

// produceError puts the client library's own errors of records into words.
func (c *client) produceError(err error) error {
	switch {
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		if _, dialErr := c.dials.failure(); dialErr != nil {
			return context.DeadlineExceeded // explain names the broker that could not be connected to
		}
		return fmt.Errorf("not acknowledged within %s", max(c.timeout, kgoShortest))
	case errors.Is(err, kerr.MessageTooLarge):
		return errors.New("the record is larger than the topic's max.message.bytes allows")
	case errors.Is(err, kerr.InvalidRecord):
		return errors.New("the topic does not take the record: one that is compacted takes none without a key; give --key or --key-separator")
	}
	return err
}
