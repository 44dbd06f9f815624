// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"reflect"
	"testing"
)

// FuzzStored decodes what may be in Redis. It must be refused, or be the same when it is encoded and decoded again.
func FuzzStored(f *testing.F) {
	for _, text := range []string{
		"0 1000 0:0:1 1:1:1 2:2:1:5000", "00000000000000000009 100 -3", "0 2 100 5:1000 9:2000", "3:0 8:1", "9223372036854775807:9223372036854775807",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := parseProducer(text); err == nil {
			if again, err := parseProducer(formatProducer(p)); err != nil || !reflect.DeepEqual(again, p) {
				t.Errorf("%+v, then %+v, %v", p, again, err)
			}
		}
		if e, err := parseTimeEntry("key", text); err == nil && e.member() != text {
			t.Errorf("%+v", e)
		}
		m := meta{end: 1 << 40}
		if err := m.parsePasses(text); err == nil {
			again := meta{end: m.end}
			if err := again.parsePasses(formatPasses(&m.passes, m.cleaned)); err != nil || !reflect.DeepEqual(again, m) {
				t.Errorf("%+v, then %+v, %v", m, again, err)
			}
		}
		_, _ = parseEpochs(text)
		_, _ = parseMeta("key", map[string]string{"epoch": text, "owner": text, "start": text, "end": text, "total": text, "gone": text, "largest": text})
		if p, ok := parseMember(text); ok && memberOf(p) != text {
			t.Errorf("%v", p)
		}
	})
}
