// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/ringmaster-dev/ringmaster/broker/server"
)

// newLogger makes the logger that --log-level and --log-format ask for.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		panic(err) // the flag takes none but slog's levels
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// closeQuietly closes what may be closed already: there is nothing to do about an error.
func closeQuietly(c io.Closer) { _ = c.Close() }

// reachableHost is the host to tell clients of a broker that listens on all addresses: the machine's name where it can be looked up, else
// 127.0.0.1.
func reachableHost(ctx context.Context) string {
	const loopback = "127.0.0.1"
	name, err := os.Hostname()
	if err != nil || name == "" {
		return loopback
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if addrs, err := net.DefaultResolver.LookupHost(ctx, name); err != nil || len(addrs) == 0 {
		return loopback
	}
	return name
}

// web serves health and metrics.
type web struct {
	listeners []net.Listener
	handlers  []http.Handler
	// server is nil until there is one.
	server atomic.Pointer[server.Server]
	// metrics is nil until there is a server.
	metrics atomic.Pointer[http.Handler]
}

// newWeb listens on the addresses that are given; on one, if they are the same.
func newWeb(ctx context.Context, health, metrics string) (*web, error) {
	w := &web{}
	mux := http.NewServeMux()
	if health != "" {
		addHealth(mux, w.ready)
		if err := w.listen(ctx, "health-listen", health, mux); err != nil {
			return nil, err
		}
	}
	if metrics == "" {
		return w, nil
	}
	own := mux
	if metrics != health {
		own = http.NewServeMux()
		if err := w.listen(ctx, "metrics-listen", metrics, own); err != nil {
			return nil, err
		}
	}
	own.HandleFunc("GET /metrics", func(rw http.ResponseWriter, r *http.Request) {
		h := w.metrics.Load()
		if h == nil {
			answer(rw, http.StatusServiceUnavailable, "starting")
			return
		}
		(*h).ServeHTTP(rw, r)
	})
	return w, nil
}

// attach gives the server whose health and metrics are served from now on.
func (w *web) attach(srv *server.Server) error {
	h, err := metricsHandler(srv.Collectors())
	if err != nil {
		return err
	}
	w.metrics.Store(&h)
	w.server.Store(srv)
	return nil
}

// ready says whether clients are served.
func (w *web) ready() bool {
	srv := w.server.Load()
	return srv != nil && srv.Ready()
}

func (w *web) listen(ctx context.Context, flag, address string, h http.Handler) error {
	ln, err := listen(ctx, flag, address)
	if err != nil {
		for _, other := range w.listeners {
			closeQuietly(other)
		}
		return err
	}
	w.listeners, w.handlers = append(w.listeners, ln), append(w.handlers, h)
	return nil
}

func addHealth(mux *http.ServeMux, ready func() bool) {
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		if ready() {
			answer(rw, http.StatusOK, "ready")
			return
		}
		answer(rw, http.StatusServiceUnavailable, "not ready")
	})
}

func answer(rw http.ResponseWriter, code int, text string) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.WriteHeader(code)
	_, _ = io.WriteString(rw, text+"\n")
}

func metricsHandler(cs []prometheus.Collector) (http.Handler, error) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringmaster_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	for _, c := range append(cs, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// serve serves until ctx ends.
func (w *web) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, ln := range w.listeners {
		s := &http.Server{Handler: w.handlers[i], ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
		g.Go(func() error {
			if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve health and metrics: %w", err)
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			return s.Close()
		})
	}
	return g.Wait()
}
