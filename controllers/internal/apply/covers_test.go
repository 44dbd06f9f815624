// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func TestCovers(t *testing.T) {
	tests := map[string]struct {
		live    string
		desired string
		want    bool
	}{
		"the same":                                {"{a: 1, b: [x, w]}", "{a: 1, b: [x, w]}", true},
		"a field that the API server defaulted":   {"{a: 1, b: 2}", "{a: 1}", true},
		"a changed number":                        {"{a: 2}", "{a: 1}", false},
		"a changed boolean, to its zero value":    {"{a: true}", "{a: false}", false},
		"a missing boolean that is meant":         {"{}", "{a: false}", false},
		"a missing field":                         {"{b: 1}", "{a: 1}", false},
		"a field of another type":                 {"{a: [1]}", "{a: {b: 1}}", false},
		"an empty map that was dropped":           {"{}", "{a: {}}", true},
		"an empty list that was dropped":          {"{}", "{a: []}", true},
		"a list in another order":                 {"{a: [w, x]}", "{a: [x, w]}", false},
		"a longer list":                           {"{a: [x, w, v]}", "{a: [x, w]}", false},
		"a shorter list":                          {"{a: [x]}", "{a: [x, w]}", false},
		"named items in another order":            {"{a: [{name: w}, {name: x, z: 1}]}", "{a: [{name: x}, {name: w}]}", true},
		"an item that someone else added":         {"{a: [{name: z}, {name: x}]}", "{a: [{name: x}]}", true},
		"a named item that is gone":               {"{a: [{name: z}]}", "{a: [{name: x}]}", false},
		"a changed field of a named item":         {"{a: [{name: x, b: 2}]}", "{a: [{name: x, b: 1}]}", false},
		"items of which two have the same name":   {"{a: [{name: x, b: 1}, {name: x, b: 2}]}", "{a: [{name: x, b: 1}, {name: x, b: 2}]}", true},
		"such items in another order":             {"{a: [{name: x, b: 2}, {name: x, b: 1}]}", "{a: [{name: x, b: 1}, {name: x, b: 2}]}", false},
		"unnamed items, and defaults within them": {"{a: [{b: 1, c: 2}]}", "{a: [{b: 1}]}", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := covers(parse(t, tc.live), parse(t, tc.desired)); got != tc.want {
				t.Errorf("covers(%s, %s) = %v, want %v", tc.live, tc.desired, got, tc.want)
			}
		})
	}
}

func parse(t *testing.T, s string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(s), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
