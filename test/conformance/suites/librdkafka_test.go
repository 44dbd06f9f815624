// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

func TestTheReportOfLibrdkafka(t *testing.T) {
	const report = `{"tests": {
		"<MAIN>": {"name": "<MAIN>", "state": "FAILED", "extra": ""},
		"0001_a": {"name": "0001_a", "state": "PASSED", "extra": ""},
		"0002_b": {"name": "0002_b", "state": "FAILED", "extra": ""},
		"0003_c": {"name": "0003_c", "state": "SKIPPED", "extra": "needs more"},
		"0004_d": {"name": "0004_d", "state": "SKIPPED", "extra": ""},
		"0005_e": {"name": "0005_e", "state": "FAILED", "extra": ""},
		"0006_f": {"name": "0006_f", "state": "SKIPPED", "extra": "nobody asked for it"}}}`
	numbers := []string{"0001", "0002", "0003", "0004", "0005"}
	out := outcome{suite: &suite{}, left: []string{"0005_e"}}
	if err := takeReport([]byte(report), numbers, &out); err != nil {
		t.Fatal(err)
	}
	if out.passed != 1 || len(out.failed) != 1 || out.failed[0] != "0002_b" || len(out.skipped) != 1 || out.skipped[0] != "0003_c" {
		t.Errorf("%d passed, failed %v, skipped %v", out.passed, out.failed, out.skipped)
	}
	if err := takeReport([]byte(`{"tests": {}}`), numbers, &outcome{suite: &suite{}}); err == nil {
		t.Error("no error where no test ran")
	}
}

func TestOnlyTheFilesBelowThePrefixAreUnpacked(t *testing.T) {
	pack := func(names ...string) []byte {
		var packed bytes.Buffer
		plain := gzip.NewWriter(&packed)
		archive := tar.NewWriter(plain)
		for _, name := range names {
			if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := archive.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		if err := plain.Close(); err != nil {
			t.Fatal(err)
		}
		return packed.Bytes()
	}
	dir := t.TempDir()
	if err := unpack(pack("p/other", "p/deps/a.c", "p/deps/b/c.c"), "p/deps/", dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.c": true, "b/c.c": true, "other": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there %t", name, err, want)
		}
	}
	if err := unpack(pack("p/deps/../../x"), "p/deps/", dir); err == nil {
		t.Error("no error for a file that would lie elsewhere")
	}
}
