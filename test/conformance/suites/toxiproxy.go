// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ringmaster-dev/ringmaster/test/conformance/brokers"
)

// toxiproxy is the module of the proxy that sarama's tests put between client and brokers, to cut their connections.
var toxiproxy = suite{
	module: "github.com/Shopify/toxiproxy/v2", version: "v2.5.0", sum: "h1:i4LPT+qrSlKNtQf5QliVjdP08GyAH8+BUIc9gT0eahc=",
}

const (
	// saramaBrokers and saramaPort are written in sarama's tests: so many brokers, at ports from this one on.
	saramaBrokers = 5
	saramaPort    = 29091
	// toxiproxyAddress is where toxiproxy takes commands.
	toxiproxyAddress = "127.0.0.1:8474"
)

// behindToxiproxy starts five brokers, each behind a proxy whose address clients are told.
func behindToxiproxy(bin, dir string) (w *brokers.World, err error) {
	ports, err := brokers.FreePorts(saramaBrokers)
	if err != nil {
		return nil, err
	}
	c := brokers.Cluster{Ports: ports}
	for i := range int32(saramaBrokers) {
		c.Advertised = append(c.Advertised, saramaPort+i)
	}
	if w, err = brokers.StartCluster(bin, dir, c); err != nil {
		return nil, err
	}
	defer func(started *brokers.World) {
		if err != nil {
			err = errors.Join(err, started.Stop())
		}
	}(w)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	server, err := startToxiproxy(ctx, filepath.Join(dir, "toxiproxy"))
	if err != nil {
		return nil, err
	}
	w.OnStop(func() error { return errors.Join(server.Process.Kill(), ignoreExit(server.Wait())) })
	return w, populate(ctx, w)
}

// ignoreExit is for a process that was killed.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// startToxiproxy builds toxiproxy and starts it.
func startToxiproxy(ctx context.Context, dir string) (*exec.Cmd, error) {
	source := filepath.Join(dir, "module")
	if err := toxiproxy.fetch(ctx, source); err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "toxiproxy")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/server")
	build.Dir, build.Env = source, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build toxiproxy: %w: %s", err, out)
	}
	server := exec.Command(bin, "-host", "127.0.0.1", "-port", "8474")
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start toxiproxy: %w", err)
	}
	return server, nil
}

// populate makes a proxy for each broker, once toxiproxy answers.
func populate(ctx context.Context, w *brokers.World) error {
	type proxy struct {
		Name     string `json:"name"`
		Listen   string `json:"listen"`
		Upstream string `json:"upstream"`
		Enabled  bool   `json:"enabled"`
	}
	var proxies []proxy
	for i, address := range w.Addresses {
		proxies = append(proxies, proxy{
			Name: fmt.Sprintf("kafka%d", i+1), Listen: brokers.Local(int32(saramaPort + i)), Upstream: address, Enabled: true,
		})
	}
	body, err := json.Marshal(proxies)
	if err != nil {
		return fmt.Errorf("write the proxies: %w", err)
	}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+toxiproxyAddress+"/populate", bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("ask toxiproxy: %w", err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				return fmt.Errorf("toxiproxy refused to make the proxies at ports from %d on: %s", saramaPort, resp.Status)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("toxiproxy does not answer at %s: %w", toxiproxyAddress, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
