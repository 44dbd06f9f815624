// SPDX-License-Identifier: Apache-2.0

// Package page writes the parts of docs/clients.md and docs/heartbeats.md that runs write; the rest of the pages is written by hand.
package page

import (
	"bytes"
	"fmt"
	"os"
	"slices"
)

// A part lies between such lines.
const (
	partBegin = "<!-- written by %s: begin -->\n"
	partEnd   = "<!-- written by %s: end -->\n"
)

// Replace replaces the part of a page that a make target writes.
func Replace(path, target string, content []byte) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page of results: %w", err)
	}
	begin, end := fmt.Appendf(nil, partBegin, target), fmt.Appendf(nil, partEnd, target)
	before, rest, hasBegin := bytes.Cut(page, begin)
	_, after, hasEnd := bytes.Cut(rest, end)
	if !hasBegin || !hasEnd {
		return fmt.Errorf("%s has no part that %q writes", path, target)
	}
	if err := os.WriteFile(path, slices.Concat(before, begin, content, end, after), 0o644); err != nil {
		return fmt.Errorf("write the page of results: %w", err)
	}
	return nil
}
