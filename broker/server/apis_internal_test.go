// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// kafka-python and others guess a broker's release from what it offers, and then use all that the release has.
func TestWhatIsOfferedFitsKafka42(t *testing.T) {
	release := kversion.V4_2_0()
	for i, a := range apiTable() {
		if highest, known := release.LookupMaxKeyVersion(a.key); !known || a.max > highest {
			t.Errorf("%s is offered up to v%d; Kafka 4.2 has v%d (%v)", kmsg.NameForKey(a.key), a.max, highest, known)
		}
		if i > 0 && a.key <= apiTable()[i-1].key {
			t.Errorf("%s is not in order", kmsg.NameForKey(a.key))
		}
		if req := kmsg.RequestForKey(a.key); req.MaxVersion() < a.max {
			t.Errorf("%s v%d cannot be decoded", kmsg.NameForKey(a.key), a.max)
		}
	}
}
