// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ringmaster-dev/ringmaster/broker/coordinator"
	"github.com/ringmaster-dev/ringmaster/broker/metadata"
)

// startHoldingBroker starts a broker that holds heartbeats for as long as a third of a session, with a managed group of two pods. Time passes for groups when a test says so.
func startHoldingBroker(t *testing.T, hold time.Duration) *groupBroker {
	t.Helper()
	b := startGroupBroker(t)
	b.stop()
	b.groups.HeartbeatHold = hold
	b.start()
	b.plan(1, pod("web-0", "127.0.0.2", 0, 1), pod("web-1", "127.0.0.3", 2, 3))
	b.loaded()
	return b
}

// beater is a member of the classic protocol that sends one thing at a time, over one connection.
type beater struct {
	*rawConn
	b          *groupBroker
	id         string
	generation int32
}

// beater makes a member in the pod that has an address. The client says its name and version, unless they are empty.
func (b *groupBroker) beater(ip, software, version string) *beater {
	b.t.Helper()
	m := &beater{b: b}
	m.connect(ip)
	if software != "" {
		m.say(software, version)
	}
	m.join()
	return m
}

// connect gives the member a new connection from an address.
func (m *beater) connect(ip string) {
	t := m.b.t
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn, err := d.DialContext(t.Context(), "tcp", m.b.address)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m.rawConn = &rawConn{t: t, conn: conn}
}

// say tells the client's name and version (KIP-511).
func (m *beater) say(software, version string) {
	m.t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = software, version
	m.send(req, 3)
	m.answer()
}

// answer reads the next answer and returns the correlation id of its request and what follows.
func (m *beater) answer() (id int32, body []byte) {
	m.t.Helper()
	var size [4]byte
	if err := m.conn.SetReadDeadline(time.Now().Add(groupDeadline)); err != nil {
		m.t.Fatal(err)
	}
	if _, err := io.ReadFull(m.conn, size[:]); err != nil {
		m.t.Fatalf("read an answer: %v", err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(m.conn, frame); err != nil {
		m.t.Fatalf("read an answer: %v", err)
	}
	return int32(binary.BigEndian.Uint32(frame)), frame[4:]
}

// join joins, anew or again, and asks for the member's share.
func (m *beater) join() {
	m.t.Helper()
	m.enter()
	m.share()
}

// enter joins, and sends a SyncGroup.
func (m *beater) enter() {
	m.t.Helper()
	join := joinRequest("g")
	join.SessionTimeoutMillis, join.MemberID = int32((30 * time.Minute).Milliseconds()), m.id
	m.send(join, 3)
	joined := kmsg.NewPtrJoinGroupResponse()
	joined.SetVersion(3)
	if err := m.receive(joined); err != nil || joined.ErrorCode != codeNone {
		m.t.Fatalf("join: %v, error code %d", err, joined.ErrorCode)
	}
	m.id, m.generation = joined.MemberID, joined.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = "g", m.id, m.generation
	m.send(sync, 2)
}

// share reads the answer to a SyncGroup.
func (m *beater) share() []coordinator.TopicPartitions {
	m.t.Helper()
	synced := kmsg.NewPtrSyncGroupResponse()
	synced.SetVersion(2)
	if err := m.receive(synced); err != nil || synced.ErrorCode != codeNone {
		m.t.Fatalf("sync: %v, error code %d", err, synced.ErrorCode)
	}
	return decodeShares(map[string][]byte{m.id: synced.MemberAssignment})[m.id]
}

// beat sends a heartbeat and returns its correlation id.
func (m *beater) beat() int32 {
	m.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = "g", m.id, m.generation
	m.send(req, 2)
	return m.next
}

// told reads the answer to a heartbeat and compares it.
func (m *beater) told(id int32, want int16) {
	m.t.Helper()
	got, body := m.answer()
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.SetVersion(2)
	if err := resp.ReadFrom(body); err != nil || got != id || resp.ErrorCode != want {
		m.t.Fatalf("the answer to request %d is error code %d, %v; want that to %d to be %d", got, resp.ErrorCode, err, id, want)
	}
}

// beats sends heartbeats that are answered at once, by which the broker learns that the member sends one every minute.
func (m *beater) beats() {
	m.t.Helper()
	m.told(m.beat(), codeNone)
	m.b.pass(time.Minute)
}

// held has the member send a heartbeat that is held, as the n-th.
func (m *beater) held(n int) int32 {
	m.t.Helper()
	m.beats()
	id := m.beat()
	m.b.holds(n)
	return id
}

// holds waits until n requests wait in the group, which are heartbeats that are held.
func (b *groupBroker) holds(n int) {
	b.t.Helper()
	h := b.hosted("g")
	eventually(b.t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.waiting) != n || len(h.decided) > 0 {
			return fmt.Errorf("%d requests wait, want %d", len(h.waiting), n)
		}
		return nil
	})
}

