// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/metadata/file"
	"github.com/ringmaster-dev/ringmaster/broker/server"
)

// frame makes a frame of a header and a body.
func frame(key, version int16, rest ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(rest)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 7)
	return append(b, rest...)
}

func TestBytesThatAreNoRequestCloseTheConnectionWithOneLine(t *testing.T) {
	b := start(t)
	cases := map[string][]byte{
		"a negative length":                    {0xff, 0xff, 0xff, 0xff},
		"a length of zero":                     {0, 0, 0, 0},
		"a length over the limit":              {0x7f, 0xff, 0xff, 0xff},
		"a large request that is no produce":   append([]byte{0x02, 0, 0, 0}, frame(3, 1)[4:]...),
		"HTTP":                                 []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"),
		"TLS":                                  {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03},
		"an unknown api key":                   frame(999, 0, 0xff, 0xff),
		"a negative api key":                   frame(-1, 0, 0xff, 0xff),
		"an api that is not offered":           frame(7, 0, 0xff, 0xff),
		"an unknown version":                   frame(3, 99, 0xff, 0xff),
		"a negative version":                   frame(3, -1, 0xff, 0xff),
		"a client id beyond the frame":         frame(3, 1, 0x00, 0xff),
		"a client id of negative length":       frame(3, 1, 0xff, 0xfe),
		"a body that is cut short":             frame(3, 1, 0xff, 0xff, 0, 0),
		"an array longer than its frame":       frame(3, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff),
		"header tags beyond the frame":         frame(3, 9, 0xff, 0xff, 0x01, 0x01, 0x7f),
		"more header tags than there is space": frame(3, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f),
	}
	lines := 0
	for name, bytes := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.dial()
			w.t = t
			w.write(bytes)
			w.closed()
		})
		lines++
		eventually(t, func() error {
			if got := b.logs.count("connection closed"); got != lines {
				return fmt.Errorf("after %q there are %d lines, not %d", name, got, lines)
			}
			return nil
		})
	}
	call[*kmsg.ApiVersionsResponse](b.dial(), newAPIVersions(), 3) // others are served
}

func TestAnUnknownVersionOfApiVersionsIsAnsweredInTheOldFormat(t *testing.T) {
	b := start(t)
	w := b.dial()
	w.write(frame(18, 99, 0xff, 0xff, 0x00))
	got, err := w.frame()
	if err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(got[4:]); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) < 20 {
		t.Errorf("error %d with %d keys", resp.ErrorCode, len(resp.ApiKeys))
	}
	if again := call[*kmsg.ApiVersionsResponse](w, newAPIVersions(), 3); again.ErrorCode != 0 {
		t.Errorf("the second try is answered with %d", again.ErrorCode)
	}
}

func TestAClientNamesItselfAsKIP511Asks(t *testing.T) {
	w := start(t).dial()
	req := newAPIVersions()
	req.ClientSoftwareName = "no spaces please"
	if resp := call[*kmsg.ApiVersionsResponse](w, req, 3); resp.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a bad name is answered with %d", resp.ErrorCode)
	}
}

func TestRequestsAreAnsweredInOrder(t *testing.T) {
	b := start(t)
	b.create("ordered", 1)
	w := b.dial()
	// The first waits for half a second, and the others are read meanwhile.
	fetch := fetchRequest("ordered", 0)
	fetch.MaxWaitMillis, fetch.MinBytes = 500, 1
	requests, ids := []kmsg.Request{fetch}, []int32{w.send(fetch, 11)}
	for range 200 {
		req := newAPIVersions()
		requests, ids = append(requests, req), append(ids, w.send(req, 3))
	}
	for i, req := range requests {
		if _, err := w.receive(req, ids[i]); err != nil {
			t.Fatalf("response %d: %v", i, err)
		}
	}
}

func TestALongWaitHoldsUpNoOtherConnection(t *testing.T) {
	b := start(t)
	b.create("patient", 1)
	waiting := b.dial()
	fetch := fetchRequest("patient", 0)
	fetch.MaxWaitMillis, fetch.MinBytes = 60000, 1
	id := waiting.send(fetch, 11)
	for range 20 {
		call[*kmsg.ApiVersionsResponse](b.dial(), newAPIVersions(), 3)
	}
	call[*kmsg.ProduceResponse](b.dial(), produceRequest("patient", -1, batchOf(0, "x")), 9)
	if _, err := waiting.receive(fetch, id); err != nil {
		t.Fatal(err)
	}
}

func TestAFrameInSmallPiecesIsRead(t *testing.T) {
	b := start(t)
	w := b.dial()
	req := newAPIVersions()
	req.SetVersion(3)
	for _, c := range kmsg.NewRequestFormatter().AppendRequest(nil, req, 1) {
		w.write([]byte{c})
	}
	if _, err := w.receive(req, 1); err != nil {
		t.Fatal(err)
	}
}

