// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestABrokerWhoseDataDirectoryGoesAwayStops(t *testing.T) {
	tests := map[string]func(dir string) error{
		"it is removed": os.RemoveAll,
		"it is moved":   func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"it is replaced": func(dir string) error {
			if err := os.Rename(dir, dir+"-moved"); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(dir, logsDir), 0o700)
		},
	}
	for name, lose := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			c := startChild(t, "broker", "--data-dir", dir, "--listen", "127.0.0.1:0")
			addr := c.err.await(t, `listen=(\S+)`)[1]
			must(t, "a\nb\n", at(addr, "produce", "orders")...)
			if err := lose(dir); err != nil {
				t.Fatal(err)
			}
			if code := c.wait(t); code != exitFailed {
				t.Errorf("exit code %d", code)
			}
			last := lines(c.err.String())
			if got := last[len(last)-1]; !strings.Contains(got, "was removed or replaced while the broker ran") {
				t.Errorf("the last line is %q", got)
			}
		})
	}
}

// TestABrokerIsAliveWhileItWaitsForItsMetadata has an API server that does not answer.
func TestABrokerIsAliveWhileItWaitsForItsMetadata(t *testing.T) {
	silent := listenTo(t, func(net.Conn) {})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "http://%s"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "n"}}]}`, silent)
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	health := ln.Addr().String()
	ln.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, done := newWatched(), make(chan int, 1)
	go func() {
		done <- run(ctx, []string{
			"broker", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--health-listen", health, "--metrics-listen", health,
			"--metadata", "kubernetes", "--cluster", "main", "--node-id", "1", "--kubeconfig", kubeconfig,
		}, streams{in: strings.NewReader(""), out: io.Discard, err: log})
	}()
	client := &http.Client{Timeout: patience}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusServiceUnavailable} {
		got := 0
		for end := time.Now().Add(patience); got != want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if resp, err := client.Get("http://" + health + path); err == nil {
				got = resp.StatusCode
				resp.Body.Close()
			}
		}
		if got != want {
			t.Errorf("%s: %d, want %d\n%s", path, got, want, log)
		}
	}
	cancel()
	select {
	case code := <-done:
		if code != exitOK {
			t.Errorf("exit code %d\n%s", code, log)
		}
	case <-time.After(patience):
		t.Errorf("the broker does not stop:\n%s", log)
	}
}

func TestATopicThatIsNamedTwiceIsReadOnce(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "one\ntwo\n", at(b.addr, "produce", "orders")...)
	must(t, "", at(b.addr, "topic", "create", "audit")...)
	args := strings.Fields("consume orders audit orders audit --from-beginning --idle-timeout 1s")
	if got := must(t, "", at(b.addr, args...)...); got != "one\ntwo\n" {
		t.Errorf("read %q", got)
	}
}

func TestNamesThatNoBrokerTakesAreExplained(t *testing.T) {
	b := startBroker(t, t.TempDir())
	must(t, "", at(b.addr, "topic", "create", "orders")...)
	const rule = "use 1 to 249 letters, digits"
	for command, want := range map[string]string{
		"topic create é": rule, "topic describe é": rule, "produce é": rule, "consume é": rule,
		"consume orders --idle-timeout 2s --group " + strings.Repeat("g", 300): "use 1 to 255 bytes",
		"group describe " + strings.Repeat("g", 300):                           "use 1 to 255 bytes",
	} {
		r := cli(t, "line\n", at(b.addr, strings.Fields(command)...)...)
		if r.code != exitFailed || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", command, r.code, r.err)
		}
	}
}
