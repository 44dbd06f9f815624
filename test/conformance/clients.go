// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
	"github.com/ringmaster-dev/ringmaster/test/conformance/check"
)

// programLimit is how long a client's program may take with all its checks.
const programLimit = 10 * time.Minute

// client is a client and how to get its program.
type client struct {
	// name is what --clients takes, and the name of the folder in clients/.
	name string
	// needs are the groups of hack/install-deps.sh.
	needs []string
	// install fetches and builds what the program needs, in a directory that the cache keeps, and returns the program's command.
	install func(ctx context.Context, c *cache) ([]string, error)
	// checks are what is expected of it.
	checks []string
	// lacks says why scenarios of groups cannot be played with it, by name; lacksAll why none can be.
	lacks    map[string]string
	lacksAll string
	// parallel is how many scenarios are played at once; 0 is all. A client that takes long to start would not be back within a session.
	parallel int
}

// Why scenarios of groups are left out.
const (
	noCooperative = "the client has no cooperative assigner"
	noInstanceID  = "the client has no instance ids"
	hangs         = "a member may hang in its first rebalance until its session ends, with Apache Kafka too; the session is long here"
)

// classicOnly is what a client lacks that has the classic protocol alone, besides what it lacks of that.
func classicOnly(more map[string]string) map[string]string {
	lacks := map[string]string{}
	maps.Copy(lacks, more)
	for _, name := range []string{
		check.GroupConsumer, check.GroupConsumerRange, check.GroupConsumerStatic, check.GroupPattern, check.GroupMigration, check.RestartConsumer, check.ManagedConsumer,
	} {
		lacks[name] = check.NoConsumerProtocol
	}
	return lacks
}

// clients are in the order of the table.
var clients = []client{
	{name: "wire", install: goProgram("wire"), checks: traps("wire")},
	{name: "franzgo", install: goProgram("franzgo"), checks: check.Checks, lacks: map[string]string{
		check.GroupConsumerStatic: "the client's last heartbeat says that the member will be back, but not which (no instance id), and is refused, by Kafka too",
	}},
	{name: "sarama", install: goProgram("sarama"), checks: check.Checks, lacks: classicOnly(map[string]string{
		check.RestartClassic: "the client joins again when four heartbeats, which it sends without a pause, find no broker",
	})},
	{name: "kafkago", install: goProgram("kafkago"), checks: check.Checks, lacks: classicOnly(map[string]string{
		check.GroupCooperative: noCooperative, check.ManagedCooperative: noCooperative, check.GroupStatic: noInstanceID, check.RestartClassic: "the client joins again when it loses its connection",
	})},
	{name: "kcat", needs: []string{"kcat"}, install: goProgram("kcat"), checks: check.Checks,
		lacksAll: "kcat does not say what it has committed; confluent has the same library"},
	{name: "confluent", needs: []string{"python"}, install: pythonProgram("confluent"), checks: check.Checks},
	{name: "kafkapython", needs: []string{"python"}, install: pythonProgram("kafkapython"),
		checks: slices.Concat(check.Checks, traps("kafkapython")), parallel: 3, lacks: classicOnly(map[string]string{
			check.GroupStatic: hangs, check.RestartClassic: hangs,
		})},
	{name: "kafkajs", needs: []string{"node"}, install: nodeProgram("kafkajs"), checks: check.Checks, lacks: classicOnly(map[string]string{
		check.GroupCooperative: noCooperative, check.ManagedCooperative: noCooperative, check.GroupStatic: noInstanceID,
	})},
	{name: "java", needs: []string{"java"}, install: javaProgram, checks: check.Checks, parallel: 2},
	{name: "kafkatools", needs: []string{"java"}, install: toolsProgram, checks: slices.Concat(check.Checks, check.Tools),
		lacksAll: "the console consumer does not say what it has committed; java has the same client"},
}

