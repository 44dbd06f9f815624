// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tokens of the heartbeats that the clients a and b have sent first.
const (
	beatOfA Token = 100
	beatOfB Token = 200
)

// holdingGroup is a managed group of the pods web-0 and web-1, whose clients a and b have their shares, orders 0 and 1, and orders 2 and 3.
type holdingGroup struct {
	t   *testing.T
	g   *Group
	now time.Time
	// answers are the codes that came since they were last looked at, by token.
	answers map[Token]int16
	last    Output
	// watch sees every reply, if it is set.
	watch func(Reply)
}

func newHoldingGroup(t *testing.T) *holdingGroup {
	t.Helper()
	h := &holdingGroup{t: t, g: New("billing", Options{}), now: time.Unix(0, 0), answers: map[Token]int16{}}
	h.plan(1, h.pod(0, 0, 1), h.pod(1, 2, 3))
	h.join("a")
	h.sync("a")
	h.join("b")
	h.sync("b")
	clear(h.answers)
	return h
}

// hold has both clients send a heartbeat that is held for three seconds.
func (h *holdingGroup) hold() {
	h.t.Helper()
	h.beat("a", beatOfA, 3*time.Second)
	h.beat("b", beatOfB, 3*time.Second)
	h.answered(nil)
}

func (h *holdingGroup) step(in Input) {
	h.t.Helper()
	h.last = h.g.Step(h.now, in)
	for _, r := range h.last.Replies {
		if _, twice := h.answers[r.Token]; twice && r.Token != 0 {
			h.t.Errorf("token %d is answered twice", r.Token)
		}
		h.answers[r.Token] = r.Err
		if h.watch != nil {
			h.watch(r)
		}
	}
	h.check()
}

// check holds the group against what heldBeats promises.
func (h *holdingGroup) check() {
	h.t.Helper()
	held := &h.g.held
	if len(held.of) != len(held.byDue) || len(held.lacking) > len(held.of) {
		h.t.Fatalf("%d heartbeats are held, %d of them in order, and %d lack something", len(held.of), len(held.byDue), len(held.lacking))
	}
	for id, b := range held.of {
		m, ok := h.g.stillHeld(b)
		switch {
		case !ok:
			h.t.Errorf("%q is held, and there is something to say", id)
		case !b.due.After(h.now) || b.due.After(m.session) || h.last.Deadline.After(b.due):
			h.t.Errorf("%q is held until %s, its session until %s, and the next step is at %s", id, b.due, m.session, h.last.Deadline)
		case held.lacking[id] != (b.sync != nil || len(m.client.last) < len(m.client.target)) || held.byDue[b.place] != b:
			h.t.Errorf("%q is not noted as it is", id)
		}
	}
}

// answered compares what was answered since it was last called.
func (h *holdingGroup) answered(want map[Token]int16) {
	h.t.Helper()
	if want == nil {
		want = map[Token]int16{}
	}
	delete(h.answers, 0)
	if diff := cmp.Diff(want, h.answers); diff != "" {
		h.t.Errorf("the answers (-want +got):\n%s", diff)
	}
	clear(h.answers)
}

func (h *holdingGroup) pass(d time.Duration) {
	h.t.Helper()
	h.now = h.now.Add(d)
	h.step(Tick{})
}

func (*holdingGroup) pod(n byte, partitions ...int32) PlanMember {
	return PlanMember{
		Pod: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("u%d", n), IP: fmt.Sprintf("10.0.0.%d", n), Alive: true,
		Share: []TopicPartitions{{"orders", partitions}},
	}
}

func (h *holdingGroup) plan(generation int32, members ...PlanMember) {
	h.t.Helper()
	h.step(Plan{Managed: true, Generation: generation, Members: members, HandoffTimeout: time.Minute})
}

// client is what is known of a client; a runs in web-0, b in web-1, and so on.
func (*holdingGroup) client(id string) Client {
	return Client{MemberID: id, ClientID: "app", Host: fmt.Sprintf("10.0.0.%d", id[0]-'a')}
}