func TestAPlanIsHeardOfAtOnceByThoseThatItConcerns(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	one, two := b.beater("127.0.0.2", "apache-kafka-java", "4.1.0"), b.beater("127.0.0.3", "librdkafka", "2.11.0")
	one.told(one.beat(), codeNone)
	two.beats()
	ofOne, ofTwo := one.beat(), two.beat()
	b.holds(2)
	b.plan(2, pod("web-0", "127.0.0.2", 0), pod("web-1", "127.0.0.3", 2, 3))
	one.told(ofOne, coordinator.ErrRebalanceInProgress)
	b.holds(1)
	one.join()
	b.holds(1)
	b.plan(3, pod("web-0", "127.0.0.2", 0), pod("web-1", "127.0.0.3", 2, 3, 4))
	two.told(ofTwo, coordinator.ErrRebalanceInProgress)
	b.holds(0)
}

func TestASyncIsHeldUntilItsPodIsAMember(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	m := &beater{b: b}
	m.connect("127.0.0.4")
	m.say("apache-kafka-java", "4.1.0")
	m.enter()
	b.holds(1)
	b.plan(2, pod("web-0", "127.0.0.2", 0, 1), pod("web-1", "127.0.0.3", 2), pod("web-2", "127.0.0.4", 3))
	if diff := cmp.Diff([]coordinator.TopicPartitions{{Topic: "orders", Partitions: []int32{3}}}, m.share()); diff != "" {
		t.Errorf("the share (-want +got):\n%s", diff)
	}
	b.pass(time.Minute)
	id := m.beat() // its first: it came a minute after the share
	b.holds(1)
	b.plan(3, pod("web-0", "127.0.0.2", 0, 1), pod("web-1", "127.0.0.3", 2), pod("web-2", "127.0.0.4"))
	m.told(id, coordinator.ErrRebalanceInProgress)
}

func TestASyncThatIsHeldIsAnsweredBeforeWhatFollowsIt(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	m := &beater{b: b}
	m.connect("127.0.0.4")
	m.enter()
	b.holds(1)
	id := m.beat()
	if share := m.share(); len(share) > 0 {
		t.Errorf("the share is %v", share)
	}
	m.told(id, codeNone)
}

func TestAHeldHeartbeatIsAnsweredBeforeWhatFollowsIt(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	m := b.beater("127.0.0.2", "apache-kafka-java", "4.1.0")
	first := m.held(1)
	commit := commitOne("g", 5)
	commit.MemberID, commit.Generation = m.id, m.generation
	m.send(commit, 7)
	m.told(first, codeNone)
	if id, _ := m.answer(); id != first+1 {
		t.Errorf("the answer after it is to request %d, want %d", id, first+1)
	}
	if got := b.offsetOf("g"); got != 5 {
		t.Errorf("the offset is %d, want 5", got)
	}
	second := m.beat() // soon after the first: the interval is not what it seemed
	m.told(second, codeNone)
	b.pass(time.Minute)
	third := m.beat()
	b.holds(1)
	b.pass(time.Minute)
	fourth := m.beat()
	m.told(third, codeNone)
	b.holds(1)
	b.pass(10 * time.Minute)
	m.told(fourth, codeNone)
}