// traps are those of the traps that a client's program checks.
func traps(name string) []string {
	return slices.DeleteFunc(slices.Clone(check.Traps), func(trap string) bool { return (trap == check.TrapRelease) != (name == "kafkapython") })
}

// names lists the clients' names.
func names() []string {
	var list []string
	for _, c := range clients {
		list = append(list, c.name)
	}
	return list
}

// program is a client that is installed.
type program struct {
	client
	command []string
}

// run runs the program against the brokers, and the scenarios of groups.
func (p *program) run(ctx context.Context, w *brokers.World, scenarios *stage, rep *report) {
	fmt.Printf("== %s: %s\n", w.Name, p.name)
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	var before int64
	if w.Advertised != nil {
		before = w.Advertised.Count()
	}
	prefix := p.name + "-" + w.Slug()
	results := map[string]check.Result{}
	if scenarios.only == nil {
		if err := p.checkAll(ctx, w, prefix, rep, results); err != nil {
			rep.broken(w.Name, p.name, err)
			if len(results) == 0 {
				return
			}
		}
	}
	if p.name != "wire" {
		scenarios.play(ctx, p, w, prefix, results)
	}
	if w.Advertised != nil && p.name != "wire" {
		r := check.Result{Check: check.Advertised, OK: w.Advertised.Count() > before}
		if !r.OK {
			r.Detail = "the client never used it"
		}
		results[check.Advertised] = r
	}
	rep.add(w.Name, p.client, results)
}

// checkAll runs the program's own checks.
func (p *program) checkAll(ctx context.Context, w *brokers.World, prefix string, rep *report, results map[string]check.Result) error {
	args := append(slices.Clone(p.command[1:]), w.Bootstrap, prefix)
	cmd := exec.CommandContext(ctx, p.command[0], args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start it: %w", err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if err := rep.line(p.name, lines.Bytes(), results); err != nil {
			stderr.WriteString(err.Error() + "\n")
		}
	}
	err = cmd.Wait()
	if err == nil || len(results) > 0 {
		for _, name := range p.checks {
			if _, ok := results[name]; !ok {
				results[name] = check.Result{Check: name, Detail: "the program did not say"}
			}
		}
	}
	if err != nil {
		return fmt.Errorf("it ended with %w: %s", err, lastLines(stderr.String(), 5))
	}
	return nil
}

// lastLines are the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// line reads a line of a program's output.
func (r *report) line(name string, line []byte, results map[string]check.Result) error {
	var first check.Client
	if err := json.Unmarshal(line, &first); err == nil && first.Client != "" {
		r.versions[name] = first
		return nil
	}
	var result check.Result
	if err := json.Unmarshal(line, &result); err != nil {
		return fmt.Errorf("not a result: %q", line)
	}
	if !slices.Contains(slices.Concat(check.Checks, check.Tools, check.Traps), result.Check) {
		return fmt.Errorf("there is no check %q", result.Check)
	}
	results[result.Check] = result
	result.Show()
	return nil
}

// goProgram builds a program that is written in Go.
func goProgram(name string) func(context.Context, *cache) ([]string, error) {
	return func(ctx context.Context, c *cache) ([]string, error) {
		out := filepath.Join(c.dir, "bin", name)
		if err := c.command(ctx, "go", "-C", "test/conformance", "build", "-o", out, "./clients/"+name); err != nil {
			return nil, fmt.Errorf("build it with the modules of test/conformance/go.mod: %w", err)
		}
		return []string{out}, nil
	}
}

