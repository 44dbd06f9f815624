// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestABrokerThatCannotStartSaysWhy(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tmp := t.TempDir()
	file := filepath.Join(tmp, "file")
	damaged := filepath.Join(tmp, "damaged")
	used := filepath.Join(tmp, "used")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "topics.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	startBroker(t, used)
	advice := "; give a directory that this user can write to with --data-dir\n"
	tests := map[string]struct {
		args []string
		want string
	}{
		"a port in use": {[]string{"--data-dir", filepath.Join(tmp, "a"), "--listen", taken.Addr().String()},
			fmt.Sprintf("ringmaster: cannot listen on %s: the address is in use; stop what uses it, or give another --listen (port 0 takes a free one)\n", taken.Addr())},
		"a health port in use": {[]string{"--data-dir", filepath.Join(tmp, "b"), "--listen", "127.0.0.1:0", "--health-listen", taken.Addr().String()},
			fmt.Sprintf("ringmaster: cannot listen on %s: the address is in use; stop what uses it, or give another --health-listen (port 0 takes a free one)\n", taken.Addr())},
		"an address that is not this machine's": {[]string{"--data-dir", filepath.Join(tmp, "c"), "--listen", "192.0.2.1:9092"},
			"ringmaster: cannot listen on 192.0.2.1:9092: cannot assign requested address; give another --listen\n"},
		"a file for a data directory": {[]string{"--data-dir", file},
			fmt.Sprintf("ringmaster: cannot write to the data directory %s: %s: not a directory%s", file, file, advice)},
		"a data directory below a file": {[]string{"--data-dir", filepath.Join(file, "data")},
			fmt.Sprintf("ringmaster: cannot write to the data directory %s: %s: not a directory%s", filepath.Join(file, "data"), file, advice)},
		"damaged metadata": {[]string{"--data-dir", damaged, "--listen", "127.0.0.1:0"},
			fmt.Sprintf("ringmaster: open the topics of data directory %s: %s is damaged (unexpected end of JSON input): "+
				"restore it from a backup, or move it away to start without topics\n", damaged, filepath.Join(damaged, "topics.json"))},
		"a kubeconfig that is not there": {[]string{"--data-dir", filepath.Join(tmp, "d"), "--listen", "127.0.0.1:0", "--metadata", "kubernetes",
			"--cluster", "main", "--node-id", "1", "--kubeconfig", filepath.Join(tmp, "none")},
			fmt.Sprintf("ringmaster: read kubeconfig %s: ", filepath.Join(tmp, "none"))},
		"a data directory in use": {[]string{"--data-dir", used, "--listen", "127.0.0.1:0"}, "is used by another broker"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := cli(t, "", append([]string{"broker"}, tc.args...)...)
			last := r.err[strings.LastIndex(strings.TrimSuffix(r.err, "\n"), "\n")+1:]
			if r.code != exitFailed || r.out != "" || !strings.Contains(last, tc.want) || !strings.HasPrefix(last, "ringmaster: ") {
				t.Errorf("exit code %d, output %q, error\n%swant\n%s", r.code, r.out, r.err, tc.want)
			}
		})
	}
}

func TestABrokerThatCannotBeReached(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close()
	silent := listenTo(t, func(net.Conn) {})
	other := listenTo(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); c.Close() })
	tests := map[string]struct {
		bootstrap string
		want      string
	}{
		"nothing listens":         {closed, "connection refused"},
		"none of several listens": {closed + "," + closed, "connection refused"},
		"no answer comes":         {silent, "no answer within 500ms"},
		"it is no Kafka broker":   {other, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, args := range []string{"topic list", "topic create x", "group list", "group describe g", "produce x", "consume x", "consume x --group g"} {
				start := time.Now()
				r := cli(t, "line\n", at(tc.bootstrap, append(strings.Fields(args), "--timeout", "500ms")...)...)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("%s took %v", args, took)
				}
				prefix := "ringmaster: cannot reach a broker at " + strings.ReplaceAll(tc.bootstrap, ",", ", ") + ": " + tc.want
				suffix := "; start one with `ringmaster broker` or give --bootstrap\n"
				if r.code != exitFailed || r.out != "" || !strings.HasPrefix(r.err, prefix) || !strings.HasSuffix(r.err, suffix) || strings.Count(r.err, "\n") != 1 {
					t.Errorf("%s: exit code %d, error\n%swant\n%s%s", args, r.code, r.err, prefix, suffix)
				}
			}
		})
	}
}

// listenTo answers connections with f, and keeps them until the test ends.
func listenTo(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f(c)
		}
	}()
	return ln.Addr().String()
}

func TestOneOfSeveralBootstrapServersIsEnough(t *testing.T) {
	b := startBroker(t, t.TempDir())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	must(t, "", at(ln.Addr().String()+", "+b.addr, "topic", "list")...)
	t.Setenv(envBootstrap, b.addr)
	must(t, "", "topic", "list")
}

func TestAnAdvertisedAddressThatCannotBeReachedIsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := ln.Addr().String()
	ln.Close()
	b := startBroker(t, t.TempDir(), "--advertise", nowhere)
	r := cli(t, "", at(b.addr, "topic", "create", "x", "--timeout", "2s")...)
	want := fmt.Sprintf("ringmaster: create topic x: %s answers, but names the broker %s, which cannot be reached: connection refused; "+
		"start that broker with an --advertise that clients reach\n", b.addr, nowhere)
	if r.code != exitFailed || r.err != want {
		t.Errorf("exit code %d, error\n%swant\n%s", r.code, r.err, want)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	ports := map[string]string{}
	for _, name := range []string{"health", "metrics"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[name] = ln.Addr().String()
		ln.Close()
	}
	get := func(addr, path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	b := startBroker(t, t.TempDir(), "--health-listen", ports["health"], "--metrics-listen", ports["metrics"])
	must(t, "", at(b.addr, "topic", "list")...)
	for path, want := range map[string]string{"/healthz": "alive\n", "/readyz": "ready\n"} {
		if code, body := get(ports["health"], path); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, _ := get(ports["health"], "/metrics"); code != http.StatusNotFound {
		t.Errorf("/metrics on the health port: %d", code)
	}
	code, body := get(ports["metrics"], "/metrics")
	if code != http.StatusOK || !strings.Contains(body, `ringmaster_build_info{version="dev"} 1`) || !strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: %d\n%s", code, body)
	}
	b.stop()

	one := startBroker(t, t.TempDir(), "--health-listen", ports["health"], "--metrics-listen", ports["health"])
	must(t, "", at(one.addr, "topic", "list")...)
	for _, path := range []string{"/readyz", "/metrics"} {
		if code, _ := get(ports["health"], path); code != http.StatusOK {
			t.Errorf("%s on one port for both: %d", path, code)
		}
	}
}

func TestABrokerStopsAtSIGTERM(t *testing.T) {
	c := startChild(t, "broker", "--data-dir", t.TempDir(), "--listen", "0.0.0.0:0", "--log-format", "json", "--node-id", "7")
	c.err.await(t, `"msg":"ringmaster broker","listen":"\[::\]:\d+","advertise":"[^"]+:\d+","dataDir":"[^"]+","nodeID":7`)
	c.err.await(t, "listening on all addresses")
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.wait(t); code != exitOK || !strings.Contains(c.err.String(), "ringmaster broker stopped") {
		t.Errorf("exit code %d\n%s", code, c.err)
	}
}
