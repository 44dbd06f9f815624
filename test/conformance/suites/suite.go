// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
)

// limit is how long a suite may take.
const limit = 30 * time.Minute

// suite is a client's own tests.
type suite struct {
	// name is what --suites takes, title what the page says.
	name, title string
	// module, version and sum are the Go module, its version and its checksum as in go.sum.
	module, version, sum string
	// dir is the package in the module.
	dir string
	// tags are build tags.
	tags string
	// cgo says that the tests need a C compiler.
	cgo bool
	// pattern is that of the tests' names.
	pattern string
	// parent is a test whose parts count as tests of their own.
	parent string
	// leave are the tests that are left out.
	leave []leave
	// edits change the copy.
	edits []edit
	// start starts the brokers; brokers says in words which.
	start   func(bin, dir string) (*brokers.World, error)
	brokers string
	// env is the tests' environment.
	env func(w *brokers.World) []string
	// play runs the tests, if they are not a Go module's.
	play func(ctx context.Context, s *suite, bin, dir, only string) (outcome, error)
	// prepare does what the tests expect done.
	prepare func(ctx context.Context, w *brokers.World, copied string) error
}

// leave is tests that are left out, by a pattern of their names, and why.
type leave struct{ pattern, why string }

// edit is a text that is replaced in the tests' sources, and why. An empty new text stands for the broker's address.
type edit struct{ old, new, why string }

// shown is the new text in words.
func (e edit) shown() string {
	if e.new == "" {
		return "the broker's address"
	}
	return e.new
}

// outcome is what became of a suite's tests; those that are part of another one count only if that is the suite's parent.
type outcome struct {
	suite                 *suite
	passed                int
	failed, skipped, left []string
}

// run runs the suite, in a copy of its module if it is one.
func (s *suite) run(ctx context.Context, bin, dir, only string) (out outcome, err error) {
	if s.play != nil {
		return s.play(ctx, s, bin, dir, only)
	}
	out.suite = s
	copied := filepath.Join(dir, "module")
	if s.cgo {
		if raw, err := exec.CommandContext(ctx, "hack/install-deps.sh", "cgo").CombinedOutput(); err != nil {
			return out, fmt.Errorf("install a C compiler: %w: %s", err, raw)
		}
	}
	if err := s.fetch(ctx, copied); err != nil {
		return out, err
	}
	w, err := s.start(bin, filepath.Join(dir, "brokers"))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	if err := s.change(copied, w.Bootstrap); err != nil {
		return out, err
	}
	if s.prepare != nil {
		if err := s.prepare(ctx, w, copied); err != nil {
			return out, err
		}
	}
	err = s.test(ctx, w, copied, only, &out)
	return out, err
}

// fetch copies the module from the module cache, which is not to be written, after comparing its checksum.
func (s *suite) fetch(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", s.module+"@"+s.version)
	cmd.Dir = os.TempDir()
	raw, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(raw, &got); jsonErr != nil {
		return fmt.Errorf("fetch Go module %s %s: %w", s.module, s.version, errors.Join(err, jsonErr))
	}
	if got.Error != "" {
		return fmt.Errorf("fetch Go module %s %s: %s", s.module, s.version, got.Error)
	}
	if got.Sum != s.sum {
		return fmt.Errorf("module %s %s has checksum %s, want %s", s.module, s.version, got.Sum, s.sum)
	}
	if err := os.CopyFS(to, os.DirFS(got.Dir)); err != nil {
		return fmt.Errorf("copy module %s: %w", s.module, err)
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o750)
		}
		return os.Chmod(path, 0o600)
	})
}

// change makes the edits in the package's tests.
func (s *suite) change(copied, address string) error {
	tests, err := filepath.Glob(filepath.Join(copied, s.dir, "*_test.go"))
	if err != nil {
		return fmt.Errorf("list the tests: %w", err)
	}
	for _, e := range s.edits {
		to, found := e.new, false
		if to == "" {
			to = address
		}
		for _, path := range tests {
			source, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("read a test: %w", err)
			}
			if !bytes.Contains(source, []byte(e.old)) {
				continue
			}
			found = true
			if err := os.WriteFile(path, bytes.ReplaceAll(source, []byte(e.old), []byte(to)), 0o600); err != nil {
				return fmt.Errorf("change a test: %w", err)
			}
		}
		if !found {
			return fmt.Errorf("there is no %q in the tests of %s", e.old, s.module)
		}
	}
	return nil
}

// leavePattern matches every test that is left out.
func (s *suite) leavePattern() string {
	var all []string
	for _, l := range s.leave {
		all = append(all, l.pattern)
	}
	return strings.Join(all, "|")
}

