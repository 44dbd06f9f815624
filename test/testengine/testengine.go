// SPDX-License-Identifier: Apache-2.0

// Package testengine opens the storage engine that a run of the tests is of, so that one suite is for all engines: the local one, or Redis, where the variable URL names one
// (hack/on-redis.sh starts one).
package testengine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/broker/redisconn"
	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/local"
	"github.com/ringmaster-dev/ringmaster/broker/storage/redis"
)

// URL is the name of the variable with the URL of a Redis that belongs to the tests.
const URL = "RINGMASTER_TEST_REDIS_URL"

// Engine is what both engines have.
type Engine interface {
	storage.Engine
	// Compact compacts at once what can be.
	Compact(now time.Time) error
}

// Open opens an engine. dir holds the data, or names what is in Redis; the same one has the same data. fs is the local engine's file system, nil for the system's.
func Open(t testing.TB, dir string, fs local.FS) Engine {
	t.Helper()
	var e Engine
	var err error
	if url := os.Getenv(URL); url != "" {
		name := sha256.Sum256([]byte(dir))
		e, err = redis.Open(context.Background(), redis.Options{Conn: redisconn.Options{URL: url}, Prefix: "test-" + hex.EncodeToString(name[:8])})
	} else {
		e, err = local.Open(dir, local.Options{FS: fs})
	}
	if err != nil {
		t.Fatalf("open the storage engine: %v", err)
	}
	return e
}

// NeedsDisk skips a test that is about a disk where there is none.
func NeedsDisk(t testing.TB) {
	t.Helper()
	if os.Getenv(URL) != "" {
		t.Skip("it is about the local engine's disk, and the engine is Redis")
	}
}
