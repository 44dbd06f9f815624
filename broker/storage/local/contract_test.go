// SPDX-License-Identifier: Apache-2.0

package local

import (
	"math/rand/v2"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
)

func TestContract(t *testing.T) {
	sizes := map[string]Options{
		"small segments": {SegmentBytes: 1500, IndexIntervalBytes: 300, MaxOpenFiles: 4},
		"default sizes":  {},
	}
	for name, o := range sizes {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) enginetest.Opener {
				dir := t.TempDir()
				return func(t *testing.T) storage.Engine { return openEngine(t, dir, o) }
			})
		})
	}
	t.Run("in memory", func(t *testing.T) {
		enginetest.Run(t, func(*testing.T) enginetest.Opener {
			m := newMemFS(rand.New(rand.NewPCG(1, 1)))
			return func(t *testing.T) storage.Engine { return openEngine(t, workDir, memOptions(m)) }
		})
	})
}