func TestAHeldHeartbeatIsAnsweredAtItsTimeAndMasksNoDeath(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	m := b.beater("127.0.0.2", "apache-kafka-java", "4.1.0")
	id := m.held(1)
	b.pass(time.Minute - heartbeatMargin)
	m.told(id, codeNone)
	b.pass(30 * time.Minute)
	m.told(m.beat(), coordinator.ErrUnknownMemberID)
}

func TestWhenTheBrokerStopsAHeldHeartbeatIsAnswered(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	m := b.beater("127.0.0.2", "apache-kafka-java", "4.1.0")
	id := m.held(1)
	b.stop()
	m.told(id, codeNone)
}

func TestWhenTheCoordinatorMovesAHeldHeartbeatSaysSo(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	m := b.beater("127.0.0.2", "apache-kafka-java", "4.1.0")
	id := m.held(1)
	b.md.lead(topicConsumerOffsets, 2)
	m.told(id, codeNotCoordinator)
}

func TestAHeldHeartbeatEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, time.Hour)
	m := b.beater("127.0.0.2", "apache-kafka-java", "4.1.0")
	m.held(1)
	if err := m.conn.Close(); err != nil {
		t.Fatal(err)
	}
	b.holds(0)
	dead := pod("web-0", "127.0.0.2", 0, 1)
	dead.Alive = false
	b.plan(1, dead, pod("web-1", "127.0.0.3", 2, 3)) // the second witness
	eventually(t, func() error {
		if d, _, _ := b.server.groups.describe(t.Context(), "g"); len(d.Members) > 0 {
			return fmt.Errorf("there are %d members", len(d.Members))
		}
		return nil
	})
}

func TestWhoseHeartbeatsAreHeld(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		software, version string
		hold              time.Duration
		// before is what the member does before its third heartbeat.
		before func(m *beater)
		want   bool
	}{
		"Kafka's own client":        {software: "apache-kafka-java", version: "4.1.0", want: true},
		"librdkafka":                {software: "librdkafka", version: "2.11.0", want: true},
		"what builds on librdkafka": {software: "confluent-kafka-python", version: "2.11.0-librdkafka-2.11.0", want: true},
		"franz-go":                  {software: "kgo", version: "v1.22.3", want: true},
		"kafka-python 3":            {software: "kafka-python", version: "3.0.12", want: true},
		"not kafka-python 2":        {software: "kafka-python", version: "2.3.3"},
		"not Sarama":                {software: "sarama", version: "1.46.0"},
		"a client that has said on another connection what it is": {
			software: "kgo", version: "v1.22.3", want: true,
			before: func(m *beater) {
				m.connect("127.0.0.2")
				m.beats()
			},
		},
		"not a client that is mute":  {},
		"not one that says no more":  {software: "apache-kafka-java", version: "4.1.0", before: func(m *beater) { m.say("sarama", "1.46.0") }},
		"not where it is turned off": {software: "apache-kafka-java", version: "4.1.0", hold: -1},
		"not on a connection that has carried a Fetch": {
			software: "apache-kafka-java", version: "4.1.0",
			before: func(m *beater) {
				fetch := kmsg.NewPtrFetchRequest()
				fetch.SessionEpoch = -1
				m.send(fetch, 11)
				m.answer()
			},
		},
		"not where its request is not the last that has come": {
			software: "apache-kafka-java", version: "4.1.0",
			before: func(m *beater) {
				heartbeat := kmsg.NewPtrHeartbeatRequest()
				heartbeat.Group, heartbeat.MemberID, heartbeat.Generation = "g", m.id, m.generation
				heartbeat.SetVersion(2)
				f := kmsg.NewRequestFormatter()
				if _, err := m.conn.Write(append(f.AppendRequest(nil, heartbeat, 1), f.AppendRequest(nil, heartbeat, 2)...)); err != nil {
					m.t.Fatal(err)
				}
				m.told(1, codeNone)
				m.told(2, codeNone)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.hold == 0 {
				tc.hold = time.Hour
			}
			b := startHoldingBroker(t, tc.hold)
			m := b.beater("127.0.0.2", tc.software, tc.version)
			m.beats()
			if tc.before != nil {
				tc.before(m)
			}
			id := m.beat()
			if tc.want {
				b.holds(1)
				b.pass(time.Minute)
			}
			m.told(id, codeNone)
		})
	}
}

