// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// machine tells what was measured, and on what.
func (o *options) machine(ctx context.Context) []fact {
	facts := []fact{
		{"When", time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{"Processor", fmt.Sprintf("%d cores, %s", runtime.NumCPU(), procLine("/proc/cpuinfo", "model name"))},
		{"Memory", procLine("/proc/meminfo", "MemTotal")},
		{"Kernel", kernel()},
		{"Disk", disk(o.dir)},
		{"Go", runtime.Version()},
		{"ringmaster", firstLine(ctx, o.ringmaster, "version")},
	}
	if jars, err := filepath.Glob(filepath.Join(o.kafka, "kafka_2.13-*.jar")); err == nil && len(jars) > 0 {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "kafka_2.13-"), ".jar")
		facts = append(facts, fact{"Kafka", fmt.Sprintf("%s on %s", version, firstLine(ctx, "java", "-version"))})
	}
	return append(facts,
		fact{"kfake", moduleVersion("github.com/twmb/franz-go/pkg/kfake")},
		fact{"franz-go", moduleVersion("github.com/twmb/franz-go")},
		fact{"Redis", firstLine(ctx, "redis-server", "--version")},
		fact{"NATS", nats.VERSION})
}

// procLine is the value of the first line "name: value" of a file.
func procLine(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return fmt.Sprintf("%s %s", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]))
}

// disk is the file system that a directory is on: the mount with the longest path above it.
func disk(dir string) string {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	b, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "unknown"
	}
	best, found := "", "unknown"
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 4 || len(f[1]) < len(best) || path != f[1] && !strings.HasPrefix(path, strings.TrimSuffix(f[1], "/")+"/") {
			continue
		}
		best, found = f[1], fmt.Sprintf("%s on %s (%s)", f[2], f[0], f[3])
	}
	return found
}

// firstLine is what a program prints first.
func firstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "unknown: " + err.Error()
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// moduleVersion is the version of a module that this program is built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}

// loadAverage is how many processes wanted to run in the last minute; 0 where that is unknown.
func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