func TestALargeRequestIsTakenAndATooLargeOneIsNot(t *testing.T) {
	b := start(t, func(c *server.Config, _ *file.Options) { c.MaxRequestBytes = 4 << 20 })
	limit := "8000000"
	if _, err := b.admin().CreateTopic(b.ctx(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "large"); err != nil {
		t.Fatal(err)
	}
	w := b.dial()
	p := produced(call[*kmsg.ProduceResponse](w, produceRequest("large", -1, batchOf(0, strings.Repeat("x", 3<<20))), 9))
	if p.ErrorCode != 0 {
		t.Errorf("3 MiB are answered with %d", p.ErrorCode)
	}
	w.write(binary.BigEndian.AppendUint32(nil, 5<<20))
	w.closed()
}

func TestConnectionsAreLimited(t *testing.T) {
	cases := map[string]option{
		"in all":         func(c *server.Config, _ *file.Options) { c.MaxConnections = 3 },
		"by one address": func(c *server.Config, _ *file.Options) { c.MaxConnectionsPerIP = 3 },
	}
	for name, limit := range cases {
		t.Run(name, func(t *testing.T) {
			b := start(t, limit)
			var open []*wire
			for range 3 {
				w := b.dial()
				call[*kmsg.ApiVersionsResponse](w, newAPIVersions(), 3)
				open = append(open, w)
			}
			b.dial().closed()
			open[0].nc.Close()
			eventually(t, func() error { // the place is free once the broker has seen the end
				w := b.dial()
				req := newAPIVersions()
				_, err := w.receive(req, w.send(req, 3))
				return err
			})
		})
	}
}

func TestAnIdleConnectionIsClosedAndAWaitingOneIsNot(t *testing.T) {
	b := start(t, func(c *server.Config, _ *file.Options) { c.IdleTimeout = 100 * time.Millisecond })
	b.create("idle", 1)
	waiting, idle := b.dial(), b.dial()
	fetch := fetchRequest("idle", 0)
	fetch.MaxWaitMillis, fetch.MinBytes = 700, 1
	id := waiting.send(fetch, 11)
	idle.closed()
	if _, err := waiting.receive(fetch, id); err != nil {
		t.Errorf("a connection with a request under way: %v", err)
	}
	waiting.closed()
}

func TestAServerThatStopsAnswersWhatIsUnderWay(t *testing.T) {
	b := start(t)
	b.create("last", 1)
	waiting, producing := b.dial(), b.dial()
	fetch := fetchRequest("last", 0)
	fetch.MaxWaitMillis, fetch.MinBytes = 60000, 1
	fetchID := waiting.send(fetch, 11)

	reached, release := make(chan struct{}, 1), make(chan struct{})
	b.engine.set(func(e *faults) {
		e.onAppend = func() { reached <- struct{}{}; <-release }
	})
	produce := produceRequest("last", -1, batchOf(0, "x"))
	produceID := producing.send(produce, 9)
	<-reached
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	if _, err := waiting.receive(fetch, fetchID); err != nil {
		t.Errorf("a fetch that waits: %v", err)
	}
	waiting.closed()
	close(release)
	resp, err := producing.receive(produce, produceID)
	if err != nil {
		t.Fatalf("a produce under way: %v", err)
	}
	if r, ok := resp.(*kmsg.ProduceResponse); !ok || produced(r).ErrorCode != 0 {
		t.Errorf("the produce is answered with %+v", resp)
	}
	<-stopped
	if nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.addr); err == nil {
		nc.Close()
		t.Error("the broker still takes connections")
	}
}

func TestAServerThatStopsDoesNotWaitForEver(t *testing.T) {
	b := start(t, func(c *server.Config, _ *file.Options) { c.ShutdownTimeout = 100 * time.Millisecond })
	b.create("stuck", 1)
	release := make(chan struct{})
	reached := make(chan struct{}, 1)
	b.engine.set(func(e *faults) { e.onAppend = func() { reached <- struct{}{}; <-release } })
	w := b.dial()
	w.send(produceRequest("stuck", -1, batchOf(0, "x")), 9)
	<-reached
	time.AfterFunc(150*time.Millisecond, func() { close(release) })
	b.stop()
	w.closed()
}

func TestAnAddressInUseIsOneClearError(t *testing.T) {
	b := start(t)
	_, err := server.New(server.Config{NodeID: 1, Listen: b.addr, Metadata: b.meta, Engine: b.engine})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestWhatAClientSentBeforeItLeftIsDone(t *testing.T) {
	b := start(t)
	b.create("farewell", 1)
	w := b.dial()
	for i := range 50 {
		w.send(produceRequest("farewell", 0, batchOf(0, fmt.Sprint(i))), 9)
	}
	w.nc.Close()
	eventually(t, func() error { return endsAt(b, "farewell", 50) })
}

// endsAt says whether partition 0 of a topic ends at an offset.
func endsAt(b *broker, topic string, want int64) error {
	ends, err := b.admin().ListEndOffsets(b.ctx(), topic)
	if err != nil {
		return err
	}
	o, ok := ends.Lookup(topic, 0)
	if !ok || o.Err != nil {
		return fmt.Errorf("topic %s: %w", topic, o.Err)
	}
	if o.Offset != want {
		return fmt.Errorf("topic %s ends at %d, not at %d", topic, o.Offset, want)
	}
	return nil
}

func TestAProduceWithoutAcksThatFailsClosesTheConnection(t *testing.T) {
	b := start(t)
	w := b.dial()
	w.send(produceRequest("nowhere", 0, batchOf(0, "x")), 9)
	if _, err := w.frame(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the connection", err)
	}
}

func TestClientsOfManyConnectionsAreServedAtOnce(t *testing.T) {
	b := start(t)
	b.create("busy", 8)
	const clients, each = 20, 50
	errs := make(chan error, clients)
	for i := range clients {
		producer := b.client(kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		go func() {
			var records []*kgo.Record
			for n := range each {
				records = append(records, &kgo.Record{Topic: "busy", Key: fmt.Appendf(nil, "%d-%d", i, n), Value: []byte("v")})
			}
			errs <- producer.ProduceSync(b.t.Context(), records...).FirstErr()
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if got := consumeAll(t, b, "busy", clients*each); len(got) != clients*each {
		t.Errorf("%d records came back", len(got))
	}
}
