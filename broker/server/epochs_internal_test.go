// SPDX-License-Identifier: Apache-2.0

package server

import "testing"

func TestEpochEnd(t *testing.T) {
	history := epochs{starts: []epochStart{{2, 10}, {5, 30}, {6, 30}, {9, 50}}, end: 80}
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
		"the only one":           {epochs{starts: []epochStart{{0, 0}}, end: 4}, 0, 0, 4},
		"one that has not begun, where there is one": {epochs{starts: []epochStart{{0, 0}}, end: 4}, 1, -1, -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if epoch, end := epochEnd(c.of, c.asked); epoch != c.wantEpoch || end != c.wantEnd {
				t.Errorf("epoch %d ends at %d; want %d and %d", epoch, end, c.wantEpoch, c.wantEnd)
			}
		})
	}
}
