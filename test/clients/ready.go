// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"time"
)

// serveReadiness answers a readiness probe on port 8080 with success once a file exists, so that many pods can become ready at one time.
func serveReadiness(file string) {
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(file); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go func() { fatal("serve the readiness probe", server.ListenAndServe()) }()
}
