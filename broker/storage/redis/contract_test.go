// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

var prefixes atomic.Int64

// newPrefix is a prefix that nobody has used.
func newPrefix() string { return fmt.Sprintf("test%d", prefixes.Add(1)) }

func openEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func runContract(t *testing.T, url string) {
	fresh := func(*testing.T) enginetest.Opener {
		o := quick(url)
		return func(t *testing.T) storage.Engine { return openEngine(t, o) }
	}
	enginetest.Run(t, fresh)
	enginetest.RunShared(t, fresh)
}

func TestContract(t *testing.T) {
	runContract(t, testredis.Start(t).URL())
}

func TestContractOnACluster(t *testing.T) {
	runContract(t, testredis.StartCluster(t).URL())
}

func TestContractBySentinel(t *testing.T) {
	runContract(t, testredis.StartWatched(t).URL())
}
