// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// Each console block of docs/cli.md is run, in order, against one broker, and must print what the page says.
func TestTheManualsExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec env %s=1 '%s' \"$@\"\n", envRunMain, os.Args[0])
	if err := os.WriteFile(filepath.Join(bin, "ringmaster"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, t.TempDir())
	t.Setenv(envBootstrap, b.addr)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))

	examples := 0
	for block := range strings.SplitSeq(string(page), "```console\n") {
		block, _, isBlock := strings.Cut(block, "```\n")
		if !isBlock || !strings.HasPrefix(block, "$ ") {
			continue
		}
		for example := range strings.SplitSeq(strings.TrimPrefix(block, "$ "), "\n$ ") {
			examples++
			command, want, _ := strings.Cut(strings.TrimSuffix(example, "\n")+"\n", "\n")
			if got, want := placeholders(shell(t, command)), placeholders(want); got != want {
				t.Errorf("$ %s\nprints\n%s\nand the manual says\n%s", command, got, want)
			}
		}
	}
	if examples < 25 {
		t.Errorf("only %d examples were found", examples)
	}
}

// shell runs a command and returns what a terminal would show, and its exit code if that is not 0.
func shell(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Sprintf("%s[exit code %d]\n", out, exit.ExitCode())
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// placeholders replaces what differs from run to run.
func placeholders(s string) string {
	for _, r := range []struct{ pattern, with string }{
		{`"id":"[\w-]{22}"`, `"id":"ID"`},
		{`"type":"(consumer)?"`, `"type":"TYPE"`},
		{`ID:       [\w-]{22}`, "ID:       ID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z`, "TIME"},
		{`127\.0\.0\.1:\d{4,5}`, "HOST:PORT"},
		{`ADDRESS +SINCE`, "ADDRESS SINCE"},
		{regexp.QuoteMeta(runtime.Version()) + `|go1\.26\.8`, "GO"},
		{regexp.QuoteMeta(runtime.GOOS+"/"+runtime.GOARCH) + `|linux/amd64`, "PLATFORM"},
	} {
		s = regexp.MustCompile(r.pattern).ReplaceAllString(s, r.with)
	}
	return s
}