func (h *holdingGroup) generation(id string) int32 {
	if m := h.g.members[id]; m != nil {
		return m.generation
	}
	return -1
}

func (h *holdingGroup) beat(id string, t Token, hold time.Duration) {
	h.t.Helper()
	h.step(Heartbeat{Token: t, Client: h.client(id), Generation: h.generation(id), Hold: hold})
}

// join has a client join, anew or again; it gives up all that it holds.
func (h *holdingGroup) join(id string) {
	h.t.Helper()
	in := Join{
		Client: h.client(id), NewMemberID: id, SessionTimeout: 9 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer",
		Protocols: []Protocol{{Name: "range"}}, Subscription: &Subscription{Topics: []string{"orders"}},
	}
	if h.g.members[id] == nil {
		in.Client.MemberID = ""
	}
	h.step(in)
}

func (h *holdingGroup) sync(id string) {
	h.t.Helper()
	h.step(Sync{Client: h.client(id), Generation: h.generation(id)})
}

func TestAHeldHeartbeatIsAnsweredWhenThereIsSomethingToSay(t *testing.T) {
	t.Parallel()
	both := map[Token]int16{beatOfA: ErrNone, beatOfB: ErrNone}
	tests := map[string]struct {
		do   func(h *holdingGroup)
		want map[Token]int16
	}{
		"nothing while nothing happens": {do: func(h *holdingGroup) { h.pass(3*time.Second - 1) }},
		"success when its time is over": {do: func(h *holdingGroup) { h.pass(3 * time.Second) }, want: both},
		"success when its time has been over for long, before the session's is": {
			do: func(h *holdingGroup) { h.pass(8 * time.Second) }, want: both,
		},
		"to join again where a partition was taken, and the others hear nothing": {
			do: func(h *holdingGroup) {
				h.join("c")
				h.plan(2, h.pod(0, 0), h.pod(1, 2, 3), h.pod(2, 1))
			},
			want: map[Token]int16{beatOfA: ErrRebalanceInProgress},
		},
		"nothing where a partition is for a pod that has no client": {do: func(h *holdingGroup) { h.plan(2, h.pod(0, 0), h.pod(1, 2, 3), h.pod(2, 1)) }},
		"to join again when that client joins": {
			do: func(h *holdingGroup) {
				h.plan(2, h.pod(0, 0), h.pod(1, 2, 3), h.pod(2, 1))
				h.join("c")
			},
			want: map[Token]int16{beatOfA: ErrRebalanceInProgress},
		},
		"nothing where a plan gives a partition that another still holds": {
			do:   func(h *holdingGroup) { h.plan(2, h.pod(0, 0), h.pod(1, 1, 2, 3)) },
			want: map[Token]int16{beatOfA: ErrRebalanceInProgress},
		},
		"to join again when the other has let go of it": {
			do: func(h *holdingGroup) {
				h.plan(2, h.pod(0, 0), h.pod(1, 1, 2, 3))
				h.join("a")
			},
			want: map[Token]int16{beatOfA: ErrRebalanceInProgress, beatOfB: ErrRebalanceInProgress},
		},
		"to join again when the other is fenced": {
			do: func(h *holdingGroup) {
				h.step(Plan{Managed: true, Generation: 2, Members: []PlanMember{h.pod(0, 0), h.pod(1, 1, 2, 3)}, HandoffTimeout: 2 * time.Second})
				h.answered(map[Token]int16{beatOfA: ErrRebalanceInProgress})
				h.pass(2 * time.Second)
			},
			want: map[Token]int16{beatOfB: ErrRebalanceInProgress},
		},
		"to join again where a plan gives a partition that is free": {
			do:   func(h *holdingGroup) { h.plan(2, h.pod(0, 0, 1), h.pod(1, 2, 3, 4)) },
			want: map[Token]int16{beatOfB: ErrRebalanceInProgress},
		},
		"nothing where a plan changes nothing": {do: func(h *holdingGroup) { h.plan(2, h.pod(0, 0, 1), h.pod(1, 2, 3)) }},
		"nothing where another client comes that gets nothing": {
			do: func(h *holdingGroup) {
				h.join("z")
				h.sync("z")
			},
		},
		"to join again where another client comes that shares the pod": {
			do: func(h *holdingGroup) {
				in := Join{
					Client: h.client("a"), NewMemberID: "a2", SessionTimeout: 9 * time.Second, ProtocolType: "consumer",
					Protocols: []Protocol{{Name: "range"}}, Subscription: &Subscription{Topics: []string{"orders"}},
				}
				in.Client.MemberID = ""
				h.step(in)
			},
			want: map[Token]int16{beatOfA: ErrRebalanceInProgress},
		},
		"that the member is unknown when its pod was replaced": {
			do: func(h *holdingGroup) {
				again := h.pod(0, 0, 1)
				again.UID = "new"
				h.plan(2, again, h.pod(1, 2, 3))
			},
			want: map[Token]int16{beatOfA: ErrUnknownMemberID},
		},
		"that the member is unknown when it was removed": {
			do:   func(h *holdingGroup) { h.step(Leave{Members: []Client{{MemberID: "a"}}}) },
			want: map[Token]int16{beatOfA: ErrUnknownMemberID},
		},
		"to all to join again when the group is no longer managed": {
			do:   func(h *holdingGroup) { h.step(Plan{}) },
			want: map[Token]int16{beatOfA: ErrRebalanceInProgress, beatOfB: ErrRebalanceInProgress},
		},
		"success when it is released": {
			do:   func(h *holdingGroup) { h.step(Release{MemberID: "a", Token: beatOfA}) },
			want: map[Token]int16{beatOfA: ErrNone},
		},
		"nothing when another heartbeat is released": {
			do: func(h *holdingGroup) {
				h.step(Release{MemberID: "a", Token: beatOfB})
				h.step(Release{MemberID: "nobody", Token: beatOfA})
			},
		},
		"success when the member sends another": {
			do:   func(h *holdingGroup) { h.beat("a", beatOfA+1, 3*time.Second) },
			want: map[Token]int16{beatOfA: ErrNone},
		},
		"success when the member joins again": {
			do:   func(h *holdingGroup) { h.join("a") },
			want: map[Token]int16{beatOfA: ErrNone},
		},
		"success when the member's connection closes": {
			do:   func(h *holdingGroup) { h.step(Disconnect{MemberID: "a"}) },
			want: map[Token]int16{beatOfA: ErrNone},
		},
		"nothing when the member commits": {
			do: func(h *holdingGroup) {
				h.step(Commit{Client: h.client("a"), Generation: 1, Offsets: []OffsetCommit{{Topic: "orders", Offset: 5}}})
			},
		},
		"nothing when somebody's heartbeat is not of the group": {do: func(h *holdingGroup) { h.step(Heartbeat{Client: h.client("nobody"), Generation: 1}) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHoldingGroup(t)
			h.hold()
			test.do(h)
			h.answered(test.want)
		})
	}
}

