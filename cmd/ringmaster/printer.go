// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// timeFormat is RFC 3339 in UTC with the milliseconds that a record's timestamp has.
const timeFormat = "2006-01-02T15:04:05.000Z"

// recordJSON is what "consume -o json" prints for each record.
type recordJSON struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp string `json:"timestamp"`
	// Key and Value are null where the record has none.
	Key   *string `json:"key"`
	Value *string `json:"value"`
	// Encoding is "base64" where key or value is not UTF-8; then both are in base64.
	Encoding string       `json:"encoding,omitempty"`
	Headers  []headerJSON `json:"headers,omitempty"`
}

// headerJSON is a header; its value is in base64 where it is not UTF-8.
type headerJSON struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Encoding string `json:"encoding,omitempty"`
}

// printer prints records.
type printer struct {
	w      *bufio.Writer
	format string
	headed bool
}

func newPrinter(w *bufio.Writer, format string) *printer { return &printer{w: w, format: format} }

// flush writes out what was printed.
func (p *printer) flush() error {
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("print records: %w", err)
	}
	return nil
}

func (p *printer) print(r *kgo.Record) error {
	var err error
	switch p.format {
	case outputJSON:
		err = p.json(r)
	case outputTable:
		err = p.columns(r)
	default:
		if _, err = p.w.Write(r.Value); err == nil {
			err = p.w.WriteByte('\n')
		}
	}
	if err != nil {
		return fmt.Errorf("print records: %w", err)
	}
	return nil
}

func (p *printer) json(r *kgo.Record) error {
	encoding, encode := "", func(b []byte) string { return string(b) }
	if !utf8.Valid(r.Key) || !utf8.Valid(r.Value) {
		encoding, encode = "base64", base64.StdEncoding.EncodeToString
	}
	text := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := encode(b)
		return &s
	}
	j := recordJSON{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC().Format(timeFormat),
		Key: text(r.Key), Value: text(r.Value), Encoding: encoding,
	}
	for _, h := range r.Headers {
		hj := headerJSON{Key: h.Key, Value: string(h.Value)}
		if !utf8.Valid(h.Value) {
			hj.Value, hj.Encoding = base64.StdEncoding.EncodeToString(h.Value), "base64"
		}
		j.Headers = append(j.Headers, hj)
	}
	enc := json.NewEncoder(p.w)
	enc.SetEscapeHTML(false)
	return enc.Encode(j)
}

// columns prints a row. Rows come one by one, so that the columns have fixed widths; values come last.
func (p *printer) columns(r *kgo.Record) error {
	const row = "%-20s  %9v  %12v  %-24s  %-20s  %s\n"
	if !p.headed {
		p.headed = true
		if _, err := fmt.Fprintf(p.w, row, "TOPIC", "PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(p.w, row, r.Topic, r.Partition, r.Offset, r.Timestamp.UTC().Format(timeFormat), cell(r.Key), cell(r.Value))
	return err
}

// cell shows bytes in a table: as they are if that keeps the line whole, else quoted.
func cell(b []byte) string {
	if b == nil {
		return "-"
	}
	for _, c := range string(b) {
		if c < ' ' || c == utf8.RuneError || c == 0x7f {
			return fmt.Sprintf("%q", b)
		}
	}
	return string(b)
}
