// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestRunPacksTheSameBytesEveryTime(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "binary")
	if err := os.WriteFile(binary, []byte("\x7fELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	var images [2][]byte
	for i := range images {
		out := filepath.Join(dir, "image.tar")
		if err := run("arm64", []string{out, "localhost/x:dev", binary + ":/x", "--", "/x", "serve"}); err != nil {
			t.Fatal(err)
		}
		var err error
		if images[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two runs over the same file gave two different images")
	}

	tag, err := name.NewTag("localhost/x:dev")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(dir, "image.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.Config.User != user || !slices.Equal(config.Config.Entrypoint, []string{"/x", "serve"}) {
		t.Errorf("got architecture %q, user %q, entrypoint %q", config.Architecture, config.Config.User, config.Config.Entrypoint)
	}
}

func TestRunRefuses(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"no arguments":             {nil, "usage"},
		"no file":                  {[]string{"o.tar", "ref:1", "--", "/x"}, "usage"},
		"no entrypoint":            {[]string{"o.tar", "ref:1", "f", "--"}, "usage"},
		"a file that is not there": {[]string{"o.tar", "ref:1", "/does/not/exist", "--", "/x"}, "no such file"},
		"a malformed reference":    {[]string{"o.tar", "Not A Ref", "f", "--", "/x"}, "image reference"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if err := run("amd64", test.args); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}