func TestAHeldHeartbeatOfAStaticMemberIsFencedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHoldingGroup(t)
	h.plan(2, h.pod(0, 0, 1), h.pod(1, 2, 3), h.pod(2, 4))
	static := func(id string) Join {
		return Join{
			Client: Client{InstanceID: "one", Host: "10.0.0.2"}, NewMemberID: id, SessionTimeout: 9 * time.Second, ProtocolType: "consumer",
			Protocols: []Protocol{{Name: "range"}}, Subscription: &Subscription{Topics: []string{"orders"}},
		}
	}
	c := Client{MemberID: "c", InstanceID: "one"}
	h.step(static("c"))
	h.step(Sync{Client: c, Generation: 2})
	h.answered(nil)
	h.step(Heartbeat{Token: 300, Client: c, Generation: 2, Hold: time.Second})
	h.answered(nil)
	h.step(static("d"))
	h.answered(map[Token]int16{300: ErrFencedInstanceID})
}

func TestSomeHeartbeatsAreNotHeld(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before func(h *holdingGroup)
		hold   time.Duration
		want   int16
	}{
		"one that is not to be":               {},
		"one of a member that has not synced": {before: func(h *holdingGroup) { h.join("a") }, hold: time.Second},
		"one that has something to say": {
			before: func(h *holdingGroup) { h.plan(2, h.pod(0), h.pod(1, 2, 3)) }, hold: time.Second, want: ErrRebalanceInProgress,
		},
		"one of a group that is not managed": {
			before: func(h *holdingGroup) {
				h.step(Plan{})
				h.step(Leave{Members: []Client{{MemberID: "b"}}})
				h.join("a")
				h.sync("a")
				h.step(Sync{Client: h.client("a"), Generation: h.generation("a"), Assignments: map[string][]byte{"a": {1}}})
			},
			hold: time.Second,
		},
		"one of nobody": {before: func(h *holdingGroup) { h.step(Leave{Members: []Client{{MemberID: "a"}}}) }, hold: time.Second, want: ErrUnknownMemberID},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHoldingGroup(t)
			if test.before != nil {
				test.before(h)
			}
			h.answered(nil)
			h.beat("a", beatOfA, test.hold)
			h.answered(map[Token]int16{beatOfA: test.want})
		})
	}
}

