// SPDX-License-Identifier: Apache-2.0

package brokers

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTap(t *testing.T) {
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.SetVersion(3)
	hello.ClientSoftwareName, hello.ClientSoftwareVersion = "some-client", "1.2"
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.SetVersion(4)
	large := kmsg.NewPtrProduceRequest()
	large.SetVersion(3)
	large.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 3*maxTapped)}}}}
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("web-0"))
	var sent, answered []byte
	for i, r := range []kmsg.Request{hello, large, beat} {
		sent = append(sent, format.AppendRequest(nil, r, int32(i))...)
	}
	for _, correlation := range []byte{0, 2} {
		answered = append(answered, 0, 0, 0, 6, 0, 0, 0, correlation, 9, 9)
	}
	cases := map[string]int{"all bytes at once": len(sent), "byte by byte": 1, "in pieces of 7 bytes": 7, "in pieces of 100 kB": 100_000}
	for name, size := range cases {
		t.Run(name, func(t *testing.T) {
			tap := NewTap()
			requests, responses := tap.connection()
			for _, way := range []struct {
				to    *frames
				bytes []byte
			}{{requests, sent}, {responses, answered}} {
				for piece := range slices.Chunk(way.bytes, size) {
					if n, err := way.to.Write(piece); n != len(piece) || err != nil {
						t.Fatalf("Write = %d, %v", n, err)
					}
				}
			}
			if got := tap.Software("web-0"); !slices.Equal(got, []string{"some-client 1.2"}) {
				t.Errorf("the client calls itself %q", got)
			}
			var keys []int16
			var unanswered int
			for _, e := range tap.Exchanges("web-0") {
				keys = append(keys, e.Key)
				if e.Took < 0 {
					unanswered++
				}
			}
			if want := []int16{18, 0, 12}; !slices.Equal(keys, want) || unanswered != 1 {
				t.Errorf("the requests are %v, %d of them without an answer, want %v and 1", keys, unanswered, want)
			}
			if got := tap.Exchanges("web-1"); got != nil {
				t.Errorf("a client that never came sent %v", got)
			}
		})
	}
}
