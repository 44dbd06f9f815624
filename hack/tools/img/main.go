// SPDX-License-Identifier: Apache-2.0

// Command img packs static binaries into a one-layer image tarball without a container engine.
//
//	img [-arch GOARCH] OUT.tar REF FILE[:PATH]... -- ENTRYPOINT [ARG...]
//
// The tarball is of the kind that "docker save" writes, so containerd, Docker, podman and kind load it.
// The image's user is 65532:65532, it holds no shell, and the same input gives the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const usage = "usage: img [-arch GOARCH] OUT.tar REF FILE[:PATH]... -- ENTRYPOINT [ARG...]"

// user is the uid and gid that the image's process runs as, the same as in the Dockerfile.
const user = "65532:65532"

func main() {
	arch := flag.String("arch", runtime.GOARCH, "the image's architecture, as in GOARCH")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*arch, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "img:", err)
		os.Exit(1)
	}
}

func run(arch string, args []string) error {
	end := slices.Index(args, "--")
	if end < 3 || end == len(args)-1 {
		return errors.New(usage)
	}
	out, files, entrypoint := args[0], args[2:end], args[end+1:]
	tag, err := name.NewTag(args[1])
	if err != nil {
		return fmt.Errorf("read image reference: %w", err)
	}
	layer, err := pack(files)
	if err != nil {
		return err
	}
	image, err := build(arch, layer, entrypoint)
	if err != nil {
		return err
	}
	return write(out, tag, image)
}

// pack returns an uncompressed tar of the files, each FILE or FILE:PATH, executable and without a time.
func pack(files []string) ([]byte, error) {
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for _, file := range files {
		from, to, ok := strings.Cut(file, ":")
		if !ok {
			to = from
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Name: strings.TrimPrefix(to, "/"), Mode: 0o755, Size: int64(len(data))}
		if err := tw.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", from, err)
		}
		if _, err := tw.Write(data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", from, err)
		}
	}
	if err := tw.Close(); err != nil {
		return nil, fmt.Errorf("finish layer: %w", err)
	}
	return layer.Bytes(), nil
}

func build(arch string, layer []byte, entrypoint []string) (v1.Image, error) {
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return nil, fmt.Errorf("read layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, fmt.Errorf("append layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{Entrypoint: entrypoint, User: user, Env: []string{"PATH=/"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("set image configuration: %w", err)
	}
	return image, nil
}

// write replaces out only when the whole image is on disk.
func write(out string, tag name.Tag, image v1.Image) error {
	f, err := os.CreateTemp(filepath.Dir(out), ".img-*")
	if err != nil {
		return fmt.Errorf("create image file: %w", err)
	}
	if err := errors.Join(tarball.Write(tag, image, f), f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write image: %w", err), os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), out); err != nil {
		return errors.Join(fmt.Errorf("put image in place: %w", err), os.Remove(f.Name()))
	}
	return nil
}
