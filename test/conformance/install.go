// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cache is where things are installed. What it keeps is kept by the hash of the files that pin it.
type cache struct {
	// dir is the directory, source the one of this module.
	dir, source string
}

// install makes the clients' programs ready to run.
func install(ctx context.Context, dir string, chosen []client) ([]program, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	source, err := filepath.Abs(filepath.Join("test", "conformance"))
	if err != nil {
		return nil, fmt.Errorf("find the sources: %w", err)
	}
	c := &cache{dir: dir, source: source}
	var needs []string
	for _, p := range chosen {
		for _, need := range p.needs {
			if !slices.Contains(needs, need) {
				needs = append(needs, need)
			}
		}
	}
	if len(needs) > 0 {
		if err := c.command(ctx, append([]string{"hack/install-deps.sh"}, needs...)...); err != nil {
			return nil, fmt.Errorf("install what the clients need from the system's packages: %w", err)
		}
	}
	var programs []program
	var errs []error
	for _, p := range chosen {
		fmt.Println("conformance: preparing", p.name)
		command, err := p.install(ctx, c)
		if err != nil {
			errs = append(errs, fmt.Errorf("prepare %s: %w", p.name, err))
			continue
		}
		programs = append(programs, program{client: p, command: command})
	}
	return programs, errors.Join(errs...)
}

// command runs a command; the error has the last lines that it printed.
func (*cache) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, lastLines(string(out), 8))
	}
	return nil
}

// keep returns a directory of the cache that make has filled. It is filled once for as long as the files that pin its content do not change.
func (c *cache) keep(name string, pins []string, fill func(dir string) error) (string, error) {
	hash := sha256.New()
	for _, pin := range pins {
		content, err := os.ReadFile(pin)
		if err != nil {
			return "", fmt.Errorf("read what pins %s: %w", name, err)
		}
		hash.Write(content)
	}
	dir := filepath.Join(c.dir, name+"-"+hex.EncodeToString(hash.Sum(nil))[:12])
	done := filepath.Join(dir, ".done")
	if _, err := os.Stat(done); err == nil {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("remove what was begun: %w", err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	if err := fill(dir); err != nil {
		return "", err
	}
	return dir, os.WriteFile(done, nil, 0o600)
}

// copyFile copies a file.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy a file: %w", err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		return fmt.Errorf("copy a file: %w", err)
	}
	return nil
}

// verifySums compares the files of a directory with a list of checksums, as sha256sum writes it: each has one, and each is there.
func verifySums(dir, list string) error {
	content, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("read the checksums: %w", err)
	}
	want := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		if sum, name, ok := strings.Cut(lines.Text(), "  "); ok {
			want[name] = sum
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list what was fetched: %w", err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("read what was fetched: %w", err)
		}
		if sum := sha256.Sum256(content); want[e.Name()] != hex.EncodeToString(sum[:]) {
			return fmt.Errorf("%s does not have the checksum of %s: it was tampered with, or the list is out of date", e.Name(), list)
		}
		delete(want, e.Name())
	}
	if len(want) > 0 {
		return fmt.Errorf("%d files of %s were not fetched", len(want), list)
	}
	return nil
}