func TestAHoldMasksNoDeath(t *testing.T) {
	t.Parallel()
	h := newHoldingGroup(t)
	start := h.now
	h.beat("a", beatOfA, time.Hour)
	if want := start.Add(3 * time.Second); !h.last.Deadline.Equal(want) {
		t.Errorf("it is held until %s, want %s, a third of the session", h.last.Deadline, want)
	}
	h.pass(3 * time.Second)
	h.answered(map[Token]int16{beatOfA: ErrNone})
	h.beat("b", beatOfB, 0)
	if want := start.Add(9 * time.Second); !h.last.Deadline.Equal(want) {
		t.Errorf("a's session ends at %s, want %s, as if it had not been held", h.last.Deadline, want)
	}
	h.pass(6*time.Second - 1)
	if h.g.members["a"] == nil {
		t.Error("a was removed before its session ended")
	}
	h.pass(1)
	if h.g.members["a"] != nil {
		t.Error("a is a member after its session ended")
	}
}

func TestAHeldHeartbeatIsAnsweredByTheTruthWhereTheClockHasJumped(t *testing.T) {
	t.Parallel()
	h := newHoldingGroup(t)
	h.hold()
	h.pass(time.Hour)
	h.answered(map[Token]int16{beatOfA: ErrUnknownMemberID, beatOfB: ErrUnknownMemberID})
}

// BenchmarkHeldHeartbeats holds and answers heartbeats of a group in which all members' are held.
func BenchmarkHeldHeartbeats(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("%d members", n), func(b *testing.B) {
			g, now := New("billing", Options{MaxMembers: n}), time.Unix(0, 0)
			plan := Plan{Managed: true, Generation: 1, HandoffTimeout: time.Minute}
			clients := make([]Client, n)
			for i := range clients {
				id := fmt.Sprintf("web-%d", i)
				clients[i] = Client{MemberID: id, ClientID: id}
				plan.Members = append(plan.Members, PlanMember{Pod: id, Alive: true, Share: []TopicPartitions{{"orders", []int32{int32(i)}}}})
			}
			g.Step(now, plan)
			for _, c := range clients {
				g.Step(now, Join{
					Client: Client{ClientID: c.ClientID}, NewMemberID: c.MemberID, SessionTimeout: 45 * time.Second, ProtocolType: "consumer",
					Protocols: []Protocol{{Name: "range"}}, Subscription: &Subscription{Topics: []string{"orders"}},
				})
				g.Step(now, Sync{Client: c, Generation: 1})
			}
			b.ResetTimer()
			for i := range b.N {
				now = now.Add(3 * time.Second / time.Duration(n))
				c := clients[i%n]
				g.Step(now, Tick{})
				g.Step(now, Heartbeat{Token: Token(i), Client: c, Generation: 1, Hold: 2900 * time.Millisecond})
			}
			if held := len(g.held.of); held == 0 && b.N > 1 {
				b.Error("no heartbeat is held")
			}
		})
	}
}
