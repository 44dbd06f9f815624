// SPDX-License-Identifier: Apache-2.0

package compaction

import (
	"strconv"
	"testing"
)

func TestTheMapOfKeysIsBounded(t *testing.T) {
	m := NewKeyMap()
	for _, room := range []int64{0, 1, 100, 10_000} {
		m.Reset(5000, room*KeySlotSize)
		n := int64(0)
		for ; n < 5000 && m.Put([]byte(strconv.FormatInt(n, 10)), n); n++ {
		}
		if n < 1 || n > max(room, 1) || room == 10_000 && n < 5000 {
			t.Fatalf("%d keys go into %d slots", n, room)
		}
		for key := range n {
			name := []byte(strconv.FormatInt(key, 10))
			if !m.Put(name, key+10) || !m.Put(name, key+5) || m.Newest(name) != key+10 {
				t.Fatalf("of %d keys the newest of %d is %d", n, key, m.Newest(name))
			}
		}
		if m.Newest([]byte("another")) != -1 {
			t.Fatal("a key that was never put in is there")
		}
	}
}
