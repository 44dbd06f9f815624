// SPDX-License-Identifier: Apache-2.0

package page

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	const before = "# Page\n\n<!-- written by make a: begin -->\nold\n<!-- written by make a: end -->\n\n" +
		"<!-- written by make b: begin -->\n<!-- written by make b: end -->\nend\n"
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same content gives the same page
		if err := Replace(path, "make a", []byte("new\n")); err != nil {
			t.Fatal(err)
		}
	}
	const want = "# Page\n\n<!-- written by make a: begin -->\nnew\n<!-- written by make a: end -->\n\n" +
		"<!-- written by make b: begin -->\n<!-- written by make b: end -->\nend\n"
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("page = %q, want %q", got, want)
	}
	if err := Replace(path, "make c", nil); err == nil {
		t.Error("a part that is not there was replaced")
	}
}
