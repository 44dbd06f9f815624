// SPDX-License-Identifier: Apache-2.0

package brokers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// StartRedis starts a redis-server, and brokers that share it.
func StartRedis(bin, dir string, n int) (w *World, err error) {
	w = &World{Name: fmt.Sprintf("%d brokers that share a Redis", n), shared: true}
	defer func(started *World) {
		if err != nil {
			err = errors.Join(err, started.Stop())
		}
	}(w)
	url, err := w.startRedis(filepath.Join(dir, "redis"))
	if err != nil {
		return nil, err
	}
	for i := range n {
		p, err := w.startBroker(bin, filepath.Join(dir, "broker-"+strconv.Itoa(i+1)), nil,
			"--metadata", "redis", "--storage", "redis", "--redis-url", url, "--node-id", strconv.Itoa(i+1), "--listen", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		address, err := p.address()
		if err != nil {
			return nil, err
		}
		w.Addresses = append(w.Addresses, address)
	}
	w.Bootstrap = w.Addresses[0]
	return w, answers(w.Bootstrap, n)
}

// startRedis starts a redis-server, which ends after the brokers, and returns its URL.
func (w *World) startRedis(dir string) (url string, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make Redis's directory: %w", err)
	}
	ports, err := FreePorts(1)
	if err != nil {
		return "", err
	}
	port := strconv.Itoa(int(ports[0]))
	redis := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--logfile", "redis.log")
	if err := redis.Start(); err != nil {
		return "", fmt.Errorf("start Redis: %w; hack/install-deps.sh test installs it", err)
	}
	w.OnStop(func() error {
		if err := redis.Process.Kill(); err != nil {
			return fmt.Errorf("stop Redis: %w", err)
		}
		_ = redis.Wait() // it was killed
		return nil
	})
	return "redis://127.0.0.1:" + port, reachable(net.JoinHostPort("127.0.0.1", port))
}

// reachable waits until something listens.
func reachable(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens at %s after %s: %w", address, startLimit, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