func TestHowOftenAClientSendsHeartbeatsIsLearnt(t *testing.T) {
	t.Parallel()
	type came struct {
		after time.Duration
		// held and refused are what the answer was.
		held, refused bool
		// member and generation are others than before.
		member     string
		generation int32
	}
	cases := map[string]struct {
		came []came
		want time.Duration
	}{
		"not by one":                      {came: []came{{}}},
		"by two":                          {came: []came{{}, {after: time.Second}}, want: time.Second},
		"by the last two":                 {came: []came{{}, {after: time.Second}, {after: 3 * time.Second}}, want: 3 * time.Second},
		"not by two members'":             {came: []came{{}, {after: time.Second, member: "b"}}},
		"not over a rebalance":            {came: []came{{}, {after: time.Second, generation: 1}}},
		"not where the first was refused": {came: []came{{refused: true}, {after: time.Second}}},
		"it stays while heartbeats are held": {
			came: []came{{}, {after: 3 * time.Second, held: true}, {after: 2950 * time.Millisecond, held: true}, {after: 5900 * time.Millisecond, held: true}},
			want: 3 * time.Second,
		},
		"it is forgotten where the next one comes sooner": {came: []came{{}, {after: 3 * time.Second, held: true}, {after: time.Second}}},
		"it is forgotten where the next one comes far later": {
			came: []came{{}, {after: 300 * time.Millisecond, held: true}, {after: 3 * time.Second}},
		},
		"and learnt anew": {
			came: []came{{}, {after: 300 * time.Millisecond, held: true}, {after: 3 * time.Second}, {after: 3 * time.Second}}, want: 3 * time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p beatPace
			now := time.Unix(0, 0)
			for _, c := range tc.came {
				now = now.Add(c.after)
				p.came(memberKey{"g", c.member}, c.generation, now)
				r := coordinator.Reply{Held: c.held}
				if c.refused {
					r.Err = coordinator.ErrRebalanceInProgress
				}
				p.answered(r)
			}
			if p.interval != tc.want {
				t.Errorf("the interval is %s, want %s", p.interval, tc.want)
			}
		})
	}
}

// A client whose heartbeats are seconds apart would not hear of so many plans in the test's time but for its held heartbeats.
func TestAFranzGoClientHearsOfPlansAtOnce(t *testing.T) {
	t.Parallel()
	b := startHoldingBroker(t, 0)
	b.plan(1, pod("web-0", "127.0.0.2", 0, 1))
	m := b.join("web-0", "g", from("127.0.0.2"), kgo.HeartbeatInterval(2*time.Second))
	m.holds(t, 0, 1)
	generation := int32(1)
	for range 3 {
		b.holds(1)
		generation++
		b.plan(generation, pod("web-0", "127.0.0.2", 0, 1, 2))
		m.holds(t, 0, 1, 2)
		b.holds(1)
		generation++
		b.plan(generation, pod("web-0", "127.0.0.2", 0, 1), metadata.GroupMember{Pod: "web-1", UID: "u", IP: "127.0.0.3", Alive: true})
		m.holds(t, 0, 1)
	}
}
