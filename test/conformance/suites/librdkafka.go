// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
)

// librdkafka's tests are a C program. Its sources come with an npm package, of which nothing else is used; they are built once, and kept.
const (
	librdkafkaPackage   = "@confluentinc/kafka-javascript@1.10.1"
	librdkafkaVersion   = "2.15.1"
	librdkafkaIntegrity = "sha512-KVePUBn21EqCVP9mfxzEuM3SYJHHEF7X+iiC2e43QQgDSyEaksInmCGooT3w5q+cNAdkSCrK71j0ICfqoSqZLw=="
	// librdkafkaSources is where they are in the package.
	librdkafkaSources = "package/deps/librdkafka/"
	// largestSource is more than any of them has, in bytes.
	largestSource = 64 << 20
)

// librdkafkaTests are the tests of groups that ask a broker, by the numbers that begin their names; the others ask librdkafka's mock of one.
var librdkafkaTests = []string{
	"0018", "0019", "0029", "0030", "0033", "0045", "0050", "0051", "0056", "0069", "0089", "0091", "0099", "0102", "0112", "0113", "0118", "0122",
	"0130", "0132", "0140",
}

// playLibrdkafka runs the tests with a group protocol, classic or consumer.
func playLibrdkafka(protocol string) func(ctx context.Context, s *suite, bin, dir, only string) (outcome, error) {
	return func(ctx context.Context, s *suite, bin, dir, only string) (out outcome, err error) {
		out.suite = s
		runner, err := librdkafkaRunner(ctx)
		if err != nil {
			return out, err
		}
		w, err := s.start(bin, filepath.Join(dir, "brokers"))
		if err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, w.Stop()) }()
		tests := slices.Clone(librdkafkaTests)
		if only != "" {
			tests = strings.Split(only, ",")
		} else {
			for _, l := range s.leave {
				out.left = append(out.left, l.pattern)
			}
		}
		err = runLibrdkafka(ctx, w, runner, dir, protocol, tests, &out)
		return out, err
	}
}

// runLibrdkafka runs the tests, some at once, and reads the report that they write.
func runLibrdkafka(ctx context.Context, w *brokers.World, runner, dir, protocol string, tests []string, out *outcome) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	report, conf, log := filepath.Join(dir, "report.json"), filepath.Join(dir, "test.conf"), filepath.Join(dir, "tests.log")
	if err := os.WriteFile(conf, []byte("bootstrap.servers="+w.Bootstrap+"\ntest.topic.random=true\ntest.timeout.multiplier=2\n"), 0o600); err != nil {
		return fmt.Errorf("write the tests' configuration: %w", err)
	}
	output, err := os.Create(log)
	if err != nil {
		return fmt.Errorf("make the tests' log: %w", err)
	}
	defer output.Close()
	cmd := exec.CommandContext(ctx, runner, "-L", "-p3")
	cmd.Dir = filepath.Dir(runner)
	cmd.Env = append(os.Environ(), "RDKAFKA_TEST_CONF="+conf, "TEST_REPORT="+report, "TESTS="+strings.Join(tests, ","),
		"LD_LIBRARY_PATH="+filepath.Join(cmd.Dir, "..", "src")+":"+filepath.Join(cmd.Dir, "..", "src-cpp"), "TEST_CONSUMER_GROUP_PROTOCOL="+protocol, "TEST_KAFKA_VERSION=4.0.0", "CI=true")
	cmd.Stdout, cmd.Stderr = output, output
	runErr := cmd.Run() // it fails where a test fails
	raw, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("the tests wrote no report; their log is %s: %w", log, errors.Join(runErr, err))
	}
	return takeReport(raw, tests, out)
}

