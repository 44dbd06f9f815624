// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
	"github.com/ringmaster-dev/ringmaster/test/conformance/page"
)

// report is what all clients could do against all brokers.
type report struct {
	clients  []client
	versions map[string]check.Client
	// worlds are the names of the brokers that were run.
	worlds []string
	// results are by world, client and check.
	results map[string]map[string]map[string]check.Result
	errs    []error
}

func newReport(chosen []client) *report {
	return &report{clients: chosen, versions: map[string]check.Client{}, results: map[string]map[string]map[string]check.Result{}}
}

// add takes what a client's program printed.
func (r *report) add(world string, c client, results map[string]check.Result) {
	if r.results[world] == nil {
		r.worlds = append(r.worlds, world)
		r.results[world] = map[string]map[string]check.Result{}
	}
	r.results[world][c.name] = results
	for _, name := range slices.Concat(c.checks, check.Groups, []string{check.Advertised}) {
		if result, ok := results[name]; ok && !result.OK && result.Skip == "" {
			r.errs = append(r.errs, fmt.Errorf("%s: %s: %s: %s", world, c.name, name, result.Detail))
		}
	}
}

// broken takes that a client's program itself failed.
func (r *report) broken(world, name string, err error) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s: %w", world, name, err))
	fmt.Printf("   FAIL %v\n", err)
}

// summary prints what failed, and returns an error if something did.
func (r *report) summary() error {
	var passed, skipped int
	for _, world := range r.results {
		for _, results := range world {
			for _, result := range results {
				switch {
				case result.Skip != "":
					skipped++
				case result.OK:
					passed++
				}
			}
		}
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", passed, len(r.errs), skipped)
	if len(r.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d checks failed:\n%w", len(r.errs), errors.Join(r.errs...))
}

// write writes the tables into the page.
func (r *report) write(path string) error {
	b := &bytes.Buffer{}
	b.WriteString("\n| column | client | version |\n| --- | --- | --- |\n")
	for _, c := range r.clients {
		if v := r.versions[c.name]; c.name != "wire" {
			fmt.Fprintf(b, "| %s | %s | %s |\n", c.name, v.Client, v.Version)
		}
	}
	others := slices.DeleteFunc(slices.Clone(r.clients), func(c client) bool { return c.name == "wire" })
	b.WriteString("\n| check |")
	for _, c := range others {
		fmt.Fprintf(b, " %s |", c.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(others)) + "\n")
	for _, name := range slices.Concat(check.Checks, check.Groups, []string{check.Advertised}) {
		fmt.Fprintf(b, "| %s |", name)
		for _, c := range others {
			fmt.Fprintf(b, " %s |", r.cell(c.name, name))
		}
		b.WriteByte('\n')
	}
	r.writeList(b, "Asked of Apache Kafka's tools alone", "tool", check.Tools)
	r.writeList(b, "Traps that clients are known for, asked byte by byte", "trap", check.Traps)
	r.writeReasons(b)
	return page.Replace(path, "make conformance", b.Bytes())
}

// cell is a mark for each of the worlds.
func (r *report) cell(client, name string) string {
	var marks []string
	for _, world := range r.worlds {
		switch result, ok := r.results[world][client][name]; {
		case !ok:
		case result.Skip != "":
			marks = append(marks, "–")
		case result.OK:
			marks = append(marks, "✓")
		default:
			marks = append(marks, "✗")
		}
	}
	return strings.Join(marks, " ")
}

// writeList writes the table of checks that one program each has.
func (r *report) writeList(b *bytes.Buffer, title, column string, names []string) {
	fmt.Fprintf(b, "\n%s:\n\n| %s | brokers |\n| --- | --- |\n", title, column)
	for _, name := range names {
		for _, c := range r.clients {
			if slices.Contains(c.checks, name) {
				fmt.Fprintf(b, "| %s | %s |\n", name, r.cell(c.name, name))
			}
		}
	}
}

// writeReasons lists why a check was left out or failed.
func (r *report) writeReasons(b *bytes.Buffer) {
	for _, kind := range []struct {
		title string
		text  func(check.Result) string
	}{
		{"Left out (–)", func(x check.Result) string { return x.Skip }},
		{"Failed (✗)", func(x check.Result) string {
			if x.OK || x.Skip != "" {
				return ""
			}
			return strings.Join(strings.Fields(x.Detail), " ")
		}},
	} {
		lines := r.reasons(kind.text)
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s:\n\n%s", kind.title, strings.Join(lines, ""))
	}
	b.WriteByte('\n')
}

// reasons lists a client's checks with their text, those with one text together.
func (r *report) reasons(text func(check.Result) string) []string {
	var lines []string
	for _, c := range r.clients {
		var order []string
		byText := map[string][]string{}
		for _, name := range slices.Concat(check.Checks, check.Groups, check.Tools, check.Traps, []string{check.Advertised}) {
			for _, world := range r.worlds {
				reason := text(r.results[world][c.name][name])
				if reason == "" || slices.Contains(byText[reason], name) {
					continue
				}
				if byText[reason] == nil {
					order = append(order, reason)
				}
				byText[reason] = append(byText[reason], name)
			}
		}
		for _, reason := range order {
			lines = append(lines, fmt.Sprintf("- %s: %s: %s\n", c.name, strings.Join(byText[reason], ", "), reason))
		}
	}
	return lines
}
