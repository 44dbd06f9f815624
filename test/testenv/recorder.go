// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// recorder notes every request that can change something. It counts what is sent rather than what changed: an apply that
// changes nothing still costs the API server a write's work.
type recorder struct {
	mu      sync.Mutex
	writes  []string
	refused []string
	// grown holds a token when something was noted since it was last taken.
	grown chan struct{}
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		what := req.Method + " " + req.URL.RequestURI()
		if req.Method != http.MethodGet && !strings.HasSuffix(req.URL.Path, "/events") && !strings.Contains(req.URL.Path, "/events/") {
			r.add(&r.writes, what)
		}
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusForbidden {
			r.add(&r.refused, what)
		}
		return resp, err
	})
}

func (r *recorder) add(list *[]string, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, what)
	select {
	case r.grown <- struct{}{}:
	default:
	}
}

func (r *recorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

func (r *recorder) forbidden() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.refused)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
