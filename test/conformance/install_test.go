// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVerifySums(t *testing.T) {
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of hello
	tests := map[string]struct {
		files map[string]string
		want  bool
	}{
		"as listed":       {files: map[string]string{"a.jar": "hello"}, want: true},
		"another content": {files: map[string]string{"a.jar": "hullo"}},
		"one not listed":  {files: map[string]string{"a.jar": "hello", "b.jar": "hello"}},
		"one missing":     {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir, list := t.TempDir(), write(t, filepath.Join(t.TempDir(), "sums"), sum+"  a.jar\n")
			for file, content := range tc.files {
				write(t, filepath.Join(dir, file), content)
			}
			if err := verifySums(dir, list); (err == nil) != tc.want {
				t.Errorf("verifySums = %v, want none %t", err, tc.want)
			}
		})
	}
}

func TestTheCacheIsFilledOnceForItsPins(t *testing.T) {
	c := &cache{dir: t.TempDir()}
	pin := write(t, filepath.Join(t.TempDir(), "lock"), "1")
	var filled int
	fill := func(string) error { filled++; return nil }
	keep := func() string {
		t.Helper()
		dir, err := c.keep("client", []string{pin}, fill)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	first := keep()
	if again := keep(); again != first || filled != 1 {
		t.Errorf("filled %d times, %s and %s", filled, first, again)
	}
	write(t, pin, "2")
	if other := keep(); other == first || filled != 2 {
		t.Errorf("filled %d times after a pin changed, %s and %s", filled, first, other)
	}
	if _, err := c.keep("broken", []string{pin}, func(string) error { return errors.New("no network") }); err == nil {
		t.Error("no error")
	}
	if _, err := c.keep("broken", []string{pin}, fill); err != nil || filled != 3 {
		t.Errorf("filled %d times after a failure, error %v", filled, err)
	}
}
