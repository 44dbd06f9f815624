// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printJSON prints a value as one line of JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// table collects rows and prints them in aligned columns.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

// row adds a row; an empty cell is shown as a dash, so that each line has as many words as the head.
func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if row[i] = fmt.Sprint(c); row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// print prints the head and the rows.
func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// printFields prints names and values, one pair a line, in two columns. A value without a name goes on with the one above.
func printFields(w io.Writer, pairs ...string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		name := pairs[i]
		if name != "" {
			name += ":"
		}
		if _, err := fmt.Fprintf(tw, "%s\t%s\n", name, pairs[i+1]); err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// printf prints a line of a result.
func printf(w io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(w, format, args...); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}