// goTest is a go command in the copy.
func (s *suite) goTest(ctx context.Context, w *brokers.World, copied string, args ...string) *exec.Cmd {
	all := []string{"test", "-count=1", "-p=1", "-vet=off"}
	if s.tags != "" {
		all = append(all, "-tags="+s.tags)
	}
	cmd := exec.CommandContext(ctx, "go", append(all, args...)...)
	cmd.Dir = filepath.Join(copied, s.dir)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if s.cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if s.env != nil {
		cmd.Env = append(cmd.Env, s.env(w)...)
	}
	return cmd
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// test runs the tests.
func (s *suite) test(ctx context.Context, w *brokers.World, copied, only string, out *outcome) error {
	args := []string{"-json", "-timeout=" + limit.String(), "-run=" + s.pattern}
	if only != "" {
		args[2] = "-run=" + only
	}
	if skip := s.leavePattern(); skip != "" && only == "" {
		args = append(args, "-skip="+skip)
		if err := s.listLeft(ctx, w, copied, out); err != nil {
			return err
		}
	}
	cmd := s.goTest(ctx, w, copied, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start the tests: %w", err)
	}
	printed := map[string]*strings.Builder{}
	var all strings.Builder
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(&all, lines.Text())
			continue
		}
		switch counts := s.counts(e.Test); {
		case e.Action == "output":
			if printed[e.Test] == nil {
				printed[e.Test] = &strings.Builder{}
			}
			printed[e.Test].WriteString(e.Output)
			if only != "" {
				fmt.Print(e.Output)
			}
		case e.Action == "fail" && !counts && e.Test != "":
			fmt.Printf("   FAIL %s\n%s", e.Test, tail(printed[e.Test], 15))
		case !counts:
		case e.Action == "pass":
			out.passed++
		case e.Action == "skip":
			out.skipped = append(out.skipped, e.Test)
			fmt.Printf("   -    %s: %s\n", e.Test, firstLine(printed[e.Test]))
		case e.Action == "fail":
			out.failed = append(out.failed, e.Test)
			fmt.Printf("   FAIL %s\n%s", e.Test, tail(printed[e.Test], 15))
		}
	}
	if err := cmd.Wait(); err != nil && len(out.failed) == 0 {
		return fmt.Errorf("go test: %w: %s%s%s", err, stderr.String(), all.String(), tail(printed[""], 30))
	}
	slices.Sort(out.failed)
	slices.Sort(out.skipped)
	if out.passed == 0 && len(out.failed) == 0 {
		return errors.New("no test ran")
	}
	return nil
}

// counts says whether a test counts as one: it is no part of another one, or a part of the suite's parent.
func (s *suite) counts(test string) bool {
	top, rest, isPart := strings.Cut(test, "/")
	if top == s.parent {
		return isPart && !strings.Contains(rest, "/")
	}
	return test != "" && !isPart
}

// listLeft lists the tests that are left out as a whole.
func (s *suite) listLeft(ctx context.Context, w *brokers.World, copied string, out *outcome) error {
	raw, err := s.goTest(ctx, w, copied, "-list=.").CombinedOutput()
	if err != nil {
		return fmt.Errorf("list the tests: %w: %s", err, raw)
	}
	all := strings.Split(string(raw), "\n")
	if s.parent != "" {
		parts, err := s.parts(copied)
		if err != nil {
			return err
		}
		all = append(all, parts...)
	}
	runs := regexp.MustCompile(s.pattern)
	for _, name := range all {
		top, part, isPart := strings.Cut(name, "/")
		if !strings.HasPrefix(name, "Test") || !runs.MatchString(top) {
			continue
		}
		for _, l := range s.leave {
			topPattern, partPattern, forParts := strings.Cut(l.pattern, "/")
			if forParts == isPart && regexp.MustCompile(topPattern).MatchString(top) && regexp.MustCompile(partPattern).MatchString(part) {
				out.left = append(out.left, name)
				break
			}
		}
	}
	return nil
}

// method is a test of a testify suite.
var method = regexp.MustCompile(`(?m)^func \(\w+ \*\w+\) (Test\w+)\(\) {`)

// parts lists the parts of the parent, which is a testify suite: go test does not list them.
func (s *suite) parts(copied string) ([]string, error) {
	tests, err := filepath.Glob(filepath.Join(copied, s.dir, "*_test.go"))
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var parts []string
	for _, path := range tests {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a test: %w", err)
		}
		for _, m := range method.FindAllSubmatch(source, -1) {
			parts = append(parts, s.parent+"/"+string(m[1]))
		}
	}
	return parts, nil
}

// firstLine is the first line of a test's output that says something.
func firstLine(b *strings.Builder) string {
	if b == nil {
		return ""
	}
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return ""
}

// tail is the last n lines of a test's output, indented.
func tail(b *strings.Builder, n int) string {
	if b == nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	return "        " + strings.Join(lines[max(0, len(lines)-n):], "\n        ") + "\n"
}
