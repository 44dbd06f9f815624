// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
)

func TestEpochEnd(t *testing.T) {
	history := epochs{starts: []storage.EpochStart{{Epoch: 2, Offset: 10}, {Epoch: 5, Offset: 30}, {Epoch: 6, Offset: 30}, {Epoch: 9, Offset: 50}}, end: 80}
	cases := map[string]struct {
		of        epochs
		asked     int32
		wantEpoch int32
		wantEnd   int64
	}{
		"the last epoch":         {history, 9, 9, 80},
		"one in the middle":      {history, 5, 5, 30},
		"one between two":        {history, 7, 6, 50},
		"the first":              {history, 2, 2, 30},
		"one older than all":     {history, 1, 1, 10},
		"one that has not begun": {history, 10, -1, -1},
		"none":                   {history, -1, -1, -1},
		"the only one":           {epochs{starts: []storage.EpochStart{{}}, end: 4}, 0, 0, 4},
		"one that has not begun, where there is one": {epochs{starts: []storage.EpochStart{{}}, end: 4}, 1, -1, -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if epoch, end := epochEnd(c.of, c.asked); epoch != c.wantEpoch || end != c.wantEnd {
				t.Errorf("epoch %d ends at %d; want %d and %d", epoch, end, c.wantEpoch, c.wantEnd)
			}
		})
	}
}

func TestEpochAt(t *testing.T) {
	history := epochs{starts: []storage.EpochStart{{Epoch: 2, Offset: 10}, {Epoch: 5, Offset: 30}, {Epoch: 6, Offset: 30}, {Epoch: 9, Offset: 50}}, end: 80}
	for offset, want := range map[int64]int32{0: 2, 10: 2, 29: 2, 30: 6, 49: 6, 50: 9, 80: 9} {
		if got := epochAt(history, offset); got != want {
			t.Errorf("offset %d is of epoch %d; want %d", offset, got, want)
		}
	}
}
