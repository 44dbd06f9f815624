// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestASyncIsHeldUntilItsMemberIsGivenSomething follows the Sync of client c, which runs in pod web-2, beside a and b, which have all partitions.
func TestASyncIsHeldUntilItsMemberIsGivenSomething(t *testing.T) {
	t.Parallel()
	const sync Token = 300
	given := []TopicPartitions{{"orders", []int32{1}}}
	tests := map[string]struct {
		// steps are what happens after c's Sync; hold is how long it may be held.
		steps func(h *holdingGroup)
		hold  time.Duration
		// want is the answer; waits says that there is none.
		want    SyncReply
		wantErr int16
		waits   bool
	}{
		"it is answered at once where the server does not hold it": {steps: func(*holdingGroup) {}, want: SyncReply{Shared: true}},
		"its pod is no member yet":                                 {steps: func(*holdingGroup) {}, hold: 3 * time.Second, waits: true},
		"its pod is a member, and others have yet to let go": {
			steps: func(h *holdingGroup) { h.plan(2, h.pod(0, 0), h.pod(1, 2, 3), h.pod(2, 1)) }, hold: 3 * time.Second, waits: true,
		},
		"others have let go": {
			steps: func(h *holdingGroup) {
				h.plan(2, h.pod(0, 0), h.pod(1, 2, 3), h.pod(2, 1))
				h.join("a")
			},
			hold: 3 * time.Second, want: SyncReply{Shared: true, Share: given},
		},
		"one of two has let go": {
			steps: func(h *holdingGroup) {
				h.plan(2, h.pod(0, 0), h.pod(1, 2), h.pod(2, 1, 3))
				h.join("a")
				h.pass(gatherTime - time.Millisecond)
			},
			hold: 3 * time.Second, waits: true,
		},
		"one of two has let go, and the other one has not soon after": {
			steps: func(h *holdingGroup) {
				h.plan(2, h.pod(0, 0), h.pod(1, 2), h.pod(2, 1, 3))
				h.join("a")
				h.pass(gatherTime)
			},
			hold: 3 * time.Second, want: SyncReply{Shared: true, Share: given},
		},
		"both have let go": {
			steps: func(h *holdingGroup) {
				h.plan(2, h.pod(0, 0), h.pod(1, 2), h.pod(2, 1, 3))
				h.join("a")
				h.join("b")
			},
			hold: 3 * time.Second, want: SyncReply{Shared: true, Share: []TopicPartitions{{"orders", []int32{1, 3}}}},
		},
		"its pod is to read nothing": {
			steps: func(h *holdingGroup) { h.plan(2, h.pod(0, 0, 1), h.pod(1, 2, 3), h.pod(2)) }, hold: 3 * time.Second, waits: true,
		},
		"its pod stood by, and takes over": {
			steps: func(h *holdingGroup) {
				h.plan(2, h.pod(0, 0, 1), h.pod(1, 2, 3), h.pod(2))
				h.step(Leave{Members: []Client{{MemberID: "b"}}})
				h.plan(3, h.pod(0, 0, 1), h.pod(2, 2, 3))
			},
			hold: 3 * time.Second, want: SyncReply{Shared: true, Share: []TopicPartitions{{"orders", []int32{2, 3}}}},
		},
		"its time is over":               {steps: func(h *holdingGroup) { h.pass(3 * time.Second) }, hold: 3 * time.Second, want: SyncReply{Shared: true}},
		"a third of the session is over": {steps: func(h *holdingGroup) { h.pass(3 * time.Second) }, hold: time.Minute, want: SyncReply{Shared: true}},
		"another request follows": {
			steps: func(h *holdingGroup) { h.step(Release{MemberID: "c", Token: sync}) }, hold: 3 * time.Second, want: SyncReply{Shared: true},
		},
		"it joins again": {steps: func(h *holdingGroup) { h.join("c") }, hold: 3 * time.Second, want: SyncReply{Shared: true}},
		"a heartbeat by another connection changes nothing": {
			steps: func(h *holdingGroup) { h.beat("c", 301, 0) }, hold: 3 * time.Second, waits: true,
		},
		"it leaves": {
			steps: func(h *holdingGroup) { h.step(Leave{Members: []Client{{MemberID: "c"}}}) }, hold: 3 * time.Second, wantErr: ErrUnknownMemberID,
			want: SyncReply{Shared: true},
		},
		"the group is no longer managed": {
			steps: func(h *holdingGroup) { h.step(Plan{}) }, hold: 3 * time.Second, wantErr: ErrRebalanceInProgress,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHoldingGroup(t)
			h.join("c")
			var replies []Reply
			h.watch = func(r Reply) {
				if r.Token == sync {
					replies = append(replies, r)
				}
			}
			h.step(Sync{Token: sync, Client: h.client("c"), Generation: h.generation("c"), Hold: test.hold})
			test.steps(h)
			if test.waits {
				if len(replies) > 0 {
					t.Fatalf("it was answered: %+v", replies)
				}
				return
			}
			if len(replies) != 1 {
				t.Fatalf("%d answers, want one", len(replies))
			}
			got, _ := replies[0].Body.(SyncReply)
			got.ProtocolType, got.Protocol = "", ""
			if diff := cmp.Diff(test.want, got); diff != "" || replies[0].Err != test.wantErr {
				t.Errorf("error %d, want %d; (-want +got):\n%s", replies[0].Err, test.wantErr, diff)
			}
			if replies[0].Held != (test.hold > 0) {
				t.Errorf("held %t", replies[0].Held)
			}
		})
	}
}

// TestACooperativeMemberThatHasToLetGoIsNotHeld: its Sync is what tells it so.
func TestACooperativeMemberThatHasToLetGoIsNotHeld(t *testing.T) {
	t.Parallel()
	h := newHoldingGroup(t)
	h.plan(2, h.pod(0), h.pod(1, 2, 3), h.pod(2, 0, 1))
	h.join("a")
	join := Join{
		Token: 1, Client: Client{ClientID: "app", Host: "10.0.0.2"}, NewMemberID: "c", SessionTimeout: 9 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer",
		Protocols: []Protocol{{Name: "cooperative-sticky"}}, Subscription: &Subscription{Topics: []string{"orders"}},
	}
	h.step(join)
	h.sync("c")
	h.plan(3, h.pod(0, 0, 1), h.pod(1, 2, 3), h.pod(2))
	join.Token, join.Client.MemberID, join.NewMemberID, join.Subscription = 3, "c", "", &Subscription{Topics: []string{"orders"}, Owned: []TopicPartitions{{"orders", []int32{0, 1}}}}
	h.step(join)
	clear(h.answers)
	h.step(Sync{Token: 2, Client: h.client("c"), Generation: h.generation("c"), Hold: 3 * time.Second})
	h.answered(map[Token]int16{2: ErrNone})
}