// pythonProgram makes a virtual environment with the packages of requirements.txt, whose hashes pip checks.
func pythonProgram(name string) func(context.Context, *cache) ([]string, error) {
	return func(ctx context.Context, c *cache) ([]string, error) {
		source := filepath.Join(c.source, "clients", name)
		requirements := filepath.Join(source, "requirements.txt")
		dir, err := c.keep(name, []string{requirements}, func(dir string) error {
			if err := c.command(ctx, "python3", "-m", "venv", dir); err != nil {
				return fmt.Errorf("make a virtual environment: %w", err)
			}
			pip := []string{filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", requirements}
			if err := c.command(ctx, pip...); err != nil {
				return fmt.Errorf("fetch the Python packages of %s: %w", requirements, err)
			}
			return nil
		})
		return []string{"env", "PYTHONPATH=" + filepath.Join(c.source, "clients", "python"), "PYTHONDONTWRITEBYTECODE=1",
			filepath.Join(dir, "bin", "python3"), filepath.Join(source, "main.py"),
		}, err
	}
}

// nodeProgram fetches the packages of package-lock.json, whose hashes npm checks, without running what they would run when installed.
func nodeProgram(name string) func(context.Context, *cache) ([]string, error) {
	return func(ctx context.Context, c *cache) ([]string, error) {
		source := filepath.Join(c.source, "clients", name)
		locks := []string{filepath.Join(source, "package.json"), filepath.Join(source, "package-lock.json")}
		dir, err := c.keep(name, locks, func(dir string) error {
			for _, lock := range locks {
				if err := copyFile(lock, filepath.Join(dir, filepath.Base(lock))); err != nil {
					return err
				}
			}
			if err := c.command(ctx, "npm", "--prefix", dir, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"); err != nil {
				return fmt.Errorf("fetch the npm packages of %s: %w", locks[1], err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		// Node looks for packages beside the program.
		main := filepath.Join(dir, "main.js")
		return []string{"node", main}, copyFile(filepath.Join(source, "main.js"), main)
	}
}

// jars fetches what pom.xml names, and compares it with jars.sha256.
func jars(ctx context.Context, c *cache) (string, error) {
	source := filepath.Join(c.source, "clients", "java")
	pom, sums := filepath.Join(source, "pom.xml"), filepath.Join(source, "jars.sha256")
	return c.keep("jars", []string{pom, sums}, func(dir string) error {
		err := c.command(ctx, "mvn", "--batch-mode", "--no-transfer-progress", "--quiet", "--strict-checksums", "--file", pom,
			"dependency:copy-dependencies", "-DoutputDirectory="+dir)
		if err != nil {
			return fmt.Errorf("fetch the jars of %s: %w", pom, err)
		}
		return verifySums(dir, sums)
	})
}

// javaProgram compiles the Java client's checks.
func javaProgram(ctx context.Context, c *cache) ([]string, error) {
	dir, err := jars(ctx, c)
	if err != nil {
		return nil, err
	}
	classes := filepath.Join(c.dir, "classes")
	if err := os.RemoveAll(classes); err != nil {
		return nil, fmt.Errorf("remove the classes of an earlier run: %w", err)
	}
	path := filepath.Join(dir, "*")
	sources, err := filepath.Glob(filepath.Join(c.source, "clients", "java", "*.java"))
	if err != nil {
		return nil, fmt.Errorf("find the Java sources: %w", err)
	}
	if err := c.command(ctx, append([]string{"javac", "-Xlint:all,-classfile,-processing", "-Werror", "-cp", path, "-d", classes}, sources...)...); err != nil {
		return nil, fmt.Errorf("compile it: %w", err)
	}
	// Many run at once, each for a short time, on few cores: no second compiler, no large heap, one thread that collects garbage.
	return []string{
		"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", classes + string(filepath.ListSeparator) + path, "Main",
	}, nil
}

// toolsProgram builds the program that runs Apache Kafka's command-line tools.
func toolsProgram(ctx context.Context, c *cache) ([]string, error) {
	dir, err := jars(ctx, c)
	if err != nil {
		return nil, err
	}
	command, err := goProgram("kafkatools")(ctx, c)
	return append([]string{"env", "KAFKA_CLASSPATH=" + filepath.Join(dir, "*")}, command...), err
}
