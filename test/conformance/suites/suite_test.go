// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestWhatCountsAsATest(t *testing.T) {
	tests := map[string]struct {
		parent, test string
		want         bool
	}{
		"a test":                         {test: "TestA", want: true},
		"a part of a test":               {test: "TestA/b"},
		"the package":                    {},
		"the parent":                     {parent: "TestAll", test: "TestAll"},
		"a part of the parent":           {parent: "TestAll", test: "TestAll/b", want: true},
		"a part of a part of the parent": {parent: "TestAll", test: "TestAll/b/c"},
		"a test beside the parent":       {parent: "TestAll", test: "TestA", want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (&suite{parent: tc.parent}).counts(tc.test); got != tc.want {
				t.Errorf("counts(%q) = %t", tc.test, got)
			}
		})
	}
}

func TestAnEditThatChangesNothingIsAnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a_test.go")
	if err := os.WriteFile(path, []byte("address := \"localhost:9092\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &suite{dir: ".", edits: []edit{{old: "localhost:9092"}}}
	if err := s.change(dir, "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "address := \"127.0.0.1:1\"\n" {
		t.Errorf("the test is %q, error %v", got, err)
	}
	if err := s.change(dir, "127.0.0.1:1"); err == nil {
		t.Error("no error for a text that is not there")
	}
}

func TestEveryPatternIsARegularExpressionAndHasAReason(t *testing.T) {
	for _, s := range suites {
		if _, err := regexp.Compile(s.pattern); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		for _, l := range s.leave {
			if _, err := regexp.Compile(l.pattern); err != nil || l.why == "" {
				t.Errorf("%s: %q, for %q: %v", s.name, l.pattern, l.why, err)
			}
		}
	}
}
