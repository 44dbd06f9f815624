// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

const worldSteps = 40

// countOps is how many ops a life without faults has.
func countOps(t testing.TB, seed uint64, kind worldKind) int {
	m := newMemFS(rand.New(rand.NewPCG(seed, 2)))
	w := newWorld(t, m, seed, kind)
	if w.live(worldSteps) {
		t.Fatal("crashed without a fault")
	}
	w.check()
	m.mu.Lock() // a sync that nobody waited for may still be going on
	defer m.mu.Unlock()
	return m.ops
}

// eachWorld runs a test of worlds of every kind with a few seeds, and every op that their lives have.
func eachWorld(t *testing.T, rounds uint64, fn func(t *testing.T, seed uint64, kind worldKind, n int)) {
	seed := testSeed(t)
	if testing.Short() {
		rounds = 1
	}
	for name, kind := range worldKinds {
		t.Run(name, func(t *testing.T) {
			for s := seed; s < seed+rounds; s++ {
				ops := countOps(t, s, kind)
				for n := 1; n <= ops; n++ {
					fn(t, s, kind, n)
				}
				t.Logf("seed %d: %d ops", s, ops)
			}
		})
	}
}

func TestEveryAcknowledgedRecordSurvivesACrashAtEveryOp(t *testing.T) {
	eachWorld(t, 2, func(t *testing.T, seed uint64, kind worldKind, n int) {
		for name, keep := range map[string]float64{"nothing": 0, "everything": 1, "some": 0.5} {
			crashAt(t, seed, kind, n, name, keep)
		}
	})
}

func crashAt(t *testing.T, seed uint64, kind worldKind, n int, name string, keep float64) {
	t.Helper()
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("seed %d, crash at op %d, keeping %s of what was not synced", seed, n, name)
		}
	}()
	m := newMemFS(rand.New(rand.NewPCG(seed, uint64(n))))
	m.fault = crashFrom(n)
	w := newWorld(t, m, seed, kind)
	w.live(worldSteps)
	w.crash()
	w.after(m.crashed(keep))
}

// crashFrom crashes the machine at an op.
func crashFrom(n int) func(string, int) error {
	return func(_ string, op int) error {
		if op >= n {
			return errCrash
		}
		return nil
	}
}

// A process that dies leaves the page cache, in which there may be what never reached the disk. The machine dies after the restart.
func TestEveryAcknowledgedRecordSurvivesAKillAndThenACrash(t *testing.T) {
	eachWorld(t, 1, func(t *testing.T, seed uint64, kind worldKind, n int) {
		defer func() {
			if t.Failed() {
				t.Logf("seed %d, kill at op %d", seed, n)
			}
		}()
		m := newMemFS(rand.New(rand.NewPCG(seed, uint64(n))))
		m.fault = crashFrom(n)
		w := newWorld(t, m, seed, kind)
		w.live(worldSteps)
		m.die()
		k := m.killed()
		w.restart(k)
		w.check()
		served := w.l.HighWatermark()
		w.weak = map[int64]bool{} // a start makes durable what it serves
		if kind.flush {
			w.after(k.crashed(0))
			return
		}
		w.checkProducer()
		w.after(k.crashed(0))
		if w.l.HighWatermark() < served {
			t.Fatalf("records were served up to %d, and are gone", served)
		}
	})
}

func TestEveryAcknowledgedRecordSurvivesAFaultAtEveryOp(t *testing.T) {
	faults := map[string]error{"no room": syscall.ENOSPC, "input/output error": syscall.EIO}
	eachWorld(t, 1, func(t *testing.T, seed uint64, kind worldKind, n int) {
		for name, fault := range faults {
			faultAt(t, seed, kind, n, name, fault)
		}
	})
}

func faultAt(t *testing.T, seed uint64, kind worldKind, n int, name string, fault error) {
	t.Helper()
	defer func() {
		t.Helper()
		if t.Failed() {
			t.Logf("seed %d, %s at op %d", seed, name, n)
		}
	}()
	m := newMemFS(rand.New(rand.NewPCG(seed, uint64(n))))
	m.fault = func(op string, i int) error {
		if i == n {
			return fmt.Errorf("%s: %w", op, fault)
		}
		return nil
	}
	w := newWorld(t, m, seed, kind)
	if w.live(worldSteps) {
		t.Fatal("crashed without a crash")
	}
	w.check()
	w.crash()
	w.after(m.crashed(0.5))
}
