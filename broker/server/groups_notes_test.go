// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAMemberThatJoinsAndLeavesWithoutEndDoesNotFloodTheLog(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.dial()
	b.create("orders", 1)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = "g", 10_000, 10_000, "consumer"
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	join.Protocols = append(join.Protocols, protocol)
	eventually(t, func() error {
		if code := call[*kmsg.HeartbeatResponse](w, &kmsg.HeartbeatRequest{Group: "g", MemberID: "nobody"}, 3).ErrorCode; code != 25 { // UNKNOWN_MEMBER_ID
			return fmt.Errorf("the coordinator answers with error code %d", code)
		}
		return nil
	})
	const rounds = 200
	for range rounds {
		join.MemberID = ""
		joined := call[*kmsg.JoinGroupResponse](w, join, 3)
		if joined.ErrorCode != 0 {
			t.Fatalf("join: error code %d", joined.ErrorCode)
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = "g"
		leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: joined.MemberID}}
		if left := call[*kmsg.LeaveGroupResponse](w, leave, 3); left.ErrorCode != 0 {
			t.Fatalf("leave: error code %d", left.ErrorCode)
		}
	}
	if got := b.logs.count("left"); got == 0 || got > rounds/2 {
		t.Errorf("%d lines about %d members that left", got, rounds)
	}
}