// takeReport takes what librdkafka says became of the tests of the given numbers.
func takeReport(raw []byte, tests []string, out *outcome) error {
	var got struct {
		Tests map[string]struct {
			Name, State, Extra string
			Known              bool `json:"known_issue"`
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return fmt.Errorf("read the tests' report: %w", err)
	}
	for name, t := range got.Tests {
		switch {
		case strings.HasPrefix(name, "<"): // the whole run
		case slices.Contains(out.left, name): // tests of one number cannot be told apart when they are started
		case t.State == "PASSED":
			out.passed++
		case !slices.ContainsFunc(tests, func(number string) bool { return strings.HasPrefix(name, number) }):
		case t.State == "SKIPPED" && t.Extra == "": // it asks a mock
		case t.State == "SKIPPED":
			out.skipped = append(out.skipped, name)
			fmt.Printf("   -    %s: %s\n", name, t.Extra)
		case t.State == "FAILED" || t.State == "RUNNING":
			out.failed = append(out.failed, name)
			fmt.Printf("   FAIL %s: %s\n", name, t.Extra)
		}
	}
	slices.Sort(out.failed)
	slices.Sort(out.skipped)
	if out.passed == 0 && len(out.failed) == 0 {
		return errors.New("no test ran")
	}
	return nil
}

// librdkafkaRunner returns the tests' program, which is built if it is not there.
func librdkafkaRunner(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache: %w", err)
	}
	dir := filepath.Join(cache, "ringmaster", "conformance", "librdkafka-"+librdkafkaVersion)
	runner := filepath.Join(dir, "tests", "test-runner")
	done := filepath.Join(dir, ".done")
	if _, err := os.Stat(done); err == nil {
		return runner, nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o750)); err != nil {
		return "", fmt.Errorf("make a directory for librdkafka: %w", err)
	}
	if err := fetchLibrdkafka(ctx, dir); err != nil {
		return "", err
	}
	fmt.Println("   building librdkafka and its tests, which takes some minutes")
	for _, command := range [][]string{
		{"./configure", "--disable-ssl", "--disable-gssapi", "--disable-sasl", "--disable-curl", "--disable-zstd", "--disable-lz4-ext", "--disable-syslog"},
		{"make", "-j" + strconv.Itoa(runtime.NumCPU()), "libs"},
		{"make", "-j" + strconv.Itoa(runtime.NumCPU()), "-C", "tests", "build"},
	} {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = dir
		if raw, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, raw[max(0, len(raw)-2000):])
		}
	}
	return runner, os.WriteFile(done, nil, 0o600)
}

// fetchLibrdkafka fetches the sources and compares the package's checksum.
func fetchLibrdkafka(ctx context.Context, dir string) error {
	if raw, err := exec.CommandContext(ctx, "hack/install-deps.sh", "librdkafka").CombinedOutput(); err != nil {
		return fmt.Errorf("install what builds librdkafka: %w: %s", err, raw)
	}
	temp, err := os.MkdirTemp("", "librdkafka-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(temp)
	if raw, err := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", temp, librdkafkaPackage).CombinedOutput(); err != nil {
		return fmt.Errorf("fetch npm package %s: %w: %s", librdkafkaPackage, err, raw)
	}
	packed, err := filepath.Glob(filepath.Join(temp, "*.tgz"))
	if err != nil || len(packed) != 1 {
		return fmt.Errorf("npm package %s is %d files, not one: %w", librdkafkaPackage, len(packed), err)
	}
	raw, err := os.ReadFile(packed[0])
	if err != nil {
		return fmt.Errorf("read npm package %s: %w", librdkafkaPackage, err)
	}
	if sum := sha512.Sum512(raw); "sha512-"+base64.StdEncoding.EncodeToString(sum[:]) != librdkafkaIntegrity {
		return fmt.Errorf("npm package %s does not have the checksum %s", librdkafkaPackage, librdkafkaIntegrity)
	}
	return unpack(raw, librdkafkaSources, dir)
}

// unpack unpacks the files of a packed tar archive whose names begin with a prefix.
func unpack(packed []byte, prefix, dir string) error {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	archive := tar.NewReader(plain)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		name, ok := strings.CutPrefix(h.Name, prefix)
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(name) || h.Size > largestSource {
			return fmt.Errorf("unpack: file %q of %d bytes is not one to unpack", h.Name, h.Size)
		}
		to := filepath.Join(dir, name)
		content, err := io.ReadAll(archive)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o750)
		}
		if err == nil {
			err = os.WriteFile(to, content, os.FileMode(h.Mode)&0o755)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}
